"""Jitted functions in classes: methods of all kinds, of one name, of objects without a table."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import nn


class Scaled:
    """With one method of each kind."""

    factor = 2

    @rl.jit
    def method(self, x: Any) -> Any:
        return x * self.factor

    @classmethod
    @rl.jit
    def of_class(cls, x: Any) -> Any:
        return x * cls.factor

    @staticmethod
    @rl.jit
    def static(x: Any) -> Any:
        return x * 3

    @rl.jit
    @staticmethod
    def jitted_static(x: Any) -> Any:
        return x * 4

    @property
    @rl.jit
    def shown(self) -> Any:
        return rl.ones(1) * self.factor

    @functools.cached_property
    @rl.jit
    def kept(self) -> Any:
        return rl.ones(1) * self.factor

    @rl.jit
    def __call__(self, x: Any) -> Any:
        return x + self.factor

    doubled = rl.jit(lambda self, x: x * 2)
    tripled = rl.jit(lambda self, x: x * 3)
    layer = rl.jit(nn.Identity())


class Further(Scaled):
    """Extends a jitted method by another one."""

    factor = 5

    @rl.jit
    def method(self, x: Any) -> Any:
        return super().method(x) * 10


class Slim:
    """Has no table to keep anything in."""

    __slots__ = ("factor",)

    @rl.jit
    def method(self, x: Any) -> Any:
        return x * self.factor


def _all(one: Scaled) -> list[float]:
    x = rl.ones(1)
    found = [
        one.method(x), one.of_class(x), type(one).of_class(x), one.static(x),
        one.jitted_static(x), one.shown, one.kept, one(x), one.doubled(x), one.tripled(x),
        one.layer(x),
    ]  # fmt: skip
    return [value.item() for value in found]


def test_methods_of_all_kinds() -> None:
    first, second, further = Scaled(), Scaled(), Further()
    second.factor = 7
    for _ in range(2):
        assert _all(first) == [2, 2, 2, 3, 4, 2, 2, 3, 2, 3, 1]
        assert _all(second) == [7, 2, 2, 3, 4, 7, 7, 8, 2, 3, 1]
        assert _all(further) == [50, 5, 5, 3, 4, 5, 5, 6, 2, 3, 1]
    assert first.method.traces == 1 and Scaled.of_class.traces == 1


def test_a_class_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Scaled.of_class(rl.ones(1)).item() == 2
    monkeypatch.setattr(Scaled, "factor", 9)
    assert Scaled.of_class(rl.ones(1)).item() == Scaled().method(rl.ones(1)).item() == 9
    assert Further.of_class(rl.ones(1)).item() == 5


def test_objects_without_a_table() -> None:
    first, second = Slim(), Slim()
    first.factor, second.factor = 2, 3
    for _ in range(3):
        assert first.method(rl.ones(1)).item() == 2 and second.method(rl.ones(1)).item() == 3
    assert first.method.traces == 2
    first.factor = 5
    assert first.method(rl.ones(1)).item() == 5


def test_a_copy_has_forms_of_its_own() -> None:
    first = Scaled()
    assert first.method(rl.ones(1)).item() == 2
    for made in (copy.copy(first), copy.deepcopy(first)):
        made.factor = 6
        assert made.method(rl.ones(1)).item() == 6 and first.method(rl.ones(1)).item() == 2
