"""Classes that a traced function makes: the methods of the user's that C code runs for that."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from ridgeline.tracing.reads.kinds import (
    DESCRIBING,
    HEAP,
    is_library,
    is_library_type,
    is_our_type,
    is_ours,
)
from ridgeline.tracing.reads.notes import MISSING, entry_of_class
from ridgeline.tracing.reads.recorder import ReadRecorder

_OF_METACLASS = ("__prepare__", "__new__", "__init__", "__call__")


def built(recorder: ReadRecorder, kind: type) -> None:
    """A class was made: what its metaclass, its bases and its attributes do then was not seen."""
    for owner, name in _asked(kind):
        if owner.__module__ == "builtins" or is_library_type(owner):
            continue
        stored = entry_of_class(owner, name)
        recorder.note(owner, "class entry", name, stored, f"{owner.__qualname__}.{name}")
        method = getattr(stored, "__func__", stored)
        if isinstance(method, types.FunctionType) and not _is_known(method):
            recorder.opens(f"{owner.__qualname__}.{name} runs while a class is made")


def placed(recorder: ReadRecorder, kind: type) -> None:
    """Below which others a class stands is asked for."""
    if kind.__flags__ & HEAP and not is_our_type(kind):
        text = f"the bases of {kind.__qualname__}"
        recorder.note(kind, "attribute", "__mro__", kind.__mro__, text)


def _is_known(method: types.FunctionType) -> bool:
    describing = method.__globals__.get("__name__") in DESCRIBING
    return describing or is_library(method) or is_ours(method)


def _asked(kind: Any) -> Iterator[tuple[type, str]]:
    """What C code may run: the classes that have it, and its name."""
    meta = type(kind)
    yield from ((meta, name) for name in _OF_METACLASS)
    yield from ((base, "__init_subclass__") for base in kind.__bases__)
    for value in vars(kind).values():
        if entry_of_class(type(value), "__set_name__") is not MISSING:
            yield type(value), "__set_name__"
