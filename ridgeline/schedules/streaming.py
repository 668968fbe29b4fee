"""Contractions that read a matrix once: row-major, with few rows on the other side.

A register tile would walk the matrix in columns a few cache lines wide, one page a step. Here
several rows of it are read together from end to end, and the sums stay in the nearest cache.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops.schedule import Reorder, SetKind, Split, Step
from ridgeline.schedules.accesses import Access
from ridgeline.schedules.machine import Machine

_MOST_SHARING = 4  # rows that read one element; more of them are better served by a tile
_TOGETHER = 8  # rows of the matrix read side by side
_LEAST_RUN = 512  # elements of a row a task reads
_MOST_RUN = 2048


def steps(
    touched: list[Access], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> list[Step] | None:
    """Steps for such a contraction; None if this is not one."""
    if len(inner) != 1:
        return None
    ((summed, depth),) = inner.items()
    matrices = [a for a in touched if not a.is_store and a.stride(summed) not in (0, 1, None)]
    if len(matrices) != 1 or matrices[0].opaque:
        return None
    (matrix,) = matrices
    along = [n for n in rows if matrix.stride(n) == 1]
    sharing = [n for n in rows if matrix.stride(n) == 0]
    if len(along) != 1 or prod(rows[n] for n in sharing) > _MOST_SHARING:
        return None
    width = machine.lanes(matrix.buffer.dtype.itemsize)
    run = _run(rows[along[0]], width, machine)
    if run is None or depth % _TOGETHER:
        return None
    return _steps(along[0], summed, run, width, rows, sharing)


def _run(length: int, width: int, machine: Machine) -> int | None:
    """Elements of a row for one task: a divisor that gives every core an equal share."""
    wanted = min(_MOST_RUN, length // machine.threads)
    sizes = range(wanted - wanted % width, _LEAST_RUN - 1, -width)
    return next((size for size in sizes if length % size == 0), None)


def _steps(
    along: str, summed: str, run: int, width: int, rows: dict[str, int], sharing: list[str]
) -> list[Step]:
    apart = [n for n in rows if n != along and n not in sharing]
    task, piece, lane = f"{along}.0", f"{along}.1.0", f"{along}.1.1"
    outer, together = f"{summed}.0", f"{summed}.1"
    return [
        Split(along, run),
        Split(f"{along}.1", width),
        Split(summed, _TOGETHER),
        Reorder((*apart, task, outer, piece, together, *sharing, lane)),
        *(SetKind(name, "unroll") for name in (together, *sharing)),
        SetKind(lane, "vector"),
        *(SetKind(name, "parallel") for name in (*apart, task)),
    ]
