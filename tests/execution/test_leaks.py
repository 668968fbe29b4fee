"""Nothing grows: buffers, nodes, traces and programs over many steps and many traces."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from benchmarks.frontend import trainer
from ridgeline.compiler import program
from ridgeline.execution import tiers
from ridgeline.graph import node
from ridgeline.runtime.buffer import pool
from ridgeline.tracing.report import MOST_REASONS
from ridgeline.weak import Recent


def counts() -> tuple[int, int]:
    gc.collect()
    return pool.in_use, len(node._table)


@pytest.mark.parametrize("wrap", [rl.jit, lambda f: f], ids=["jit", "deferred"])
def test_steps_leave_nothing_behind(wrap: Callable[..., Any]) -> None:
    step = wrap(trainer())
    for _ in range(30):
        step()
    before = counts()
    for _ in range(300):
        step()
    after = counts()
    assert after[0] == before[0]
    assert after[1] <= before[1] + 200  # expressions over learning rates and step counts


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [rl.jit, lambda f: f], ids=["jit", "deferred"])
def test_ten_thousand_steps_leave_nothing_behind(wrap: Callable[..., Any]) -> None:
    step = wrap(trainer())
    with rl.config.override(tier="compiled"):  # not only once it is worth it
        for _ in range(100):
            step()
        before, objects = counts(), len(gc.get_objects())
        for _ in range(10_000):
            step()
        after = counts()
    assert after[0] == before[0]
    assert after[1] <= before[1] + 200
    assert len(gc.get_objects()) <= objects + 1000


@pytest.mark.slow
def test_a_thousand_traces_leave_nothing_behind() -> None:
    step = trainer()
    traced = rl.jit(lambda word: step())
    for number in range(64):
        traced(f"word {number}")
    before, objects = counts(), len(gc.get_objects())
    for number in range(64, 1064):
        traced(f"word {number}")
    after = counts()
    assert traced.traces == 1064
    assert after[0] <= before[0] and after[1] <= before[1] + 200
    assert len(gc.get_objects()) <= objects + 2000


def test_a_loop_of_scans_leaves_nothing_behind() -> None:
    w = rl.ones(3, requires_grad=True)

    def step() -> None:
        rl.scan(lambda c, x: (c * w + x, c), rl.zeros(3), rl.ones(4, 3))[1].sum().backward()
        assert w.grad is not None and w.grad[0].item() == 4.0
        w.grad = None

    for _ in range(10):
        step()
    before = counts()
    for _ in range(50):
        step()
    assert counts() == before


def test_functional_gradients_are_one_structure() -> None:
    """Tags in the graph have numbers of their own, which must not make every step a new one."""
    gradient = rl.grad(lambda w, x: ((x * w).sin() ** 2).sum())
    w = rl.tensor(np.ones(3, np.float32))
    for _ in range(3):
        w = w - 0.1 * gradient(w, rl.tensor(np.ones(3, np.float32)))
        w.tolist()
    before = len(tiers._pieces)
    for _ in range(5):
        w = w - 0.1 * gradient(w, rl.tensor(np.ones(3, np.float32)))
        w.tolist()
    assert len(tiers._pieces) == before


def test_old_traces_go_away() -> None:
    rl.config.tier = "interpreter"
    try:
        f = rl.jit(lambda x, k: x * int(k) + 1)  # no trace stands for two texts
        f(rl.ones(2), "0")
        first = weakref.ref(f._traces[0])
        for k in range(1, MOST_REASONS + 50):
            f(rl.ones(2), str(k))
        gc.collect()
        assert first() is None and len(f._traces) <= 32
        assert len(f.history) == MOST_REASONS and f.traces == MOST_REASONS + 50
    finally:
        rl.config.tier = "auto"


def test_programs_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_programs", Recent(3, 1 << 14))
    for k in range(6):
        assert rl.jit(lambda x, k: x + k)(rl.ones(2), k).tolist() == [1 + k] * 2
        assert len(program._programs) <= 3


def test_what_a_traced_function_drops_is_no_result_of_its_program() -> None:
    def pair(x: rl.Tensor) -> list[rl.Tensor]:
        return [x + 1, (x * 2).exp()]

    @rl.jit
    def first(x: rl.Tensor) -> rl.Tensor:
        left, _ = pair(x)
        return left + pair(x)[0]

    assert first(rl.ones(3)).tolist() == [4.0] * 3
    (trace,) = first._traces
    assert not trace.recording.effects.writes and len(trace.executable.output_types) == 1
