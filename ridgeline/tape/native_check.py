"""The test of the compiled matcher before its first use: it does to a small tape what Python does.

The places of slots in objects, the functions of the interpreter and the counts of references are
looked at where they are used, on this very interpreter.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ridgeline.dtypes import float32
from ridgeline.functions.operands import defaults
from ridgeline.graph.node import TensorType
from ridgeline.record.cells import PLAIN
from ridgeline.record.recorder import MISS
from ridgeline.tape.entries import MADE, Entry, Place, Ref, Shown
from ridgeline.tape.handles import cell_of, whole
from ridgeline.tape.quick import quickly
from ridgeline.tape.ways import note_way

_TIMES = 64  # more than references that are lost or released twice could hide in
Form = Callable[..., Any]


def difference(made: Form, recorder_of: Callable[[], Any]) -> str:
    """What a compiled form does otherwise than the function that it was made of; '' if nothing."""
    expected, found = _outcomes(quickly, recorder_of()), _outcomes(made, recorder_of())
    for name, value in expected.items():
        if found[name] != value:
            return f"{name}: {found[name]!r} in place of {value!r}"
    return ""


def _outcomes(form: Form, recorder: Any) -> dict[str, Any]:
    """What comes of a call that fits, and of some that do not."""
    kind = TensorType((2, 3), float32, defaults.device)
    run = recorder.run
    entry = _entry(kind, recorder)
    run.at.next[_known] = [entry]
    run.deferred, run.count = True, 1
    run.handed.append(cell_of(run, 0, kind, PLAIN))
    x = whole(run.handed[0])
    other = whole(cell_of(run, 7, kind, PLAIN))
    place, fits = run.at, (x, 2, "some text")
    misses = [(other, 2, "some text"), (x, 3, "some text"), (x, 2), (x, None, object()), (2, x, x)]
    held = (x, x._cell, run, entry, entry.after, recorder, _known, fits)
    collects, before = gc.isenabled(), [*map(sys.getrefcount, held)]
    missed = [_call(form, recorder, each) is MISS for _ in range(_TIMES) for each in misses]
    found: dict[str, Any] = {
        "calls that do not fit": set(missed),
        "references after these": [
            a - b for a, b in zip(map(sys.getrefcount, held), before, strict=True)
        ],
    }
    for _ in range(_TIMES):
        run.at = place
        made = _call(form, recorder, fits)
    found["a call that fits"] = made is not MISS
    if made is MISS:
        return found
    cell = made._cell
    found["what it gave"] = (
        type(made).__name__, made._steps, made._seen, made._extra, made._track is cell,
        cell.run is run, cell.slot, cell.types, cell.version, cell.mode, cell.rare, cell.capture,
    )  # fmt: skip
    found["what it changed"] = (
        run.at is entry.after, run.count, len(run.log), len(run.handed), run.handed[-1] is cell,
        all(each is entry for each in run.log), run.lost, run.trial, gc.isenabled() is collects,
    )  # fmt: skip
    del made, cell, run.log[:], run.handed[1:]
    run.at = place
    after = [*map(sys.getrefcount, held)]
    found["references after it"] = [a - b for a, b in zip(after, before, strict=True)]
    return found


def _entry(kind: TensorType, recorder: Any) -> Entry:
    """The entry of `_known(x, 2, "some text")` on a tape of its own."""
    args = (Ref(0, MADE, kind, PLAIN, True, PLAIN, ()), 2, "some text")
    entry = Entry(_known, args, (), None, (_call.__code__, _call(_instruction)), True, None)
    shown = Shown(1, True, kind, kind, PLAIN, -1, (), (), (kind,))
    entry.result, entry.single, entry.plain = shown, shown, True
    entry.count, entry.after, entry.modes = 2, Place(), recorder.modes.copy()
    note_way(entry)
    return entry


def _known() -> None:
    """Stands for a public function."""


def _call(form: Form, recorder: Any = None, args: tuple[Any, ...] = ()) -> Any:
    """The line of a user's that calls it."""
    return _called(form, recorder, args)


def _called(form: Form, recorder: Any, args: tuple[Any, ...]) -> Any:
    """What stands around public functions: where a frame is depends on what it calls."""
    return form(recorder, _known, args, {}, sys._getframe(1))


def _instruction(recorder: Any, function: Any, args: Any, named: Any, frame: FrameType) -> int:
    return frame.f_lasti
