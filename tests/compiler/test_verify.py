"""The verifiers: what they refuse, and that a broken pass is the one that is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import pipeline
from ridgeline.compiler.memory_plan import lay_out, verify_layout
from ridgeline.compiler.passes import Compilation, Pass
from ridgeline.compiler.pipeline import LOWER, OPTIMIZE, compilation, lower, lower_graph, optimize
from ridgeline.compiler.stages import Stages
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf, proj
from ridgeline.graph.verify import VerifyError, verify_graph
from ridgeline.loops.build import map_children
from ridgeline.loops.ir import For, Kernel, Seq, Store
from ridgeline.loops.verify import verify_kernel
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import ROWS, add, cast, mul
from ridgeline.ops.movement import broadcast
from ridgeline.ops.reduce import sum_
from ridgeline.ops.sort import sort
from tests.compiler.programs import f32, softmax
from tests.loops.parser import parse_kernel


@pytest.fixture(autouse=True)
def _verifying() -> Any:
    with rl.config.override(verify=True):
        yield


# ---- graphs --------------------------------------------------------------------------------------


def forged(op: Any, inputs: list[Node], *types: TensorType) -> Node:
    """A node as no type rule would make it."""
    from ridgeline.graph.node import NO_ATTRS, _new

    return _new(op, tuple(inputs), NO_ATTRS, types)


def test_a_graph_that_is_right() -> None:
    x = f32(3, 4)
    verify_graph(Graph([softmax(x), proj(sort(x, 1)[0].inputs[0], 0)], [x]))


def broken_graphs() -> dict[str, Graph]:
    x, y = f32(3), f32(4)
    there = leaf(TensorType((3,), dtypes.float32, "cuda:0"))
    wide = TensorType((3,), dtypes.float64)
    pair = sort(x, 0)[0].inputs[0]
    return {
        "every leaf is an input": Graph([add(x, x)], [y]),
        "types are those of the op's rule": Graph([forged(ROWS["add"], [x, x], wide)], [x]),
        "operands lie on one device": Graph([forged(ROWS["add"], [x, there], x.type)], [x, there]),
        "an operand is one value": Graph([forged(ROWS["exp"], [pair], x.type)], [x]),
        "an output is one value": Graph([pair], [x]),
    }


@pytest.mark.parametrize("rule", list(broken_graphs()))
def test_a_graph_that_is_wrong(rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        verify_graph(broken_graphs()[rule])


# ---- kernels -------------------------------------------------------------------------------------

RIGHT = """
kernel sums(b0: float32[4, 6] @0, b1: float32[4] @1)
for i < 4 parallel:
  alloc acc0: float32[] reg
  acc0[] = 0.0
  for k < 6 reduce:
    acc0[] += b0[i, k]
  b1[i] = acc0[]
