"""Sequences, which are lists, and optional values, which are None where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import (
    Array,
    OnnxError,
    Value,
    as_tensor,
    is_host,
    is_text,
)
from ridgeline.tensors.tensor import Tensor


def _construct(*inputs: Value) -> list[Value]:
    return list(inputs)


def _empty(dtype: int = 1) -> list[Value]:
    return []


def _at(input_sequence: Value, position: int) -> Value:
    length = len(input_sequence)
    if not -length <= position < length:
        raise OnnxError(f"the place {position} lies outside of a sequence of {length}")
    return input_sequence[position]


def _insert(input_sequence: Value, tensor: Value, position: int | None = None) -> list[Value]:
    place = len(input_sequence) if position is None else position
    place = place + len(input_sequence) if place < 0 else place
    return [*input_sequence[:place], tensor, *input_sequence[place:]]


def _erase(input_sequence: Value, position: int = -1) -> list[Value]:
    place = position % max(len(input_sequence), 1)
    return [*input_sequence[:place], *input_sequence[place + 1 :]]


def _length(input_sequence: Value) -> Array:
    return np.array(len(input_sequence), np.int64)


def _concat(input_sequence: Value, axis: int, new_axis: int = 0) -> Value:
    if all(is_host(each) and is_text(each) for each in input_sequence):
        return (np.stack if new_axis else np.concatenate)(input_sequence, axis)
    parts = [as_tensor(each) for each in input_sequence]
    return rl.stack(parts, axis) if new_axis else rl.cat(parts, axis)


def _split(input: Tensor, split: Array | None = None, axis: int = 0, keepdims: int = 1) -> Value:
    if split is None:
        parts = list(rl.split(input, 1, axis))
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    if split.ndim == 0:
        return list(rl.split(input, int(split), axis))
    return list(rl.split(input, [int(n) for n in split], axis))


def _map(input_sequence: Value, *others: Value, body: Any) -> tuple[list[Value], ...]:
    results: list[list[Value]] = [[] for _ in body.program.outputs]
    for number, each in enumerate(input_sequence):
        given = [other[number] if isinstance(other, list) else other for other in others]
        for held, value in zip(results, body(each, *given)):
            held.append(value)
    return tuple(results)


def _optional(input: Value = None, type: Any = None) -> Value:
    return input


def _get(input: Value = None) -> Value:
    if input is None:
        raise OnnxError("an optional value is empty")
    return input


def _has(input: Value = None) -> Array:
    return np.array(input is not None)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("SequenceConstruct", _construct),
    OperatorRow("SequenceEmpty", _empty),
    OperatorRow("SequenceAt", _at),
    OperatorRow("SequenceInsert", _insert),
    OperatorRow("SequenceErase", _erase),
    OperatorRow("SequenceLength", _length),
    OperatorRow("ConcatFromSequence", _concat),
    OperatorRow("SplitToSequence", _split),
    OperatorRow("SequenceMap", _map),
    OperatorRow("Optional", _optional),
    OperatorRow("OptionalGetElement", _get),
    OperatorRow("OptionalHasElement", _has),
)
