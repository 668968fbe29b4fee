"""Running a drawn program: on torch, where all lies on the host, and on Ridgeline in some way."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.execution import interpreter_cost
from ridgeline.record import graph_recorder
from ridgeline.runtime.cuda import transfer
from tests.attacks.seam.program import CALLS, Program, Value

Array = np.ndarray[Any, Any]
Outcome = list[list[Array | None]]  # for each call, and the state in the end
_MOVE = re.compile(r"\.to\(P\[\d\](, non_blocking=True)?\)")

WAYS = ("deferred", "eager", "jit", "jit without gradients", "jit that is given", "dynamic jit")


def values(number: int, shape: Sequence[int], call: int = 0) -> Array:
    """Small whole numbers, others for each array and call."""
    rng = np.random.default_rng((number, call, len(shape)))
    return rng.integers(-3, 4, tuple(shape)).astype(np.float32)


def _cond(test: Any, yes: Callable[..., Any], no: Callable[..., Any], value: Any) -> Any:
    return yes(value) if bool(test) else no(value)


def _repeat_here(count: int, body: Callable[[Any], Any], value: Any) -> Any:
    for _ in range(count):
        value = body(value)
    return value


def _repeat(count: int, body: Callable[[Any], Any], value: Any) -> Any:
    return rl.scan(lambda carried, _: (body(carried), None), value, length=count)[0]


def names_of(lib: Any, places: Sequence[str]) -> dict[str, Any]:
    """What the text of a program finds besides its own names."""
    ours = lib is rl

    def array(number: int, shape: Sequence[int], place: str) -> Any:
        return lib.tensor(values(number, shape), device=place)

    def drawn(shape: Sequence[int], place: str) -> Any:
        made = (rl.rand(*shape, device=place if ours else "cpu") * 8).floor()
        return made if ours else lib.tensor(made.numpy().copy())

    return {
        "lib": lib, "P": places, "array": array, "drawn": drawn,
        "cond": rl.cond if ours else _cond, "repeat": _repeat if ours else _repeat_here,
    }  # fmt: skip


def loaded(program: Program, lib: Any, places: Sequence[str]) -> SimpleNamespace:
    """The functions of a program; on torch a move to another device is a copy."""
    text = program.text if lib is rl else _MOVE.sub(".clone()", program.text)
    file = f"<program {abs(hash(text))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # jit reads the source
    names = names_of(lib, places)
    exec(compile(text, file, "exec"), names)
    made = {name: names[name] for name in ("prepare", "f", "after", "between")}
    return SimpleNamespace(names=names, **made)


def outcome(
    program: Program,
    lib: Any,
    places: Sequence[str],
    around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda f: f,
    inside: Callable[[], Any] = nullcontext,
    given_away: bool = False,
) -> Outcome:
    """What the calls of a program give, and what is left of its state."""
    rl.manual_seed(11)
    made = loaded(program, lib, places)
    made.prepare()
    function = around(made.f)
    found: Outcome = []
    with inside():
        for call in range(CALLS):
            arguments = [
                lib.tensor(values(10 + n, _shape(v, program.sizes, call), call), device=place)
                for n, v in enumerate(program.arguments)
                for place in [places[v.place]]
            ]
            results = function(*arguments)
            kept = made.after(*results)
            found.append([_numpy(tensor) for tensor in (*results, *kept)])
            found[-1] += [None if given_away else _numpy(tensor) for tensor in arguments]
            made.between()
        found.append(_state(program, made.names))
    return found


def _shape(value: Value, sizes: tuple[int, int], call: int) -> tuple[int, ...]:
    long = len(value.shape) == 2 and call == CALLS - 1
    return (sizes[1], *value.shape[1:]) if long else value.shape


def _state(program: Program, names: dict[str, Any]) -> list[Array | None]:
    found: list[Array | None] = []
    for name in program.state:
        kept = names[name]
        if name == "O":
            found += _moments(kept)
            continue
        found.append(_numpy(kept))
        gradient = kept.grad if kept.is_leaf else None
        found += [] if gradient is None else [_numpy(gradient)]
    return found


def _moments(optimizer: Any) -> list[Array]:
    """What an optimizer keeps; none is zeros, which a first step makes of it."""
    moments = optimizer.state_dict()["state"]
    weights = optimizer.param_groups[0]["params"]
    found = [moments.get(number, {}).get("momentum_buffer") for number in range(len(weights))]
    return [np.zeros(tuple(w.shape)) if m is None else _numpy(m) for w, m in zip(weights, found)]


def _numpy(tensor: Any) -> Array:
    return np.array(tensor.detach().cpu().numpy())


def ridgeline_outcome(program: Program, places: Sequence[str], way: str) -> Outcome:
    """The program in a way to run."""
    if way == "eager":
        return outcome(program, rl, places, inside=rl.eager)
    if way == "deferred":
        return outcome(program, rl, places)
    if way == "jit without gradients":
        return outcome(program, rl, places, rl.jit, rl.no_grad)
    if way == "jit that is given":
        return outcome(program, rl, places, lambda f: rl.jit(f, donate=True), given_away=True)
    dynamic = way == "dynamic jit"
    return outcome(program, rl, places, lambda f: rl.jit(f, dynamic=dynamic))


@contextmanager
def thresholds(small: bool) -> Iterator[None]:
    """Sizes from which things are done in another way, such that a few elements are many."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            # 45 elements are compiled at once
            patch.setattr(interpreter_cost, "_PER_ELEMENT", 1e-3)
            patch.setattr(interpreter_cost, "_PER_NODE", 1e-4)
            patch.setattr(transfer, "CHUNK", 40)
            patch.setattr(graph_recorder, "MOST_PENDING", 4)
            patch.setattr(graph_recorder, "MOST_HELD", 100)
        yield


def differences(wanted: Outcome, found: Outcome) -> str:
    """What differs, in words; empty where nothing does."""
    for call, (these, those) in enumerate(zip(wanted, found, strict=True)):
        for place, (a, b) in enumerate(zip(these, those, strict=True)):
            if a is None or b is None:  # an argument that was given away
                continue
            where = f"call {call}" if call < len(wanted) - 1 else "the state"
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True):
                return f"{where}, value {place}: wanted\n{a}\nfound\n{b}"
    return ""
