"""Failures of a device: the lines whose work was enqueued last, which is all that can be known.

Kernels run long after they were enqueued, and the driver reports a fault to whoever asks next. Each
device keeps the results of the programs that it was given last, and results know their lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ridgeline.graph.node import Node
from ridgeline.graph.origins import lines_of
from ridgeline.runtime.cuda.driver import DeviceFailure

MOST_PROGRAMS = 4  # that a device remembers
_SHOWN = 8
Results: TypeAlias = Sequence[Node]


def blamed(error: DeviceFailure, recent: Iterable[Results]) -> DeviceFailure:
    """A failure, with the lines of the programs that were enqueued last."""
    lines = dict.fromkeys(place for results in reversed([*recent]) for place in places(results))
    text = "\n".join(["enqueued last, the latest first:", *list(lines)[:_SHOWN]])
    if lines and text not in error.note:
        error.note = f"{error.note}\n{text}" if error.note else text
    return error


def places(results: Results) -> list[str]:
    """The lines that recorded some results."""
    return [str(line) for line in lines_of(results)][:_SHOWN]
