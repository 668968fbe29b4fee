"""The steps that GPU schedules are made of: before and after as text, and the same values."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel
from ridgeline.loops.schedule import (
    Bind,
    CacheInRegisters,
    FuseSiblings,
    OneHotSum,
    Pad,
    Partials,
    Reorder,
    ScheduleError,
    Share,
    Split,
    Spread,
    Step,
    Streamed,
    from_json,
    replay,
    to_json,
)
from ridgeline.loops.text.printer import print_kernel
from tests.loops.parser import parse_kernel

LOSS = """kernel loss(x: float32[5, 50] @0, t: int64[5] @1, y: float32[5] @2)
for r < 5:
  alloc top: float32[] reg
  alloc sum: float32[] reg
  alloc own: float32[] reg
  top[] = -inf
  for c < 50 reduce:
    top[] max= x[r, c]
  sum[] = 0.0
  for c < 50 reduce:
    sum[] += exp(x[r, c] - top[])
  own[] = 0.0
  for c < 50 reduce:
    own[] += select(c == t[r], x[r, c], 0.0)
  y[r] = log(sum[]) + top[] - own[]
"""

MOMENTS = """kernel moments(x: float32[40, 6] @0, s: float32[6] @1, q: float32[6] @2)
for r < 6:
  alloc a: float32[] reg
  alloc b: float32[] reg
  a[] = 0.0
  for c < 40 reduce:
    a[] += x[c, r]
  b[] = 0.0
  for c < 40 reduce:
    b[] += x[c, r] * x[c, r]
  s[r] = a[]
  q[r] = b[]
"""

PRODUCT = """kernel product(x: float32[5, 7] @0, w: float32[7, 6] @1, y: float32[5, 6] @2)
for m < 5:
  for n < 6:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k < 7 reduce:
      acc[] += x[m, k] * w[k, n]
    y[m, n] = acc[]
"""


def loss(kernel: Kernel, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    y = np.zeros(5, np.float32)
    interpret(kernel, {0: x, 1: t, 2: y})
    return y


def rewritten(text: str, *steps: Step) -> Kernel:
    return replay(parse_kernel(text), from_json(to_json(steps)))


@pytest.fixture
def scores() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((5, 50)).astype(np.float32)
    x[1, 3:40] = -np.inf
    x[2, 7] = np.inf
    return x, np.array([3, 49, 0, -100, 70])


def test_a_sum_with_one_term_is_picked(scores: tuple[np.ndarray, np.ndarray]) -> None:
    kernel = rewritten(LOSS, OneHotSum("c"))
    text = print_kernel(kernel)
    assert "if (0 <= t[r]) & (t[r] < 50):" in text
    assert "own[] += x[r, t[r]]" in text
    np.testing.assert_array_equal(loss(kernel, *scores), loss(parse_kernel(LOSS), *scores))


KEPT_LOSS = LOSS.replace(
    "  alloc top", "  alloc row: float32[50] local\n  alloc top"
).replace(
    "  top[] = -inf\n", "  top[] = -inf\n  for c < 50:\n    row[c] = tanh(x[r, c])\n"
).replace("max= x[r, c]", "max= row[c]").replace("exp(x[r, c]", "exp(row[c]").replace(
    "t[r], x[r, c]", "t[r], row[c]"
)  # fmt: skip


def test_a_term_in_scratch_is_computed_again(scores: tuple[np.ndarray, np.ndarray]) -> None:
    kernel = rewritten(KEPT_LOSS, OneHotSum("c"), Spread("row", ("c",)))
    assert "own[] += tanh(x[r, t[r]])" in print_kernel(kernel)
    np.testing.assert_array_equal(loss(kernel, *scores), loss(parse_kernel(KEPT_LOSS), *scores))


def test_only_single_terms_are_picked() -> None:
    with pytest.raises(ScheduleError, match="one term alone"):
        rewritten(LOSS.replace("x[r, c], 0.0", "x[r, c], 1.0"), OneHotSum("c"))


def test_threads_go_over_a_row_once(scores: tuple[np.ndarray, np.ndarray]) -> None:
    kernel = rewritten(
        LOSS, OneHotSum("c"), Split("c", 4, "guard"), Reorder(("c.1", "c.0")),
        Streamed("c.1", "c.0"), Bind("c.1", "thread"), Bind("r", "grid"),
    )  # fmt: skip
    assert print_kernel(kernel).count("for c.0 < 13 carried:") == 1
    expected = loss(parse_kernel(LOSS), *scores)
    np.testing.assert_allclose(loss(kernel, *scores), expected, rtol=1e-6)


def test_a_row_of_nothing_but_minus_infinity_stays_undefined() -> None:
    x, t = np.full((5, 50), -np.inf, np.float32), np.zeros(5, np.int64)
    kernel = rewritten(
        LOSS, Split("c", 4, "guard"), Reorder(("c.1", "c.0")), Streamed("c.1", "c.0")
    )
    assert np.isnan(loss(parse_kernel(LOSS), x, t)).all()
    assert np.isnan(loss(kernel, x, t)).all()


def test_folds_that_need_nothing_of_one_another_share_a_loop() -> None:
    kernel = rewritten(MOMENTS, FuseSiblings("c"))
    assert print_kernel(kernel).count("for c < 40 reduce:") == 1
    with pytest.raises(ScheduleError, match="can run as one"):
        rewritten(LOSS.replace("own[] += select(c == t[r], x[r, c], 0.0)", "own[] += sum[]"),
                  FuseSiblings("c"))  # fmt: skip


@pytest.mark.parametrize("pieces", [4, 7])
def test_pieces_are_joined_by_a_second_launch(pieces: int) -> None:
    kernel = rewritten(MOMENTS, FuseSiblings("c"), Partials("c", pieces), Bind("c.p", "grid"))
    x = np.random.default_rng(1).integers(-5, 5, (40, 6)).astype(np.float32)
    s, q = np.zeros(6, np.float32), np.zeros(6, np.float32)
    interpret(kernel, {0: x, 1: s, 2: q})
    np.testing.assert_array_equal(s, x.sum(0))
    np.testing.assert_array_equal(q, (x * x).sum(0))


def test_pieces_are_joined_by_rows_of_their_own() -> None:
    kernel = rewritten(
        MOMENTS, FuseSiblings("c"), Partials("c", 4, ("r",)), Split("r", 4, "guard"),
        Split("r.j", 2, "guard"), Bind("r.j.1", "thread"), Bind("r.1", "thread"),
    )  # fmt: skip
    x = np.random.default_rng(1).integers(-5, 5, (40, 6)).astype(np.float32)
    s, q = np.zeros(6, np.float32), np.zeros(6, np.float32)
    interpret(kernel, {0: x, 1: s, 2: q})
    np.testing.assert_array_equal(s, x.sum(0))
    np.testing.assert_array_equal(q, (x * x).sum(0))


def test_a_fold_of_folds_is_not_cut() -> None:
    with pytest.raises(ScheduleError, match="needs the result of another"):
        rewritten(LOSS, Partials("c", 2))


def test_a_held_row_is_read_once() -> None:
    kernel = rewritten(LOSS, OneHotSum("c"), Split("c", 8, "guard"), Reorder(("c.1", "c.0")),
                       CacheInRegisters("x", "r"), Bind("c.1", "thread"))  # fmt: skip
    assert print_kernel(kernel).count("x[r, c.0 * 8 + c.1]") == 1


GATHERED = """kernel gathered(x: float32[9] @0, at: int64[5, 8] @1, y: float32[5, 8] @2)
for r < 5:
  alloc top: float32[] reg
  top[] = -inf
  for c < 8 reduce:
    top[] max= x[at[r, c]]
  for c < 8:
    y[r, c] = x[at[r, c]] - top[]
