"""What a library says to a call: a result, or an error of some kind; and whether two agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

import ridgeline as rl
from ridgeline.tensors.execute import CaptureError
from tests.attacks.calls import Call, Values

# Differences that are meant: what torch says where it refuses and we do not, with the reason.
TAKEN = {
    r"dtype|scalar type|same type|element type": "operands of different types are promoted",
    r"not implemented for|not supported for|Integral|only supports|must be floating|Half": (
        "more element types have an op"
    ),
    r"missing \d+ required|required positional": "an argument has a default",
    r"non-empty|at least one|Expected.*size|empty": "no elements are as good as some",
    r"must be Tensor, not|no attribute|must be (tuple of|list of)|invalid combination": (
        "numbers stand for tensors, and one number for several"
    ),
    r"must be (int|float|Number), not": "numbers of NumPy's and Python's stand for one another",
    r"out=|resize": "there is no `out=`",
    r"can't be cast": "results have the type of their values",
    r"MKL|data points|must be of length 1 or 2": "torch's library refuses, or an empty list",
    r"bool input": "True counts as 1",
    r"Overflow when unpacking|too big to convert|too large": "sizes are looked at where they count",
}
# What we say where we refuse and torch does not, with the reason.
REFUSED = {
    r"not bool|True or False": "a bool is no size, axis or number",
    r"reduction is": "a reduction is named, also where nothing is reduced",
    r"RL0102|RL0105": "an argument of another kind is named, also where torch never looks at it",
    r"would both be stretched|needs positive|at least|expected one number": "no silent nonsense",
    r"unexpected keyword|positional argument": "a keyword that torch ignores",
    r"lies in|shifts for": "values that nothing can be done with",
    r"singular|Singular": "a matrix is singular within its element type or not",
    r"a size is an int": "sizes are looked at when a layer is made",
    r"not iterable": "what torch looks at only when the layer runs",
}


def verdict(call: Call, library: Any, run: Callable[..., Any] | None = None) -> Exception | None:
    """None where the call gives something, else the error; values are looked at."""
    try:
        args = tuple(_made(a, library) for a in call.args)
        kwargs = {k: _made(v, library) for k, v in call.kwargs}
        result = (run or _plainly)(call.function(library), args, kwargs)
        _look(result, library)
    except Exception as error:
        return error
    return None


def _plainly(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _eagerly(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with rl.eager():
        return function(*args, **kwargs)


def _jitted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Captured with its tensors as arguments."""
    places = [n for n, a in enumerate(args) if isinstance(a, rl.Tensor)]

    def captured(*tensors: Any) -> Any:
        given = list(args)
        for place, tensor in zip(places, tensors):
            given[place] = tensor
        return function(*given, **kwargs)

    return rl.jit(captured)(*(args[place] for place in places))


def _made(value: Any, library: Any) -> Any:
    if isinstance(value, Values):
        return value.made(library)
    if isinstance(value, tuple):
        return tuple(_made(v, library) for v in value)
    return value


def _look(result: Any, library: Any) -> None:
    if isinstance(result, library.Tensor):
        result.detach().tolist()
    elif isinstance(result, tuple | list):
        for part in result:
            _look(part, library)


def compare(call: Call, compiled: bool = False) -> str:
    """What is wrong with the verdicts about a call; empty where they agree."""
    theirs, ours = verdict(call, torch), verdict(call, rl)
    if (theirs is None) != (ours is None):
        meant = TAKEN if ours is None else REFUSED
        if any(re.search(pattern, str(theirs or ours)) for pattern in meant):
            return ""
        said = "accepted" if ours is None else f"refused: {type(ours).__name__}: {ours}"
        their = "accepts" if theirs is None else f"refuses: {type(theirs).__name__}: {theirs}"
        return f"{call}\n  {said}\n  torch {their}"
    if theirs is not None and ours is not None:
        places = isinstance(theirs, IndexError) and re.search(r"out of (range|bounds)", str(theirs))
        if places and not isinstance(ours, IndexError):
            return f"{call}\n  {ours!r} is no IndexError, as torch's: {theirs}"
        if not isinstance(ours, rl.RidgelineError | TypeError):
            return f"{call}\n  {type(ours).__name__} is not an error of ours: {ours}"
    tier = "compiled" if compiled else "interpreter"
    for name, run in (("eager", _eagerly), ("jit", _jitted)):
        with rl.config.override(tier=tier):
            other = verdict(call, rl, run)
        if ours is None and isinstance(other, CaptureError):
            continue  # jit refuses what it cannot replay, and says so
        if (other is None) != (ours is None):
            return f"{call}\n  {ours!r} deferred, but {other!r} in {name}, {tier}"
    return ""


def agreed(call: Call, compiled: bool = False) -> None:
    """Raise where the verdicts differ and the difference is not one that is meant."""
    found = compare(call, compiled)
    assert not found, found
