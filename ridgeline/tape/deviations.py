"""Why a call is none of those that a tape knows there, in words for `rl.explain_last()`."""

from __future__ import annotations

from types import FrameType
from typing import Any

from ridgeline.graph.origins import running
from ridgeline.record.cells import GRAPH
from ridgeline.record.modes import modes
from ridgeline.tape.entries import BLOCK, FIRST, MADE, PAST, Entry, Many, Ref, Varying, is_line
from ridgeline.tape.learning import accumulates
from ridgeline.tape.memory import is_resident
from ridgeline.tape.run import Run
from ridgeline.tape.varying import may_vary
from ridgeline.tensors.tensor import Tensor


def deviation(run: Run, function: Any, args: Any, named: Any, frame: FrameType) -> str:
    """What is new about a call."""
    name = called(function)
    entries = run.at.next.get(function, ())
    if not entries:
        known = ", ".join(map(called, run.at.next)) or "a flush"
        return f"{name} came, where {known} came before"
    return f"{name} has {_difference(run, entries[0], args, named, frame)}"


def called(function: Any) -> str:
    """A public function as users write it."""
    name = function.__name__
    return _SUBSCRIPTS.get(name, f"{name}()")


_SUBSCRIPTS = {"get": "indexing", "set": "an assignment to a part"}


def _difference(run: Run, entry: Entry, args: Any, named: Any, frame: FrameType) -> str:
    """How a call differs from the one that came last."""
    run.forget_trial()
    if entry.gradients is not modes.gradients or entry.autocast != modes.autocast:
        return "other modes"
    if entry.transparent:
        return "an operand that is not computed yet"
    values, kept = (*args, *named.values()), entry.args
    if len(values) != len(kept) or tuple(named) != entry.names:
        return "other arguments"
    for value, wanted in zip(values, kept):
        if type(wanted) is Varying and may_vary(entry.function, value, named):
            continue
        if not run.fits(value, wanted):
            return _argument(run, value, wanted)
    if entry.grads and not accumulates(run, entry):
        return "gradients where there were none, or none where there were some"
    if not all(map(run.sees, entry.looks)):
        return "an index with other values, which decide what is computed"
    if not all(rule.holds() for rule in entry.rules):
        return "gradient rules of a user's that read something else"
    return "another caller" if not is_line(entry, frame, vars(running)) else "nothing new"


def _argument(run: Run, value: Any, wanted: Any) -> str:
    if type(wanted) is Many and type(value) is wanted.kind:
        parts: Any = value
        for part, kept in zip(parts, wanted.parts):
            if not run.fits(part, kept):
                return _argument(run, part, kept)
    if not isinstance(value, Tensor) or type(wanted) is not Ref:
        now, before = (_shown(each) for each in (value, wanted))
        return f"the argument {now}, which was {before} before"
    cell, track = value._cell, value._track
    if track.mode != wanted.mode or (track is cell) is not wanted.own:
        return "an operand that stands to gradients in another way"
    if cell.mode != wanted.under and max(cell.mode, wanted.under) >= GRAPH:
        return "an operand that stands to gradients in another way"
    if wanted.kind == PAST:
        return "an operand with a graph of before the last flush, which was another one"
    if wanted.kind == MADE:
        return "an operand that another call made"
    if wanted.kind in (FIRST, BLOCK) and not is_resident(cell, track):
        return "an operand that is not computed yet, or not on the host"
    if value._type != wanted.type and not (wanted.steps or value._steps):
        return f"an operand of {value._type}, where {wanted.type} came before"
    return "an operand with other memory or another view of it than before"


def _shown(value: Any) -> str:
    if isinstance(value, Tensor) or type(value) is Ref:
        return "a tensor"
    text = repr(value)
    return text if len(text) < 40 else f"{type(value).__name__}"


def otherwise(run: Run) -> str:
    """Why a flush of a deferred run is none of those that are known."""
    if not run.at.endings and not run.at.open_endings:
        return "a flush came where none came before"
    known = run.at.endings.get(run.held())
    return (
        "other results are held than before"
        if known is None or known.known.ready()
        else "its program is not compiled yet"
    )
