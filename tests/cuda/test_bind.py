"""Binding loops to blocks and threads: what is refused, and that a bound loop means the same."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.loops.interpreter.interpret import Race, interpret
from ridgeline.loops.schedule import Bind, ScheduleError, Split, from_json, replay, to_json
from ridgeline.loops.text.printer import print_kernel
from tests.loops.parser import parse_kernel

SUMS = """kernel sums(x: float32[6, 20] @0, y: float32[6] @1)
for r < 6:
  alloc acc: float32[] reg
  acc[] = 0.0
  for c < 20 reduce:
    acc[] += x[r, c]
  y[r] = acc[]
"""

SCATTER = """kernel scatter(i: int64[30] @0, v: float32[30] @1, y: float32[4] @2)
for u < 30 carried:
  y[i[u]] += v[u]
"""

UNPRIVATE = """kernel unprivate(x: float32[8, 4] @0, y: float32[8] @1)
alloc held: float32[4] shared
for r < 8 thread:
  for c < 4:
    held[c] = x[r, c]
  y[r] = held[0] + held[3]
"""


def test_bound_loops_mean_the_same_and_print() -> None:
    steps = [Split("c", 8, "guard"), Bind("c.1", "thread"), Bind("r", "grid")]
    kernel = replay(parse_kernel(SUMS), from_json(to_json(steps)))
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert "for r < 6 grid:" in print_kernel(kernel)
    assert "for c.1 < 8 reduce thread:" in print_kernel(kernel)
    x = np.random.default_rng(0).integers(-9, 9, (6, 20)).astype(np.float32)
    y = np.empty(6, np.float32)
    interpret(kernel, {0: x, 1: y})
    np.testing.assert_array_equal(y, x.sum(1))


def test_joins_in_order_may_be_shared_out() -> None:
    kernel = replay(parse_kernel(SCATTER), [Split("u", 8, "guard"), Bind("u.0", "grid")])
    index = np.random.default_rng(0).integers(0, 4, 30)
    value, y = np.arange(30, dtype=np.float32), np.zeros(4, np.float32)
    interpret(kernel, {0: index, 1: value, 2: y})
    np.testing.assert_array_equal(y, np.bincount(index, value, 4))


@pytest.mark.parametrize(
    ("text", "step", "reason"),
    [
        (SUMS, Bind("c", "thread"), "powers of two"),
        (SUMS, Bind("c", "grid"), "not outermost"),
        (SCATTER.replace("+=", "="), Bind("u", "grid"), "depend on one another"),
    ],
)
def test_what_cannot_be_bound(text: str, step: Bind, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        step.apply(parse_kernel(text))


def test_scratch_that_threads_share_by_mistake_is_a_race() -> None:
    arrays = {0: np.zeros((8, 4), np.float32), 1: np.zeros(8, np.float32)}
    with pytest.raises(Race, match="iterations of r share held"):
        interpret(parse_kernel(UNPRIVATE), arrays)
