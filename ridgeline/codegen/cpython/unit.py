"""What a set of compiled functions offers to the translation of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any, Protocol

from ridgeline.codegen.cpython.builder import Kind


class Unit(Protocol):
    """What functions that are compiled together share."""

    scratch: frozenset[str]  # slots and parameters whose objects a call that bails out may change
    primitives: Mapping[Any, str | FunctionType]  # functions with a form of their own

    def place(self, value: object) -> str:
        """The IR of the place where the address of an object stands."""

    def slots(self, kind: Kind) -> Mapping[str, tuple[int, Kind]]:
        """Where objects of a class keep what, and of which kinds that is."""

    def kind(self, annotation: Any) -> Kind:
        """What an annotation declares."""

    def symbol(self, function: FunctionType) -> str | None:
        """The symbol of a function that is compiled too; None for one that is left to Python."""

    def note_settable(self, kind: type, name: str) -> None:
        """Objects of a class may have a slot set by its name."""
