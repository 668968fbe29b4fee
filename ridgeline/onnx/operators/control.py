"""If, Loop and Scan: Python's control flow where a condition is known, ours where it is data."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import (
    Ints,
    OnnxError,
    Value,
    as_bool,
    as_host,
    as_int,
    as_tensor,
    is_host,
    is_tracing,
)
from ridgeline.tensors.tensor import Tensor

MOST_TURNS = 10_000_000
MOST_WRITTEN_OUT = 16  # turns of a scan; more are a loop of the program


def _is_open(value: Value) -> bool:
    """True for a value that `jit` does not have yet."""
    return isinstance(value, Tensor) and is_tracing()


def _if(cond: Value, then_branch: Any, else_branch: Any) -> tuple[Value, ...]:
    if _is_open(cond):
        sides = [
            lambda chosen=chosen: tuple(map(as_tensor, chosen()))
            for chosen in (then_branch, else_branch)
        ]
        return tuple(rl.cond(cond.reshape(()), *sides))
    return tuple(then_branch() if as_bool(cond) else else_branch())


def _loop(m: Value = None, cond: Value = None, *carried: Value, body: Any) -> tuple[Value, ...]:
    """What is carried, and what each turn adds to lists of results."""
    if _is_open(m) or _is_open(cond):
        return _while(m, cond, carried, body)
    most = MOST_TURNS if m is None else as_int(m)
    alive = cond is None or as_bool(cond)
    states: list[Value] = list(carried)
    count = len(body.program.outputs) - 1 - len(states)
    rows: list[list[Value]] = [[] for _ in range(count)]
    turn = 0
    while alive and turn < most:
        again, *results = body(np.array(turn, np.int64), np.array(True), *states)
        if _is_open(again):
            if turn or count:
                raise OnnxError("how often a loop turns depends on data, which jit does not have")
            return _while(m, cond, carried, body)
        alive = as_bool(again)
        states = results[: len(states)]
        for row, value in zip(rows, results[len(states) :]):
            row.append(value)
        turn += 1
    return (*states, *map(_stacked, rows))


def _stacked(row: list[Value]) -> Value:
    if not row:
        return rl.zeros(0)
    if all(is_host(each) for each in row):
        return np.stack(row)
    return rl.stack([as_tensor(each) for each in row])


def _while(m: Value, cond: Value, carried: tuple[Value, ...], body: Any) -> tuple[Value, ...]:
    """A loop inside the program, since data say how often it turns."""
    if len(body.program.outputs) - 1 != len(carried):
        raise OnnxError("a loop whose turns depend on data gathers results, which jit cannot hold")
    most = as_tensor(np.array(MOST_TURNS)) if m is None else as_tensor(m).reshape(())
    alive = as_tensor(np.array(True)) if cond is None else as_tensor(cond).reshape(())

    def goes_on(turn: Tensor, again: Tensor, *states: Tensor) -> Tensor:
        return rl.logical_and(again, turn < most)

    def turn_once(turn: Tensor, again: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        further, *results = body(turn, again, *states)
        made = map(as_tensor, results)
        return (turn + 1, as_tensor(further).reshape(()), *made)

    start = (as_tensor(np.array(0)), alive, *map(as_tensor, carried))
    found = rl.while_loop(lambda c: goes_on(*c), lambda c: turn_once(*c), start)
    return tuple(found[2:])


def _turns(states: list[Value], rows: list[Tensor], body: Any) -> tuple[list[Value], list[Tensor]]:
    """The last states, and what all turns gave: written out where there are few."""
    count = len(states)
    if rows[0].shape[0] > MOST_WRITTEN_OUT:

        def step(carried: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> Any:
            found = tuple(map(as_tensor, body(*carried, *given)))
            return found[:count], found[count:]

        last, gathered = rl.scan(step, tuple(map(as_tensor, states)), tuple(rows))
        return list(last), list(gathered)
    results: list[list[Value]] = [[] for _ in range(len(body.program.outputs) - count)]
    for turn in range(int(rows[0].shape[0])):
        found = body(*states, *(row[turn] for row in rows))
        states = found[:count]
        for held, value in zip(results, found[count:]):
            held.append(value)
    return states, [as_tensor(_stacked(held)) for held in results]


def _scan(
    *given: Value, body: Any, num_scan_inputs: int, scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None, scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """A body along an axis of its inputs, with states between the turns."""
    count = len(given) - num_scan_inputs
    states, inputs = list(given[:count]), [as_tensor(each) for each in given[count:]]
    axes = scan_input_axes or [0] * num_scan_inputs
    backwards = scan_input_directions or [0] * num_scan_inputs
    rows = []
    for x, axis, back in zip(inputs, axes, backwards):
        moved = rl.movedim(x, axis, 0)
        rows.append(rl.flip(moved, (0,)) if back else moved)
    states, results = _turns(states, rows, body)
    out_axes = scan_output_axes or [0] * len(results)
    out_back = scan_output_directions or [0] * len(results)
    gathered = []
    for held, axis, back in zip(results, out_axes, out_back):
        whole = rl.flip(held, (0,)) if back else held
        gathered.append(rl.movedim(whole, 0, axis))
    return (*states, *gathered)


def _scan_8(
    sequence_lens: Value = None, *given: Value, body: Any, num_scan_inputs: int,
    directions: Ints | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """As version 8 has it: one scan for each entry of a batch."""
    count = len(given) - num_scan_inputs
    batch = int(as_tensor(given[0]).shape[0])
    lengths = None if sequence_lens is None else as_host(sequence_lens)
    rows = []
    for number in range(batch):
        own = [as_tensor(each)[number] for each in given]
        if lengths is not None:
            own[count:] = [each[: int(lengths[number])] for each in own[count:]]
        rows.append(
            _scan(*own, body=body, num_scan_inputs=num_scan_inputs,
                  scan_input_directions=directions)
        )  # fmt: skip
    return tuple(rl.stack([as_tensor(each) for each in column]) for column in zip(*rows))


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("If", _if),
    OperatorRow("Loop", _loop),
    OperatorRow("Scan", _scan_8, 1, 8),
    OperatorRow("Scan", _scan, 9),
)
