"""What a library says to a call, a result or an error of some kind, and whether two agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ridgeline as rl
from ridgeline.record.captures import CaptureError
from tests.attacks.calls import Call, Values
from tests.attacks.differences import caught_alike, is_alike, is_meant


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a call: an error, or element types and values of its results."""

    error: Exception | None
    results: tuple[tuple[str, np.ndarray], ...] = ()


def verdict(call: Call, library: Any, run: Callable[..., Any] | None = None) -> Verdict:
    """What the library says; values are looked at."""
    try:
        args = tuple(_made(a, library) for a in call.args)
        kwargs = {k: _made(v, library) for k, v in call.kwargs}
        result = (run or _plainly)(call.function(library), args, kwargs)
        return Verdict(None, tuple(_looked_at(result, library)))
    except Exception as error:
        return Verdict(error)


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


def _looked_at(result: Any, library: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(result, library.Tensor):
        values = np.array(result.detach().tolist(), complex).reshape(tuple(result.shape))
        yield str(result.dtype).rpartition(".")[2], values
    elif isinstance(result, bool | int | float | complex):
        yield type(result).__name__, np.array(result, complex)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _looked_at(part, library)


def compare(call: Call, compiled: bool = False) -> str:
    """What is wrong with the verdicts about a call; empty where they agree."""
    theirs, ours = verdict(call, torch), verdict(call, rl)
    return _with_torch(call, theirs, ours) or _in_every_way(call, ours.error, compiled)


def _with_torch(call: Call, theirs: Verdict, ours: Verdict) -> str:
    if theirs.error is None and ours.error is None:
        alike = is_alike(call, theirs.results, ours.results)
        return "" if alike else f"{call}\n  {ours.results}\n  torch: {theirs.results}"
    if theirs.error is None or ours.error is None:
        if is_meant(call, theirs.error, ours.error):
            return ""
        return f"{call}\n  {_told(ours.error)}\n  torch: {_told(theirs.error)}"
    if not isinstance(ours.error, rl.RidgelineError | TypeError):
        return f"{call}\n  {_told(ours.error)} is not an error of ours"
    if not caught_alike(call, theirs.error, ours.error):
        return f"{call}\n  no `except` for {_told(theirs.error)} would catch {_told(ours.error)}"
    return ""


def _told(error: Exception | None) -> str:
    return "accepted" if error is None else f"refused: {type(error).__name__}: {error}"


def _in_every_way(call: Call, ours: Exception | None, compiled: bool) -> str:
    tier = "compiled" if compiled else "interpreter"
    for name, run in (("eager", _eagerly), ("jit", _jitted)):
        with rl.config.override(tier=tier):
            other = verdict(call, rl, run).error
        if ours is None and isinstance(other, CaptureError):
            continue  # jit refuses what it cannot replay, and says so
        if (other is None) != (ours is None):
            return f"{call}\n  {ours!r} deferred, but {other!r} in {name}, {tier}"
    return ""


def agreed(call: Call, compiled: bool = False) -> None:
    """Raise where the verdicts differ and the difference is not one that is meant."""
    found = compare(call, compiled)
    assert not found, found
