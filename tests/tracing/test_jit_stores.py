"""jit sees what assignments read and run: indices, setters, `__setitem__`, hooks of tensors."""

from __future__ import annotations

import sys
import types
import unittest.mock
import weakref
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn

Scenario = tuple[Callable[[rl.Tensor], rl.Tensor], Callable[[], None]]
SCENARIOS: list[Callable[[], Scenario]] = []


def scenario(make: Callable[[], Scenario]) -> Callable[[], Scenario]:
    """A function of a tensor, and a change of something that it reads."""
    SCENARIOS.append(make)
    return make


@scenario
def index_in_a_list() -> Scenario:
    places = [0, 1]
    return lambda x: x[places], lambda: places.__setitem__(0, 3)


@scenario
def index_in_an_array() -> Scenario:
    chosen = np.array([True, False, True, False])
    return lambda x: x.reshape(1, 4)[:, chosen], lambda: chosen.fill(True)


@scenario
def places_that_are_assigned() -> Scenario:
    places, values = [0, 1], np.ones(2, np.float32)

    def fill(x: rl.Tensor) -> rl.Tensor:
        y = x * 1
        y[places] += 5
        y[2:] = values  # type: ignore[assignment]
        return y

    def change() -> None:
        places[0] = 3
        values[0] = 9

    return fill, change


class Scaled:
    """Every way to store runs Python that reads the scale."""

    scale = 1

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.kept[key] = value * type(self).scale

    def __delitem__(self, key: str) -> None:
        self.kept[key] = self.kept[key] + type(self).scale

    @property
    def value(self) -> Any:
        """What was stored, as it was stored."""
        return self.kept["value"]

    @value.setter
    def value(self, value: Any) -> None:
        self.kept["value"] = value * type(self).scale

    def __iadd__(self, other: Any) -> Scaled:
        self.kept["value"] = self.kept["value"] + other * type(self).scale
        return self


def _scaling(store: Callable[[Scaled, rl.Tensor], None]) -> Callable[[], Scenario]:
    def make() -> Scenario:
        class Own(Scaled):
            scale = 1

        def run(x: rl.Tensor) -> rl.Tensor:
            made = Own()
            store(made, x)
            return made.kept["value"]  # type: ignore[no-any-return]

        return run, lambda: setattr(Own, "scale", 5)

    make.__name__ = store.__name__
    return scenario(make)


@_scaling
def an_item_is_assigned(made: Scaled, x: rl.Tensor) -> None:
    made["value"] = x


@_scaling
def an_item_is_deleted(made: Scaled, x: rl.Tensor) -> None:
    made.kept["value"] = x
    del made["value"]


@_scaling
def a_property_is_assigned(made: Scaled, x: rl.Tensor) -> None:
    made.value = x


@_scaling
def a_property_is_set_by_name(made: Scaled, x: rl.Tensor) -> None:
    setattr(made, "value", x)  # noqa: B010


@_scaling
def an_attribute_is_augmented(made: Scaled, x: rl.Tensor) -> None:
    made.kept["value"] = x
    holder = types.SimpleNamespace(made=made)
    holder.made += x


@scenario
def a_property_of_the_base_class() -> Scenario:
    class Base:
        kept = 2

        @property
        def value(self) -> int:
            return self.kept * 2

    class Derived(Base):
        @property
        def value(self) -> int:
            return super().value + 1

    made = Derived()
    return lambda x: x * made.value, lambda: setattr(made, "kept", 7)


@scenario
def keys_that_compare_with_their_like_only() -> Scenario:
    class Key:
        def __init__(self, name: int) -> None:
            self.name = name

        def __hash__(self) -> int:
            return self.name

        def __eq__(self, other: Any) -> bool:
            return bool(self.name == other.name)

    key, table = Key(1), {Key(1): 10, Key(2): 20}
    return lambda x: x + table[key], lambda: setattr(key, "name", 2)


@scenario
def whether_something_can_be_called() -> Scenario:
    class Thing:
        pass

    thing = Thing()
    return (
        lambda x: x + (1 if callable(thing) else 0),
        lambda: setattr(Thing, "__call__", lambda self: 1),
    )


@scenario
def the_bases_of_a_class() -> Scenario:
    class First:
        pass

    class Second:
        pass

    class Thing(First):
        pass

    return (
        lambda x: x + (1 if issubclass(Thing, Second) else 0),
        lambda: setattr(Thing, "__bases__", (First, Second)),
    )


@runtime_checkable
class Goes(Protocol):
    """What can go."""

    def go(self) -> int:
        """Go."""


