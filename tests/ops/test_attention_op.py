"""Attention as an op: values and derivatives in every way to run it, and what is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.autograd import gradcheck, gradgradcheck
from ridgeline.errors import DTypeError, RidgelineError, ShapeError
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.graph.passes.legalize.decompose import decompose
from ridgeline.nn.functional import scaled_dot_product_attention as attend
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, attention, attention_gradient
from ridgeline.ops.differentiate import reverse
from ridgeline.record.values import read
from ridgeline.tracing import trace
from tests.fuzz.gpu_loops import LoopProgram

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)
SOME = RNG.random((2, 1, 9, 11)) < 0.5
EMPTY = SOME & (np.arange(9) % 4 > 0)[:, None]
ADDED = RNG.standard_normal((4, 9, 11))
HIDING = np.where(EMPTY, 0.5, -np.inf)
LOWEST = np.where(EMPTY, 0.5, np.finfo(np.float32).min)  # rows of it are rows of equal weights

# name: heads of queries, heads of keys, T, S, options
CASES: dict[str, tuple[int, int, int, int, dict[str, Any]]] = {
    "plain": (4, 4, 9, 11, {}),
    "scaled": (4, 4, 9, 11, {"scale": 0.7}),
    "causal": (4, 4, 9, 9, {"is_causal": True}),
    "causal, more keys": (4, 4, 9, 11, {"is_causal": True}),
    "causal, fewer keys": (4, 4, 9, 5, {"is_causal": True}),
    "mask": (4, 4, 9, 11, {"attn_mask": SOME}),
    "rows that keep nothing": (4, 4, 9, 11, {"attn_mask": EMPTY}),
    "added mask": (4, 4, 9, 11, {"attn_mask": ADDED}),
    "added mask that hides rows": (4, 4, 9, 11, {"attn_mask": HIDING}),
    "added mask of the lowest number": (4, 4, 9, 11, {"attn_mask": LOWEST}),
    "shared heads, lowest number": (4, 2, 9, 11, {"enable_gqa": True, "attn_mask": LOWEST}),
    "a lowest number for each row": (4, 4, 9, 11, {"attn_mask": LOWEST[:, :, :, :1]}),
    "large negative numbers": (4, 4, 9, 11, {"attn_mask": np.where(EMPTY, 0.5, -1e25)}),
    "mask of columns": (4, 4, 9, 11, {"attn_mask": SOME[:, :, :1]}),
    "shared heads": (4, 2, 9, 11, {"enable_gqa": True}),
    "shared heads, causal": (4, 2, 9, 9, {"enable_gqa": True, "is_causal": True}),
    "one head for all": (4, 1, 9, 11, {"enable_gqa": True}),
    "shared heads, mask": (4, 2, 9, 11, {"enable_gqa": True, "attn_mask": EMPTY}),
    "shared heads, added mask": (4, 2, 9, 11, {"enable_gqa": True, "attn_mask": ADDED}),
}


def torch_attend(*operands: Any, **settings: Any) -> Any:
    """By its definition: in rows of the lowest number the gradients of fused kernels are wrong."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(*operands, **settings)


def arrays(name: str, width: int = 6) -> list[np.ndarray[Any, Any]]:
    heads, shared, t, s, _ = CASES[name]
    rng = np.random.default_rng(1)
    shapes = [(2, heads, t, 8), (2, shared, s, 8), (2, shared, s, width), (2, heads, t, width)]
    return [rng.standard_normal(shape) for shape in shapes]


def options(lib: Any, name: str, dtype: Any) -> dict[str, Any]:
    made = dict(CASES[name][-1])
    if "attn_mask" in made:
        mask = lib.tensor(made["attn_mask"])
        made["attn_mask"] = mask if made["attn_mask"].dtype == bool else mask.to(dtype)
    return made


def with_gradients(lib: Any, function: Any, name: str, dtype: Any) -> list[np.ndarray[Any, Any]]:
    *leaves, seed = (lib.tensor(a).to(dtype) for a in arrays(name))
    leaves = [x.requires_grad_() for x in leaves]
    result = function(*leaves, **options(lib, name, dtype))
    found = [result.detach(), *lib.autograd.grad(result, leaves, seed)]
    return [part.double().numpy() for part in found]


def jitted(q: Any, k: Any, v: Any, **settings: Any) -> Any:
    return rl.jit(lambda q, k, v: attend(q, k, v, **settings))(q, k, v)


@pytest.mark.parametrize("way", ["interpreter", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl.config, "tier", way)
    exact = with_gradients(torch, torch_attend, name, torch.float64)
    for mine, wanted in zip(with_gradients(rl, attend, name, rl.float32), exact):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_wide_values_and_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl.config, "tier", "interpreter")
    exact = with_gradients(torch, torch_attend, name, torch.float64)
    for mine, wanted in zip(with_gradients(rl, attend, name, rl.float64), exact):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("way", ["interpreter", "compiled"])
