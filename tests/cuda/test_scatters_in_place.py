"""Scatters in the memory of what they change: a cache of keys stays where it is, uncopied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.cuda import compile_all, generate
from ridgeline.loops.analysis.aliasing import copies_itself, in_place
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.ops.gather import scatter
from ridgeline.schedules.gpu.machine import H200
from tests.cuda.lowering import schedule
from tests.cuda.programs import given

from .fake_code import FakeCode


def _address(tensor: rl.Tensor) -> int:
    """Where a tensor lies; nothing is held afterwards, since what is held is not overwritten."""
    buffer = tensor._cell.node.buffer
    return int(buffer.address if tensor.device == "cpu" else buffer.device_address)


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_state_that_is_written_at_places_stays_where_it_is(fake_code: FakeCode, place: str) -> None:
    cache = rl.zeros(3, 40, 64, device=place)
    wanted = np.zeros((3, 40, 64), np.float32)
    rng = np.random.default_rng(0)

    @rl.jit
    def step(x: rl.Tensor, at: rl.Tensor) -> rl.Tensor:
        cache.index_copy_(1, at.reshape(1), x)
        return cache.sum()

    addresses = []
    for n in range(6):
        x = rng.standard_normal((3, 1, 64)).astype(np.float32)
        wanted[:, n : n + 1] = x
        found = step(rl.tensor(x, device=place), rl.tensor(n))
        np.testing.assert_allclose(float(found), wanted.sum(), rtol=1e-4)
        np.testing.assert_array_equal(cache.cpu().numpy(), wanted)
        addresses.append(_address(cache))
    assert len(set(addresses[1:])) == 1  # the first call may take it over


def test_what_somebody_else_holds_is_left_alone(fake_code: FakeCode) -> None:
    cache = rl.zeros(4, 32, device="cuda:0")

    @rl.jit
    def step(x: rl.Tensor, at: rl.Tensor) -> None:
        cache.index_add_(0, at, x)

    ones, at = rl.ones(2, 32, device="cuda:0"), rl.tensor([1, 1], device="cuda:0")
    step(ones, at)
    held = cache.detach() * 1
    view = cache.clone()
    step(ones, at)
    assert held[1, 0].item() == 2 == view[1, 0].item() and cache[1, 0].item() == 4


@pytest.mark.parametrize("mode", ["set", "add", "max"])
def test_the_kernel_is_right_in_place_and_apart(mode: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    base, new = given(dtypes.float32, 40, 64), given(dtypes.float32, 5, 64)
    at = given(dtypes.int64, 5)
    (made,) = schedule([scatter(base, new, (at,), (0,), mode)], [base, new, at], H200)
    slots = {node: number for number, node in enumerate(made.lowered.slots)}
    written = len(slots) - 1
    kernel, found = in_place(made.kernel, {written: slots[base]})
    assert found == {written: slots[base]}
    text = generate(kernel).text
    assert "!= (const void *)" in text
    assert compile_all([text], "sm_90a")[0].startswith(b"\x7fELF")
    rng = np.random.default_rng(1)
    values: dict[Any, Any] = {
        base: rng.integers(-9, 9, (40, 64)).astype(np.float32),
        new: rng.integers(-9, 9, (5, 64)).astype(np.float32),
        at: np.array([3, 7, 3, 39, 0]),
    }
    memory = {slots[node]: value.copy() for node, value in values.items()}
    interpret(kernel, memory, {})
    wanted = values[base].copy()
    rows = values[at]
    if mode == "set":
        for row, line in zip(rows, values[new]):
            wanted[row] = line
    else:
        (np.add if mode == "add" else np.maximum).at(wanted, rows, values[new])
    np.testing.assert_array_equal(memory[slots[base]].reshape(40, 64), wanted)


def test_only_whole_copies_to_the_same_place_count() -> None:
    base, new = given(dtypes.float32, 40, 64), given(dtypes.float32, 5, 64)
    at = given(dtypes.int64, 5)
    (made,) = schedule([scatter(base + 1, new, (at,), (0,), "set")], [base, new, at], H200)
    slots = {node: number for number, node in enumerate(made.lowered.slots)}
    kernel, found = in_place(made.kernel, {len(slots) - 1: slots[base]})
    assert not found and copies_itself(kernel.body) is None
