"""Chains: attention as one kernel, whatever its mask, lengths and types; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import lower_graph
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops.analysis.scratch_reuse import in_one_row
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Alloc
from ridgeline.loops.schedule import ScheduleError, Skip, from_json, replay, to_json
from ridgeline.loops.text.printer import print_kernel
from ridgeline.nn.functional import scaled_dot_product_attention
from ridgeline.ops.attention import attention, attention_gradient
from ridgeline.ops.differentiate import reverse
from tests.compiler.passing import prepared
from tests.loops.parser import parse_kernel

torch_attention = torch.nn.functional.scaled_dot_product_attention


def operands(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    source = np.random.default_rng(seed)
    return [source.standard_normal(shape, np.float32) for shape in shapes]


def exact(q: Any, k: Any, v: Any, **options: Any) -> np.ndarray[Any, Any]:
    mask = options.pop("attn_mask", None)
    if mask is not None:
        mask = torch.from_numpy(mask)
        options["attn_mask"] = mask if mask.dtype == torch.bool else mask.double()
    result: np.ndarray[Any, Any] = torch_attention(
        *(torch.from_numpy(a).double() for a in (q, k, v)), **options
    ).numpy()
    return result


CASES = {
    "causal": ((2, 3, 128, 64), (2, 3, 128, 64), {"is_causal": True}),
    "plain": ((2, 3, 128, 64), (2, 3, 128, 64), {}),
    "odd lengths": ((1, 2, 77, 33), (1, 2, 131, 33), {}),
    "odd causal": ((1, 2, 145, 32), (1, 2, 145, 32), {"is_causal": True}),
    "causal across lengths": ((1, 2, 70, 16), (1, 2, 200, 16), {"is_causal": True}),
    "few rows": ((1, 4, 3, 16), (1, 4, 300, 16), {}),
    "few columns": ((1, 2, 200, 8), (1, 2, 40, 8), {}),
    "shared heads": ((1, 8, 96, 32), (1, 2, 96, 32), {"is_causal": True, "enable_gqa": True}),
    "no heads": ((150, 20), (150, 20), {"is_causal": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_kernel_and_right(name: str) -> None:
    query, key, options = CASES[name]
    q, k, v = operands(query, key, key)
    attend = rl.jit(lambda q, k, v: scaled_dot_product_attention(q, k, v, **options))
    result = attend(*map(rl.tensor, (q, k, v))).numpy()
    np.testing.assert_allclose(result, exact(q, k, v, **options), rtol=2e-5, atol=2e-6)
    if name not in ("few columns", "no heads"):  # which gain nothing
        count = 2 if name == "few rows" else 1  # scores as dot products, and all else
        assert f"{count} kernels in one native call" in attend.explanation(detail="kernels")


@pytest.mark.parametrize("length", [1, 2, 5, 63, 65, 67, 127, 131])
@pytest.mark.parametrize("causal", [True, False])
def test_all_lengths_and_their_gradients(length: int, causal: bool) -> None:
    arrays = operands(*[(1, 2, length, 16)] * 3)

    @rl.jit
    def gradients(q: Any, k: Any, v: Any) -> Any:
        out = scaled_dot_product_attention(q, k, v, is_causal=causal)
        return out, *rl.autograd.grad((out**2).sum(), (q, k, v))

    ours = [rl.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.from_numpy(a).double().requires_grad_() for a in arrays]
    out = torch_attention(*theirs, is_causal=causal)
    (out**2).sum().backward()
    for got, wanted in zip(gradients(*ours), (out, *(t.grad for t in theirs))):
        assert wanted is not None
        np.testing.assert_allclose(
            got.detach().numpy(), wanted.detach().numpy(), rtol=2e-4, atol=2e-5
        )


@pytest.mark.parametrize("length", [77, 131])
@pytest.mark.parametrize("row", [0, 64, -1])
def test_a_row_that_is_not_a_number_spoils_no_other(length: int, row: int) -> None:
    q, k, v = operands(*[(1, 2, length, 16)] * 3)
    q[:, :, row, 3] = np.nan
    attend = rl.jit(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
    result = attend(*map(rl.tensor, (q, k, v))).numpy()
    np.testing.assert_allclose(result, exact(q, k, v, is_causal=True), rtol=2e-5, atol=2e-6)
    spoiled = np.isnan(result).any(axis=(0, 1, 3))
    assert spoiled[row] and spoiled.sum() == 1


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_given_as_tensors(kind: str) -> None:
    q, k, v = operands((2, 2, 130, 16), (2, 2, 130, 16), (2, 2, 130, 16))
    mask: Any = np.random.default_rng(3).random((130, 130)) < 0.7
    mask |= np.eye(130, dtype=bool)
    if kind == "float":
        mask = np.where(mask, 0.25, -np.inf).astype(np.float32)
    attend = rl.jit(lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m))
    result = attend(*map(rl.tensor, (q, k, v, mask))).numpy()
    np.testing.assert_allclose(result, exact(q, k, v, attn_mask=mask), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype,tolerance", [("bfloat16", 2e-2), ("float16", 2e-3)])
def test_narrow_types(dtype: str, tolerance: float) -> None:
    q, k, v = operands((1, 2, 128, 32), (1, 2, 128, 32), (1, 2, 128, 32))
    attend = rl.jit(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
    given = [rl.tensor(a).to(getattr(rl, dtype)) for a in (q, k, v)]
    result = attend(*given).to(rl.float32).numpy()
    np.testing.assert_allclose(
        result, exact(q, k, v, is_causal=True), rtol=tolerance, atol=tolerance
    )


def test_gradients_flow_through_the_chain() -> None:
    arrays = operands((2, 2, 96, 16), (2, 2, 96, 16), (2, 2, 96, 16))

    @rl.jit
    def gradients(q: Any, k: Any, v: Any) -> Any:
        total = (scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()
        return rl.autograd.grad(total, (q, k, v))

    ours = [rl.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.from_numpy(a).double().requires_grad_() for a in arrays]
    (torch_attention(*theirs, is_causal=True) ** 2).sum().backward()
    for got, wanted in zip(gradients(*ours), theirs):
        assert wanted.grad is not None
        np.testing.assert_allclose(got.numpy(), wanted.grad.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("causal,length", [(True, 128), (True, 147), (False, 128)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forward_and_backward_are_chains_with_one_matrix_between_two_kernels(
    causal: bool, length: int, dtype: str
) -> None:
    kind = TensorType((2, 3, length, 16), getattr(dtypes, dtype))
    given = [leaf(kind) for _ in range(4)]
    out, _ = attention(*given[:3], None, 0.25, causal)
    parts = [p for p in reverse([out], [given[3]], given[:3]) if p is not None]
    stages = lower_graph(Graph(prepared([out, *parts], given), given))
    groups = stages.fusion.groups
    assert sum(c.group.loops.chain is not None for c in stages.kernels) == 2
    written = {v: step for step, g in enumerate(groups) for v in g.loops.slots[g.loops.reads :]}
    (matrix,) = (v for v in written if v.shape == (2, 3, length, length))
    (reader,) = (step for step, g in enumerate(groups) if matrix in g.reads)
    assert reader == written[matrix] + 1
    skips = [any(isinstance(s, Skip) for s in c.steps) for c in stages.kernels]
    assert sum(skips) == (2 if causal else 0)


@pytest.mark.parametrize("kind", ["bool", "per head"])
def test_a_mask_is_turned_for_the_gradient(kind: str) -> None:
    arrays = operands(*[(2, 3, 147, 24)] * 3)
    mask = operands((2, 3 if kind == "per head" else 1, 147, 147), seed=1)[0]
    given: Any = mask > -0.5 if kind == "bool" else mask

    @rl.jit
    def gradients(q: Any, k: Any, v: Any, mask: Any) -> Any:
        total = (scaled_dot_product_attention(q, k, v, attn_mask=mask) ** 2).sum()
        return rl.autograd.grad(total, (q, k, v))

    ours = [rl.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.from_numpy(a).double().requires_grad_() for a in arrays]
    wide = torch.from_numpy(given if kind == "bool" else given.astype(np.float64))
    (torch_attention(*theirs, attn_mask=wide) ** 2).sum().backward()
    for got, wanted in zip(gradients(*ours, rl.tensor(given)), theirs):
        assert wanted.grad is not None
        np.testing.assert_allclose(got.numpy(), wanted.grad.numpy(), rtol=2e-4, atol=2e-5)
    assert "('m.0.1', 'm.1', 'c0.1'), 4" in gradients.explanation("loops")


def test_two_contractions_before_and_after_mean_the_plain_loops() -> None:
    given = [leaf(TensorType((1, 2, 20, 4), dtypes.float32)) for _ in range(4)]
    _, lse = attention(*given[:3], None, 0.5, True)
    stand_ins = [leaf(lse.type) for _ in range(2)]
    roots = attention_gradient(given[:3], *stand_ins, given[3], lse.inputs[0].attrs)
    inputs = [*given, *stand_ins]
    stages = lower_graph(Graph(prepared(roots, inputs), inputs))
    (compiled,) = (c for c in stages.kernels if c.group.loops.chain is not None)
    slots = compiled.group.loops.slots
    arrays = dict(zip(inputs, operands(*[n.shape for n in inputs])))  # type: ignore[misc]
    arrays[stand_ins[0]] += 3.0
    expected = evaluate(slots, arrays)
    memory = {
        i: arrays.get(node, np.full(node.shape, np.nan, np.float32)) for i, node in enumerate(slots)
    }
    interpret(compiled.kernel, memory, {}, order="shuffled")
    for number, wanted in enumerate(expected):
        np.testing.assert_allclose(memory[number], wanted, rtol=2e-5, atol=2e-6)


def test_the_scheduled_chain_means_the_plain_loops() -> None:
    given = [leaf(TensorType((1, 21, 4), dtypes.float32)) for _ in range(3)]
    kernel = _chain(given)
    arrays = operands(*[(1, 21, 4)] * 3)
    result = np.zeros((1, 21, 4), np.float32)
    memory: dict[int, Any] = {
        i: dict(zip(given, arrays)).get(node, result) for i, node in enumerate(kernel[1])
    }
    interpret(kernel[0], memory, {}, order="shuffled")
    scores = arrays[0].astype(np.float64) @ arrays[1].swapaxes(1, 2)
    scores = np.where(np.tril(np.ones((21, 21), bool)), scores, -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    expected = raised / raised.sum(-1, keepdims=True) @ arrays[2]
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


def _chain(given: list[Node]) -> tuple[Any, tuple[Node, ...]]:
    from ridgeline.functions.linear import matmul
    from ridgeline.functions.movement import transpose
    from ridgeline.functions.reductions import softmax
    from ridgeline.ops.elementwise import apply, iota, select
    from ridgeline.ops.movement import stretch
    from ridgeline.record.numbers import lift

    q, k, v = given
    scores = matmul(q, transpose(k, -1, -2))
    column, row = (iota(scores.shape, axis, dtypes.int64) for axis in (2, 1))
    hidden = stretch(lift(-np.inf, dtypes.float32), scores.shape)
    weights = softmax(select(apply("le", column, row), scores, hidden), -1)
    (compiled,) = lower_graph(Graph([matmul(weights, v)], given)).kernels
    assert from_json(to_json(compiled.steps)) == compiled.steps
    assert replay(compiled.group.loops.kernel, compiled.steps).body == compiled.kernel.body
    assert any(isinstance(s, Skip) for s in compiled.steps) or "c0.0" not in str(compiled.steps)
    return compiled.kernel, compiled.group.loops.slots


ROWS = """\
kernel k(x: float32[64, 64] @0, y: float32[64, 64] @1)
for m.0 < 8:
  alloc row: float32[8, 64] local
  for c.0 < 8:
    for m.1 < 8:
      for c.1 < 8:
        row[m.1, c.0 * 8 + c.1] = select(c.0 * 8 + c.1 <= m.0 * 8 + m.1, x[m.0 * 8 + m.1, c.0 * 8 + c.1], -inf)
  for d.0 < 8:
    for m.1 < 8:
      for d.1 < 8:
        y[m.0 * 8 + m.1, d.0 * 8 + d.1] = row[m.1, d.0 * 8 + d.1]
