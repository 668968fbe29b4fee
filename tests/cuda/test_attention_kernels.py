"""Attention kernels compile for old and new GPUs, over all widths of a head, types and layouts."""

from __future__ import annotations

import pytest

from ridgeline.codegen.cuda import compile_all
from ridgeline.codegen.cuda.attention import Attention, Strides, backward, forward, is_generated


def problem(width: int, dtype: str, *, causal: bool, beside: bool, group: int) -> Attention:
    """Odd lengths; heads beside one another in a row, or one after the other."""
    batch, heads, rows, columns = 2, 4, 333, 257
    shared = heads // group
    if beside:
        q = Strides(rows * heads * width, width, heads * width)
        k = Strides(columns * 2 * shared * width, width, 2 * shared * width, shared * width)
    else:
        q, k = Strides.dense(heads, rows, width), Strides.dense(shared, columns, width)
    assert q.aligned and k.aligned
    return Attention(
        dtype, batch, heads, shared, rows, columns, width, 0.125, causal,
        (q, k, k, q, q, k, k), (True,) * 3,
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
            width, dtype, causal=place % 3 == 0, beside=place % 2 == 1, group=1 + place % 2
        )
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
    ]
    assert len({forward(p).name for p in (base, *others)}) == 6
    assert forward(base) == forward(base)
