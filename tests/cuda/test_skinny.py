"""Products with few rows: weights read once, in vectors, by the loop interpreter and by NVRTC."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.codegen.cuda import generate
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.schedules.gpu.machine import H200
from tests.cuda.lowering import interpreted, schedule
from tests.cuda.programs import call, given

RNG = np.random.default_rng(2)
ARCHITECTURES = ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
@pytest.mark.parametrize(("columns", "depth"), [(12, 256), (7, 264), (5, 1000)])
def test_values(rows: int, dtype: DType, columns: int, depth: int) -> None:
    x, w = given(dtype, rows, depth), given(dtype, columns, depth)
    left = RNG.integers(-3, 4, (rows, depth)).astype(dtype.numpy)
    right = RNG.integers(-3, 4, (columns, depth)).astype(dtype.numpy)
    (found,) = interpreted([call("linear", x, w)], [x, w], [left, right])
    wanted = left.astype(np.float64) @ right.astype(np.float64).T
    np.testing.assert_array_equal(found, wanted.astype(dtype.numpy))


@pytest.mark.parametrize("rows", [2, 8])
def test_weights_are_read_once_in_whole_vectors(rows: int) -> None:
    x, w = given(dtypes.bfloat16, rows, 4096), given(dtypes.bfloat16, 4096, 4096)
    (made,) = schedule([call("linear", x, w)], [x, w], H200)
    loops = {s.name: s for s in ir.statements(made.kernel.body) if isinstance(s, ir.For)}
    assert loops["m"].kind == "unroll" and loops["k.1"].kind == "vector"
    (launch,) = generate(made.kernel).launches
    assert launch.blocks() == 1024  # none of them for a row of its own
    text = generate(made.kernel).text
    assert "Pack<unsigned short, 8>" in text


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_code_compiles(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all

    texts = []
    for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
        x, w, b = given(dtype, 4, 1024), given(dtype, 512, 1024), given(dtype, 512)
        outputs = [call("silu", call("linear", x, w, b))]
        texts += [generate(made.kernel).text for made in schedule(outputs, [x, w, b], H200)]
    assert all(image.startswith(b"\x7fELF") for image in compile_all(texts, arch))