"""  # noqa: E501


def test_skip_refuses_what_would_be_seen() -> None:
    kernel = parse_kernel(ROWS)
    changed = parse_kernel(
        ROWS.replace("= row[m.1, d.0 * 8 + d.1]", "= tanh(row[m.1, d.0 * 8 + d.1])")
    )
    with pytest.raises(ScheduleError, match="'y' must be written where it is hidden"):
        Skip(("c.0", "d.0")).apply(changed)
    with pytest.raises(ScheduleError, match="also read outside"):
        Skip(("c.0",)).apply(kernel)
    unmasked = parse_kernel(ROWS.replace(", -inf)", ", 0.0)"))
    with pytest.raises(ScheduleError, match="stores no masked values"):
        Skip(("c.0", "d.0")).apply(unmasked)


def test_skip_writes_what_hidden_pieces_hold() -> None:
    kernel = parse_kernel(ROWS)
    skipped = Skip(("c.0", "d.0")).apply(kernel)
    text = print_kernel(skipped)
    assert "if 0 < d.0 * 8 + m.0 * -8 - 7:" in text and "= -inf" in text.split("if 0 <")[1]
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    results = []
    for made in (kernel, skipped):
        y = np.full((64, 64), np.nan, np.float32)
        interpret(made, {0: x, 1: y}, {})
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_skip_guards_every_stage_alike() -> None:
    sums = ROWS.replace("float32[64, 64] @1", "float32[64] @1").split("  for d.0")[0] + (
        "  for m.1 < 8:\n"
        "    alloc acc: float32[] reg\n"
        "    acc[] = -inf\n"
        "    for d.0 < 8 reduce:\n"
        "      for d.1 < 8 reduce:\n"
        "        acc[] max= row[m.1, d.0 * 8 + d.1]\n"
        "    y[m.0 * 8 + m.1] = acc[]\n"
    )
    text = print_kernel(Skip(("c.0", "d.0")).apply(parse_kernel(sums)))
    assert text.count("if ") == 2
    assert "if c.0 * 8 + m.0 * -8 - 7 <= 0:" in text and "if d.0 * 8 + m.0 * -8 - 7 <= 0:" in text


def test_a_matrix_with_columns_apart_is_turned_for_a_block_of_rows() -> None:
    x, weight = operands((2, 128, 96), (160, 96))
    normed = rl.jit(lambda x, w: rl.nn.functional.layer_norm(x, (96,)) @ w.T)
    result = normed(rl.tensor(x), rl.tensor(weight)).numpy()
    exact = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (96,))
    wanted = (exact @ torch.from_numpy(weight).double().T).numpy()
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5)
    text = normed.explanation(detail="loops")
    assert "1 kernels in one native call" in text
    assert "transpose" in text


def test_skip_leaves_the_rest_of_a_row_and_a_last_block_alone() -> None:
    """Rows of 67 in pieces of 8, in blocks of 8 rows and one of 5."""
    whole = """\
    alloc row: float32[8, 67] local
    for c.0 < 8:
      for m.1 < 8:
        for c.1 < 8:
          row[m.1, c.0 * 8 + c.1] = select(c.0 * 8 + c.1 <= m.0 * 8 + m.1, x[m.0 * 8 + m.1, c.0 * 8 + c.1], -inf)
    for m.1 < 8:
      for c.1 < 3:
        row[m.1, c.1 + 64] = select(c.1 + 64 <= m.0 * 8 + m.1, x[m.0 * 8 + m.1, c.1 + 64], -inf)
    for m.1 < 8:
      alloc acc: float32[] reg
      acc[] = -inf
      for d.0 < 8 reduce:
        for d.1 < 8 reduce:
          acc[] max= row[m.1, d.0 * 8 + d.1]
      for d.1 < 3 reduce:
        acc[] max= row[m.1, d.1 + 64]
      y[m.0 * 8 + m.1] = acc[]
