"""The tile of a contraction's result that a block computes, and how its threads share it.

A large part reads its operands few times, many small parts fill the GPU and wait for memory at the
same time. Parts are as large as two for every multiprocessor allow. A long sum of few elements is
cut into pieces instead, which a second launch joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ridgeline.schedules.gpu.machine import GpuMachine, power_at_least, power_at_most

_LEAST, _MOST, _HUGE = 64, 4096, 16384  # elements of a block's part
_WARP, _TALLEST = 32, 256
_FLATTEST = 32  # the longer side where the other may have any length
_LOAD = 10  # operations that fetch an element, most of them to find its place
_FETCHED = 64  # elements that a thread fetches, all at once
_FETCHED_AGAIN, _REGISTERS = 40, 112  # the same in a loop, which keeps their addresses too
_SHARED = 64 << 10  # bytes of operands that a block keeps at a time
_SPARED = 16 << 10  # bytes that joining threads may need
_LONG = 1024  # terms of a sum that is worth a second launch
_PIECE = 64  # terms that a piece has at least
_WORTH_A_LAUNCH = 1 << 24  # products from which reading less pays for one
_HEAVY = 1 << 25  # products from which a GPU computes longer than it waits
_MANY = 8  # blocks for each multiprocessor from which nobody has to wait for memory
_ALONE = 8  # terms of one thread at least, where several share a sum


@dataclass(frozen=True, slots=True)
class BlockTile:
    """A part of the result. The axis along which results lie side by side in memory is `near`."""

    near: int
    far: int
    near_each: int  # elements of a thread along that axis, dealt out in turns
    far_each: int  # the same along the other, side by side
    parts: int  # threads that share the terms of an element
    depth: int  # terms whose operands lie in shared memory at a time
    pieces: int  # parts of the sum that are launched side by side

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.near // self.near_each * (self.far // self.far_each) * self.parts


def choose(
    near: int, far: int, batch: int, depth: int, itemsize: int, gpu: GpuMachine
) -> BlockTile:
    """The tile of a contraction: sums of `depth` terms for `near` by `far` elements in a batch."""
    elements, processors = near * far * batch, gpu.multiprocessors
    heavy = elements * depth >= _HEAVY
    cut = _is_cut(elements, depth, processors)
    area = _MOST if cut else _area(elements, heavy, processors)
    if elements >= _HUGE * processors and min(near, far) >= 128:
        area = _HUGE
    side = _sides(near, far, area, cut)
    each = _each(side)
    tiles = -(-near // side[0]) * -(-far // side[1]) * batch
    pieces = processors * (2 if heavy else 1) // tiles if cut else 1
    pieces = max(1, min(pieces, processors, depth // _PIECE))
    terms, alone = -(-depth // pieces), side[0] // each[0] * (side[1] // each[1])
    threads = 128 if side[0] * side[1] >= 1024 else 256
    waits = tiles * pieces <= _MANY * processors
    parts = min(threads // alone, power_at_most(terms // _ALONE)) if waits else 1
    parts = max(parts, _WARP // alone, 1)
    stage = _stage(
        terms, side, each, alone * parts, min(_SHARED, gpu.shared_bytes - _SPARED) // itemsize
    )
    return BlockTile(*side, *each, parts, -(-stage // parts) * parts, pieces)


def _is_cut(elements: int, depth: int, processors: int) -> bool:
    """True for sums that are better computed in pieces."""
    few = depth >= _LONG and elements < _LEAST * processors
    long = depth >= 2 * _PIECE and elements * depth > _WORTH_A_LAUNCH
    return few or (long and elements < _MOST * processors // 2)


def _area(elements: int, heavy: bool, processors: int) -> int:
    """Elements of a block: two blocks for each multiprocessor, or about one where it has much to
    do and large parts read less."""
    blocks = processors * 3 // 4 if heavy else processors * 2
    return min(max(power_at_most(elements // blocks), _LEAST), _MOST)


def _stage(
    terms: int, side: tuple[int, int], each: tuple[int, int], threads: int, room: int
) -> int:
    """Terms that are loaded at a time, in stages of equal length."""
    most = max(min(_FETCHED * threads, room) // sum(side), 1)
    if terms > most:
        again = min(_FETCHED_AGAIN, _REGISTERS - each[0] * each[1] * 3 // 2)
        most = max(min(again * threads, room) // sum(side), 1)
    least = -(-terms // most)
    stages = next((n for n in range(least, least * 5 // 4 + 1) if terms % n == 0), least)
    return -(-terms // stages)


def _sides(near: int, far: int, area: int, square: bool) -> tuple[int, int]:
    """The sides of a tile of at most `area` elements that takes the fewest operations.

    Elements beyond the result are computed too. Tiles of a split sum are nearly `square`: they may
    be far more numerous than flat ones.
    """
    powers = [1 << n for n in range(2, _TALLEST.bit_length())]
    most = (power_at_least(near), power_at_least(far))
    found = [
        (a, b) for a, b in product(powers, powers)
        if a * b <= area and a <= max(most[0], 4) and b <= max(most[1], 4)
        and not (square and max(a, b) > max(2 * min(a, b), _FLATTEST))
    ]  # fmt: skip

    def operations(side: tuple[int, int]) -> tuple[float, int]:
        a, b = side
        padded = -(-near // a) * a * (-(-far // b) * b)
        return padded * (1 + _LOAD / a + _LOAD / b), -a * b

    return min(found, key=operations)


def _each(side: tuple[int, int]) -> tuple[int, int]:
    """Elements of a thread: many if a block has many, so that loads are reused."""
    area = side[0] * side[1]
    wanted = (8, 8) if area > _MOST else (4, 8) if area == _MOST else (4, 4)
    wanted = wanted if area >= 1024 else (2, 2)
    return min(wanted[0], side[0]), min(wanted[1], side[1])
