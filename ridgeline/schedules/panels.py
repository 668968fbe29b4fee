"""Packed panels: the operand in the lanes, copied in the order in which tiles read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, gcd, prod

from ridgeline.schedules.accesses import LoopAccess
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.tiles import Panel, Pieces, RegisterTile, elements, imbalance

_LEAST_STRIP = 4096  # bytes of an operand worth packing
_LEAST_REUSE = 8  # tiles that must share a packed strip
_MUCH_REUSE = 256  # tiles next to which packing a strip is nothing
_LEAST_BLOCK = 48  # rows that must share it where a strip is packed once per block of rows
_LEAST_PIECE = 128  # products of a sum between two times that it waits in scratch
_WAITING = 6.0  # cycles to put a register of sums aside and to take it up again
_COPIED, _TURNED, _GATHERED = 0.9, 0.9, 2.5  # cycles to pack an element, by how it is read
_LINE = 64  # bytes
_WAYS = 8  # lines that fall on one set of a core's cache and fit


def ways_to_read(
    tile: RegisterTile,
    touched: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Iterator[Panel | None]:
    """The panel to pack for a tile; also None, if its operands can be read in place."""
    operand = _in_lanes(tile, touched, rows, inner, machine)
    panel = None if operand is None else _panel(tile, operand, rows, inner, machine)
    yield panel
    few = operand is not None and _reuse(operand, tile, rows) < _MUCH_REUSE
    if panel and operand and few and _lies_well(operand, tile, inner, machine):
        yield None


def _reuse(operand: LoopAccess, tile: RegisterTile, rows: dict[str, int]) -> int:
    """The number of tiles that read a strip."""
    factors = dict(tile.unroll)
    others = [n for n in rows if n != tile.vector and operand.stride(n) == 0]
    return prod(ceil(rows[n] / factors.get(n, 1)) for n in others)


def _lies_well(
    operand: LoopAccess, tile: RegisterTile, inner: dict[str, int], machine: Machine
) -> bool:
    """True for a strip of whole cache lines that stays in cache without conflict misses.

    Next to a tile over several axes it does not stay: such a tile reads the other operand at many
    addresses.
    """
    summed = [n for n in inner if operand.stride(n)]
    size = operand.buffer.dtype.itemsize
    if size < 4 or len(summed) != 1 or len(tile.unroll) > 1 or operand.stride(tile.vector) != 1:
        return False
    step, width = (operand.stride(summed[0]) or 0) * size, tile.lanes * size
    if step % _LINE or width % _LINE or inner[summed[0]] * width > machine.l2_bytes // 8:
        return False
    period = machine.l2_bytes // _WAYS
    return inner[summed[0]] * gcd(step, period) <= _WAYS // 2 * period


def _in_lanes(
    tile: RegisterTile,
    touched: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> LoopAccess | None:
    """The one operand whose elements fill the lanes, unless it is in strip order already."""
    if tile.vector not in rows:
        return None
    in_lanes = [a for a in touched if not a.is_store and a.stride(tile.vector) != 0]
    read = [a for a in in_lanes if any(a.stride(n) for n in inner) and not a.opaque]
    if len(read) != 1:
        return None
    (operand,) = read
    if tile.lanes == rows[tile.vector] and tile.lanes % elements([operand], machine):
        return None
    return None if _is_strip(operand, tile, inner) else operand


def _panel(
    tile: RegisterTile,
    operand: LoopAccess,
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Panel | None:
    """Pack the operand if many tiles read it and a packed strip stays in cache."""
    factors = dict(tile.unroll)
    others = [n for n in rows if n != tile.vector]
    shared = [n for n in others if operand.stride(n) == 0 and factors.get(n, 1) < rows[n]]
    apart = [n for n in others if operand.stride(n) != 0]
    axes = sorted((n for n in inner if operand.stride(n) != 0), key=_unit_last(operand))
    strip = prod(inner[n] for n in axes) * tile.lanes * _itemsize(operand)
    if strip < _LEAST_STRIP or any(n in factors for n in apart):
        return None
    if _reuse(operand, tile, rows) < _LEAST_REUSE:
        return None
    strips = prod(rows[n] for n in apart) * ceil(rows[tile.vector] / tile.lanes)
    together = prod(rows[n] for n in shared)
    block, blocks = share_blocks(shared[0], together, strips, factors, rows, machine)
    square, cycles = _packing(operand, tile, axes, inner, machine)
    uses = prod(rows[n] for n in others if operand.stride(n) == 0)
    cycles *= blocks / uses
    pieces = None
    if strip > machine.l2_bytes // 2:
        pieces = _pieces(tile, operand, together // blocks, rows, inner, machine)
        if pieces is None:
            return None
        inside = pieces.length * prod(inner[n] for n in axes if n not in _around(pieces))
        cycles += _WAITING / (inside * machine.lanes(operand.buffer.dtype.itemsize))
        axes = [f"{n}.1" if n == pieces.axis else n for n in axes if n not in pieces.around]
    return Panel(
        operand.buffer.name, tuple(shared), tuple(axes), square, block,
        cycles, strips * blocks, pieces,
    )  # fmt: skip


def _is_strip(operand: LoopAccess, tile: RegisterTile, inner: dict[str, int]) -> bool:
    """True if memory is in the order in which tiles read it: lanes, then the summed axes."""
    step, lanes = tile.lanes, operand.stride(tile.vector) == 1
    for name in reversed(inner):
        if operand.stride(name) not in (0, step):
            return False
        step *= inner[name] if operand.stride(name) else 1
    return lanes


def _around(pieces: Pieces) -> tuple[str, ...]:
    return (*pieces.around, pieces.axis)


def _pieces(
    tile: RegisterTile,
    operand: LoopAccess,
    together: int,
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Pieces | None:
    """The longest equal pieces of a sum whose strip takes a quarter of a core's cache."""
    itemsize = _itemsize(operand)
    room = machine.l2_bytes // 4 // (tile.lanes * itemsize)
    waiting = together * tile.lanes * itemsize
    if waiting > machine.l2_bytes // 2 or rows[tile.vector] % tile.lanes:
        return None
    names = list(inner)
    if any(operand.stride(n) == 0 for n in names):
        return None
    for index in reversed(range(len(names))):
        length = inner[names[index]]
        if length <= room:
            room //= length
            continue
        whole = next((d for d in range(room, 0, -1) if length % d == 0), 0)
        inside = whole * prod(inner[n] for n in names[index + 1 :])
        return Pieces(names[index], whole, tuple(names[:index])) if inside >= _LEAST_PIECE else None
    return None


