"""Alternative spellings of calls: NumPy's keywords, and torch's deprecated forms.

Bodies know one spelling; what callers write is brought to it here, before or after the body said
no. Numbers before the tensors that they scale, `x.add_(0.1, grad)`, are the oldest of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import ArgumentError
from ridgeline.record.values import Handle

_SPELLINGS = {
    "axis": "dim", "axes": "dim", "keepdims": "keepdim", "split_size_or_sections": "split_size",
}  # fmt: skip
_AVERAGES = ("size_average", "reduce")
_ALL = frozenset((*_SPELLINGS, *_AVERAGES))
# how many tensors a function takes, and which numbers may stand before them
_FACTORS: dict[str, tuple[int, tuple[str, ...]]] = {
    "add": (2, ("alpha",)),
    "sub": (2, ("alpha",)),
    "addcmul": (3, ("value",)),
    "addcdiv": (3, ("value",)),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), (3, ("beta", "alpha"))),
}


def respelled(kwargs: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Keywords as the body spells them: `dim` for `axis`, `reduction` for `size_average`; dtype=
    checked."""
    if "dtype" in kwargs:
        kwargs["dtype"] = dtypes.wanted(kwargs["dtype"])
    if kwargs.keys().isdisjoint(_ALL):
        return kwargs
    if "reduction" in names:
        kwargs = with_reduction(kwargs)
    spelled = {_spelling(k, names): v for k, v in kwargs.items()}
    if len(spelled) < len(kwargs):
        raise ArgumentError(f"one argument is given twice: {', '.join(kwargs)}")
    return spelled


def with_reduction(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`size_average=` and `reduce=` of losses as the `reduction=` that they mean."""
    kwargs = dict(kwargs)
    average, reduced = (kwargs.pop(name, None) for name in _AVERAGES)
    if average is None and reduced is None:
        return kwargs
    kwargs["reduction"] = "mean" if average is None or average else "sum"
    if reduced is not None and not reduced:
        kwargs["reduction"] = "none"
    return kwargs


def _spelling(name: str, names: frozenset[str]) -> str:
    """A keyword as the body spells it."""
    if name in names or name not in _SPELLINGS:
        return name
    own = _SPELLINGS[name]
    return f"{own}s" if own not in names and f"{own}s" in names else own


def in_todays_order(
    name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of a call that has numbers before the tensors they scale; None for others."""
    count, factors = _FACTORS.get(name.rstrip("_"), (0, ()))
    tensors = [value for value in args if isinstance(value, Handle)]
    numbers = [value for value in args if not isinstance(value, Handle)]
    if len(tensors) != count or not 0 < len(numbers) <= len(factors):
        return None
    if not isinstance(args[-1], Handle):  # a number behind them is no factor in torch either
        return None
    return tensors, {**dict(zip(factors, numbers, strict=False)), **kwargs}
