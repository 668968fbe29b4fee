"""Every schedule step: what it makes of a kernel, that the meaning stays, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ridgeline.loops.analysis.counts import useful
from ridgeline.loops.schedule import (
    Bind,
    CacheRead,
    CacheWrite,
    Cascade,
    ComputeAt,
    Fuse,
    Inline,
    Interleave,
    Offset,
    Online,
    Pad,
    Pipeline,
    Reorder,
    ScheduleError,
    SetKind,
    Split,
    Step,
    Tensorize,
    Tile,
    from_json,
    replay,
    to_json,
)
from ridgeline.loops.text.printer import print_kernel
from tests.loops.parser import parse_kernel
from tests.loops.step_examples import EXAMPLES
from tests.loops.step_kernels import (
    ATTENTION,
    BLUR,
    BYTES,
    FLAT,
    GROWING,
    LOGSUMEXP,
    SIGNED,
    SMALL,
    TILES,
)
from tests.loops.validation import memory_for, same_results


@pytest.mark.parametrize(
    ("before", "steps", "after"), [each[1:] for each in EXAMPLES], ids=[e[0] for e in EXAMPLES]
)
def test_a_step_makes_these_loops_of_the_same_meaning(
    before: str, steps: list[Step], after: str
) -> None:
    kernel = parse_kernel(before)
    scheduled = replay(kernel, steps)
    assert print_kernel(scheduled).strip() == after.strip()
    same_results(kernel, scheduled, native=True)
    assert parse_kernel(print_kernel(scheduled)) == scheduled
    again = from_json(json.loads(json.dumps(to_json(steps))))
    assert again == steps and replay(kernel, again) == scheduled


REFUSALS: list[tuple[str, list[Step], str]] = [
    (SMALL, [Split("q", 2)], "no loop 'q'"),
    (SMALL, [Split("m", 0)], "pieces of 0"),
    (SMALL, [Split("k", 2, "repeat")], "again changes the result"),
    (GROWING, [Split("i", 3, "repeat")], "again changes the result"),
    (BYTES, [Reorder(("k.0", "n")), Split("n", 3, "repeat")], "again changes the result"),
    (FLAT, [Split("j", 4, "repeat"), SetKind("j.1", "vector")], "runs again"),
    (FLAT, [SetKind("j", "vector"), Split("j", 4, "repeat")], "to one place at once"),
    (SMALL, [Fuse("m", "k")], "not directly inside"),
    (SMALL, [Fuse("m", "n")], "not walked in order"),
    (SMALL, [Tile(("m", "n"), (2,))], "2 axes but 1 tile sizes"),
    (SMALL, [Reorder(("k", "q"))], "no loop 'q'"),
    (SMALL, [SetKind("k", "parallel")], "depend on one another"),
    (SMALL, [SetKind("m", "vector")], "only an innermost loop"),
    (SMALL, [SetKind("n", "parallel")], "not outermost"),
    (SMALL, [CacheRead("c", "m", ("n",))], "nothing reads 'c'"),
    (SMALL, [CacheRead("b", "m", ("k",))], "depends on k, n"),
    (BLUR, [CacheRead("t", "j", ("j",))], "read in 3 ways"),
    (
        SMALL,
        [Split("n", 4, "guard"), Reorder(("k", "n.1")), CacheRead("acc", "n.1", ("n.1",))],
        "without which it may hold nothing",
    ),
    (SMALL, [CacheWrite("a", "m", ("m",))], "nothing writes 'a'"),
    (
        SMALL,
        [Split("n", 4, "guard"), Reorder(("k", "n.1")), CacheWrite("acc", "n.1", ("n.1",))],
        "'acc' may hold nothing before 'n.1'",
    ),
    (SMALL, [CacheWrite("c", "m", ("m",))], "depends on m, n"),
    (SMALL, [Inline("t")], "no scratch 't'"),
    (SMALL, [Inline("acc")], "not filled by one plain store"),
    (BLUR, [Split("j", 5), ComputeAt("t", "j.0")], "also read outside"),
    (BLUR, [Split("j", 5, "branch"), ComputeAt("t", "j.0")], "move apart"),
    (SMALL, [Online("k")], "no maximum over 'k'"),
    (SMALL, [Cascade("m", 2)], "no sum of floats runs over 'm'"),
    (SMALL, [Cascade("k", 0)], "blocks of 0"),
    (SMALL, [Cascade("k", 2), Cascade("k.b", 2)], "no sum of floats"),
    (SMALL, [Cascade("k", 2), Cascade("k", 2)], "into blocks already"),
    (LOGSUMEXP, [Online("c"), Cascade("c", 2)], "no sum of floats"),
    (SMALL, [Pipeline("k", 1)], "at least 2 stages"),
    (SMALL, [Pipeline("k", 2)], "fills no scratch"),
    (SMALL, [Interleave("b", "k", ("n",))], "an axis in lanes"),
    (SMALL, [CacheRead("a", "m", ("m", "k")), Offset("a_read", "m")], "no scratch 'a_read' of"),
    (SIGNED, [CacheRead("a", "m", ("m", "k")), Offset("a_read", "m")], "by a packed operand"),
    (SMALL, [Tensorize("m", "wgmma")], "no instruction 'wgmma'"),
    (SMALL, [Tensorize("k", "fma")], "0 loops run over columns"),
    (SMALL, [Reorder(("k", "m", "n")), Tensorize("m", "vdpbf16ps")], "the types are float32"),
    (BYTES, [Split("n", 2), Tensorize("n.1", "vpdpbusd")], "4 or 8 or 16 columns"),
    (TILES, [Tensorize("j", "tdpbssd")], "8 tile registers, too few for 1 × 7"),
    (TILES, [Split("m", 8), Tensorize("k", "tdpbssd")], "16 × 16 × 16 × 4, .* 8 × 16 × 16 × 4"),
    (TILES, [Tensorize("k", "tdpbusd")], "the types are int8, int8, int32"),
    (
        TILES,
        [CacheRead("b", "j", ("j", "n", "k", "w", "e")), Tensorize("k", "tdpbssd")],
        "b_read does not have 'n' 4 elements apart",
    ),
    (
        SMALL,
        [Pad("k", 2), Split("k", 2), Interleave("b", "m", ("k.0", "n", "k.1"), 2)],
        "'b' is in order along none of k.0",
    ),
]


@pytest.mark.parametrize(
    ("before", "steps", "reason"), REFUSALS, ids=[f"{s[-1]}" for _, s, _ in REFUSALS]
)
def test_an_illegal_step_is_refused_with_its_reason(
    before: str, steps: list[Step], reason: str
) -> None:
    kernel = replay(parse_kernel(before), steps[:-1])
    with pytest.raises(ScheduleError, match=reason):
        steps[-1].apply(kernel)


def test_what_is_read_under_a_condition_is_not_packed_without_it() -> None:
    text = """
