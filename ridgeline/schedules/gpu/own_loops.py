"""Ops with own loops: rows are threads.

Updates of a scatter that only join are threads too, and a long scan is cut into pieces.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops import ir
from ridgeline.loops.interpreter.counters import joined, operations
from ridgeline.loops.ir import Alloc, For, Reduce
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.lowering.own_loops import SUMS
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.schedule import Bind, BlockScan, Reorder, SetKind, Split, SplitScan, Step
from ridgeline.ops.gather import SCATTER
from ridgeline.ops.radix import RANK
from ridgeline.ops.scan import EXTREME_SCAN, LINEAR_SCAN, SCAN
from ridgeline.ops.tiled_radix import DIGIT_COUNTS, TILED
from ridgeline.ops.tiled_selection import TILE_SMALLEST
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.gpu.machine import Draft, GpuMachine, power_at_least, power_at_most

_THREADS = 128
_FEW_ROWS, _MANY_ROWS = 32, 4096
_WARP = 32
_SCANS = (SCAN, EXTREME_SCAN, LINEAR_SCAN)
_SHORT_SCAN = 64  # elements that one thread scans
_SCAN_THREADS, _RUN = 256, 16  # of a block that scans a tile, and the most elements of each
_RUN_BYTES = 128  # of the running values of a thread's run
_SCAN_WAVES = 8  # blocks for each multiprocessor when rows are cut into pieces
_MOST_PIECES = 512
_RANKED = 4  # elements of a thread
_MANY_BLOCKS = 512  # rows that fill a device, a block each
_LINE_THREADS = 256  # of a block that makes lines of updates
_LINES = 4  # lines, or updates, of a thread


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a kernel whose inner loops run in order."""
    draft = Draft(lowered.kernel)
    rows = [axis.name for axis in lowered.rows]
    names = [s.name for s in ir.statements(draft.kernel.body) if isinstance(s, For)]
    inner = [n for n in dict.fromkeys(names) if n not in rows]
    joins = any(_joins(s, gpu) for s in ir.statements(draft.kernel.body))
    scratch = [s.buffer for s in ir.statements(draft.kernel.body) if isinstance(s, Alloc)]
    in_shared = any(buffer.name == SUMS for buffer in scratch)
    if lowered.anchor is SCATTER and in_shared:
        _scatter_rows(draft, rows, inner)
    elif lowered.anchor is SCATTER and joins:
        _scatter(draft, rows, inner, rows_inside=True)
    elif lowered.anchor is SCATTER and (not rows or _few_or_aside(draft, rows)):
        copies = [n for n in inner if n[0] == "c"]
        _scatter(draft, rows, copies, rows_inside=False)  # the updates of a row stay in order
    elif lowered.anchor in _SCANS and _known(draft, [*rows, *inner]):
        _scan(draft, rows, inner[0], gpu)
    elif lowered.anchor in (DIGIT_COUNTS, TILED, TILE_SMALLEST):
        _tile(draft, rows, inner)
    elif lowered.anchor is RANK and _known(draft, [*rows, *inner]):
        _rank(draft, rows, *inner)
    elif rows:
        _to_threads(draft, rows)
    return draft.steps


def _joins(statement: ir.Stmt, gpu: GpuMachine) -> bool:
    """True for a combination whose order may vary; rounded sums depend on the order."""
    if not isinstance(statement, Reduce):
        return False
    rounds = statement.monoid in ("sum", "prod") and statement.buffers[0].dtype.is_differentiable
    return not (gpu.one_order and rounds)


def _tile(draft: Draft, rows: list[str], inner: list[str]) -> None:
    """A block works on a tile; its loops are made for threads."""
    for name in inner:
        if name == "d":
            draft.do(Split(name, draft.length("t") or 1, "guard"), Bind(f"{name}.1", "thread"))
        else:
            draft.do(Bind(name, "thread") if name in "tw" else SetKind(name, "unroll"))
    draft.grid(rows)


