"""The text of a function that was typed at Python's prompt, from the lines that readline keeps.

A prompt keeps no source. What was typed last and compiles to the very code of the function is it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

_LONGEST = 400  # lines of a function


def typed_source(function: types.FunctionType) -> list[str] | None:
    """The lines of a function's definition, or None where the prompt's history has none."""
    lines = _history()
    heads = [n for n, line in enumerate(lines) if line.startswith(f"def {function.__name__}(")]
    for start in reversed(heads):
        for end in range(start + 1, min(len(lines), start + _LONGEST) + 1):
            text = [f"{line}\n" for line in lines[start:end]]
            if _is_source(text, function):
                return text
    return None


def _history() -> list[str]:
    readline = sys.modules.get("readline")
    if readline is None:
        return []
    count = readline.get_current_history_length()
    kept = [readline.get_history_item(place) or "" for place in range(1, count + 1)]
    return [line for whole in kept for line in whole.split("\n")]


def _is_source(text: list[str], function: types.FunctionType) -> bool:
    """Whether a text defines a function with the same code, wherever its lines lie."""
    try:
        whole = compile("".join(text), "<typed>", "exec")
    except (SyntaxError, ValueError):
        return False
    return any(_same(code, function.__code__) for code in _codes(whole))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    return (inner for inner in code.co_consts if isinstance(inner, types.CodeType))


def _same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes do the same: instructions, names and numbers, and those inside."""
    parts = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars")
    if any(getattr(one, part) != getattr(other, part) for part in parts):
        return False
    plain, theirs = (
        [(type(value), repr(value)) for value in code.co_consts
         if not isinstance(value, types.CodeType)]
        for code in (one, other)
    )  # fmt: skip
    inner, outer = list(_codes(one)), list(_codes(other))
    return plain == theirs and len(inner) == len(outer) and all(map(_same, inner, outer))