@scenario
def the_members_of_a_protocol() -> Scenario:
    class Thing:
        pass

    thing = Thing()
    return (
        lambda x: x + (1 if isinstance(thing, Goes) else 0),
        lambda: setattr(Thing, "go", lambda self: 1),
    )


@scenario
def a_function_of_this_package_is_replaced() -> Scenario:
    holder = types.ModuleType("ridgeline.pretended")
    holder.scaled = rl.exp  # type: ignore[attr-defined]
    return lambda x: holder.scaled(x), lambda: setattr(holder, "scaled", rl.sin)


@scenario
def a_module_is_replaced() -> Scenario:
    def pretend(value: int) -> None:
        made = sys.modules["ridgeline_pretended"] = types.ModuleType("ridgeline_pretended")
        made.value = value  # type: ignore[attr-defined]

    def run(x: rl.Tensor) -> rl.Tensor:
        import ridgeline_pretended  # type: ignore[import-not-found]

        return x + ridgeline_pretended.value

    pretend(1)
    return run, lambda: pretend(9)


@scenario
def objects_that_count_their_ends() -> Scenario:
    ends: list[int] = []

    class Counted:
        def __del__(self) -> None:
            ends.append(1)

    def run(x: rl.Tensor) -> rl.Tensor:
        made = Counted()
        del made
        return x + len(ends)

    return run, lambda: None


@scenario
def a_weak_reference_to_what_goes() -> Scenario:
    class Thing:
        value = 3

    things = [Thing()]
    seen = weakref.ref(things[0])

    def run(x: rl.Tensor) -> rl.Tensor:
        thing = seen()
        return x + (0 if thing is None else thing.value)

    return run, things.clear


def _hooked(register: str, hook: Callable[[Any], Any]) -> Callable[[], Scenario]:
    def make() -> Scenario:
        weight = nn.Parameter(rl.ones(4))

        def run(x: rl.Tensor) -> rl.Tensor:
            weight.grad = None
            (weight * x).sum().backward()
            assert weight.grad is not None
            return weight.grad * 1

        return run, lambda: getattr(weight, register)(hook)

    make.__name__ = register
    return scenario(make)


_hooked("register_hook", lambda gradient: gradient * 3)
_hooked("register_post_accumulate_grad_hook", lambda tensor: [tensor.grad.mul_(3), None][1])


def _outcomes(make: Callable[[], Scenario], jitted: bool) -> list[Any]:
    function, change = make()
    called = rl.jit(function) if jitted else function
    x = rl.tensor([0.0, 1.0, 2.0, 3.0])
    found = [called(x).tolist() for _ in range(3)]
    change()
    return [*found, *(called(x).tolist() for _ in range(2))]


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_jit_gives_what_python_gives(make: Callable[[], Scenario]) -> None:
    for found, wanted in zip(_outcomes(make, jitted=True), _outcomes(make, jitted=False)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_hook_that_was_removed_finds_the_first_trace_again() -> None:
    weight = nn.Parameter(rl.ones(4))

    @rl.jit
    def gradient(x: rl.Tensor) -> rl.Tensor:
        weight.grad = None
        (weight * x).sum().backward()
        assert weight.grad is not None
        return weight.grad * 1

    x = rl.ones(4)
    gradient(x)
    handle = weight.register_hook(lambda found: found * 2)
    assert gradient(x).tolist() == [2.0] * 4
    handle.remove()
    assert gradient(x).tolist() == [1.0] * 4
    assert gradient.traces == 2


def test_the_right_of_an_augmented_assignment_is_evaluated_after_the_left_is_read() -> None:
    @rl.jit
    def run(x: rl.Tensor) -> rl.Tensor:
        table = {"a": 1}

        def changed() -> int:
            table["a"] = 100
            return 10

        table["a"] += changed()
        return x + table["a"]

    assert run(rl.zeros(1)).item() == 11


def test_objects_without_init_do_not_make_a_function_open() -> None:
    class Plain:
        pass

    @rl.jit
    def run(x: rl.Tensor) -> rl.Tensor:
        made = Plain()
        made.value = x * 2  # type: ignore[attr-defined]
        return made.value + 1  # type: ignore[attr-defined,no-any-return]

    run(rl.zeros(2))
    run(rl.zeros(2))
    assert run.traces == 1 and "open" not in run.history[0]


def test_patched_functions_are_seen() -> None:
    run = rl.jit(lambda x: rl.exp(x))
    assert run(rl.zeros(1)).item() == 1
    with unittest.mock.patch.object(rl, "exp", lambda x: x + 50):
        assert run(rl.zeros(1)).item() == 50
    assert run(rl.zeros(1)).item() == 1
