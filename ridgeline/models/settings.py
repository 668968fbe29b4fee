"""Settings of a `config.json`: each is checked when it is asked for, and named where wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import InputFileError

REQUIRED: Any = object()


def _is_count(value: Any) -> bool:
    """True for a number of things that a model can have: heads, layers, places."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# what an annotation of a setting asks of its value, and in words
KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "int": (_is_count, "a whole number above 0"),
    "float": (_is_real, "a finite number"),
    "str": (lambda v: isinstance(v, str), "a text"),
    "Sequence[int]": (lambda v: isinstance(v, list) and all(map(_is_count, v)), "numbers above 0"),
    "Sequence[float]": (lambda v: isinstance(v, list) and all(map(_is_real, v)), "finite numbers"),
    "Sequence[str]": (
        lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v), "texts"
    ),
    "dict[str, str]": (lambda v: isinstance(v, dict), "names"),
    "Mapping[str, Any]": (lambda v: isinstance(v, dict), "settings"),
}  # fmt: skip


def check_kind(name: str, declared: str, value: Any, where: str) -> None:
    """Raise where a setting is not what its annotation says."""
    plain = declared.removesuffix(" | None")
    fits, wanted = KINDS[plain]
    if value is None and plain != declared:
        return
    if not fits(value):
        also = ", or nothing" if plain != declared else ""
        raise InputFileError(f"{where}: {name} is {value!r:.60}, expected {wanted}{also}")


@dataclass(frozen=True)
class CheckedSettings:
    """The values of a `config.json`, or of a group inside it."""

    values: Mapping[str, Any]
    where: str

    def get(self, names: str, kind: str, default: Any = REQUIRED) -> Any:
        """The first of some names, apart by blanks, that has a value; it is of the kind."""
        for name in names.split():
            value = self.values.get(name)
            if value is not None:
                check_kind(name, kind, value, self.where)
                return value
        if default is REQUIRED:
            raise InputFileError(f"{self.where}: {names.split()[0]} is missing")
        return default

    def count(self, names: str, default: Any = REQUIRED) -> Any:
        """A whole number above 0."""
        return self.get(names, "int", default)

    def real(self, names: str, default: Any = REQUIRED) -> Any:
        """A finite number."""
        return self.get(names, "float", default)

    def flag(self, names: str, default: Any = REQUIRED) -> Any:
        """True or false."""
        return self.get(names, "bool", default)

    def text(self, names: str, default: Any = REQUIRED, among: tuple[str, ...] = ()) -> Any:
        """A text, one of some where these are given."""
        found = self.get(names, "str", default)
        if among and found not in among:
            raise self.refused(names.split()[0], found, among)
        return found

    def group(self, name: str, default: Any = REQUIRED) -> CheckedSettings:
        """Settings inside a setting."""
        found = self.get(name, "Mapping[str, Any]", default)
        return CheckedSettings(found, f"{self.where}: {name}")

    def refused(self, name: str, value: Any, known: Any) -> InputFileError:
        """The error for a value that is understood and not supported."""
        names = ", ".join(map(repr, known))
        return InputFileError(
            f"{self.where}: {name} {value!r:.60} is not supported", help=f"supported: {names}"
        )


@dataclass(frozen=True)
class Field:
    """A part that is a setting: its names in files, and what it is where they are silent."""

    names: str
    default: Any = REQUIRED  # a value, another field, or a function of all settings


def resolved(value: Any, kind: str, settings: CheckedSettings) -> Any:
    """A part's value: a constant, a setting, or a function of all settings."""
    if isinstance(value, Field):
        found = settings.get(value.names, kind.removesuffix(" | None"), None)
        if found is not None:
            return found
        if value.default is REQUIRED:
            return settings.get(value.names, kind)
        return resolved(value.default, kind, settings)
    return value(settings) if callable(value) else value
