"""Attention on a GPU against float64: forward, gradients, odd lengths, shared heads, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.nn.functional import scaled_dot_product_attention
from ridgeline.runtime.cuda import cudnn_api
from ridgeline.runtime.cuda.attention import cudnn

pytestmark = pytest.mark.gpu

# batch, heads, heads of keys, rows, columns, width, causal
CASES = [
    (2, 3, 3, 128, 128, 64, True), (2, 4, 2, 100, 100, 64, True), (1, 2, 2, 257, 300, 64, False),
    (1, 4, 1, 300, 257, 64, True), (2, 2, 2, 130, 70, 32, False), (1, 2, 2, 333, 333, 96, True),
    (1, 2, 1, 200, 511, 128, True), (2, 2, 2, 1, 77, 64, False), (1, 2, 2, 65, 129, 80, True),
    (1, 3, 3, 190, 190, 16, False), (2, 2, 2, 70, 70, 48, True), (1, 2, 2, 7, 3, 64, True),
]  # fmt: skip
# long enough for cuDNN
LONG = [
    (2, 4, 4, 512, 512, 64, True), (2, 8, 2, 633, 633, 64, True), (1, 2, 2, 557, 811, 128, False),
    (1, 4, 1, 811, 557, 128, True), (2, 2, 2, 601, 601, 96, True), (1, 4, 4, 515, 700, 32, False),
    (1, 4, 2, 519, 611, 80, True), (2, 2, 2, 590, 590, 16, False),
]  # fmt: skip


def truth(arrays: list[Any], ct: Any, causal: bool, mask: Any = None) -> list[Any]:
    """The result and the gradients in float64; a mask is added, and an empty row gives zeros."""
    q, k, v = (a.astype(np.float32 if a.dtype == np.float32 else np.float64) for a in arrays)
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(a, group, 1) for a in (k, v))
    scale = q.shape[-1] ** -0.5
    scores = q @ wide_k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    out = weights @ wide_v
    change = weights * (ct @ wide_v.swapaxes(-1, -2) - (ct * out).sum(-1, keepdims=True)) * scale
    by_key, by_value = change.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ ct
    shared = (k.shape[0], k.shape[1], group, *k.shape[2:])
    return [out, change @ wide_k, by_key.reshape(shared).sum(2), by_value.reshape(shared).sum(2)]


def rounded(array: Any, dtype: rl.DType) -> Any:
    return array.astype(dtype.numpy).astype(np.float64)


def error(got: rl.Tensor, wanted: Any) -> float:
    gap = np.linalg.norm(got.detach().float().cpu().numpy() - wanted)
    return float(gap / np.linalg.norm(wanted))


def compare(case: tuple[Any, ...], dtype: rl.DType) -> tuple[list[str], list[list[Any]]]:
    """Attention and its gradients against float64; the kernels' names, and results of calls."""
    batch, heads, shared, rows, columns, width, causal = case
    rng = np.random.default_rng(3)
    shapes = [(batch, heads, rows, width), *[(batch, shared, columns, width)] * 2]
    arrays = [rounded(rng.standard_normal(shape), dtype) for shape in shapes]
    ct = rounded(rng.standard_normal(shapes[0]), dtype)

    @rl.jit
    def run(q: rl.Tensor, k: rl.Tensor, v: rl.Tensor, ct: rl.Tensor) -> Any:
        given = [t.detach().requires_grad_() for t in (q, k, v)]
        out = scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=True)
        return [out, *rl.autograd.grad(out, given, ct)]

    operands = [rl.tensor(a, dtype=dtype, device="cuda") for a in (*arrays, ct)]
    calls = [run(*operands) for _ in range(3)]  # step by step, captured, and replayed
    names = [kernel.name for kernel in run.profile(*operands, rounds=1)]
    bound = 5e-3 if dtype is rl.bfloat16 else 6e-4
    for found in calls:
        for got, wanted in zip(found, truth(arrays, ct, causal)):
            assert got.dtype is dtype and error(got, wanted) < bound
    return names, [[t.detach().float().cpu().numpy() for t in found] for found in calls]


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels(case: tuple[Any, ...], dtype: rl.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn_api, "version", lambda: 0)
    names, calls = compare(case, dtype)
    assert not any("_call_" in name for name in names)
    assert len([name for name in names if name.startswith("attention")]) == 2
    for again in calls[1:]:  # nothing is added in another order
        for one, other in zip(calls[0], again):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("case", LONG, ids=str)
