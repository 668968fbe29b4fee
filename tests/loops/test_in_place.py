"""Results over the memory of what a kernel reads: allowed where every element is read first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler import lower_graph
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.graph.graph import Graph
from ridgeline.loops.analysis.aliasing import in_place
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import For, If, Kernel, Reduce, Seq, Stmt, Store
from ridgeline.runtime.cpu.backend import CpuBackend
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.tracing import trace
from tests.cuda.lowering import SMALL_GPU
from tests.cuda.stated import StatedGpu
from tests.loops.kernels import at, c, param, register, v
from tests.loops.validation import memory_for, run_native

X, Y, Z = param("x", (6, 4), 0), param("y", (6, 4), 1), param("z", (6, 4), 2)
ROW, COLUMN = v("i"), v("j")


def nest(*body: Stmt, extents: tuple[int, int] = (6, 4)) -> Stmt:
    return For("i", c(extents[0]), For("j", c(extents[1]), Seq(body)))


def kernel(body: Stmt) -> Kernel:
    return Kernel("k", (X, Y, Z), (), body)


def shared(body: Stmt) -> bool:
    """Whether y may lie over x."""
    return bool(in_place(kernel(body), {1: 0})[1])


def test_the_same_element() -> None:
    assert shared(nest(Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN) * at(X, ROW, COLUMN))))
    assert shared(
        nest(
            Store(Z, (ROW, COLUMN), at(X, ROW, COLUMN)), Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN))
        )
    )


def test_a_load_behind_the_store() -> None:
    assert not shared(
        nest(
            Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN)), Store(Z, (ROW, COLUMN), at(X, ROW, COLUMN))
        )
    )
    first, second = (
        nest(Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN))),
        nest(Store(Z, (ROW, COLUMN), at(X, ROW, COLUMN))),
    )
    assert not shared(Seq((first, second)))
    assert shared(Seq((second, first)))


def test_another_element() -> None:
    assert not shared(nest(Store(Y, (ROW, COLUMN), at(X, ROW, c(3) - COLUMN))))
    assert not shared(nest(Store(Y, (ROW, COLUMN), at(X, c(0), COLUMN))))


def test_a_row_that_is_read_before_it_is_written() -> None:
    def over(*before: Stmt) -> bool:
        written = For("j", c(4), Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN)))
        return shared(For("i", c(6), Seq((*before, written))))

    total = register("t")
    other = For("k", c(4), Reduce((total,), (), "sum", (at(X, ROW, v("k")),)))
    assert over(other) and over(Store(Z, (ROW, c(0)), at(X, ROW, c(3))))
    assert over(For("k", c(4), Store(Z, (ROW, v("k")), at(X, ROW, c(3) - v("k")))))
    assert not over(Store(Z, (ROW, c(0)), at(X, c(3), c(0))))  # of another row
    assert not over(For("k", c(4), Store(Z, (ROW, v("k")), at(X, v("k"), v("k")))))
    behind = For("i", c(6), Seq((
        For("j", c(4), Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN))),
        Store(Z, (ROW, c(0)), at(X, ROW, c(3))),
    )))  # fmt: skip
    assert not shared(behind)


def test_elements_stored_twice() -> None:
    doubled = at(X, ROW, COLUMN) + at(X, ROW, COLUMN)
    assert not shared(For("k", c(2), nest(Store(Y, (ROW, COLUMN), doubled))))
    # a copy to the same place changes nothing, however often it is made
    assert shared(For("k", c(2), nest(Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN)))))
    assert not shared(nest(Reduce((Y,), (ROW, COLUMN), "sum", (at(X, ROW, COLUMN),))))


def test_parts_of_a_range_that_do_not_meet() -> None:
    doubled = at(X, ROW, COLUMN) + at(X, ROW, COLUMN)
    each = For("j", c(4), Store(Y, (ROW, COLUMN), doubled))
    parts = If(c(4) > ROW, each), If(c(3) < ROW, each)
    assert shared(For("i", c(6), Seq(parts)))
    assert not shared(For("i", c(6), Seq((*parts, parts[0]))))


class _Captured(Exception):
    pass


def step_kernels(
    optimizer: str, facts: Any, patch: pytest.MonkeyPatch, **options: Any
) -> list[CompiledKernel]:
    """The kernels of a training step that replace parameters and state."""
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 19), nn.ReLU(), nn.Linear(19, 3))
    chosen = getattr(rl.optim, optimizer)(model.parameters(), lr=0.1, **options)
    x = rl.ones(4, 5)

    @rl.jit
    def step(x: rl.Tensor) -> None:
        chosen.zero_grad()
        (model(x) ** 2).sum().backward()
        chosen.step()

    step(x)  # so that there is state to replace
    found: list[Any] = []

    def keep(graph: Graph, pairs: Any) -> None:
        found.append((graph, pairs))
        raise _Captured

    patch.setattr(trace, "program_for", keep)
    step.clear()
    with pytest.raises(_Captured):
        step(x)
    graph, pairs = found[0]
    target = StatedGpu(facts) if isinstance(facts, GpuMachine) else CpuBackend()
    stages = lower_graph(graph, target=target, pairs=pairs)
    state = [number for number in dict(pairs).values() if number >= 0]
    assert len(stages.in_place) == len(state)  # all of it
    return [k for k in stages.kernels if len({p.slot for p in k.kernel.params}) < len(k.values)]


@pytest.mark.parametrize("facts", [None, SMALL_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adagrad"])
def test_updates_in_place(optimizer: str, facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    kernels = step_kernels(optimizer, facts, monkeypatch, **options)
    assert kernels
    for compiled in kernels:
        plain = compiled.group.loops.kernel
        apart = memory_for(plain, {})
        for array in apart.values():
            np.abs(array, out=array)  # some are squares
        start = {slot: array.copy() for slot, array in apart.items()}
        interpret(plain, apart)
        slots = compiled.group.loops.slots
        merged = {p.slot for p in compiled.kernel.params}
        for order in ("program", "shuffled"):
            found = {slot: start[slot].copy() for slot in merged}
            interpret(compiled.kernel, found, order=order)  # type: ignore[arg-type]
            _compare(compiled, slots, found, apart)
        if facts is None:
            _compare(compiled, slots, run_native(compiled.kernel, {s: start[s] for s in merged}),
                     apart)  # fmt: skip


def _compare(compiled: CompiledKernel, slots: Any, found: Any, apart: Any) -> None:
    for view, value in zip(compiled.kernel.params, compiled.values):
        written = slots.index(value)
        if written >= compiled.group.loops.reads:
            np.testing.assert_allclose(found[view.slot], apart[written], rtol=2e-5, atol=1e-6)


def test_kernels_in_place_are_also_right_apart() -> None:
    body = nest(
        Store(Z, (ROW, COLUMN), at(X, ROW, COLUMN)),
        Store(Y, (ROW, COLUMN), at(X, ROW, COLUMN) + at(Z, ROW, COLUMN)),
    )
    made, found = in_place(kernel(body), {1: 0})
    assert found == {1: 0} and [p.slot for p in made.params] == [0, 0, 2]
    memory = {0: np.ones((6, 4), np.float32), 2: np.zeros((6, 4), np.float32)}
    interpret(made, memory)
    np.testing.assert_array_equal(memory[0], np.full((6, 4), 2.0))