def _itemsize(operand: LoopAccess) -> int:
    """Bytes of a packed element: narrow numbers are packed as what they are converted to."""
    return max(operand.buffer.dtype.itemsize, 4)


def _unit_last(operand: LoopAccess) -> Callable[[str], bool]:
    return lambda name: operand.stride(name) == 1


def _packing(
    operand: LoopAccess,
    tile: RegisterTile,
    axes: list[str],
    inner: dict[str, int],
    machine: Machine,
) -> tuple[int, float]:
    """The side of the squares to transpose, and the cycles that an element costs."""
    if operand.stride(tile.vector) == 1:
        return 0, _COPIED
    side = machine.lanes(operand.buffer.dtype.itemsize)
    if operand.stride(axes[-1]) == 1 and tile.lanes % side == 0 and inner[axes[-1]] >= side:
        return side, _TURNED
    return 0, _GATHERED


def share_blocks(
    axis: str,
    together: int,
    strips: int,
    factors: dict[str, int],
    rows: dict[str, int],
    machine: Machine,
) -> tuple[int, int]:
    """Rows of a block and the number of blocks, so that every core has an equal share."""
    factor, size = factors.get(axis, 1), rows[axis]
    best = 1
    for blocks in range(1, 4 * machine.threads + 1):
        if size % (blocks * factor) or size == blocks * factor:
            continue
        if blocks > 1 and together // blocks < _LEAST_BLOCK:
            continue
        if imbalance(strips * blocks, machine) < 0.95 * imbalance(strips * best, machine):
            best = blocks
    return size // best, best
