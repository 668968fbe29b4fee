"""Fields of a tokenizer file, read with a check: a file is data that somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ridgeline.errors import InputFileError

Part = TypeVar("Part")
Kind = TypeVar("Kind")
MOST_TOKENS = 2**32
DEEPEST_NESTING = 32


@dataclass(frozen=True)
class Fields:
    """A JSON object of the file, and what it is called in errors."""

    name: str
    values: dict[str, Any]
    depth: int = 0

    def fail(self, reason: str) -> InputFileError:
        """The error for what is wrong with this part of the file."""
        return InputFileError(f"{self.name}: {reason}")

    def has(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(field) is not None

    def text(self, field: str, default: str | None = None) -> str:
        """A text."""
        return self._typed(field, str, "a text", default)

    def optional_text(self, field: str) -> str | None:
        """A text, or None where the field is null or not there."""
        return self.text(field) if self.has(field) else None

    def character(self, field: str) -> str:
        """One character."""
        if len(value := self.text(field)) != 1:
            raise self.fail(f"{field!r} must be one character, not {value!r}")
        return value

    def flag(self, field: str, default: bool | None = None) -> bool:
        """True or false."""
        return self._typed(field, bool, "true or false", default)

    def whole(self, field: str, default: int | None = None) -> int:
        """A whole number that is not negative."""
        value = self._typed(field, int, "a whole number", default)
        if isinstance(value, bool) or not 0 <= value < MOST_TOKENS:
            raise self.fail(f"{field!r} must be a whole number below 2**32, not {value!r:.40}")
        return value

    def items(self, field: str) -> list[Any]:
        """A list."""
        return self._typed(field, list, "a list", None)

    def choice(self, field: str, names: tuple[str, ...], default: str | None = None) -> str:
        """One of some names."""
        if (value := self.text(field, default)) not in names:
            raise self.fail(f"{field!r} is {value!r:.40}; supported are {', '.join(names)}")
        return value

    def inner(self, field: str) -> Fields:
        """An object inside this one."""
        return self.at(field, self._typed(field, dict, "an object", None))

    def at(self, name: str, value: Any) -> Fields:
        """An object that is an element of this one."""
        if not isinstance(value, dict):
            raise self.fail(f"{name} must be an object, not {value!r:.40}")
        if self.depth > DEEPEST_NESTING:
            raise self.fail(f"parts are nested more than {DEEPEST_NESTING} deep")
        return Fields(f"{self.name}, {name}", value, self.depth + 1)

    def vocabulary(self, field: str) -> dict[str, int]:
        """Tokens with their numbers."""
        table: dict[str, int] = self._typed(field, dict, "an object", None)
        for token, number in table.items():
            if type(number) is not int or not 0 <= number < MOST_TOKENS:
                raise self.fail(f"the number of token {token!r:.40} is {number!r:.40}")
        return table

    def _typed(self, field: str, kind: type[Kind], what: str, default: Kind | None) -> Kind:
        value = self.values.get(field, default)
        if value is None and default is not None:
            value = default
        if not isinstance(value, kind):
            if field not in self.values:
                raise self.fail(f"{field!r} is missing")
            raise self.fail(f"{field!r} must be {what}, not {value!r:.40}")
        return value


def make(table: dict[str, Callable[[Fields], Part]], fields: Fields, kind: str) -> Part:
    """The part of the tokenizer that the object describes, by its type; others are refused."""
    name = fields.text("type")
    if name not in table:
        supported = ", ".join(sorted(table))
        raise fields.fail(f"the {kind} {name!r:.40} is not supported; supported are {supported}")
    return table[name](Fields(f"{fields.name} ({name})", fields.values, fields.depth))
