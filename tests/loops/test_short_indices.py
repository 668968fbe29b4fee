"""Quotients of loop variables, shortened by the lengths of loops: an example, and the meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeline.codegen.llvm.emit import module_text
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel
from ridgeline.loops.legalize import with_short_indices
from ridgeline.loops.text.printer import print_kernel
from tests.loops.parser import parse_kernel

HEADS = """\
kernel columns(x: float32[2, 6, 5, 64] @0, y: float32[384] @1)
for r < 12:
  alloc total: float32[32] reg
  for c < 32 vector:
    total[c] = 0.0
  for b < 2 reduce:
    for k < 5 reduce:
      for c < 32 vector:
        total[c] += x[b, (r * 32 + c) // 64, k, (r * 32 + c) % 64]
  for c < 32 vector:
    y[r * 32 + c] = total[c]
"""


def shortened(kernel: Kernel) -> Kernel:
    return replace(kernel, body=with_short_indices(kernel.body))


def test_lanes_that_share_a_quotient_are_one_load() -> None:
    kernel = parse_kernel(HEADS)
    body = print_kernel(shortened(kernel))
    assert "x[b, r // 2, k, r % 2 * 32 + c]" in body
    assert "gather" not in module_text([kernel], 64)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 7), st.integers(0, 50)
)
def test_the_meaning_stays(rows: int, lanes: int, divisor: int, factor: int, shift: int) -> None:
    place = f"(r * {factor} + c + {shift})"
    kernel = parse_kernel(
        f"kernel places(q: int64[{rows}, {lanes}] @0, m: int64[{rows}, {lanes}] @1)\n"
        f"for r < {rows}:\n  for c < {lanes}:\n"
        f"    q[r, c] = {place} // {divisor}\n    m[r, c] = {place} % {divisor}\n"
    )
    r, c = np.indices((rows, lanes))
    wanted = np.divmod(r * factor + c + shift, divisor)
    found = {i: np.zeros((rows, lanes), np.int64) for i in range(2)}
    interpret(shortened(kernel), found, {})
    for i in range(2):
        np.testing.assert_array_equal(found[i], wanted[i])
