"""Steps that only save time: tried where they may help, left out where they do not apply.

A schedule is right without them, so a refusal is no error; but it is what `explain()` must show to
somebody who wonders why a kernel is slow. `noted` collects what is left out while a schedule is
chosen.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ridgeline.atomic import Block, Switch
from ridgeline.loops.ir import Kernel
from ridgeline.loops.schedule import ScheduleError, Step, applied, describe


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a schedule that does not apply to a kernel, and why."""

    what: str
    reason: str


class _Noting(threading.local):
    """Where this thread notes what is left out."""

    notes: dict[LeftOut, None] | None = None


_noting = _Noting()


def noted(notes: dict[LeftOut, None]) -> Block:
    """Note what is left out inside the `with`, in order and each once."""
    return Switch(_noting, notes=notes)


def leave_out(what: str, refusal: ScheduleError) -> None:
    """Note a part of a schedule that was refused."""
    notes = _noting.notes
    if notes is not None:
        notes[LeftOut(what, refusal.message)] = None


def attempt(kernel: Kernel, step: Step) -> Kernel | None:
    """The kernel after a step that only saves time; None, noted, where it does not apply."""
    try:
        return applied(kernel, step)
    except ScheduleError as refusal:
        leave_out(describe(step), refusal)
        return None