def _rank(draft: Draft, rows: list[str], element: str, other: str) -> None:
    """A thread counts for a few elements, which it compares with each in turn; short rows share a
    block."""
    if (draft.length(element) or 1) % _RANKED == 0:
        draft.do(Split(element, _RANKED))
        over, lane = f"{element}.0", f"{element}.1"
        draft.do(Reorder((over, other, lane)), SetKind(lane, "unroll"))
        element = over
    threads = min(_THREADS, power_at_least(draft.length(element) or 1))
    draft.do(Split(element, threads, "guard"), Bind(f"{element}.1", "thread"))
    several = _THREADS // threads
    if rows and several > 1:
        last = rows[-1]
        draft.do(Split(last, min(several, power_at_least(draft.length(last) or 1)), "guard"))
        draft.do(Reorder((f"{element}.0", f"{last}.1")), Bind(f"{last}.1", "thread"))
        rows = [*rows[:-1], f"{last}.0"]
    draft.grid([*rows, f"{element}.0"])


def _known(draft: Draft, axes: list[str]) -> bool:
    return all(draft.length(axis) is not None for axis in axes)


def _scan(draft: Draft, rows: list[str], axis: str, gpu: GpuMachine) -> None:
    """A row is scanned by a block, or by one thread where rows lie side by side or are short; too
    few blocks scan pieces of rows."""
    length, count = draft.length(axis) or 1, prod(draft.length(row) or 1 for row in rows)
    touched = accesses(draft.kernel)
    aside = bool(rows) and any(a.stride(rows[-1]) == 1 for a in touched)
    alone = aside or length <= _SHORT_SCAN
    blocks = -(-count // _THREADS) if alone else count
    least = _SHORT_SCAN if alone else _SCAN_THREADS * _RUN
    pieces = min(gpu.multiprocessors * _SCAN_WAVES // blocks, length // least, _MOST_PIECES)
    cut = pieces > 1
    if cut:
        draft.do(SplitScan(axis, pieces))
    if alone:
        if rows:
            last = rows[-1]
            threads = min(_THREADS, power_at_least(draft.length(last) or 1))
            draft.do(Split(last, threads, "guard"), Bind(f"{last}.1", "thread"))
            rows = [*rows[:-1], f"{last}.0"]
    else:
        _by_block(draft, axis, cut)
    draft.grid([*[f"{axis}.p"] * cut, *rows])


def _by_block(draft: Draft, axis: str, cut: bool) -> None:
    """A block scans. In the launch before it folds pieces, and then it joins those before its own:
    by threads where any order will do."""
    join = next(s for s in ir.statements(draft.kernel.body) if isinstance(s, Reduce))
    monoid = MONOIDS[join.monoid]
    held = sum(buffer.dtype.itemsize for buffer in join.buffers)
    run = min(_RUN, power_at_most(_RUN_BYTES // held))
    length = draft.length(axis) or 1
    threads = min(max(power_at_least(-(-length // run)), _WARP), _SCAN_THREADS)
    prefixed = {axis: BlockScan(axis, threads, min(run, -(-length // threads)))}
    for name in (f"{axis}.f", f"{axis}.q") if cut else ():
        if monoid.commutative:
            draft.do(Split(name, threads, "guard"), Reorder((f"{name}.1", f"{name}.0")))
            draft.do(Bind(f"{name}.1", "thread"))
        else:
            some = min(max(power_at_least(-(-(draft.length(name) or 1) // run)), _WARP), threads)
            prefixed[name] = BlockScan(name, some, run)
    for name, step in prefixed.items():
        draft.do(step)
        draft.do(*(Bind(f"{name}.{part}", "thread") for part in "1g"))
        if _is_light(join):
            kept = (f"{name}.{part}" for part in "hi2u" if draft.has(f"{name}.{part}"))
            draft.do(*(SetKind(part, "unroll") for part in kept))


def _is_light(join: Reduce) -> bool:
    """True when a join is a few instructions, which may stand in a kernel many times."""
    values = tuple(ir.Load.make(buffer, ()) for buffer in join.buffers)
    return not operations(joined(join.monoid, join.buffers, values))["sfu"]


def _to_threads(draft: Draft, rows: list[str]) -> None:
    last = rows[-1]
    threads = min(_THREADS, power_at_least(draft.length(last) or _THREADS))
    draft.do(Split(last, threads, "guard"), Bind(f"{last}.1", "thread"))
    draft.grid([*rows[:-1], f"{last}.0"])


def _few_or_aside(draft: Draft, rows: list[str]) -> bool:
    """True when rows would be too few threads, or lie side by side."""
    few = prod(draft.length(row) or _MANY_ROWS for row in rows) < _MANY_ROWS
    return few or any(a.stride(rows[-1]) == 1 for a in accesses(draft.kernel))


def _scatter(draft: Draft, rows: list[str], inner: list[str], rows_inside: bool) -> None:
    """One launch copies the base, the next makes the updates, both over all elements of `inner`
    axes; a thread may have few rows that lie side by side."""
    known = _known(draft, rows)
    aside = bool(rows) and any(a.stride(rows[-1]) == 1 for a in accesses(draft.kernel))
    count = prod(draft.length(row) or _FEW_ROWS for row in rows)
    if rows and not known:
        draft.do(Reorder((*inner, *rows)))
        draft.grid(inner)
        _to_threads(draft, rows)
        return
    if aside and count >= _FEW_ROWS:
        _scatter_lines(draft, draft.fuse(rows), inner)
        return
    if rows_inside and not aside and count >= _MANY_BLOCKS and len(inner) == 2:
        _scatter_rows(draft, rows, inner)
        return
    last = {axis[0]: axis for axis in inner}  # of the copies, and of the updates
    outer, lanes, turns = list[str](), list[str](), list[str]()
    within = aside and rows_inside
    for axis in inner:
        if axis not in last.values():
            outer.append(axis)
            continue
        if not within and (draft.length(axis) or 1) >= _THREADS * _LINES:
            draft.do(Split(axis, _LINES, "guard"), SetKind(f"{axis}.1", "unroll"))
            turns.append(f"{axis}.1")
            axis = f"{axis}.0"
        draft.do(Split(axis, _THREADS, "guard"))
        outer.append(f"{axis}.0")
        lanes.append(f"{axis}.1")
    if rows:
        draft.do(Reorder((*outer, *lanes, *rows) if within else (*outer, *rows)))
    draft.do(*(Bind(lane, "thread") for lane in lanes))
    draft.grid([*outer, *([] if within else rows)])


def _scatter_rows(draft: Draft, rows: list[str], inner: list[str]) -> None:
    """Many rows that stay apart: a block makes one, first its copy, then its updates, which find
    it in the cache."""
    for axis in inner:
        if (draft.length(axis) or 1) >= _LINE_THREADS * _LINES:
            draft.do(Split(axis, _LINES, "guard"), SetKind(f"{axis}.1", "unroll"))
            axis = f"{axis}.0"
        threads = min(_LINE_THREADS, power_at_least(draft.length(axis) or 1))
        draft.do(Split(axis, threads, "guard"), Bind(f"{axis}.1", "thread"))
    draft.grid(rows)


def _scatter_lines(draft: Draft, row: str, inner: list[str]) -> None:
    """Rows lie side by side: threads are the numbers of a line, and a block makes several lines.

    A thread has a few of them, so that it waits for the places of all at once.
    """
    wide = min(_THREADS, power_at_least(draft.length(row) or 1))
    beside = _LINE_THREADS // wide  # lines that the threads of a block share out
    draft.do(Split(row, wide, "guard"))
    last = {axis[0]: axis for axis in inner}  # of the copies, and of the updates
    grid: list[str] = []
    lanes: list[str] = []
    turns: list[str] = []
    for axis in inner:
        lines = axis
        if axis in last.values():
            if (draft.length(axis) or 1) >= beside * _LINES:
                draft.do(Split(axis, _LINES, "guard"))
                turns.append(f"{axis}.1")
                lines = f"{axis}.0"
            draft.do(Split(lines, beside, "guard"))
            lanes.append(f"{lines}.1")
            lines = f"{lines}.0"
        grid.append(lines)
    draft.do(Reorder((*grid, f"{row}.0", *lanes, f"{row}.1", *turns)))
    draft.do(*(SetKind(axis, "unroll") for axis in turns))
    draft.do(*(Bind(axis, "thread") for axis in (*lanes, f"{row}.1")))
    draft.grid([*grid, f"{row}.0"])
