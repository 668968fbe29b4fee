"""The identity of a thread program: all that it is, where its printed form leaves types out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ridgeline.simt.ir import ThreadProgram
from ridgeline.weak import fingerprint


def program_key(program: ThreadProgram) -> str:
    """A hash of everything that a program says; the same in every process."""
    return _key(program, {})


def _key(value: Any, known: dict[int, str]) -> str:
    """A part of a program as text; parts that several others share are written out once."""
    found = known.get(id(value))
    if found is None:
        found = known[id(value)] = _written(value, known)
    return found


def _written(value: Any, known: dict[int, str]) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        parts = [_key(getattr(value, field.name), known) for field in fields(value)]
    elif isinstance(value, tuple | list):
        parts = [_key(part, known) for part in value]
    elif isinstance(value, Mapping):
        parts = [_key(part, known) for item in value.items() for part in item]
    else:
        parts = [repr(value)]
    return fingerprint(f"{type(value).__name__}({', '.join(parts)})")