"""  # noqa: E501
    last = whole.replace("m.0 * 8", "64").replace("m.1 < 8", "m.1 < 5")
    head = "kernel k(x: float32[69, 67] @0, y: float32[69] @1)\nfor m.0 < 9:\n"
    kernel = parse_kernel(f"{head}  if m.0 < 8:\n{whole}  if 8 <= m.0:\n{last}")
    skipped = Skip(("c.0", "d.0")).apply(kernel)
    assert "if c.0 * 8 + m.0 * -8 - 7 <= 0:" in print_kernel(skipped)
    x = np.random.default_rng(0).standard_normal((69, 67), np.float32)
    results = []
    for made in (kernel, skipped):
        y = np.full(69, np.nan, np.float32)
        interpret(made, {0: x, 1: y}, {})
        results.append(y)
    np.testing.assert_array_equal(*results)
    over = parse_kernel(f"{head}  if m.0 < 8:\n{whole.replace('d.1 + 64', 'd.1 + 62')}")
    with pytest.raises(ScheduleError, match="also read outside"):
        Skip(("c.0", "d.0")).apply(over)


STAGES = """\
kernel k(x: float32[9] @0, y: float32[9] @1)
alloc old: float32[9] local
alloc new: float32[9] local
alloc acc: float32[] reg
for c < 9:
  old[c] = x[c]