@pytest.mark.parametrize("scores, added", [((-1e10, -2e10), 0.0), ((100.0, 0.0), -1e9)])
def test_one_weight_of_scores_far_below_zero(
    scores: tuple[float, float], added: float, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores are not lost in `lse`, though it is far below zero."""
    monkeypatch.setattr(rl.config, "tier", way)
    found = []
    for lib, function in ((torch, torch_attend), (rl, attend)):
        keys = lib.tensor(scores).reshape(1, 1, 2, 1)
        values = lib.tensor([[[[3.0], [5.0]]]]).requires_grad_()
        mask = lib.full((1, 1, 1, 2), added)
        result = function(lib.ones(1, 1, 1, 1), keys, values, attn_mask=mask, scale=1.0)
        found.append(lib.autograd.grad(result.sum(), [values])[0].numpy())
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("name", ["added mask that hides rows", "shared heads, lowest number"])
def test_as_loops_of_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings")
    monkeypatch.setattr(trace, "program_for", LoopProgram)
    exact = with_gradients(torch, torch_attend, name, torch.float64)
    *leaves, seed = (rl.tensor(a).float() for a in arrays(name))
    settings = options(rl, name, rl.float32)

    @rl.jit
    def both(*leaves: Any) -> Any:
        held = [x.requires_grad_() for x in leaves]
        result = attend(*held, **settings)
        return result, *rl.autograd.grad(result, held, seed)

    for mine, wanted in zip(both(*leaves), exact):
        np.testing.assert_allclose(mine.detach().numpy(), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["causal", "shared heads, mask"])
def test_under_jit(name: str) -> None:
    exact = with_gradients(torch, torch_attend, name, torch.float64)
    for mine, wanted in zip(with_gradients(rl, jitted, name, rl.float32), exact):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["causal", "shared heads", "rows that keep nothing"])
def test_narrow_values_and_gradients_are_as_exact_as_torchs(name: str) -> None:
    exact = with_gradients(torch, torch_attend, name, torch.float64)
    fused = torch.nn.functional.scaled_dot_product_attention
    theirs = with_gradients(torch, fused, name, torch.bfloat16)
    ours = with_gradients(rl, attend, name, rl.bfloat16)
    for mine, other, wanted in zip(ours, theirs, exact):
        error, reference = (np.linalg.norm(x - wanted) for x in (mine, other))
        assert error <= 1.3 * reference


@pytest.mark.parametrize("kind", ["none", "causal", "mask", "added"])
@pytest.mark.parametrize("shared", [1, 2])
def test_second_derivatives_and_forward_mode(
    kind: str, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl.config, "tier", "interpreter")
    rng = np.random.default_rng(2)
    shapes = [(2, 3, 2), (shared, 4, 2), (shared, 4, 2)]
    leaves = [rl.tensor(rng.standard_normal(shape)).requires_grad_() for shape in shapes]
    if kind == "added":
        leaves.append(rl.tensor(rng.standard_normal((2, 1, 4))).requires_grad_())
    mask = rl.tensor([[True, False, True, True], [False] * 4, [True] * 4])

    def function(q: Any, k: Any, v: Any, added: Any = None) -> Any:
        chosen = mask if kind == "mask" else added
        return attend(q, k, v, chosen, is_causal=kind == "causal", enable_gqa=True)

    assert gradcheck(function, leaves, check_forward_ad=True)
    assert gradgradcheck(function, leaves)


def test_one_operand_may_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl.config, "tier", "interpreter")
    x = rl.tensor(RNG.standard_normal((2, 3, 2))).requires_grad_()
    assert gradcheck(lambda x: attend(x, x, x, is_causal=True), [x])
    assert gradgradcheck(lambda x: attend(x, x, x, is_causal=True), [x])


def test_the_gradient_of_lse() -> None:
    q, k, v = (leaf(TensorType((1, 2, 5, 4), dtypes.float64)) for _ in range(3))
    lse = attention(q, k, v, None, 0.5, True)[1]
    ct = leaf(lse.type)
    parts = reverse([lse], [ct], [q, k])
    given = {node: RNG.standard_normal(node.shape) for node in (q, k, v, ct)}
    tq, tk = (torch.tensor(given[node], requires_grad=True) for node in (q, k))
    scores = (tq @ tk.mT * 0.5).masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf)
    wanted = torch.autograd.grad(scores.logsumexp(-1), [tq, tk], torch.tensor(given[ct]))
    for mine, theirs in zip(evaluate([p for p in parts if p is not None], given), wanted):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("axes", [(0, 0, 0, None), (0, None, None, None), (None, 0, 0, 0)])
def test_vmap(axes: tuple[int | None, ...]) -> None:
    shapes = [(2, 7, 4), (2, 5, 4), (2, 5, 4), (1, 7, 5)]
    given = [
        RNG.standard_normal(s if a is None else (3, *s)).astype(np.float32)
        for s, a in zip(shapes, axes)
    ]
    mask = given[3] > -0.5

    def gradients(lib: Any, function: Any, vmap: Any, grad: Any) -> list[Any]:
        def total(q: Any, k: Any, v: Any, mask: Any) -> Any:
            return (function(q, k, v, attn_mask=mask) ** 2).sum()

        mapped = vmap(grad(total, argnums=(0, 1, 2)), in_dims=axes)
        return list(mapped(*map(lib.tensor, given[:3]), lib.tensor(mask)))

    ours = gradients(rl, attend, rl.vmap, rl.grad)
    theirs = gradients(torch, torch_attend, torch.func.vmap, torch.func.grad)
    for mine, wanted in zip(ours, theirs):
        np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=2e-4, atol=2e-5)


# ---- what is kept --------------------------------------------------------------------------------


def graph(t: int = 16, s: int = 24, masked: bool = False) -> tuple[list[Node], list[Node]]:
    """An attention and its gradients; heads are shared."""
    shapes = [(2, 4, t, 8), (2, 2, s, 8), (2, 2, s, 8)]
    inputs = [leaf(TensorType(shape, dtypes.bfloat16)) for shape in shapes]
    mask = leaf(TensorType((1, 1, t, s), dtypes.bool_)) if masked else None
    out, lse = attention(*inputs, mask, 0.3, not masked)
    ct, delta = leaf(out.type), leaf(lse.type)
    operands = inputs if mask is None else [*inputs, mask]
    parts = attention_gradient(operands, lse, delta, ct, out.inputs[0].attrs)
    return [out, lse, *parts], [*operands, delta, ct]


def test_backward_reads_the_operands_the_result_and_one_number_a_row() -> None:
    q, k, v = (rl.randn(1, 2, 16, 8).requires_grad_() for _ in range(3))
    result = attend(q * 1, k * 1, v * 1, is_causal=True)
    root = read(result)
    kept = saved_for_backward([root], lambda node: node.buffer is not None)
    # the operands are one multiplication away from what is in memory
    assert [node.shape for node in kept] == [(1, 2, 16), (1, 2, 16, 8)]
    assert root in kept


@pytest.mark.parametrize("masked", [False, True])
def test_the_pass_writes_both_ops_out(masked: bool) -> None:
    roots, inputs = graph(masked=masked)
    plain = list(decompose(Graph(roots, inputs)).outputs)
    assert not any(n.op in (ATTENTION, ATTENTION_GRADIENT) for n in topological(plain))
    assert [n.type for n in plain] == [n.type for n in roots]
    given = {
        node: (RNG.random(node.shape) < 0.5)
        if node.dtype is dtypes.bool_
        else RNG.standard_normal(node.shape).astype(node.dtype.numpy)
        for node in inputs
    }
    for before, after in zip(evaluate(roots, given), evaluate(plain, given)):
        a, b = before.astype(np.float32), after.astype(np.float32)
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)


def test_the_pass_leaves_what_a_device_computes_whole() -> None:
    roots, inputs = graph()
    kept = list(decompose(Graph(roots, inputs), lambda node: node.op is ATTENTION).outputs)
    assert kept[:2] == roots[:2]
    assert not any(n.op is ATTENTION_GRADIENT for n in topological(kept))


def test_no_matrix_of_the_forward_pass_is_one_of_the_backward_pass() -> None:
    roots, inputs = graph()
    plain = list(decompose(Graph(roots, inputs)).outputs)
    ends = {*inputs, plain[1]}
    before, after = (set(topological(part, ends.__contains__)) for part in (plain[:1], plain[2:]))
    shared = {n for n in before & after if n.shape[-2:] in ((16, 24), (24, 16)) and n.inputs}
    assert not any(n.op.family in ("contract", "reduce") or n.op.name == "exp" for n in shared)


# ---- mistakes ------------------------------------------------------------------------------------


def test_operands_that_do_not_fit() -> None:
    q, k = (leaf(TensorType(shape, dtypes.float32)) for shape in ((1, 3, 4, 8), (1, 2, 4, 8)))
    with pytest.raises(ShapeError, match="does not take operands"):
        attention(q, k, k, None, 1.0, False)
    whole = leaf(TensorType((1, 3, 4, 8), dtypes.int64))
    with pytest.raises(DTypeError, match="does not take operands"):
        attention(whole, whole, whole, None, 1.0, False)
    x = rl.randn(1, 3, 4, 8)
    with pytest.raises(ShapeError):
        attend(x, x[:, :2], x[:, :2])
    with pytest.raises(ShapeError, match="cannot share"):
        attend(x, x[:, :2], x[:, :2], enable_gqa=True)
    with pytest.raises(RidgelineError, match="not both"):
        attend(x, x, x, attn_mask=rl.ones(4, 4), is_causal=True)
