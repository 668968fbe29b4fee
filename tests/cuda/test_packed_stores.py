"""Stores of one vector loop into one memory are packed where a constant keeps them apart."""

from __future__ import annotations

import pytest

from ridgeline import dtypes
from ridgeline.codegen.cuda import generate
from ridgeline.dtypes import DType
from ridgeline.schedules.gpu.machine import A100, H200
from tests.cuda.lowering import schedule
from tests.cuda.programs import call, given
from tests.loops.parser import parse_kernel


def packed(shapes: list[tuple[int, ...]], axis: int, dtype: DType, name: str = "cat") -> int:
    """How many stores of 16 bytes the kernels have that join tensors."""
    inputs = [given(dtype, *shape) for shape in shapes]
    kernels = [s.kernel for s in schedule([call(name, inputs, axis)], inputs, H200)]
    texts = [generate(kernel).text for kernel in kernels]
    assert all(text.count("__global__") == 1 for text in texts)  # a launch each
    return sum(line.lstrip().startswith("*(Pack<") for text in texts for line in text.splitlines())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int64])
def test_joined_tensors_are_written_in_whole_accesses(dtype: DType) -> None:
    assert packed([(64, 2048), (64, 2048)], 1, dtype) == 2
    assert packed([(64, 2048), (64, 2048)], 0, dtype) == 2
    assert packed([(8, 64, 32)] * 3, 1, dtype) == 3


def test_what_begins_between_accesses_or_interleaves_is_not() -> None:
    assert packed([(64, 2047), (64, 2047)], 1, dtypes.float32) == 0
    assert packed([(64, 2048), (64, 2048)], -1, dtypes.float32, "stack") == 0


TEXT = """kernel twice(x: float32[16] @0, y: float32[512] @1)
for i < 32 thread:
  for l < 8 vector:
    y[i * 8 + l] = x[l]
    y[i * 8 + l + {offset}] = {value}
"""


@pytest.mark.parametrize(
    ("offset", "value", "count"),
    [(256, "x[l + 8]", 2), (8, "x[l + 8]", 2), (4, "x[l + 8]", 0), (256, "y[i * 8 + l]", 0)],
)
def test_stores_that_meet_stay_in_order(offset: int, value: str, count: int) -> None:
    """The lanes of two stores that overlap, or of which one is read, are written in turn."""
    text = generate(parse_kernel(TEXT.format(offset=offset, value=value))).text
    assert text.count("*(Pack<float, 8> *)") == count


def test_short_reductions_are_one_launch() -> None:
    """A second one takes longer to begin than a block takes to read some tens of kilobytes."""
    for gpu in (A100, H200):
        counts = [
            len(generate(s.kernel).launches)
            for shape in ((64, 64), (128, 128), (1024, 1024))
            for x in [given(dtypes.float32, *shape)]
            for s in schedule([call("sum", x)], [x], gpu)
        ]
        assert counts == [1, 1, 2]
