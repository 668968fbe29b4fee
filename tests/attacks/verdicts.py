"""What a library says to a call: a result, or an error of some kind; and whether two agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ridgeline as rl
from ridgeline.record.captures import CaptureError
from tests.attacks.calls import Call, Values
from tests.attacks.differences import caught_alike, is_meant


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
        if is_meant(call, theirs, ours):
            return ""
        said = "accepted" if ours is None else f"refused: {type(ours).__name__}: {ours}"
        their = "accepts" if theirs is None else f"refuses: {type(theirs).__name__}: {theirs}"
        return f"{call}\n  {said}\n  torch {their}"
    if theirs is not None and ours is not None:
        if not isinstance(ours, rl.RidgelineError | TypeError):
            return f"{call}\n  {type(ours).__name__} is not an error of ours: {ours}"
        if not caught_alike(call, theirs, ours):
            return f"{call}\n  {ours!r}\n  no `except` for torch's would catch it: {theirs!r}"
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
