"""Pointwise kernels that transpose operands through shared memory.

A block fetches a tile of each such operand in the order in which it lies, into shared memory, and
its threads read the tile in the order of the result: both ways memory is met in whole lines.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops.schedule import (
    Bind,
    Pad,
    Reorder,
    ScheduleError,
    SetKind,
    Share,
    Split,
    leave_out,
)
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.gpu.machine import (
    ACCESS_BYTES,
    Draft,
    GpuMachine,
    power_at_least,
    power_at_most,
)

_AREAS = (4096, 1024)  # elements of a tile: the first that gives every multiprocessor one
_SIDE = 64  # of a tile, where neither length is less
_THREADS = 256
_FEWEST = 16  # elements along a row; fewer are read by neighbouring threads at once anyway
_MOST_BYTES = 48 << 10  # of shared memory, so that a multiprocessor has several blocks
Plane = tuple[str, str]  # the loop that an operand lies along, and the one that results lie along


def turn_tiles(draft: Draft, names: list[str], gpu: GpuMachine) -> bool:
    """Schedule loops whose last one stores side by side, if an operand lies across it."""
    across = names[-1]
    lengths = {name: draft.length(name) for name in names}
    known = {name: length for name, length in lengths.items() if length is not None}
    read = _turned(accesses(draft.kernel), names)
    if len(known) < len(names) or not read:
        return False
    down = next(name for name in names if read[0].stride(name) == 1)
    if any(a.stride(down) != 1 for a in read) or known[across] <= _FEWEST or known[down] == 1:
        return False
    plane = down, across
    sides = _sides(known, plane, read, gpu)
    if sides is None:
        return False
    tiled = Draft(draft.kernel)
    try:
        _tile(tiled, names, plane, sides, sorted({a.buffer.name for a in read}))
    except ScheduleError as refusal:  # an operand that is read in two ways
        leave_out("tiles that are turned", refusal)
        return False
    draft.kernel = tiled.kernel
    draft.steps += tiled.steps
    return True


def _turned(found: list[LoopAccess], names: list[str]) -> list[LoopAccess]:
    """The reads that are contiguous along another loop than the last; none if stores are too."""
    across = names[-1]
    if any(a.stride(across) != 1 for a in found if a.is_store):
        return []
    return [
        a for a in found
        if not a.is_store and a.stride(across) not in (0, 1, None)
        and any(a.stride(name) == 1 for name in names)
    ]  # fmt: skip


def _sides(
    lengths: dict[str, int], plane: Plane, read: list[LoopAccess], gpu: GpuMachine
) -> tuple[int, int] | None:
    """The largest tile that gives every multiprocessor one, or the smallest.

    None if no tile fits, or the smallest is larger than a plane, which is then only a few cache
    lines.
    """
    size = sum(a.buffer.dtype.itemsize for a in read)
    plane_size = prod(lengths[axis] for axis in plane)
    fitting = [a for a in _AREAS if a * size <= _MOST_BYTES and a <= 2 * plane_size]
    down, across = (power_at_least(lengths[axis]) for axis in plane)
    sides = None
    for area in fitting:
        short = min(down, across, _SIDE, power_at_most(int(area**0.5)))
        sides = (short, area // short) if down < across else (area // short, short)
        cut = dict(zip(plane, sides))
        tiles = prod(-(-length // cut.get(name, 1)) for name, length in lengths.items())
        if tiles >= gpu.multiprocessors:
            break
    return sides


def _tile(
    draft: Draft, names: list[str], plane: Plane, sides: tuple[int, int], buffers: list[str]
) -> None:
    """Tiles of two loops to blocks: fetched down, then computed and stored across."""
    found = accesses(draft.kernel)
    read = max(a.buffer.dtype.itemsize for a in found if a.buffer.name in buffers)
    stored = min(a.buffer.dtype.itemsize for a in found if a.is_store)
    widths = [_width(draft, axis, size) for axis, size in zip(plane, (read, stored))]
    threads = min(_THREADS, prod(sides) // max(widths))
    outer = [name for name in names if name not in plane]
    inner: list[list[str]] = []  # of either axis: the vectors of a tile, the lanes of a vector
    for axis, side, width in zip(plane, sides, widths):
        over, lane = draft.vectors(axis, width)
        draft.do(Pad(over, side // width), Split(over, side // width))
        outer += [f"{over}.0"] * draft.has(f"{over}.0")
        inner.append([f"{over}.1"] if lane is None else [f"{over}.1", lane])
    down, across = inner
    draft.do(Reorder((*outer, *down, *across)))
    for name in buffers:
        _fetch(draft, name, (*across, *down), widths[0], threads)
    tile, lanes = draft.fuse([*down, across[0]]), across[1:]
    draft.do(Split(tile, threads), Reorder((f"{tile}.1", f"{tile}.0", *lanes)))
    draft.do(SetKind(f"{tile}.0", "unroll"), *(SetKind(lane, "vector") for lane in lanes))
    draft.do(Bind(f"{tile}.1", "thread"))
    draft.grid(outer)


def _fetch(draft: Draft, buffer: str, axes: tuple[str, ...], width: int, threads: int) -> None:
    """All threads fetch the tile of a buffer, in vectors as it lies."""
    size = next(p.dtype.itemsize for p in draft.kernel.params if p.name == buffer)
    before = axes[-2] if width > 1 else axes[-1]
    draft.do(Share(buffer, before, axes, axes, max(ACCESS_BYTES // size, 1)))
    over, lane = draft.vectors(f"{buffer}.s", width)
    draft.do(Split(over, threads), Reorder((f"{over}.1", f"{over}.0")))
    draft.do(SetKind(f"{over}.0", "unroll"), Bind(f"{over}.1", "thread"))
    if lane is not None:
        draft.do(SetKind(lane, "vector"))


def _width(draft: Draft, axis: str, itemsize: int) -> int:
    """Elements of one access along an axis, the same in all of its rows."""
    length, width = draft.length(axis) or 1, max(ACCESS_BYTES // itemsize, 1)
    while length % width or width == length > 1:
        width //= 2
    return width
