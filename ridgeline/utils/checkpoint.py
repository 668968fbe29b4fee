"""`checkpoint`: torch's mark on what may be computed twice to save memory.

A program here chooses by itself what is kept for its backward pass and what is computed again
(`fusion/recompute.py`, and the minimum cut of `graph/passes/autodiff`), with or without the mark:
so a marked function is a plain call with the same results and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ridgeline.errors import ArgumentError
from ridgeline.record.modes import called

_OPTIONS = frozenset((
    "use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop",
))  # fmt: skip


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, with torch's name and options; it is a plain call and saves no memory yet.

    What is kept for the backward pass is the compiler's choice, inside and outside of the function.
    `use_reentrant`, `preserve_rng_state` and the like are taken and make no difference.
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint needs a function, not {type(function).__name__}")
    given = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
    return called(function)(*args, **given)


def checkpoint_sequential(
    functions: Iterable[Callable[..., Any]], segments: int, input: Any, **kwargs: Any
) -> Any:
    """Call functions one after the other, each on what the one before gave."""
    for function in functions:
        input = checkpoint(function, input)
    return input