"""
WRONG = {
    "an index stays in bounds": ("b0[i, k]", "b0[i, k + 1]"),
    "memory is read after it is written": ("  acc0[] = 0.0\n  for k", "  b1[i] = acc0[]\n  for k"),
    "a join has a start": ("  acc0[] = 0.0\n", ""),
    "an element has one writer": ("b1[i] = acc0[]", "b1[0] = acc0[]"),
    "an index has an entry an axis": ("b1[i] = acc0[]", "b1[i, 0] = acc0[]"),
    "a variable is a loop around it": ("b0[i, k]", "b0[i, j]"),
    "loops that are nested have different names": (
        "    acc0[] += b0[i, k]\n",
        "    for k < 1 reduce:\n      acc0[] += b0[i, k]\n",
    ),
    "parallel loops stand outermost": (
        "  b1[i] = acc0[]",
        "  for v < 1 vector:\n    for j < 1 parallel:\n      b1[i] = acc0[]",
    ),
    "memory is read before it is overwritten": (
        "b1: float32[4] @1)\n",
        "b1: float32[4] @1, b2: float32[4, 6] @0)\nfor j < 4:\n  b2[j, 0] = 1.0\n",
    ),
}


def test_a_kernel_that_is_right() -> None:
    verify_kernel(parse_kernel(RIGHT))


@pytest.mark.parametrize("rule", WRONG)
def test_a_kernel_that_is_wrong(rule: str) -> None:
    old, new = WRONG[rule]
    assert old in RIGHT
    with pytest.raises(VerifyError, match=rule):
        verify_kernel(parse_kernel(RIGHT.replace(old, new)))


def test_a_join_of_iterations_that_run_at_one_time() -> None:
    text = "kernel all(b0: float32[4] @0, b1: float32[] @1)\nb1[] = 0.0\n"
    text += "for i < 4 parallel reduce:\n  b1[] += b0[i]\n"
    with pytest.raises(VerifyError, match="an element has one writer"):
        verify_kernel(parse_kernel(text))


def test_a_store_of_another_type() -> None:
    kernel = parse_kernel(RIGHT)

    def widen(statement: Any) -> Any:
        made = map_children(statement, widen)
        if isinstance(made, Store) and made.buffer.name == "b1":
            return replace(made, buffer=replace(made.buffer, dtype=dtypes.float64))
        return made

    wide = tuple(replace(b, dtype=dtypes.float64) if b.name == "b1" else b for b in kernel.params)
    with pytest.raises(VerifyError, match="a store is of the memory's type"):
        verify_kernel(replace(kernel, params=wide, body=widen(kernel.body)))


# ---- the pass that is to blame -------------------------------------------------------------------


def program() -> Graph:
    """A product, sums and a softmax, with a cut between kernels."""
    x, w = f32(8, 16), f32(16, 12)
    scores = softmax(matmul(x, w))
    total = sum_(mul(scores, scores), (0,))
    return Graph([mul(scores, broadcast(total, scores.shape, (1,))), total], [x, w])


def other_input(graph: Graph, to: Compilation) -> Graph:
    return Graph(graph.outputs, [*graph.inputs[1:], graph.inputs[0]])


def other_type(graph: Graph, to: Compilation) -> Graph:
    return graph.giving([cast(output, dtypes.float64) for output in graph.outputs])


def fewer_outputs(graph: Graph, to: Compilation) -> Graph:
    return graph.giving(graph.outputs[:1])


def unbound(graph: Graph, to: Compilation) -> Graph:
    first, *others = graph.outputs
    return graph.giving([add(first, leaf(first.type)), *others])


def backwards(stages: Stages, to: Compilation) -> Stages:
    groups = stages.fusion.groups[::-1]
    return replace(stages, fusion=replace(stages.fusion, groups=groups))


def twice(stages: Stages, to: Compilation) -> Stages:
    groups = [*stages.fusion.groups, stages.fusion.groups[-1]]
    return replace(stages, fusion=replace(stages.fusion, groups=groups))


def lost(stages: Stages, to: Compilation) -> Stages:
    groups = stages.fusion.groups[:-1]
    return replace(stages, fusion=replace(stages.fusion, groups=groups))


def with_body(change: Callable[[Any], Any]) -> Callable[[Stages, Compilation], Stages]:
    """A pass that changes the loops of every kernel."""

    def broken(kernel: Kernel) -> Kernel:
        return replace(kernel, body=change(kernel.body))

    def run(stages: Stages, to: Compilation) -> Stages:
        kernels = tuple(replace(k, kernel=broken(k.kernel)) for k in stages.kernels)
        return replace(stages, kernels=kernels)

    return run


def longer(statement: Any) -> Any:
    """Every loop runs once more."""
    made = map_children(statement, longer)
    return replace(made, extent=apply_index(made)) if isinstance(made, For) else made


def apply_index(loop: For) -> Any:
    from ridgeline.loops import ir

    return ir.index(int(loop.extent.value) + 1)  # type: ignore[attr-defined]


def without_stores(statement: Any) -> Any:
    """Accumulators are never started."""
    made = map_children(statement, without_stores)
    if isinstance(made, Store) and made.buffer.slot < 0:
        return Seq(())
    return made


def wrong_views(stages: Stages, to: Compilation) -> Stages:
    kernels = tuple(replace(k, values=k.values[::-1]) for k in stages.kernels)
    return replace(stages, kernels=kernels)


def early(stages: Stages, to: Compilation) -> Stages:
    """The first result lies over an input that is read later."""
    result = stages.fusion.groups[0].values[-1]
    return replace(stages, in_place={result: stages.graph.inputs[0]})


def joined(stages: Stages, to: Compilation) -> Stages:
    return replace(stages, joined=(tuple(range(len(stages.fusion.groups))),))


PLANTED: dict[str, tuple[str, Any, str]] = {
    "inputs change places": ("simplify", other_input, "keeps the inputs"),
    "outputs change their type": ("narrow_windows", other_type, "types of outputs"),
    "an output is lost": ("split_complex", fewer_outputs, "types of outputs"),
    "a leaf is nobody's": ("fit_windows", unbound, "every leaf is an input"),
    "kernels run backwards": ("order_kernels", backwards, "was written before"),
    "a kernel runs twice": ("order_kernels", twice, "one writer"),
    "a kernel is lost": ("join_launches", lost, "every result is written"),
    "loops run too far": ("schedule", with_body(longer), "in bounds"),
    "sums are not started": ("schedule", with_body(without_stores), "start|after it is written"),
    "values change places": ("reuse_memory", wrong_views, "a view fits"),
    "an input is overwritten too early": ("schedule", early, "input of its type|read before"),
    "kernels that wait are one": ("join_launches", joined, "independent|neighbours"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_pass_with_the_fault_is_blamed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change, rule = PLANTED[fault]
    for listed in ("OPTIMIZE", "LOWER"):
        passes = [
            _with_fault(p, change) if p.name == name else p for p in getattr(pipeline, listed)
        ]
        monkeypatch.setattr(pipeline, listed, tuple(passes))
    with pytest.raises(VerifyError, match=rule) as found:
        lower_graph(program())
    assert repr(name) in found.value.note
    with rl.config.override(verify=False):  # nothing is looked at
        to = compilation(program())
        assert isinstance(optimize(program(), to), Graph)


def _with_fault(each: Pass[Any, Any], change: Any) -> Pass[Any, Any]:
    """A pass that does its work, where it has some, and then something wrong."""

    def run(state: Any, to: Compilation) -> Any:
        return change(each.run(state, to) if each.when(to) else state, to)

    return replace(each, run=run, when=lambda to: True, ops=frozenset(), kinds=frozenset())


def test_temporaries_that_overlap_are_found() -> None:
    with rl.config.override(verify=False, passes_until="group"):
        graph = program()
        to = compilation(graph)
        stages = lower(optimize(graph, to), to)
        layout = lay_out(stages, to.target)
    assert len(layout.arena) > 2
    verify_layout(stages, layout)
    squeezed = replace(layout, arena=tuple((slot, 0) for slot, _ in layout.arena))
    with pytest.raises(VerifyError, match="not alive at one time"):
        verify_layout(stages, squeezed)
    with pytest.raises(VerifyError, match="lies in the arena"):
        verify_layout(stages, replace(layout, arena_bytes=1))


def test_every_list_is_verified() -> None:
    assert {each.name for each in (*OPTIMIZE, *LOWER)} >= {name for name, _, _ in PLANTED.values()}
