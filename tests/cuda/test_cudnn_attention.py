"""Attention by cuDNN, without it: its graphs computed in NumPy, and what becomes a call of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
import ridgeline.compiler
import ridgeline.tracing.executable
from ridgeline.compiler import KernelCall, Layout, lay_out, lower_graph
from ridgeline.compiler.memory_plan import from_text, to_text
from ridgeline.compiler.pipeline import compilation, optimize
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.libraries.attention import CALLS, call_attention
from ridgeline.nn.functional import scaled_dot_product_attention
from ridgeline.ops.attention import ATTENTION_GRADIENT, attention
from ridgeline.ops.differentiate import reverse
from ridgeline.runtime.cuda import cudnn_api
from ridgeline.runtime.cuda.attention import AttentionLaunch, Problem, Strides, cudnn
from ridgeline.runtime.cuda.attention.cudnn import BACKWARD, FORWARD
from ridgeline.runtime.cuda.cudnn_graph import HeldIn, Network, TensorDesc, operations
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan
from ridgeline.runtime.cuda.launches import KernelLaunch
from tests.cuda.stated import StatedGpu
from tests.cuda.test_attention_gpu import truth
from tests.cuda.test_convolutions import Recorder

# ---- the graphs ----------------------------------------------------------------------------------

POINTWISE = {
    "add": np.add, "mul": np.multiply, "sub": np.subtract, "div": np.divide, "exp": np.exp,
    "log": np.log, "identity": np.positive, "greater_equal": np.greater_equal,
    "select": lambda x, other, kept: np.where(kept, x, other),
}  # fmt: skip


def shared(array: Any, sizes: Sequence[int]) -> Any:
    """Heads of keys repeated for the heads of queries that share them."""
    return np.repeat(array, max(1, sizes[1] // array.shape[1]), 1)


def compute(name: str, operands: Sequence[Any], result: TensorDesc, axis: int | None) -> Any:
    """An operation in float64."""
    if name == "matmul":
        left, right = operands
        return left @ shared(right, result.sizes)
    if name == "reshape":  # seen by other strides: of what is dense, or of a matrix transposed
        return operands[0].swapaxes(-1, -2)
    if name == "index":
        return np.indices(result.sizes, sparse=True)[axis or 0] + np.zeros(result.sizes)
    if name in ("sum", "max"):
        (given,) = operands
        for place, size in enumerate(result.sizes):
            parts = (*given.shape[:place], size, -1, *given.shape[place + 1 :])
            given = getattr(given.reshape(parts), name)(place + 1)
        return given
    return POINTWISE[name](*operands)


def run(net: Network, memory: dict[str, Any]) -> None:
    """Compute a network over flat memory, which is read and written by strides."""
    values: dict[int, Any] = {one.number: np.full((1,) * 4, one.value) for one in net.values}

    def view(role: str, tensor: TensorDesc) -> Any:
        steps = [step * memory[role].itemsize for step in tensor.strides]
        return np.lib.stride_tricks.as_strided(memory[role], tensor.sizes, steps)

    for role, tensor in net.memory.items():
        values[tensor.number] = view(role, tensor)
    for step in net.operations:
        with np.errstate(all="ignore"):
            operands = [values[one.number] for one in step.operands]
            found = compute(step.name, operands, step.result, step.axis)
        assert found.shape == step.result.sizes, step.name
        if step.result.held is HeldIn.IN_MEMORY:
            values[step.result.number][...] = found
        else:
            values[step.result.number] = found


def laid(heads: int, rows: int, width: int, beside: bool) -> Strides:
    if beside:
        return Strides(rows * heads * width, width, heads * width)
    return Strides.dense(heads, rows, width)


def problem(
    kind: str, batch: int, heads: int, keys: int, rows: int, columns: int, width: int,
    causal: bool, beside: bool,
) -> Problem:  # fmt: skip
    of_q, of_k = laid(heads, rows, width, beside), laid(keys, columns, width, beside)
    strides = (of_q, of_k, of_k, of_q) if kind == FORWARD else (
        of_q, of_k, of_k, of_q, of_q, of_q, of_k, of_k
    )  # fmt: skip
    count = 2 if kind == FORWARD else 3
    return Problem(
        "bfloat16", batch, heads, keys, rows, columns, width, width**-0.5, causal, strides,
        (True,) * count,
    )  # fmt: skip


# batch, heads, heads of keys, rows, columns, width, causal, beside one another
CASES = [
    (2, 3, 3, 8, 8, 16, True, False), (2, 4, 2, 7, 9, 16, True, True),
    (1, 2, 1, 5, 3, 8, False, True), (3, 1, 1, 4, 6, 8, False, False),
    (1, 4, 4, 1, 5, 8, True, True),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_graphs_are_attention_and_its_gradient(case: Any) -> None:
    batch, heads, keys, rows, columns, width, causal, beside = case
    rng = np.random.default_rng(1)

    def flat(array: Any) -> Any:
        return (np.moveaxis(array, 1, 2) if beside else array).reshape(-1).copy()

    q, ct = (rng.standard_normal((batch, heads, rows, width)) for _ in range(2))
    k, v = (rng.standard_normal((batch, keys, columns, width)) for _ in range(2))
    memory = {"q": flat(q), "k": flat(k), "v": flat(v), "ct": flat(ct)}
    for role, like in (("out", q), ("dq", q), ("sums", q), ("dk", k), ("dv", v)):
        memory[role] = np.full(like.size, np.nan)
    for role in ("lse", "delta"):
        memory[role] = np.full(batch * heads * rows, np.nan)
    for kind in (FORWARD, BACKWARD):
        run(cudnn.network(kind, problem(kind, *case)), memory)
    wanted = dict(zip(("out", "dq", "dk", "dv"), truth([q, k, v], ct, causal)))
    for role, exact in wanted.items():
        np.testing.assert_allclose(memory[role], flat(exact), rtol=1e-11, atol=1e-13)
    scores = q @ np.repeat(k, heads // keys, 1).swapaxes(-1, -2) * width**-0.5
    if causal:
        scores = np.where(np.tri(rows, columns, dtype=bool), scores, -np.inf)
    exact = np.log(np.exp(scores).sum(-1))
    np.testing.assert_allclose(memory["lse"], exact.reshape(-1), rtol=1e-12)


@pytest.mark.parametrize("kind", [FORWARD, BACKWARD])
def test_what_the_library_is_told(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    recorder = Recorder()
    monkeypatch.setattr(cudnn_api, "library", lambda: recorder)
    net = cudnn.network(kind, problem(kind, 2, 4, 2, 100, 130, 64, True, True))
    told = operations(net)
    assert len(told) == len(net.operations)
    numbers = [one for (one,) in recorder.of(cudnn_api.Attribute.TENSOR_ID)]
    assert len(set(numbers)) == len(numbers)  # a tensor is described once
    virtual = [one for (one,) in recorder.of(cudnn_api.Attribute.TENSOR_IS_VIRTUAL)]
    assert virtual.count(False) == len(net.memory) + len(net.values)
    sizes = recorder.of(cudnn_api.Attribute.TENSOR_SIZES)
    strides = recorder.of(cudnn_api.Attribute.TENSOR_STRIDES)
    keys = sizes.index([2, 2, 64, 130])  # the library wants them transposed
    assert strides[keys] == [130 * 2 * 64, 64, 1, 2 * 64]


@pytest.mark.parametrize("batch", [0, -2 * 64 * 64])
def test_an_operand_that_is_repeated_or_reversed_is_not_the_library_s(batch: int) -> None:
    given = problem(FORWARD, 2, 2, 2, 64, 64, 64, False, False)
    repeated = (*given.strides[:1], Strides(batch, 64 * 64, 64), *given.strides[2:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn_api, "library", lambda: None)  # it is not asked
        assert cudnn.plan(0, FORWARD, replace(given, strides=repeated)) is None


def test_what_nobody_reads_lies_in_the_workspace() -> None:
    given = problem(BACKWARD, 2, 4, 2, 100, 130, 64, True, False)
    whole, end = cudnn.memory(BACKWARD, given, 1000)
    inside = [one for one in whole if one.argument is None]
    assert [one.offset for one in inside] == [1024, 1024 + 2 * 4 * 100 * 4 + 128]
    assert end == inside[-1].offset + 2 * 4 * 100 * 64 * 4
    assert sorted(one.argument for one in whole if one.argument is not None) == list(range(9))
    less = replace(given, written=(True, False, True))
    some, more = cudnn.memory(BACKWARD, less, 1000)
    assert more >= end + prod((2, 2, 130, 64)) * 2
    assert sorted(one.argument for one in some if one.argument is not None) == [*range(7), 8]


# ---- the pass ------------------------------------------------------------------------------------


def test_a_gradient_reads_the_result_and_stays_the_same() -> None:
    given = [leaf(TensorType((2, 4, 5, 8), rl.bfloat16, "cpu")) for _ in range(4)]
    out, lse = attention(*given[:3], None, 0.5, True)
    parts = [p for p in reverse([out], [given[3]], given[:3]) if p is not None]
    roots = [out, lse, *parts]
    made = call_attention(Graph.below(roots), lambda node: True).outputs
    found = [n for n in topological(made) if n.op in CALLS]
    assert [n.op for n in found] == list(CALLS)
    assert found[1].inputs[4].inputs == (found[0],)  # the result itself
    rng = np.random.default_rng(2)
    values = {n: rng.standard_normal(n.shape).astype(rl.bfloat16.numpy) for n in given}
    for one, other in zip(evaluate(roots, values), evaluate(made, values)):
        np.testing.assert_array_equal(one.astype(np.float32), other.astype(np.float32))


def test_a_gradient_of_lse_is_no_call() -> None:
    given = [leaf(TensorType((2, 4, 5, 8), rl.bfloat16, "cpu")) for _ in range(4)]
    out, lse = attention(*given[:3], None, 0.5, False)
    seed = leaf(lse.type)
    parts = [p for p in reverse([out, lse], [given[3], seed], given[:3]) if p is not None]
    made = call_attention(Graph.below(parts), lambda node: True).outputs
    assert any(n.op is ATTENTION_GRADIENT for n in topological(made))


# ---- programs ------------------------------------------------------------------------------------


class Traced(Exception):
    """What was to be compiled."""


class WithAttention(StatedGpu):
    """A GPU that is not there, with a cuDNN that has attention of 16 bits with heads of 64."""

    asked: list[tuple[str, Problem]]

    def attention_plan(self, kind: str, problem: Problem) -> Any:
        self.asked = [*getattr(self, "asked", []), (kind, problem)]
        return EnginePlan(None, 4096) if problem.width == 64 else None  # type: ignore[arg-type]


def laid_out(function: Any, *shapes: tuple[int, ...], target: StatedGpu) -> Layout:
    """The plan of a jitted function of bfloat16 tensors."""
    pytest.importorskip("cuda.bindings.nvrtc")
    args = [rl.zeros(*shape, dtype=rl.bfloat16) for shape in shapes]
    for arg in args:
        arg.float().numpy()

    def stop(graph: Graph, pairs: Any, budget: int) -> None:
        raise Traced(graph, pairs)

    with pytest.MonkeyPatch.context() as patch, rl.config.override(tier="compiled"):
        patch.setattr(ridgeline.compiler, "compile_graph", stop)
        patch.setattr(ridgeline.tracing.executable, "is_library_call", target.library_op)
        with pytest.raises(Traced) as found:
            rl.jit(function)(*args)
        graph, pairs = found.value.args
        patch.setattr(cudnn_api, "version", lambda: cudnn.SINCE)
        stages = lower_graph(graph, target=target, pairs=pairs)
        return lay_out(stages, target)


def calls(layout: Layout) -> list[KernelCall]:
    found = [call for call in layout.calls if isinstance(call, KernelCall)]
    return [call for call in found if isinstance(call.launch, AttentionLaunch)]


def projected(joined: rl.Tensor, ct: rl.Tensor, **settings: Any) -> Any:
    """Heads of one projection, and its gradient."""
    batch, length, _ = ct.shape
    joined = joined.detach().requires_grad_()
    parts = (joined + 0).reshape(batch, length, 3, -1, 64).permute(2, 0, 3, 1, 4)
    seen = scaled_dot_product_attention(*parts.unbind(0), **settings)
    out = seen.transpose(1, 2).reshape(*ct.shape)
    return [out, *rl.autograd.grad(out, [joined], ct)]


SHAPES = (2, 1024, 3 * 256), (2, 1024, 256)


def test_a_projection_is_read_and_its_gradient_written_where_they_lie() -> None:
    target = WithAttention()
    layout = laid_out(lambda x, ct: projected(x, ct, is_causal=True), *SHAPES, target=target)
    ahead, back = calls(layout)
    assert "attention_call" in ahead.symbol and "attention_gradient_call" in back.symbol
    assert len(layout.calls) == 3  # the sum before, and two calls: nothing sums the products
    parts = tuple(Strides(1024 * 768, 64, 768, place * 256) for place in range(3))
    assert ahead.launch.kind == FORWARD and ahead.launch.problem.strides[:3] == parts
    read = {at.offset for at in ahead.launch.memory if at.argument in (0, 1, 2)}
    assert read == {0, 512, 1024}
    assert back.launch.kind == BACKWARD and back.launch.problem.strides[-3:] == parts
    ends = [(at.argument, at.offset) for at in back.launch.memory if at.argument == 6]
    assert ends == [(6, 0), (6, 512), (6, 1024)]  # three gradients in one result
    assert back.launch.workspace >= 4096 + 2 * 4 * 1024 * 64 * 4
    assert from_text(to_text(layout), target.launch_types) == layout


def test_what_the_library_does_not_take_goes_to_kernels() -> None:
    def masked(x: rl.Tensor, ct: rl.Tensor) -> Any:
        return projected(x, ct, attn_mask=rl.ones(1024, 1024, dtype=rl.bool))

    assert not calls(laid_out(masked, *SHAPES, target=WithAttention()))
    short = (2, 16, 3 * 256), (2, 16, 256)
    assert not calls(laid_out(projected, *short, target=WithAttention()))

    def wide(x: rl.Tensor) -> rl.Tensor:
        return scaled_dot_product_attention(x, x, x)

    layout = laid_out(wide, (2, 4, 1024, 128), target=WithAttention())
    (call,) = layout.calls
    assert isinstance(call, KernelCall) and isinstance(call.launch, KernelLaunch)


def test_operands_that_the_library_does_not_read_in_place_are_written_in_order() -> None:
    class InOrder(WithAttention):
        def attention_plan(self, kind: str, problem: Problem) -> Any:
            dense = Strides.dense(problem.heads, problem.rows, problem.width)
            return EnginePlan(None, 0) if problem.strides[0] == dense else None  # type: ignore[arg-type]

    layout = laid_out(lambda x, ct: projected(x, ct)[0], *SHAPES, target=InOrder())
    (call,) = calls(layout)
    assert call.launch.problem.strides[0] == Strides(4 * 1024 * 64, 1024 * 64, 64, 0)
    assert len(set(call.slots[:3])) == 3  # each written to memory of its own


def test_earlier_versions_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    target = WithAttention()
    monkeypatch.setattr(cudnn, "SINCE", cudnn.SINCE + 1)
    monkeypatch.setattr(cudnn_api, "version", lambda: cudnn.SINCE - 1)
    graph = Graph.below([attention(*[_operand()] * 3, None, 0.5, True)[0]])
    made = optimize(graph, compilation(graph, target))
    assert not any(n.op in CALLS for n in made.order) and not hasattr(target, "asked")


def _operand() -> Node:
    return leaf(TensorType((2, 4, 1024, 64), rl.bfloat16, "cpu"))