kernel pad(x: float32[5] @0, y: float32[7, 7] @1)
for i < 7:
  for j < 7:
    y[i, j] = guarded((1 <= j) & (j < 6), x[j - 1], {})
"""
    with pytest.raises(ScheduleError, match="under a condition"):
        CacheRead("x", "j", ("j",)).apply(parse_kernel(text.format("1.0")))
    padded = parse_kernel(text.format("0.0"))
    packed = CacheRead("x", "j", ("j",)).apply(padded)
    assert "x_read[j] = guarded((1 <= j) & (j < 6), x[j - 1], 0.0)" in print_kernel(packed)
    same_results(padded, packed)


def test_a_buffer_that_changes_is_not_packed() -> None:
    kernel = parse_kernel("""
kernel twice(x: float32[6] @0)
for i < 6:
  x[i] = x[i] * 2.0
""")
    with pytest.raises(ScheduleError, match="changes inside"):
        CacheRead("x", "i", ("i",)).apply(kernel)
    with pytest.raises(ScheduleError, match="also read"):
        CacheWrite("x", "i", ("i",)).apply(kernel)


def test_a_value_is_not_moved_past_a_change_of_what_it_needs() -> None:
    kernel = parse_kernel("""
kernel late(x: float32[6] @0, y: float32[6] @1)
alloc t: float32[6] local
for i < 6:
  t[i] = x[i] + 1.0
for j < 6:
  x[j] = 0.0
for k < 6:
  y[k] = t[k]
""")
    for step in (Inline("t"), ComputeAt("t", "k")):
        with pytest.raises(ScheduleError, match="changes later"):
            step.apply(kernel)


@pytest.mark.parametrize("text", [LOGSUMEXP, ATTENTION], ids=["logsumexp", "attention"])
def test_one_pass_survives_infinities(text: str) -> None:
    """Rows that begin with -inf, consist of it, or hold +inf or NaN, as in two passes."""
    kernel = parse_kernel(text)
    memory = memory_for(kernel, {})
    for start in range(0, 12, 4):
        values = memory[0].copy()
        values[0, : start + 1] = -np.inf
        values[1, start] = (np.inf, np.nan, -np.inf)[start // 4]
        scheduled = replay(kernel, [Split("c", 4), Online("c.0")])
        same_results(kernel, scheduled, memory={**memory, 0: values}, native=True)
    everything = np.full_like(memory[0], -np.inf)
    same_results(
        kernel, replay(kernel, [Split("c", 4), Online("c.0")]), memory={**memory, 0: everything}
    )


def test_one_pass_needs_terms_relative_to_the_maximum() -> None:
    squares = parse_kernel(LOGSUMEXP.replace("exp(x[r, c] - m[])", "x[r, c] * m[]"))
    with pytest.raises(ScheduleError, match="not relative to"):
        Online("c").apply(squares)


def test_instructions_keep_the_counts() -> None:
    kernel = parse_kernel(SMALL)
    tile = replay(kernel, [Reorder(("k", "m", "n")), Tensorize("m", "fma")])
    assert useful(tile).operations == useful(kernel).operations


NEAREST = """
kernel nearest(places: int32[16] @0, x: float32[8] @1, y: float32[15, 8] @2)
for r < 8:
  for u < 15 carried:
    y[max(min(int64(places[min(u + r, 15)]), 14), 0), r] = x[r]
  for u < 15 carried:
    y[min(u + r, 14), r] = x[r]
"""


def test_minima_of_a_program_do_not_run_an_iteration_again() -> None:
    kernel = parse_kernel(NEAREST.strip() + "\n")
    scheduled = replay(kernel, [Bind("r", "thread")])
    assert "thread" in print_kernel(scheduled)
