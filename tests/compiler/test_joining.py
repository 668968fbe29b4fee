"""Kernels that are started as one: in an order that stands, none waiting for another."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

import ridgeline as rl
from ridgeline import nn
from ridgeline.codegen.cuda import compile_all
from ridgeline.codegen.cuda.horizontal_fusion import FusedCall, join_key, joined
from ridgeline.compiler import lay_out, lower_graph
from ridgeline.compiler.lowering import Joiner
from ridgeline.compiler.memory_plan import JoinedCall, from_text, to_text
from ridgeline.dtypes import float32
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.ops.elementwise import apply
from ridgeline.runtime.cuda import cublaslt
from ridgeline.schedules.gpu.machine import H200
from ridgeline.tracing import trace
from tests.cuda.stated import StatedGpu


@st.composite
def programs(
    draw: st.DrawFn,
) -> tuple[list[FusionGroup], dict[int, frozenset[int]], dict[int, Any]]:
    count = draw(st.integers(1, 12))
    groups, needs, keys = [], {}, {}
    for number in range(count):
        needs[number] = frozenset(
            draw(st.sets(st.integers(0, number - 1)) if number else st.just(()))
        )
        keys[number] = draw(st.sampled_from([None, "a", "b"]))
        written = leaf(TensorType((4,), float32))
        groups.append(FusionGroup(number, (written,), frozenset(), 0.0, None))
    return groups, needs, keys


@given(programs(), st.integers(1, 5))
def test_order_and_independence(program: Any, most: int) -> None:
    groups, needs, keys = program
    joiner = Joiner(needs, lambda g: keys[g.number], lambda parts: len(parts) <= most, 1e9)
    joiner.run(groups, set())
    order = [group.number for group in joiner.order]
    assert sorted(order) == list(range(len(groups)))
    place = {number: at for at, number in enumerate(order)}
    for places in joiner.joined:
        members = [order[at] for at in places]
        assert list(places) == list(range(places[0], places[0] + len(places)))
        assert 2 <= len(members) <= most and len({keys[m] for m in members}) == 1
        for member in members:  # what a member waits for has run before all of them
            assert all(place[before] < places[0] for before in needs[member])
    assert all(place[b] < place[n] for n in needs for b in needs[n])


def test_what_would_keep_much_memory_runs_at_once() -> None:
    big = leaf(TensorType((1000,), float32))
    first = FusionGroup(0, (big,), frozenset(), 0.0, None)
    others = [FusionGroup(n, (leaf(big.type),), frozenset({big}), 0.0, None) for n in (1, 2)]
    needs = {0: frozenset[int](), 1: frozenset({0}), 2: frozenset({0})}
    for limit, expected in ((100.0, 0), (4000.0, 1)):
        joiner = Joiner(needs, lambda g: "a" if g.number else None, lambda parts: True, limit)
        joiner.run([first, *others], set())
        assert len(joiner.joined) == expected


def _chains(written: Any) -> tuple[list[FusionGroup], dict[int, frozenset[int]]]:
    """Three kernels that read one value, each followed by work of its own."""
    values = [leaf(TensorType((4,), float32)), *(leaf(written) for _ in range(6))]
    reads = [(), (0,), (1,), (0,), (3,), (0,), (5,)]
    groups = [
        FusionGroup(n, (values[n],), frozenset(values[r] for r in read), 0.0, None)
        for n, read in enumerate(reads)
    ]
    return groups, {n: frozenset(read) for n, read in enumerate(reads)}


def test_what_is_ready_starts_with_what_is_wanted() -> None:
    groups, needs = _chains(TensorType((4,), float32))
    joiner = Joiner(
        needs, lambda g: "ab"[g.number % 2] if g.number else None, lambda parts: True, 99
    )
    joiner.run(groups, set())
    assert [g.number for g in joiner.order] == [0, 1, 3, 5, 2, 4, 6]
    assert joiner.joined == [(1, 2, 3), (4, 5, 6)]


def test_what_would_be_kept_for_long_is_not_started_early() -> None:
    groups, needs = _chains(TensorType((1000,), float32))
    joiner = Joiner(
        needs, lambda g: "ab"[g.number % 2] if g.number else None, lambda parts: True, 99
    )
    joiner.run(groups, set())
    assert [g.number for g in joiner.order] == [*range(7)]


class _Captured(Exception):
    pass


def step_of(layers: int, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The stages and the layout of a step with Adam, for a stated GPU."""
    patch.setattr(cublaslt, "library", lambda: object())
    model = nn.Sequential(*[nn.Linear(24, 24) for _ in range(layers)])
    optimizer = rl.optim.Adam(model.parameters(), lr=0.1)

    @rl.jit
    def step(x: rl.Tensor) -> None:
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()

    step(rl.ones(8, 24))
    found: list[Any] = []

    def keep(graph: Graph, pairs: Any) -> None:
        found.append((graph, pairs))
        raise _Captured

    patch.setattr(trace, "program_for", keep)
    step.clear()
    with pytest.raises(_Captured):
        step(rl.ones(8, 24))
    graph, pairs = found[0]
    target = StatedGpu()
    stages = lower_graph(graph, target=target, pairs=pairs)
    return stages, lay_out(stages, target)


def test_updates_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    stages, layout = step_of(6, monkeypatch)
    calls = [call for call in layout.calls if isinstance(call, JoinedCall)]
    assert max(len(call.parts) for call in calls) >= 5  # all weights but the first, or more
    assert len(layout.calls) < len(stages.kernels)
    assert from_text(to_text(layout), StatedGpu.launch_types) == layout
    for call, parts in zip(calls, stages.together):
        assert call.parts == tuple(part.kernel.name for part in parts)
        assert len(set(call.slots)) == len(call.slots)


def test_a_joined_launch_compiles_and_shares_out_its_blocks() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    values = [leaf(TensorType((size,), float32)) for size in (700, 700, 5)]
    outputs = [apply("exp", value) for value in values]
    kernels = []
    for output, value in zip(outputs, values):
        (made,) = lower_graph(Graph([output], [value]), target=StatedGpu()).kernels
        kernels.append(made.kernel)
    assert kernels[0] == kernels[1] and {join_key(kernel) for kernel in kernels} == {(0,)}
    source = joined([FusedCall(kernel, (2 * n, 2 * n + 1)) for n, kernel in enumerate(kernels)])
    (launch,) = source.launches
    first = _table(source.text, "part_first")
    arguments = _table(source.text, "part_arguments")
    assert first[0] == 0 and launch.blocks() > first[-1] and sorted(first) == first
    assert sorted(arguments) == list(range(6)) and len(_table(source.text, "part_kind")) == 3
    for arch in ("sm_80", "sm_90a"):
        (code,) = compile_all([source.text], arch)
        assert code.startswith(b"\x7fELF")


def _table(text: str, name: str) -> list[int]:
    found = re.search(rf"{name}\[\] = {{(.*?)}}", text)
    assert found is not None
    return [int(number) for number in found.group(1).split(",")]


def test_parameters_that_are_too_many_for_one_launch() -> None:
    value = leaf(TensorType((8,), float32))
    (made,) = lower_graph(Graph([apply("exp", value)], [value]), target=StatedGpu()).kernels
    target = StatedGpu(replace(H200, parameter_bytes=24)).horizontal_fusion()
    assert target.fits([made])
    other = leaf(TensorType((8,), float32))
    (more,) = lower_graph(Graph([apply("exp", other)], [other]), target=StatedGpu()).kernels
    assert not target.fits([made, more])
