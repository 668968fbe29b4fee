"""Random numbers; a seed among the attributes makes a generator of its own."""

from __future__ import annotations

import struct
from typing import Any

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.onnx.operators.elements import element_type
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints
from ridgeline.random import Generator
from ridgeline.tensors.tensor import Tensor


def _generator(seed: float | None) -> Generator | None:
    if seed is None:
        return None
    made = Generator()
    made.manual_seed(struct.unpack("<I", struct.pack("<f", seed))[0])
    return made


def _normal_of(shape: Any, kind: DType, mean: float, scale: float, seed: float | None) -> Tensor:
    drawn = rl.randn(*shape, generator=_generator(seed))
    return (drawn * scale + mean).to(kind)


def _uniform_of(shape: Any, kind: DType, low: float, high: float, seed: float | None) -> Tensor:
    drawn = rl.rand(*shape, generator=_generator(seed))
    return (drawn * (high - low) + low).to(kind)


def _normal(
    shape: Ints, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _normal_of(shape, element_type(dtype), mean, scale, seed)


def _normal_like(
    input: Tensor, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    kind = input.dtype if dtype is None else element_type(dtype)
    return _normal_of(input.shape, kind, mean, scale, seed)


def _uniform(
    shape: Ints, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    return _uniform_of(shape, element_type(dtype), low, high, seed)


def _uniform_like(
    input: Tensor, dtype: int | None = None, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    kind = input.dtype if dtype is None else element_type(dtype)
    return _uniform_of(input.shape, kind, low, high, seed)


def _bernoulli(input: Tensor, dtype: int | None = None, seed: float | None = None) -> Tensor:
    kind = input.dtype if dtype is None else element_type(dtype)
    drawn = rl.rand(*input.shape, generator=_generator(seed))
    return (drawn.to(input.dtype) < input).to(kind)


def _multinomial(
    input: Tensor, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    chances = rl.softmax(input, -1)
    drawn = rl.multinomial(chances, sample_size, True, generator=_generator(seed))
    return drawn.to(element_type(dtype))


def _dropout(
    data: Tensor, ratio: float = 0.5, training_mode: bool = False, seed: int | None = None,
    outputs: int = 1,
) -> Any:  # fmt: skip
    if not training_mode or ratio == 0:
        kept = rl.ones(*data.shape, dtype=dtypes.bool_)
        return data if outputs == 1 else (data, kept)
    drawn = rl.rand(*data.shape, generator=_generator(None if seed is None else float(seed)))
    kept = drawn >= ratio
    result = rl.where(kept, data / (1 - ratio), rl.zeros_like(data))
    return result if outputs == 1 else (result, kept)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("RandomNormal", _normal),
    OperatorRow("RandomNormalLike", _normal_like),
    OperatorRow("RandomUniform", _uniform),
    OperatorRow("RandomUniformLike", _uniform_like),
    OperatorRow("Bernoulli", _bernoulli),
    OperatorRow("Multinomial", _multinomial),
    OperatorRow("Dropout", _dropout),
)