acc[] = 0.0
for c < 9:
  new[c] = old[c] * 2.0
  acc[] += old[c]
for c < 9:
  y[c] = new[8 - c] + acc[]
"""


def _rows_of(text: str) -> tuple[Any, list[str]]:
    kernel = parse_kernel(text)
    body, rows = kernel.body, []
    while isinstance(body, Alloc):
        rows.append(body.buffer)
        body = body.body
    shared, kept = in_one_row(body, [b for b in rows if b.scope == "local"])
    for buffer in (*kept, *(b for b in rows if b.scope == "reg")):
        shared = Alloc(buffer, shared)
    return replace(kernel, body=shared), [b.name for b in kept]


def test_a_row_takes_the_place_of_one_that_nothing_reads_any_more() -> None:
    kernel, kept = _rows_of(STAGES)
    assert kept == ["old"]
    x = np.random.default_rng(0).standard_normal(9, np.float32)
    y = np.zeros(9, np.float32)
    interpret(kernel, {0: x, 1: y}, {})
    np.testing.assert_allclose(y, x[::-1] * 2 + x.sum(), rtol=1e-6)


@pytest.mark.parametrize("before,after", [
    ("new[8 - c] + acc[]", "new[8 - c] + old[c]"),  # read later
    ("= old[c] * 2.0", "= old[8 - c] * 2.0"),  # read elsewhere
    ("+= old[c]", "+= new[c]"),  # both read in one stage
    ("new: float32", "new: float64"),
])  # fmt: skip
def test_rows_that_are_both_needed_stay_apart(before: str, after: str) -> None:
    text = STAGES.replace(before, after)
    assert text != STAGES
    assert _rows_of(text)[1] == ["old", "new"]


def test_rows_that_weigh_values_of_unknown_length() -> None:
    def attend(x: rl.Tensor) -> rl.Tensor:
        y = rl.stack([x, x], 1)
        return scaled_dot_product_attention(y, y.flip(-2)[..., :1, :], y.tanh()[..., :1, :])

    with rl.config.override(tier="compiled"):
        step = rl.jit(attend, dynamic={"x": 1})
        for length in (7, 10, 33):
            x = np.random.default_rng(length).normal(size=(33, length)).astype(np.float32)
            expected = np.broadcast_to(np.tanh(x)[:, None], (33, 2, length))
            np.testing.assert_allclose(step(rl.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)
