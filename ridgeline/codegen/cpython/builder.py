"""LLVM IR of one function as it is written: values, blocks, and the ways out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import count
from types import GenericAlias
from typing import Any


class Raw(Enum):
    """Values that are no objects, by their LLVM types."""

    BIT = "i1"
    INT = "i64"
    FLOAT = "double"


# what a value is declared to be: a class, one such as `list[Entry]`, Raw, or None if nobody knows
Kind = Any


def class_of(kind: Kind) -> Any:
    """The class of a kind, without what its objects hold."""
    return kind.__origin__ if isinstance(kind, GenericAlias) else kind


def held_by(kind: Kind, place: int = -1) -> Kind:
    """What the items of a container are, or one of them, or the values of a dictionary."""
    parts = kind.__args__ if isinstance(kind, GenericAlias) else ()
    if class_of(kind) is tuple and ... not in parts:
        return parts[place] if 0 <= place < len(parts) else None
    return parts[0 if ... in parts else -1] if parts else None


@dataclass(frozen=True, slots=True)
class IrValue:
    """A value in a register, or a constant."""

    text: str
    kind: Kind
    local: str = ""  # the variable that it was read from

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return str(self.kind.value) if isinstance(self.kind, Raw) else "ptr"

    @property
    def typed(self) -> str:
        """As an argument of an instruction."""
        return f"{self.type} {self.text}"


class IrBuilder:
    """The blocks of a function. Code behind a jump, until the next label, is left out."""

    def __init__(self) -> None:
        self._numbers = count()
        self._lines: list[str] = []
        self._variables: list[str] = []
        self.label = "begin"  # of the block being written
        self.open = True  # is it without a jump at its end

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        return f"{hint}.{next(self._numbers)}"

    def do(self, instruction: str) -> None:
        """An instruction without a result."""
        if self.open:
            self._lines.append(f"  {instruction}")

    def let(self, instruction: str, kind: Kind = None, hint: str = "v") -> IrValue:
        """The result of an instruction."""
        name = f"%{self.fresh(hint)}"
        self.do(f"{name} = {instruction}")
        return IrValue(name, kind)

    def variable(self, hint: str, kind: str) -> str:
        """Memory for a local variable; LLVM makes registers of it."""
        name = f"%{self.fresh(hint)}"
        self._variables.append(f"  {name} = alloca {kind}")
        return name

    def start(self, label: str) -> None:
        """Begin a block, which the one before runs into."""
        self.jump(label)
        self._lines.append(f"{label}:")
        self.label, self.open = label, True

    def jump(self, label: str) -> None:
        """End the block."""
        self.do(f"br label %{label}")
        self.open = False

    def branch(self, condition: str, yes: str, no: str) -> None:
        """End the block by a condition."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        self.open = False

    def give(self, value: str) -> None:
        """End the function."""
        self.do(f"ret {value}")
        self.open = False

    def choose(self, kind: Kind, *ways: tuple[IrValue, str]) -> IrValue:
        """The value of whichever block came before."""
        parts = ", ".join(f"[ {value.text}, %{label} ]" for value, label in ways)
        return self.let(f"phi {ways[0][0].type} {parts}", kind)

    def text(self, head: str) -> str:
        """The function as IR."""
        body = "\n".join([*self._variables, "  br label %begin", "begin:", *self._lines])
        return f"{head} {{\nentry:\n{body}\n}}\n"
