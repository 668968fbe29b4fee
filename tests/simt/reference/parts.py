"""What a launch consists of: places of threads, memory, and what an operation makes of a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.simt.reference.text import Op


@dataclass(eq=False)
class Memory:
    """One array: elements by flat index, and all accesses that may still race."""

    name: str
    shape: tuple[int, ...]
    data: list[Any]
    known: list[bool]
    space: str
    wrap: Callable[[Any], Any]
    seen: dict[int, dict[Any, Access]] = field(default_factory=dict)
    messages: dict[int, list[Message]] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    thread: int
    epoch: int
    kind: str  # plain or atomic
    writes: bool
    scope: str
    value: Any


@dataclass(frozen=True)
class Message:
    """What an atomic write carries to those who read it: all that came before its fence."""

    clock: np.ndarray[Any, Any]
    writer: int
    scope: str


class NumberType:
    """A type of the language, as a conversion of Python numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        if self.name.startswith(("f", "bf")):
            return float(value)
        if self.name == "bool_":
            return bool(value)
        bits = int(self.name[1:])
        value = int(value) & ((1 << bits) - 1)
        signed = self.name[0] == "i" and value >> (bits - 1)
        return value - (1 << bits) if signed else value


@dataclass(frozen=True)
class Axes:
    x: int
    y: int
    z: int


@dataclass(frozen=True)
class Launch:
    """Grid and block in three dimensions."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        return math.prod(self.grid) * math.prod(self.block)

    @staticmethod
    def of(grid: Any, block: Any) -> Launch:
        def full(size: Any) -> tuple[int, int, int]:
            parts = tuple(size) if isinstance(size, (tuple, list)) else (size,)
            return (*map(int, parts), 1, 1, 1)[:3]  # type: ignore[return-value]

        return Launch(full(grid), full(block))


def place_of(number: int, sizes: tuple[int, int, int]) -> Axes:
    return Axes(number % sizes[0], number // sizes[0] % sizes[1], number // sizes[0] // sizes[1])


def empty_memory(name: str, shape: Any, kind: Any, space: str) -> Memory:
    sizes = tuple(shape) if isinstance(shape, tuple) else (shape,)
    many = math.prod(sizes)
    return Memory(name, sizes, [0] * many, [False] * many, space, kind)


def narrower(one: str, other: str) -> str:
    return "block" if "block" in (one, other) else "device"


def new_value(op: str, found: Any, value: Any) -> Any:
    match op:
        case "add":
            return found + value
        case "sub":
            return found - value
        case "min" | "max":
            return min(found, value) if op == "min" else max(found, value)
        case "and":
            return found & value
        case "or":
            return found | value
        case "xor":
            return found ^ value
        case "inc":
            return 0 if found >= value else found + 1
        case "dec":
            return value if found == 0 or found > value else found - 1
    return value


def source_lane(want: Op, lane: int) -> int:
    width, argument = want.width, int(want.compare)
    first = lane // width * width
    match want.name:
        case "shfl":
            return first + argument % width
        case "shfl_up":
            return lane - argument if lane - argument >= first else lane
        case "shfl_down":
            return lane + argument if lane + argument < first + width else lane
    other = lane ^ argument
    return other if other < first + width else lane


def vote_of(name: str, values: dict[int, Any], own: Any) -> Any:
    match name:
        case "ballot":
            return sum(1 << lane for lane, value in values.items() if value)
        case "any" | "all":
            return any(values.values()) if name == "any" else all(values.values())
        case "match":
            return sum(1 << lane for lane, value in values.items() if value == own)
        case "warp_sum":
            return sum(values.values())
    return max(values.values()) if name == "warp_max" else min(values.values())
