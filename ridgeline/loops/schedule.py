"""Schedules: lists of checked rewrites of a kernel's loops, addressed by loop name.

A step is a frozen value that maps a kernel to a kernel with the same meaning, or refuses with a
reason. A schedule can be stored as JSON and replayed. Loops of one name are one logical axis, so a
step applies to all of them.

Some steps only save time: they are tried where they may help (`attempt`) and left out where they
do not apply. A schedule is right without them, so a refusal is no error; but it is what `explain()`
must show to somebody who wonders why a kernel is slow, so `noted` collects what is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ridgeline.atomic import Block, Switch
from ridgeline.loops.ir import Kernel
from ridgeline.loops.steps.bind import Bind
from ridgeline.loops.steps.cache_in_registers import CacheInRegisters, Spread
from ridgeline.loops.steps.cache_read import CacheRead, Pipeline
from ridgeline.loops.steps.cache_write import CacheWrite, LanesLast, StreamingStore
from ridgeline.loops.steps.cascade import Cascade
from ridgeline.loops.steps.compute_at import ComputeAt
from ridgeline.loops.steps.fuse import Fuse, FuseSiblings
from ridgeline.loops.steps.inline import Inline
from ridgeline.loops.steps.interleave import Interleave
from ridgeline.loops.steps.nest import Reorder, SetKind, Split, Tile
from ridgeline.loops.steps.offset import Offset
from ridgeline.loops.steps.one_hot_sum import OneHotSum
from ridgeline.loops.steps.online import Online
from ridgeline.loops.steps.pad import Pad
from ridgeline.loops.steps.partials import Partials
from ridgeline.loops.steps.rfactor import Rfactor
from ridgeline.loops.steps.scans import BlockScan, SplitScan
from ridgeline.loops.steps.share import Share
from ridgeline.loops.steps.skip import Skip
from ridgeline.loops.steps.step import ScheduleError, Step
from ridgeline.loops.steps.streamed import Streamed
from ridgeline.loops.steps.tensorize import Tensorize

__all__ = [
    "Bind", "BlockScan", "CacheInRegisters", "CacheRead", "CacheWrite", "Cascade", "ComputeAt",
    "Fuse", "FuseSiblings", "Inline", "Interleave", "LanesLast", "Offset", "OneHotSum", "Online",
    "Pad", "Partials", "Pipeline", "Reorder", "Rfactor", "ScheduleError", "SetKind", "Share",
    "Skip", "Split", "SplitScan", "Spread", "Step", "Streamed", "StreamingStore", "Tensorize",
    "Tile", "applied", "describe", "from_json", "replay", "to_json",
]  # fmt: skip

_STEPS: dict[str, Callable[..., Step]] = {
    "split": Split, "fuse": Fuse, "reorder": Reorder, "tile": Tile, "kind": SetKind,
    "cache_read": CacheRead, "interleave": Interleave, "offset": Offset,
    "cache_write": CacheWrite, "stream": StreamingStore, "cascade": Cascade,
    "compute_at": ComputeAt, "inline": Inline, "rfactor": Rfactor, "online": Online,
    "tensorize": Tensorize, "pipeline": Pipeline, "bind": Bind,
    "cache_in_registers": CacheInRegisters, "spread": Spread, "pad": Pad,
    "partials": Partials, "share": Share, "one_hot_sum": OneHotSum, "streamed": Streamed,
    "fuse_siblings": FuseSiblings, "skip": Skip, "block_scan": BlockScan, "split_scan": SplitScan,
    "lanes_last": LanesLast,
}  # fmt: skip

# steps that were renamed, as schedules on disk still have them
_FORMER = {
    "hold": "cache_in_registers", "pick": "one_hot_sum", "jam": "fuse_siblings",
    "prefix": "block_scan", "resume": "split_scan",
}  # fmt: skip

_RECENT = 256  # rewrites that are remembered
_recent: dict[tuple[int, Step], tuple[Kernel, Kernel]] = {}  # by identity, which the value keeps


def applied(kernel: Kernel, step: Step) -> Kernel:
    """The kernel after a step, cached: a schedule that was found by trying is replayed for free."""
    key = (id(kernel), step)
    known = _recent.get(key)
    if known is None:
        if len(_recent) >= _RECENT:
            _recent.clear()
        known = _recent[key] = (kernel, step.apply(kernel))
    return known[1]


def replay(kernel: Kernel, steps: Sequence[Step]) -> Kernel:
    """Apply steps in order."""
    for step in steps:
        kernel = applied(kernel, step)
    return kernel


def describe(step: Step) -> str:
    """A step as people read it: `split(k, 16, guard)`."""
    values = [getattr(step, field.name) for field in fields(step)]  # type: ignore[arg-type]
    while values and values[-1] is False:  # an option that was not taken
        values.pop()
    return f"{step.name}({', '.join(map(str, values))})"


def to_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps as plain data."""
    return [{"step": step.name, **asdict(step)} for step in steps]  # type: ignore[call-overload]


def from_json(data: Sequence[dict[str, Any]]) -> list[Step]:
    """Steps from plain data."""
    return [_from_json(entry) for entry in data]


def _from_json(entry: Any) -> Step:
    name = entry.get("step") if isinstance(entry, dict) else None
    name = _FORMER.get(name, name) if isinstance(name, str) else None
    if name not in _STEPS:
        raise ScheduleError(
            f"{entry!r:.80} is no step of a schedule",
            help="give what `trace` gave: dicts with `step` and its values",
        )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "step"}
    try:
        return _STEPS[name](**values)
    except TypeError as error:
        raise ScheduleError(f"the step {name!r} has other values than {values}") from error


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A step of a schedule that does not apply to a kernel, and why."""

    what: str
    reason: str


class _Noting(threading.local):
    """Where this thread notes the steps that are left out."""

    notes: dict[LeftOut, None] | None = None


_noting = _Noting()


def noted(notes: dict[LeftOut, None]) -> Block:
    """A block that notes which steps are left out, in order and each once."""
    return Switch(_noting, notes=notes)


def leave_out(what: str, refusal: ScheduleError) -> None:
    """Note a step that was refused."""
    notes = _noting.notes
    if notes is not None:
        notes[LeftOut(what, refusal.message)] = None


def attempt(kernel: Kernel, step: Step) -> Kernel | None:
    """The kernel after an optional step; None, and a note, if it does not apply."""
    try:
        return applied(kernel, step)
    except ScheduleError as refusal:
        leave_out(describe(step), refusal)
        return None
