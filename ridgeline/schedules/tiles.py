"""Register tiles of contractions: one axis in vector lanes and up to two row axes unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import ceil, prod

from ridgeline.schedules.accesses import Access
from ridgeline.schedules.machine import Machine

_FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16)
_LEAST_DEPTH = 32  # products of a sum that make up for storing its result in pieces


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Which axis fills the lanes (and how many), and which axes are unrolled how far.

    Axes that the operand in the lanes depends on come first: each of its vectors is then loaded,
    used by all others and forgotten, and takes one register instead of one per unrolled step.
    """

    vector: str
    lanes: int
    unroll: tuple[tuple[str, int], ...]


def candidates(
    loads: list[Access], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> Iterator[RegisterTile]:
    """All tiles that fit into the registers."""
    sizes = {**rows, **inner}
    width = elements(loads, machine)
    last_row = list(rows)[-1]
    unit = [n for n in sizes if any(a.stride(n) == 1 for a in loads)] or [last_row]
    packable = [n for n in rows if rows[n] >= width and prod(inner.values()) >= _LEAST_DEPTH]
    for vector in dict.fromkeys([*unit, last_row, *packable]):
        lengths = {min(sizes[vector], width * r) for r in (1, 2, 4)}
        guarded = any(vector in a.guards for a in loads)
        if guarded and registers_of(sizes[vector], width) <= machine.registers // 2:
            lengths.add(sizes[vector])  # which lanes have no element is known beforehand
        moving = [a for a in loads if a.stride(vector) != 0]
        others = [n for n in rows if n != vector]
        others.sort(key=lambda n: all(a.stride(n) == 0 for a in moving))
        pairs = [*combinations(others, 2), *((n,) for n in others), ()]
        for lanes in lengths:
            registers = registers_of(lanes, width)
            for names in pairs:
                yield from _unrolls(vector, lanes, names, rows, machine.registers // registers)


def _unrolls(
    vector: str, lanes: int, names: tuple[str, ...], rows: dict[str, int], limit: int
) -> Iterator[RegisterTile]:
    options = [[f for f in _FACTORS if f <= rows[n]] for n in names]
    if not names:
        yield RegisterTile(vector, lanes, ())
    elif len(names) == 1:
        for f in options[0]:
            if f < limit:
                yield RegisterTile(vector, lanes, ((names[0], f),))
    else:
        for f in options[0][1:]:
            for g in options[1][1:]:
                if f * g < limit:
                    yield RegisterTile(vector, lanes, ((names[0], f), (names[1], g)))


def elements(loads: list[Access], machine: Machine) -> int:
    """Elements of a vector register, by the widest operand."""
    return machine.lanes(max((a.buffer.dtype.itemsize for a in loads), default=4))


def registers_of(lanes: int, width: int) -> int:
    """Vector registers of a loop's lanes, which are rounded up to a power of two."""
    return max(1 << (lanes - 1).bit_length(), width) // width


def count(tile: RegisterTile, rows: dict[str, int]) -> int:
    """Register tiles that cover all rows."""
    unroll = dict(tile.unroll)
    tiles = 1
    for name, size in rows.items():
        tiles *= ceil(size / (tile.lanes if name == tile.vector else unroll.get(name, 1)))
    return tiles


def imbalance(tasks: int, machine: Machine) -> float:
    """How much longer the slowest core works than the average one."""
    return ceil(tasks / machine.threads) * machine.threads / tasks