"""


def test_elements_are_held_before_the_memory_that_says_which_they_are() -> None:
    with pytest.raises(ScheduleError, match="not known in front of its row"):
        rewritten(GATHERED, CacheInRegisters("at", "r"), CacheInRegisters("x", "r"))
    kernel = rewritten(GATHERED, CacheInRegisters("x", "r"), CacheInRegisters("at", "r"))
    rng = np.random.default_rng(3)
    x, at = rng.integers(-4, 5, 9).astype(np.float32), rng.integers(0, 9, (5, 8))
    y = np.zeros((5, 8), np.float32)
    interpret(kernel, {0: x, 1: at, 2: y})
    np.testing.assert_array_equal(y, x[at] - x[at].max(1, keepdims=True))


def test_padded_tiles_through_shared_memory() -> None:
    kernel = rewritten(
        PRODUCT, Pad("m", 4), Pad("n", 4), Pad("k", 4), Split("m", 4), Split("n", 4), Split("k", 4),
        Reorder(("m.0", "n.0", "k.0", "m.1", "n.1", "k.1")),
        Share("x", "m.1", ("k.1", "m.1"), ("m.1", "k.1"), 1),
        Share("w", "m.1", ("k.1", "n.1"), ("k.1", "n.1")),
        Bind("x.s", "thread"), Bind("w.s", "thread"), Bind("m.1", "thread"), Bind("n.1", "thread"),
        Bind("m.0", "grid"), Bind("n.0", "grid"),
    )  # fmt: skip
    rng = np.random.default_rng(2)
    x, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((5, 7), (7, 6)))
    y = np.zeros((5, 6), np.float32)
    interpret(kernel, {0: x, 1: w, 2: y})
    np.testing.assert_array_equal(y, x @ w)


def test_a_maximum_is_not_padded() -> None:
    with pytest.raises(ScheduleError, match="would change the result"):
        rewritten(LOSS, Pad("c", 64))
