"""`breakpoint()` in a kernel: Python's debugger on the first of the threads, at the user's line.

`next` and `step` go on to the next line that the thread runs, with all lanes that run with it;
`continue` to the next breakpoint.
"""

from __future__ import annotations

import bdb
import pdb
import sys
import types
from typing import Any

from ridgeline.simt.ir import SourcePlace
from ridgeline.simt.simulator.findings import FindingLog
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes
from ridgeline.simt.simulator.storage import HeldArray


class KernelDebugger(pdb.Pdb):
    """Stops at lines of a kernel; `steps` while the next line of `thread` is to be shown."""

    def __init__(self) -> None:
        super().__init__(nosigint=True)
        self.steps, self.thread, self.line = False, -1, -1

    def is_due(self, place: SourcePlace, ids: IntArray) -> bool:
        """Whether threads that come to a place are to be shown there."""
        return place.line != self.line and bool((ids == self.thread).any())

    def do_next(self, _: str) -> bool:
        """Go on to the next line of this thread."""
        self.steps = True
        return True

    def do_continue(self, _: str) -> bool:
        """Go on to the next breakpoint."""
        self.steps = False
        return True

    def do_quit(self, _: str) -> bool:
        """End the simulation."""
        raise bdb.BdbQuit

    do_n = do_s = do_step = do_next  # type: ignore[assignment]
    do_c = do_cont = do_continue  # type: ignore[assignment]
    do_q = do_exit = do_quit  # type: ignore[assignment]

    def stop(self, frame: types.FrameType) -> None:
        """Take commands at a frame."""
        self.reset()
        self.interaction(frame, None)

    def pause(
        self, lanes: Lanes, place: SourcePlace, variables: dict[str, AnyArray],
        stored: dict[str, HeldArray], log: FindingLog, first: int,
    ) -> None:  # fmt: skip
        """Stop with a thread's variables, and its view of the arrays, as locals."""
        thread = int(lanes.ids[0])
        if self.steps and (lanes.ids == self.thread).any():
            thread = self.thread
        self.thread, self.line = thread, place.line
        near = lanes.ids[lanes.ids >> 5 == thread >> 5] & 31
        seen: dict[str, Any] = {"lanes": near.tolist()}
        seen |= {name: values[thread] for name, values in variables.items()}
        for name, array in stored.items():
            start = array.base if array.start is None else int(array.start[thread])
            seen[name] = array.data[start : start + array.size].reshape(array.shape)
        seen["thread"] = log.name(thread + first)
        text = "\n" * (place.line - 1) + "_stop(_frame())"
        scope = {"__builtins__": __builtins__, "_stop": self.stop, "_frame": sys._getframe}
        exec(compile(text, place.path, "exec"), scope, seen)
