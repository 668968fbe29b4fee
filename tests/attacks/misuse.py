"""Wrong calls of the public API: refused where torch refuses, alike in every way to run.

A trial takes right calls and makes one thing wrong with each: a shape, an element type, a value out
of range, a keyword, the number of arguments, an object of another kind.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.attacks.attack import Attack
from tests.attacks.calls import CALLS, Call, Values
from tests.attacks.verdicts import agreed
from tests.fuzz.faults import Fault

_CALLS_A_TRIAL = 60
_COMPILED = 12  # of so many calls one runs compiled too
_NUMBERS = 5  # of so many calls one has wrong whole numbers
_DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float64", "complex64")
_OBJECTS: tuple[Any, ...] = (
    None, "text", "", 1.5, -1, 0, 7, -9, 2**70, True, 1j, float("nan"), [], [1.5], [None], (9, 9),
    (-1, -1), {}, len, object, np.float32, float, "cuda:99", b"x", ...,
)  # fmt: skip


def _other_shape(given: Values, draw: random.Random) -> Values:
    """Sizes that fit less well, some of which would be stretched."""
    shape = list(given.shape)
    choices: list[Sequence[int]] = [(*shape, 1), (1, *shape), (), (0,), (*shape, 2), (7,)]
    for axis in range(len(shape)):
        choices += [[*shape[:axis], size, *shape[axis + 1 :]] for size in (0, 1, shape[axis] + 1)]
        choices.append([*shape[:axis], *shape[axis + 1 :]])
    return given.like(shape=tuple(draw.choice(choices)))


def _other_values(given: Values, draw: random.Random) -> Values:
    """Numbers beyond every class and axis, below zero, or zero."""
    return given.like(low=draw.choice((-7, -1, 0, 5, 90)), count=draw.choice((1, 2, 9)))


def _wrong_argument(value: Any, draw: random.Random) -> Any:
    if isinstance(value, Values):
        return draw.choice((
            _other_shape(value, draw), _other_shape(value, draw), _other_values(value, draw),
            value.like(dtype=draw.choice(_DTYPES)), draw.choice(_OBJECTS),
        ))  # fmt: skip
    if isinstance(value, tuple) and value and draw.random() < 0.6:
        place = draw.randrange(len(value))
        return (*value[:place], _wrong_argument(value[place], draw), *value[place + 1 :])
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.5:
        return value + draw.choice((-9, -3, -1, 1, 5, 99))
    return draw.choice(_OBJECTS)


def _argument(call: Call, draw: random.Random) -> Call:
    if not call.args:
        return call
    place = draw.randrange(len(call.args))
    args = list(call.args)
    wrong = _wrong_argument(args[place], draw)
    if place == 0 and call.name.startswith("Tensor."):  # what a method belongs to is a tensor
        while not isinstance(wrong, Values):
            wrong = _wrong_argument(args[place], draw)
    args[place] = wrong
    return Call(call.name, tuple(args), call.kwargs)


def _number(call: Call, draw: random.Random) -> Call:
    """Labels, indices, divisors: whole numbers that may be out of range, or zero."""
    place = draw.choice([n for n, a in enumerate(call.args) if _is_whole(a)])
    args = list(call.args)
    args[place] = _other_values(args[place], draw)
    return Call(call.name, tuple(args), call.kwargs)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Values) and value.dtype == "int64"


_WITH_NUMBERS = [call for call in CALLS if any(map(_is_whole, call.args))]


def _keyword(call: Call, draw: random.Random) -> Call:
    name = draw.choice(("foo", "dim", "axis", "dtype", "out", "keepdim", "p", "device", "size"))
    return Call(call.name, call.args, (*call.kwargs, (name, draw.choice(_OBJECTS))))


def _more(call: Call, draw: random.Random) -> Call:
    return Call(call.name, (*call.args, draw.choice(_OBJECTS)), call.kwargs)


def _fewer(call: Call, draw: random.Random) -> Call:
    if len(call.args) == 1 and call.name.startswith("Tensor."):
        return call
    return Call(call.name, call.args[:-1], call.kwargs)


_KINDS: tuple[Callable[[Call, random.Random], Call], ...] = (
    _argument, _argument, _argument, _argument, _keyword, _more, _fewer,
)  # fmt: skip


def trial(seed: int) -> None:
    """Some calls with one thing wrong: torch's verdict, in every way to run."""
    draw = random.Random(seed)
    for number in range(_CALLS_A_TRIAL):
        if number % _NUMBERS == 0:
            call = _number(draw.choice(_WITH_NUMBERS), draw)
        else:
            call = draw.choice(_KINDS)(draw.choice(CALLS), draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agreed(call, compiled=number % _COMPILED == 0)


ATTACK = Attack(
    "misuse",
    "what torch refuses is refused, alike in every way to run",
    trial,
    short=6,
    faults=(
        Fault("labels are not checked", "ops.checked", "Label.wrong",
              "return outside", "return apply('and', outside, apply('ne', outside, outside))"),
        Fault("division by zero goes unseen", "ops.checked", "NotZero.check",
              "not values.all()", "False"),
    ),
)  # fmt: skip