def test_cudnn(case: tuple[Any, ...], dtype: rl.DType) -> None:
    if cudnn_api.version() < cudnn.SINCE:
        pytest.skip("no cuDNN that has attention")
    names, calls = compare(case, dtype)
    assert len([name for name in names if "_call_" in name]) == 2
    for again in calls[1:]:
        np.testing.assert_array_equal(calls[0][0], again[0])  # the result; a gradient may differ


# shape of the mask beside the scores of 2 batches of 4 heads, rows by columns
MASKS = [
    ((1, 1, 100, 130), 64), ((2, 1, 1, 130), 64), ((2, 4, 100, 130), 128), ((1, 4, 100, 1), 32),
    ((2, 4, 1, 1), 64), ((2, 1, 100, 130), 96),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["bool", "float", "narrow", "least"])
@pytest.mark.parametrize("case", MASKS, ids=str)
def test_masks(case: tuple[Any, int], kind: str, dtype: rl.DType) -> None:
    shape, width = case
    rng = np.random.default_rng(6)
    shared = 2 if width == 64 else 4
    shapes = [(2, 4, 100, width), *[(2, shared, 130, width)] * 2]
    arrays = [rounded(rng.standard_normal(s), dtype) for s in shapes]
    ct = rounded(rng.standard_normal(shapes[0]), dtype)
    kept = rng.random(shape) < 0.7
    kept[0, 0, 0] = False  # rows that keep nothing
    given: Any = kept
    added = np.where(kept, 0, -np.inf)
    if kind == "float":
        added = added + rng.standard_normal(shape).astype(np.float32)
    if kind == "least":
        # the score is lost beside it, so that an empty row keeps everything; so is the logarithm of
        # their number, and the gradient of such a row, which padding has, is not that of its result
        added = np.where(kept, 0, float(np.finfo(np.float32).min))
        ct = np.where(kept.any(-1, keepdims=True), ct, 0)
    if kind != "bool":
        given = added.astype(np.float32)
    if kind == "narrow":
        given = (added + rng.standard_normal(shape)).astype(dtype.numpy)
        added = given.astype(np.float64)

    @rl.jit
    def run(q: rl.Tensor, k: rl.Tensor, v: rl.Tensor, ct: rl.Tensor, mask: rl.Tensor) -> Any:
        parts = [t.detach().requires_grad_() for t in (q, k, v)]
        out = scaled_dot_product_attention(*parts, attn_mask=mask, enable_gqa=True)
        return [out, *rl.autograd.grad(out, parts, ct)]

    operands = [rl.tensor(a, dtype=dtype, device="cuda") for a in (*arrays, ct)]
    operands.append(rl.tensor(given, device="cuda"))
    names = [kernel.name for kernel in run.profile(*operands, rounds=1)]
    assert [name for name in names if name.startswith("attention")]
    bound = 5e-3 if dtype is rl.bfloat16 else 6e-4
    found = run(*operands)
    if kind == "least":  # in float64 the score is not lost: such rows are compared in float32
        arrays = [a.astype(np.float32) for a in arrays]
    wanted = truth(arrays, ct, False, added.astype(np.float32) if kind == "least" else added)
    for got, exact in zip(found, wanted):
        assert error(got, exact) < bound


def test_a_mask_inside_other_memory() -> None:
    rng = np.random.default_rng(7)
    arrays = [rounded(rng.standard_normal((2, 2, 70, 64)), rl.bfloat16) for _ in range(4)]
    large = rng.random((70, 3, 90)) < 0.5
    given = [rl.tensor(a, dtype=rl.bfloat16, device="cuda") for a in arrays[:3]]

    @rl.jit
    def run(q: rl.Tensor, k: rl.Tensor, v: rl.Tensor, large: rl.Tensor) -> rl.Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=large[:, 1, 5:75].T)

    got = run(*given, rl.tensor(large, device="cuda"))
    added = np.where(large[:, 1, 5:75].T, 0, -np.inf)
    assert error(got, truth(arrays[:3], arrays[3], False, added)[0]) < 5e-3


