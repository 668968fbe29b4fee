"""`_foreach_add_` and the like: one operation on every tensor of a list, as in optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.tensors import dispatch
from ridgeline.tensors.tensor import Tensor

_SCALED = ("addcdiv", "addcmul")  # their last operand is a number


def foreach(name: str) -> Callable[..., Any] | None:
    """The function called `_foreach_NAME`, or None if tensors have no such operation."""
    written = name.endswith("_")
    operation = name.removeprefix("_foreach_").removesuffix("_")
    run = getattr(Tensor, operation, None) or dispatch.FUNCTIONS.get(operation)
    if run is None and operation != "zero":
        return None

    def each(tensors: Sequence[Tensor], *others: Any, **options: Any) -> list[Tensor] | None:
        results = []
        for index, tensor in enumerate(tensors):
            given = [o[index] if isinstance(o, list | tuple) else o for o in others]
            if operation in _SCALED and len(given) == 3:
                options = {**options, "value": given.pop()}
            made = tensor * 0 if run is None else run(tensor, *given, **options)
            results.append(tensor.copy_(made) if written else made)
        return None if written else results

    return each
