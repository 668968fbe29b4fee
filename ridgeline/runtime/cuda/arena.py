"""Scratch memory of a stream: one block that its programs use in turn, as large as any needs."""

from __future__ import annotations

from ridgeline.runtime.cuda.memory import DeviceBuffer, allocate
from ridgeline.runtime.cuda.stream import Stream

_arenas: dict[int, DeviceBuffer] = {}


def arena(stream: Stream, nbytes: int) -> DeviceBuffer:
    """At least so many bytes, whose contents last for one program's run.

    Programs run one after the other on a stream, so they can share; a larger block replaces a
    smaller one, which whoever still refers to it keeps alive.
    """
    found = _arenas.get(id(stream))
    if found is None or found.nbytes < nbytes:
        _arenas.pop(id(stream), None)
        found = None  # let go before the larger one is taken
        found = _arenas[id(stream)] = allocate(stream, nbytes)
    return found


def drop(stream: Stream | None = None) -> None:
    """Let go of the scratch memory of a stream, or of all."""
    if stream is None:
        _arenas.clear()
    else:
        _arenas.pop(id(stream), None)
