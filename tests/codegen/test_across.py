"""Sums whose neighbours in memory are in other registers: turned, finished and stored in order."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.codegen.llvm.emit import module_text
from ridgeline.loops.interpreter.interpret import interpret
from tests.loops.parser import parse_kernel
from tests.loops.validation import run_native

PIXELS = """\
kernel pixels(x: {dtype}[6, {steps}] @0, w: {dtype}[6, {lanes}] @1, b: {dtype}[{lanes}] @2, r: {dtype}[{lanes}, {steps}] @3, y: {dtype}[{lanes}, {steps}] @4)
alloc total: {dtype}[{steps}, {lanes}] reg:
  for p < {steps} unroll:
    for c < {lanes} vector:
      total[p, c] = 0.0
  for k < 6 reduce:
    for p < {steps} unroll:
      for c < {lanes} vector:
        total[p, c] += x[k, p] * w[k, c]
  for p < {steps} unroll:
    for c < {lanes} vector:
      y[c, p] = {value}
"""  # noqa: E501
SHORT = "max(total[p, c] + b[c] + r[c, p], 0.0)"
LONG = "(total[p, c] + b[c]) * (r[c, p] - total[p, c]) + max(r[c, p], b[c]) * 2.0 - total[p, c]"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("steps,lanes", [(4, 8), (5, 16), (7, 32), (14, 16), (16, 64)])
def test_stores_across_lanes(steps: int, lanes: int, value: str, dtype: str) -> None:
    kernel = parse_kernel(PIXELS.format(steps=steps, lanes=lanes, dtype=dtype, value=value))
    source = np.random.default_rng(0)
    shapes = ((6, steps), (6, lanes), (lanes,), (lanes, steps), (lanes, steps))
    memory = {i: source.integers(-9, 9, s).astype(dtype) for i, s in enumerate(shapes)}
    text = module_text([kernel], 64)
    assert "scatter" not in text and "gather" not in text
    found = run_native(kernel, memory)[4]
    interpret(kernel, memory, {})
    np.testing.assert_array_equal(found, memory[4])
    x, w, b, r = (memory[i] for i in range(4))
    total, b = (x.T @ w).T, b[:, None]
    expected = np.maximum(total + b + r, 0)
    if value == LONG:  # which is not written out for every column
        expected = (total + b) * (r - total) + np.maximum(r, b) * 2 - total
        assert text.count("fmul") < lanes
    np.testing.assert_array_equal(found, expected)