@pytest.mark.parametrize("length", [150, 600])
def test_heads_of_one_projection(length: int) -> None:
    batch, heads, width = 2, 4, 64
    rng = np.random.default_rng(4)
    joined = rounded(rng.standard_normal((batch, length, 3, heads, width)), rl.bfloat16)
    ct = rounded(rng.standard_normal((batch, length, heads * width)), rl.bfloat16)

    @rl.jit
    def run(joined: rl.Tensor, ct: rl.Tensor) -> Any:
        joined = joined.detach().requires_grad_()
        parts = (joined + 0).reshape(batch, length, 3, heads, width)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        out = seen.transpose(1, 2).reshape(batch, length, heads * width)
        return [out, *rl.autograd.grad(out, [joined], ct)]

    flat = joined.reshape(batch, length, 3 * heads * width)
    given = [rl.tensor(a, dtype=rl.bfloat16, device="cuda") for a in (flat, ct)]
    out, gradient = run(*given)
    parts = [np.moveaxis(joined[:, :, n], 1, 2) for n in range(3)]
    by_head = np.moveaxis(ct.reshape(batch, length, heads, width), 1, 2)
    wanted, *others = truth(parts, by_head, True)
    assert error(out, np.moveaxis(wanted, 1, 2).reshape(ct.shape)) < 5e-3
    stacked = np.stack([np.moveaxis(part, 1, 2) for part in others], 2)
    assert error(gradient, stacked.reshape(flat.shape)) < 5e-3


@pytest.mark.parametrize("length", [96, 600])
def test_a_single_gradient(length: int) -> None:
    rng = np.random.default_rng(5)
    arrays = [rounded(rng.standard_normal((1, 2, length, 64)), rl.bfloat16) for _ in range(4)]
    for place in range(3):

        @rl.jit
        def run(*given: rl.Tensor, place: int = place) -> rl.Tensor:
            operands = [t.detach() for t in given[:3]]
            operands[place].requires_grad_()
            out = scaled_dot_product_attention(*operands)
            return rl.autograd.grad(out, [operands[place]], given[3])[0]

        got = run(*[rl.tensor(a, dtype=rl.bfloat16, device="cuda") for a in arrays])
        assert error(got, truth(arrays[:3], arrays[3], False)[1 + place]) < 5e-3


@pytest.mark.parametrize("kind", ["bool", "float32"])
@pytest.mark.parametrize(
    ("batch", "heads", "shared", "rows", "columns", "width"),
    [
        (1, 32, 8, 1, 4096, 128),
        (3, 8, 8, 2, 333, 64),
        (2, 12, 1, 5, 1000, 96),
        (16, 8, 2, 1, 77, 80),
    ],
)
def test_few_rows_over_many_keys(
    batch: int, heads: int, shared: int, rows: int, columns: int, width: int, kind: str
) -> None:
    rng = np.random.default_rng(rows)
    shapes = [(batch, heads, rows, width), *[(batch, shared, columns, width)] * 2]
    exact = [rounded(rng.standard_normal(shape), rl.bfloat16) for shape in shapes]
    kept = rng.random((batch, 1, 1, columns)) < 0.7
    kept[..., columns // 2 :] = False
    mask = kept if kind == "bool" else np.where(kept, 0, -np.inf).astype(np.float32)
    wanted = truth(exact, np.zeros(shapes[0]), False, np.where(kept, 0, -np.inf))[0]
    q, k, v = (rl.tensor(a, device="cuda").to(rl.bfloat16) for a in exact)
    attend = rl.jit(
        lambda q, k, v, m: scaled_dot_product_attention(
            q, k, v, attn_mask=m, enable_gqa=heads != shared
        )
    )
    for _ in range(3):
        out = attend(q, k, v, rl.tensor(mask, device="cuda")).float().cpu().numpy()
        gap = np.linalg.norm(out - wanted) / np.linalg.norm(wanted)
        assert gap < 5e-3
