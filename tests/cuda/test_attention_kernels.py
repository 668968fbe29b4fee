"""Attention kernels compile for old and new GPUs, over all widths of a head, types and layouts."""

from __future__ import annotations

import pytest

import ridgeline as rl
from ridgeline.codegen.cuda import compile_all
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import topological
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.runtime.cuda.attention import (
    Mask,
    Problem,
    Strides,
    backward,
    few_rows,
    forward,
    is_attention,
    is_generated,
    operand_views,
)
from ridgeline.tensors.tensor import read

MASKS = (
    None,
    Mask("bool", 257, 0, 0, 1, 0),
    Mask("float32", 0, 333 * 257, 257, 1, 64),
)


def inputs(*shape: int) -> rl.Tensor:
    """A tensor that is an input, not a constant."""
    made = rl.zeros(*shape, dtype=rl.bfloat16).contiguous()
    made.float().numpy()
    return made.requires_grad_()


def problem(
    width: int, dtype: str, *, causal: bool, beside: bool, group: int, mask: Mask | None = None
) -> Problem:
    """Odd lengths; heads beside one another in a row, or one after the other."""
    batch, heads, rows, columns = 2, 4, 333, 257
    shared = heads // group
    if beside:
        q = Strides(rows * heads * width, width, heads * width)
        k = Strides(columns * 2 * shared * width, width, 2 * shared * width, shared * width)
    else:
        q, k = Strides.dense(heads, rows, width), Strides.dense(shared, columns, width)
    assert q.aligned and k.aligned
    return Problem(
        dtype, batch, heads, shared, rows, columns, width, 0.125, causal,
        (q, k, k, q, q, k, k), (True,) * 3, mask=mask,
    )  # fmt: skip


WIDTHS = {"sm_80": (80,), "sm_90a": (32, 64, 112, 128)}


@pytest.mark.parametrize("arch", WIDTHS)
def test_kernels_compile(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    sources = []
    for place, width in enumerate(WIDTHS[arch]):
        dtype = ("bfloat16", "float16")[place % 2]
        assert is_generated(dtype, width)
        chosen = problem(
            width, dtype, causal=place % 3 == 0, beside=place % 2 == 1, group=1 + place % 2,
            mask=MASKS[place % 3],
        )  # fmt: skip
        sources += [forward(chosen), backward(chosen)]
    codes = compile_all([source.text for source in sources], arch)
    for source, code in zip(sources, codes):
        assert code.startswith(b"\x7fELF")
        for launch in source.launches:
            assert launch.symbol.encode() in code
            assert launch.shared_bytes <= 163 << 10  # what compute capability 8.0 has
            assert launch.blocks() > 0


def test_a_kernel_is_named_by_all_that_decides_its_text() -> None:
    base = problem(64, "bfloat16", causal=True, beside=False, group=1)
    others = [
        problem(64, "float16", causal=True, beside=False, group=1),
        problem(64, "bfloat16", causal=False, beside=False, group=1),
        problem(64, "bfloat16", causal=True, beside=True, group=1),
        problem(64, "bfloat16", causal=True, beside=False, group=2),
        problem(32, "bfloat16", causal=True, beside=False, group=1),
        *(problem(64, "bfloat16", causal=True, beside=False, group=1, mask=m) for m in MASKS[1:]),
    ]
    assert len({forward(p).name for p in (base, *others)}) == 8
    assert forward(base) == forward(base)


SHOWN = {
    "one for all": ((1, 1, 40, 50), (0, 0, 50, 1)),
    "columns of a batch": ((2, 1, 1, 50), (50, 0, 0, 1)),
    "rows of a head": ((1, 4, 40, 1), (0, 40, 1, 0)),
    "all": ((2, 4, 40, 50), (8000, 2000, 50, 1)),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("dtype", ["bool", "float32", "bfloat16", "float16"])
def test_masks_are_read_where_they_lie(name: str, dtype: str) -> None:
    shape, strides = SHOWN[name]
    q, k, v = (inputs(2, 4, length, 64) for length in (40, 50, 50))
    mask = rl.zeros(*shape, dtype=getattr(rl, dtype)).contiguous()
    mask.detach().float().numpy()
    out = rl.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    gradient = rl.autograd.grad(out, [q], rl.ones_like(out))[0]
    found = [n for n in topological([read(gradient)]) if is_attention(n)]
    assert [n.op for n in found] == [ATTENTION, ATTENTION_GRADIENT]
    leaves = {read(t) for t in (q, k, v, mask)}
    graph = Graph.below([read(gradient)], leaves.__contains__)
    for node in found:
        view = operand_views(node, graph)[3]
        steps = tuple(0 if size == 1 else step for size, step in zip(shape, view.strides))
        assert steps == strides
        assert view.base.dtype.name == ("float32" if dtype == "float16" else dtype)
        assert (view.base in leaves) == (dtype != "float16")  # one unlike operands is widened first


def test_batches_of_a_mask_that_are_no_one_stride_have_no_kernel() -> None:
    q, k, v = (inputs(2, 3, 4, 40, 64) for _ in range(3))
    for shape, there in (
        ((2, 3, 1, 1, 40), True),
        ((1, 1, 4, 1, 1), True),
        ((1, 3, 1, 1, 40), False),
    ):
        mask = rl.zeros(*shape).contiguous()
        mask.numpy()
        out = rl.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        (node,) = (n for n in topological([read(out)]) if n.op is ATTENTION)
        assert is_attention(node) == there


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_kernels_of_few_rows_compile(arch: str) -> None:
    """For every architecture that has tensor cores for 16-bit floats, which attention is for."""
    pytest.importorskip("cuda.bindings.nvrtc")
    texts = []
    for width, dtype, rows in ((128, "bfloat16", 1), (80, "float16", 3)):
        for mask in MASKS:
            q, k = Strides.dense(8, rows, width), Strides.dense(2, 257, width)
            given = Problem(
                dtype, 2, 8, 2, rows, 257, width, 0.125, False, (q, k, k, q), (True, True),
                mask=mask,
            )  # fmt: skip
            texts.append(few_rows(given).text)
    assert all(image.startswith(b"\x7fELF") for image in compile_all(texts, arch))
