"""The compiled form of `quick.py`, which looks at every public call before anybody else does.

It is made when the first tape is promising, in the background, and kept on disk; before it is used
it is tried on a small tape (`native_check.py`). Where it is not there (another interpreter than
CPython, one without a global lock, a system for which no code is made), or `config.native_tape` is
off, the recorder has Python run the same functions, and `explain_last()` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.atomic import at_fork
from ridgeline.compiler.background import background, report_defect
from ridgeline.config import config
from ridgeline.execution import flush_log
from ridgeline.record.recorder import match_by
from ridgeline.tape.quick import quickly


class _Native:
    """Whether there is a compiled form, and whether it is used."""

    def __init__(self) -> None:
        self.begun = self.on = False
        self.made: Callable[..., Any] | None = None
        self.why = ""  # there is none


def _after_fork() -> None:
    """In a child nobody makes it any more: begin again."""
    _native.begun = _native.made is not None or bool(_native.why)


_native = _Native()
at_fork(after_in_child=_after_fork)


def is_on() -> bool:
    """True where the compiled form has looked at a call before the recorder is asked."""
    return _native.on


def matched(recorder: Any, *call: Any) -> Any:
    """`quickly` in the form that is used."""
    made = _native.made
    return quickly(recorder, *call) if made is None or not _native.on else made(recorder, *call)


def begin(recorder: Callable[[], Any]) -> None:
    """Have the compiled form made, unless that was done; `recorder` is the class of recorders."""
    if _native.begun or not config.native_tape or config.tier == "interpreter":
        return
    _native.begun = True
    if not config.background:
        _make(recorder)
    elif not background.submit(lambda: _make(recorder)):  # it has too much to do: ask again
        _native.begun = False


def is_made(recorder: Callable[[], Any]) -> bool:
    """True where there is a compiled form, which is made now if nobody has begun to."""
    if not _native.begun:
        _native.begun = True
        _make(recorder)
    background.wait()
    return _native.made is not None


def follow_settings() -> None:
    """Use the compiled form as `config.native_tape` says."""
    _native.on = config.native_tape and _native.made is not None
    match_by(_native.made if _native.on else None)
    flush_log.matched_in_python(_native.why if config.native_tape else "config.native_tape is off")


def _make(recorder: Callable[[], Any]) -> None:
    from ridgeline.tape.native_check import difference
    from ridgeline.tape.native_code import Refused, compiled_matcher

    try:
        made = compiled_matcher(recorder)
        wrong = difference(made, recorder)
        if wrong:
            raise MatcherError(f"its test fails: {wrong}")
        _native.made = made
    except Refused as error:
        _native.why = str(error)
    except Exception as error:
        _native.why = f"{type(error).__name__}: {error}"
        report_defect("the matching of known calls", error)
    follow_settings()


class MatcherError(Exception):
    """The compiled form does something else than the function that it was made of."""
