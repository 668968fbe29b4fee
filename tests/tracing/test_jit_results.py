"""What a jitted function gives back: containers, and objects that it makes or finds."""

from __future__ import annotations

import collections
import functools
import itertools
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributions, nn

pytestmark = pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")


class Own:
    """Of no kind that is known."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Slots:
    """Without a table of attributes."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Pair(NamedTuple):
    """A named tuple."""

    value: Any
    more: Any = 1


class Extended(Pair):
    """A named tuple with a table of attributes."""


@dataclass
class Row:
    """A dataclass with an attribute that is no field."""

    value: Any
    unset: Any = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.value * 2


@dataclass
class Output(collections.OrderedDict[str, Any]):
    """A dict that is a dataclass too, as the outputs of some models are."""

    value: Any = None

    def __post_init__(self) -> None:
        self["value"] = self.value


def _extended(x: Any) -> Extended:
    made = Extended(x * 2)
    made.noted = x * 3  # type: ignore[attr-defined]
    return made


RESULTS: dict[str, Callable[[Any], Any]] = {
    "object": lambda x: Own(x * 2), "nested object": lambda x: (x, {"a": [Own(x * 2)]}),
    "slots": lambda x: Slots(x * 2), "namespace": lambda x: types.SimpleNamespace(v=x * 2),
    "named tuple": lambda x: Pair(x * 2), "extended": _extended, "dataclass": lambda x: Row(x * 2),
    "dict and dataclass": lambda x: Output(x * 2),
    "default dict": lambda x: collections.defaultdict(list, v=x * 2),
    "ordered dict": lambda x: collections.OrderedDict(b=x * 2, a=x),
    "deque": lambda x: collections.deque([x * 2, x], 3), "set": lambda x: {x * 2},
    "frozenset": lambda x: frozenset([x * 2]), "slice": lambda x: slice(x * 2, None),
    "user dict": lambda x: collections.UserDict(v=x * 2),
    "chain map": lambda x: collections.ChainMap({"v": x * 2}),
    "counter": lambda x: collections.Counter({"a": x * 2}),
    "read-only": lambda x: types.MappingProxyType({"v": x * 2}),
    "values": lambda x: {"v": x * 2}.values(), "generator": lambda x: (t * 2 for t in [x]),
    "iterator": lambda x: iter([x * 2]), "map": lambda x: map(rl.relu, [x]),
    "chain": lambda x: itertools.chain([x * 2], [x]), "zip": lambda x: zip([x * 2], [x]),
    "function": lambda x: lambda: x * 2, "partial": lambda x: functools.partial(rl.add, x, x),
    "method": lambda x: (x * 2).sum, "error": lambda x: ValueError(x * 2),
    "class": lambda x: type("Made", (), {"value": x * 2}), "weak": weakref.ref,
    "array": lambda x: (x + 1, np.zeros(2)), "bytes": lambda x: (x + 1, bytearray(b"ab")),
    "distribution": lambda x: distributions.Normal(x * 2, 1.0),
}  # fmt: skip


def _seen(value: Any) -> Any:
    """What is in a result, as lists; arrays and bytes are then changed, as their owner may."""
    if isinstance(value, rl.Tensor):
        return value.tolist()
    if isinstance(value, np.ndarray | bytearray):
        before = list(value)
        value[0] += 1
        return before
    if isinstance(value, weakref.ref):
        return _seen(value())
    if isinstance(value, distributions.Normal):
        return _seen(value.mean)
    if isinstance(value, type | Slots):
        return _seen(value.value)  # type: ignore[union-attr]
    if isinstance(value, BaseException):
        return _seen(value.args)
    if isinstance(value, slice):
        return _seen(value.start)
    if callable(value):
        return _seen(value())
    own = [(name, _seen(part)) for name, part in getattr(value, "__dict__", {}).items()]
    if isinstance(value, Mapping):
        return own, [(name, _seen(part)) for name, part in value.items()]
    if hasattr(value, "__iter__"):
        return own, [_seen(part) for part in value]
    return own if own else value


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("name", RESULTS)
def test_every_call_gives_a_result_of_its_own(name: str, tier: Any) -> None:
    make = RESULTS[name]
    with rl.config.override(tier=tier):
        jitted = rl.jit(make)
        kept = []
        for number in range(4):
            x = rl.tensor([float(number), 1.0])
            kept.append((x, jitted(x)))
            result, wanted = kept[-1][1], make(x)
            assert type(result) is type(wanted) or name == "class"
            assert _seen(result) == _seen(wanted)
        assert len({id(result) for _, result in kept}) == 4


CLOSED = ("named tuple", "extended", "dataclass", "ordered dict", "deque")


@pytest.mark.parametrize("name", CLOSED)
def test_known_containers_are_made_by_replays(name: str) -> None:
    jitted = rl.jit(RESULTS[name])
    results = [jitted(rl.tensor([float(number), 1.0])) for number in range(3)]
    assert jitted.traces == 1 and "every call" not in jitted.history[0]
    if name == "deque":
        assert [result.maxlen for result in results] == [3, 3, 3]
    if name == "ordered dict":
        assert [*results[2]] == ["b", "a"] and type(results[2]) is collections.OrderedDict


def test_what_was_there_is_given_back_itself() -> None:
    model, own, table = nn.Linear(2, 2), Own(3), np.arange(3.0)
    jitted = rl.jit(lambda x: (model(x), model, own, table, rl.float32, len, nn.Linear, 1 + 2j))
    for number in range(3):
        found = jitted(rl.full((2,), float(number)))
        assert found[1] is model and found[2] is own and found[3] is table
        assert found[4:] == (rl.float32, len, nn.Linear, 1 + 2j)
    assert jitted.traces == 1 and "every call" not in jitted.history[0]


@dataclass(eq=False)
class Scaled(nn.Module):
    """A module that is a dataclass, too."""

    width: int = 2

    def __post_init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, self.width)
        self.scale = 1.0

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        return self.layer(x) * self.scale


def test_a_module_that_is_a_dataclass_is_given_back_itself() -> None:
    model = Scaled()
    found = rl.jit(lambda x: (model(x), model))
    given = rl.jit(lambda module, x: (module(x), {"a": module}))
    for scale in (1.0, 1.0, 2.0):
        model.scale = scale
        x = rl.ones(2)
        for value, same in (found(x), given(model, x)):
            assert value.tolist() == model(x).tolist()
            assert (same if same is model else same["a"]) is model
    assert "every call" not in found.history[0] + given.history[0]


def test_an_argument_that_is_no_tensor_is_given_back_itself() -> None:
    jitted = rl.jit(lambda x, given: (x + 1, given))
    for make in (lambda: np.zeros(2), lambda: Own(1), lambda: bytearray(b"a"), lambda: {1, 2}):
        for _ in range(3):
            given: Any = make()
            assert jitted(rl.ones(1), given)[1] is given
