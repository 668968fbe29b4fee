"""What is wrong with a kernel's source: one message with file, line, column, the line, and help."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ridgeline.errors import RidgelineError
from ridgeline.simt.ir import SourcePlace, SourceText


class KernelLanguageError(RidgelineError, TypeError):
    """A kernel that says something the kernel language does not have."""

    code = "RL0840"

    def __init__(self, message: str, place: SourcePlace, text: str = "", help: str = "") -> None:
        where = f"{place.path}:{place.line}:{place.column}"
        pointer = f"\n{text}\n{' ' * (place.column - 1)}^" if text else ""
        RidgelineError.__init__(self, message, note=where + pointer, help=help)
        self.place = place


class NotYetDefined(KernelLanguageError):
    """A kernel that mentions a name which the text around it defines further down."""


def problem(
    message: str, place: SourcePlace, source: SourceText, help: str = "",
    kind: type[KernelLanguageError] = KernelLanguageError,
) -> Exception:  # fmt: skip
    """The error to raise for a place in a kernel's source."""
    number = place.line - source.first
    inside = place.path == source.path and 0 <= number < len(source.lines)
    return kind(message, place, source.lines[number] if inside else "", help)


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names what was probably meant, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else ""
