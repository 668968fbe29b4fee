"""torch.utils.checkpoint: `ridgeline.checkpoint` with torch's options.

A function runs once here, and what it recorded is computed again: so there is nothing to restore
before a second call, and options about that call change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ridgeline.autograd.checkpoint import checkpoint as _checkpoint
from ridgeline.errors import ArgumentError, BadValueError
from ridgeline.tensors.tensor import Tensor


def noop_context_fn() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Blocks that change nothing, for a call and for the next one."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function whose values backward() computes again: see `ridgeline.checkpoint`.

    Calls nest. Random numbers come again whatever `preserve_rng_state` says; of `context_fn` the
    first block is entered.
    """
    with context_fn()[0]:
        return _checkpoint(function, *args, **kwargs)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Call functions one after the other, in segments that each keep what they are given."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= max(len(steps), 1):
        raise BadValueError(f"{len(steps)} functions cannot be split into {segments} segments")
    size = len(steps) // segments
    for start in range(0, size * (segments - 1), size):
        input = _checkpoint(_chain(steps[start : start + size]), input)
    return _chain(steps[size * (segments - 1) :])(input)  # the last begins its way back at once


def _chain(steps: Iterable[Callable[..., Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values as variables of their own, where they require gradients."""
    if not isinstance(inputs, tuple):
        raise ArgumentError(f"detach_variable needs a tuple, not {type(inputs).__name__}")
    return tuple(
        v.detach().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v for v in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Nothing: gradients of what a function reads besides its arguments are found, too."""
