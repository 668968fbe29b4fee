"""Row kernels: reductions with the pointwise work around them.

Where columns lie side by side, the threads of a row are a few lanes of a warp, a block, or a
cluster of blocks, as long as the row is; what several stages read stays in registers. Where rows
lie side by side, the threads are rows. Few rows are cut into pieces that are joined afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Alloc, Buffer, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import (
    Bind,
    CacheInRegisters,
    Fuse,
    FuseSiblings,
    Inline,
    OneHotSum,
    Partials,
    Reorder,
    SetKind,
    Split,
    Spread,
    Step,
    Streamed,
    attempt,
)
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.gpu.machine import (
    ACCESS_BYTES,
    Draft,
    GpuMachine,
    power_at_least,
    power_at_most,
    vector_width,
)
from ridgeline.schedules.gpu.pointwise import spread_over_threads
from ridgeline.schedules.pointwise import collapse

_WARP = 32
_BLOCK = 128  # threads of a block that holds several short rows
_TURNS = 4  # vectors of a thread, so that several loads are in flight
_MOST_TURNS = 16  # the same where an access is short
_HELD_BYTES = 192  # registers that a thread may fill with its part of a row
_SMALL_BLOCK = 256  # threads of a block of which several are at work, so that waits overlap
_LARGE_BLOCK, _LARGE_TURNS = 1024, 8  # a row that one block holds does not need a cluster
_MOST_IN_CLUSTER = 2048  # beyond, reading a row again costs less than waiting for more blocks
_COLUMN_BLOCK = 256
_COLUMN_LANES = 32  # threads side by side: a warp reads 512 bytes in a row
_JOINED_LANES = 4  # the same where pieces are joined
_SHORT_COLUMNS = 16  # elements of a column that one thread folds without a loop
_LEAST_BYTES = 4  # of an accumulator in shared memory
_WAVES = 4  # blocks for each multiprocessor when a reduction is cut into pieces
_COLUMN_WAVES = 8  # the same where rows lie side by side
_MOST_PIECES = 512
_COLUMN_TURNS = 16  # rounds of a thread there at least: a piece begins and ends with work too


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a kernel with folds over columns."""
    draft = Draft(lowered.kernel)
    draft.kernel, inner = collapse(draft.kernel, [a.name for a in lowered.inner], draft.steps)
    rows = _without_single(draft, [a.name for a in lowered.rows])
    if any(draft.length(name) is None for name in (*rows, *inner)):
        _compute_again(draft)
        _unknown_lengths(draft, rows, inner)
        return draft.steps
    if len(inner) == 1:
        _attempt(draft, OneHotSum(inner[0]))
        if not draft.has(inner[0]):  # nothing is folded any more
            spread_over_threads(draft, rows, gpu)
            return draft.steps
        _attempt(draft, FuseSiblings(inner[0]))
    touched, axes = accesses(draft.kernel), [*rows, *inner]
    if rows and _contiguity(draft, touched, axes, rows[-1]) > _contiguity(
        draft, touched, axes, inner[-1]
    ):
        _compute_again(draft)
        depth = prod(draft.length(a) or 1 for a in inner)
        count = prod(draft.length(a) or 1 for a in rows)
        if depth <= _SHORT_COLUMNS and count >= gpu.multiprocessors * gpu.block_threads:
            _columns_in_a_thread(draft, rows, draft.fuse(inner))
        else:
            _threads_are_rows(draft, rows, inner, gpu)
    else:
        if len(inner) > 1:
            _compute_again(draft)
        _threads_are_columns(draft, rows, inner, gpu)
    return draft.steps


def _compute_again(draft: Draft) -> None:
    """Keep no row in scratch, which one thread cannot hold if columns are not spread."""
    for buffer in _scratch(draft):
        draft.do(Inline(buffer.name))


def _scratch(draft: Draft) -> list[Buffer]:
    return [
        s.buffer for s in ir.statements(draft.kernel.body)
        if isinstance(s, Alloc) and s.buffer.scope == "local"
    ]  # fmt: skip


def _contiguity(draft: Draft, touched: list[LoopAccess], axes: list[str], axis: str) -> int:
    """Contiguous elements that are read or written along an axis."""
    return sum(
        prod(draft.length(a) or 1 for a in axes if access.stride(a) != 0)
        for access in touched
        if access.stride(axis) == 1 or axis in access.runs
    )


def _unknown_lengths(draft: Draft, rows: list[str], inner: list[str]) -> None:
    last = inner[-1]
    draft.do(Split(last, _COLUMN_BLOCK, "guard"))
    draft.do(Reorder((f"{last}.1", *inner[:-1], f"{last}.0")), Bind(f"{last}.1", "thread"))
    draft.grid(rows)


# ---- threads are columns ------------------------------------------------------------------------


def _threads_are_columns(draft: Draft, rows: list[str], inner: list[str], gpu: GpuMachine) -> None:
    last = inner[-1]
    width = vector_width(draft.kernel, last, draft.length(last))
    if _scratch(draft) and not _row(draft, rows, inner, width).is_held(gpu):
        _compute_again(draft)  # a row may be held without what is computed from it
    over, lane = draft.vectors(last, width)
    columns = draft.fuse([*inner[:-1], *[over] * bool(over)]) if over or inner[:-1] else ""
    row = [draft.fuse(rows)] if rows else []
    if not columns:  # a row is one vector: a thread each
        if lane:
            draft.do(SetKind(lane, "vector"))
        if row:
            _rows_to_threads(draft, row[0], _BLOCK)
        return
    count = draft.length(columns) or 1
    row_count = draft.length(row[0]) or 1 if row else 1
    lanes = draft.length(lane) or 1 if lane else 1
    most = count // (_BLOCK * _TURNS) if count > gpu.block_accesses else 1
    pieces = _pieces(row_count, most, gpu, _WAVES)
    if pieces > 1 and _cut(draft, columns, pieces):
        count = draft.length(columns) or 1
        draft.do(Bind(f"{columns}.q", "thread"))
    else:
        pieces = 1
    held = _held(draft.kernel, row) if row and pieces == 1 else []
    scratch = _scratch(draft)
    shape = _Row.of(count, lanes, held, scratch)
    threads = shape.threads(gpu)
    turns = shape.turns(threads)
    if not shape.fits(threads):
        held = []
    streams = bool(row) and not held and not scratch and turns > _TURNS
    if streams:
        draft.do(Split(columns, threads * _TURNS, "guard"), Split(f"{columns}.1", threads, "guard"))
        turn, part, thread = f"{columns}.0", f"{columns}.1.0", f"{columns}.1.1"
        draft.do(Reorder((thread, turn, part)), SetKind(part, "unroll"))
        _attempt(draft, Streamed(thread, turn))
    else:
        turn, thread = f"{columns}.0", f"{columns}.1"
        draft.do(Split(columns, threads, "guard"), Reorder((thread, turn)))
    inside = row[0] if row else ""
    several = row and pieces == 1 and threads <= _WARP  # rows of one warp or less share a block
    per_block = _BLOCK // threads if several else 1
    per_block = min(per_block, power_at_least(row_count))
    if per_block > 1:
        draft.do(Split(row[0], per_block, "guard"))
        inside = f"{row[0]}.1"
    for name, _ in reversed(held):  # elements before the memory that says which they are
        _attempt(draft, CacheInRegisters(name, inside))
    axes = (thread, turn, lane) if lane else (thread, turn)
    for buffer in scratch:
        draft.do(Spread(buffer.name, axes))
    if lane:
        draft.do(SetKind(lane, "vector"))
    if held or scratch or turns <= _TURNS:
        draft.do(SetKind(turn, "unroll"))
    draft.do(Bind(thread, "thread"))
    if per_block > 1:
        draft.do(Bind(inside, "thread"))
        row = [f"{row[0]}.0"]
    draft.grid([*[f"{columns}.p"] * (pieces > 1), *row])


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as its threads see it: the number of accesses, the bytes of each, read and kept."""

    count: int
    access: int
    kept: int  # in registers

    @staticmethod
    def of(count: int, lanes: int, held: list[tuple[str, int]], scratch: list[Buffer]) -> _Row:
        """A row of `count` vectors, with the elements that threads keep."""
        sizes = [size for _, size in held]
        kept = sum(sizes) + sum(b.dtype.itemsize for b in scratch)
        access = min(min(sizes, default=ACCESS_BYTES) * lanes, ACCESS_BYTES)
        return _Row(count, access, kept * lanes)

    def is_held(self, gpu: GpuMachine) -> bool:
        """True if its threads keep all of it."""
        return self.fits(self.threads(gpu))

    def turns(self, threads: int) -> int:
        """Accesses of one thread."""
        return -(-self.count // threads)

    def fits(self, threads: int) -> bool:
        """True when the row stays in the registers of its threads."""
        turns = self.turns(threads)
        most = self._turns(_LARGE_TURNS if threads >= _LARGE_BLOCK else _TURNS)
        few = turns <= most or threads <= _SMALL_BLOCK
        return turns * self.kept <= _HELD_BYTES and few

    def threads(self, gpu: GpuMachine) -> int:
        """The threads of a row: few, each with several accesses at once."""
        if self.count <= _WARP:
            return power_at_least(self.count)
        turns = min(self._turns(_TURNS), _MOST_TURNS)
        threads = min(max(power_at_least(self.turns(turns)), _WARP), gpu.block_threads)
        if threads == _SMALL_BLOCK and self.kept and turns == _TURNS:
            threads *= 2
        most = gpu.block_threads if gpu.cluster == 1 else _MOST_IN_CLUSTER
        wanted = threads
        while self.kept and wanted < most and not self.fits(wanted):
            wanted *= 2
        return wanted if not self.kept or self.fits(wanted) else gpu.block_threads

    def _turns(self, whole: int) -> int:
        """As many bytes in short accesses as in so many whole ones."""
        return whole * ACCESS_BYTES // self.access


def _row(draft: Draft, rows: list[str], inner: list[str], width: int) -> _Row:
    """A row before its loops are cut to vectors."""
    count = prod(draft.length(axis) or 1 for axis in inner) // width
    return _Row.of(count, width, _held(draft.kernel, rows), _scratch(draft))


def _pieces(blocks: int, most: int, gpu: GpuMachine, waves: int) -> int:
    """The number of pieces into which to cut a reduction that gives too few blocks."""
    if blocks >= gpu.multiprocessors:
        return 1
    return min(
        power_at_most(gpu.multiprocessors * waves // blocks), power_at_most(most), _MOST_PIECES
    )


def _even_pieces(blocks: int, rounds: int, gpu: GpuMachine) -> int:
    """The number of pieces into which to cut columns; of equal length if possible.

    A piece that ends early is behind a test, where values that a thread needs repeatedly, such as
    the statistics of its channel, are loaded anew in every round.
    """
    if blocks >= gpu.multiprocessors:
        return 1
    most = min(gpu.multiprocessors * _COLUMN_WAVES // blocks, rounds // _COLUMN_TURNS, _MOST_PIECES)
    even = next((n for n in range(most, most // 2, -1) if rounds % n == 0), 0)
    return even or power_at_most(most)


def _cut(draft: Draft, axis: str, pieces: int) -> bool:
    return _attempt(draft, Partials(axis, pieces))


def _attempt(draft: Draft, step: Step) -> bool:
    made = attempt(draft.kernel, step)
    if made is None:
        return False
    draft.kernel = made
    draft.steps.append(step)
    return True


def _held(kernel: ir.Kernel, rows: Sequence[str]) -> list[tuple[str, int]]:
    """Parameters of a row that several of its stages read, with their element size.

    What all rows share, such as a weight, stays in the caches anyway.
    """
    stages: dict[Buffer, set[int]] = {}
    for number, stage in enumerate(_stages(kernel.body)):
        if not isinstance(stage, For):
            continue
        for statement in ir.statements(stage):
            for expr in ir.subexpressions(*ir.expressions(statement)):
                if isinstance(expr, Load) and any(
                    not free_vars(coordinate).isdisjoint(rows) for coordinate in expr.index
                ):
                    stages.setdefault(expr.buffer, set()).add(number)
    written = {s.buffer.slot for s in ir.statements(kernel.body) if isinstance(s, Store)}
    return [
        (buffer.name, buffer.dtype.itemsize)
        for buffer, used in stages.items()
        if len(used) > 1 and buffer.slot >= 0 and buffer.slot not in written
    ]


def _stages(body: Stmt) -> tuple[Stmt, ...]:
    while not isinstance(body, ir.Seq):
        if not isinstance(body, (For, Alloc)):
            return (body,)
        body = body.body
    return body.body


# ---- threads are rows ---------------------------------------------------------------------------


def _rows_to_threads(draft: Draft, row: str, block: int) -> None:
    count = draft.length(row) or 1
    threads = min(block, power_at_least(count))
    draft.do(Split(row, threads, "guard"), Bind(f"{row}.1", "thread"))
    draft.grid([f"{row}.0"])


def _even_threads(count: int) -> int:
    """Threads for adjacent rows: a power of two near the count that leaves none idle.

    Threads that help with a row wait for one another, which part of a block cannot.
    """
    whole = count & -count
    best = min(power_at_least(count), _COLUMN_LANES)
    return min(whole, _COLUMN_LANES) if whole * 4 >= best else best


def _without_single(draft: Draft, rows: list[str]) -> list[str]:
    """Row loops with those of a single turn joined to the one around them."""
    kept = rows[:1]
    for name in rows[1:]:
        step = Fuse(kept[-1], name, divide=True)
        if draft.length(name) == 1 and _attempt(draft, step):
            kept[-1] = step.axis
        else:
            kept.append(name)
    return kept


def _columns_in_a_thread(draft: Draft, rows: list[str], columns: str) -> None:
    """A short column is folded by one thread, all of it in sight of the compiler."""
    last = rows[-1]
    over, lane = draft.vectors(last, vector_width(draft.kernel, last, draft.length(last)))
    axis = draft.fuse([*rows[:-1], *[over] * bool(over)])
    if lane:
        draft.do(Reorder((columns, lane)), SetKind(lane, "vector"))
    draft.do(SetKind(columns, "unroll"))
    _rows_to_threads(draft, axis, _COLUMN_BLOCK)


def _threads_are_rows(draft: Draft, rows: list[str], inner: list[str], gpu: GpuMachine) -> None:
    draft.kernel, rows = collapse(draft.kernel, rows, draft.steps)  # pixels are one axis
    last = rows[-1]
    over, lane = draft.vectors(last, vector_width(draft.kernel, last, draft.length(last)))
    columns = draft.fuse(inner)
    if len(inner) > 1:
        _attempt(draft, FuseSiblings(columns))
    outer = list(rows[:-1])
    if not over:  # the whole axis is one vector
        over, outer = (draft.fuse(outer), []) if outer else ("", [])
    if not over:
        draft.do(Reorder((columns, lane or last)), SetKind(lane or last, "vector"))
        return
    count, depth = draft.length(over) or 1, draft.length(columns) or 1
    threads = _even_threads(count)
    lanes = [lane] if lane else []
    whole = min(count & -count, _COLUMN_LANES)  # threads that leave none idle
    at_once = count // whole * prod(draft.length(a) or 1 for a in outer) <= gpu.multiprocessors
    if depth <= _COLUMN_BLOCK and at_once:  # one launch, though it reads a few bytes at a time
        threads = whole
    helpers = min(_COLUMN_BLOCK // threads, power_at_most(depth)) if count % threads == 0 else 1
    helpers = _helpers(draft, helpers, threads, lanes, gpu)
    blocks = -(-count // threads)
    for axis in outer:
        blocks *= draft.length(axis) or 1
    pieces = _even_pieces(blocks, depth // helpers, gpu)
    cut = pieces > 1 and _attempt(draft, Partials(columns, pieces, (over,)))
    draft.do(Split(over, threads, "guard"), Split(columns, helpers, "guard"))
    draft.do(Reorder((f"{columns}.1", f"{columns}.0", f"{over}.1", *lanes)))
    if cut:
        join_pieces(draft, f"{columns}.q", f"{over}.j", lanes, pieces, gpu)
    if lane:
        draft.do(SetKind(lane, "vector"))
    draft.do(Bind(f"{over}.1", "thread"), Bind(f"{columns}.1", "thread"))
    draft.grid([*[f"{columns}.p"] * cut, *outer, f"{over}.0", *[f"{over}.j.0"] * cut])


def _helpers(draft: Draft, most: int, threads: int, lanes: list[str], gpu: GpuMachine) -> int:
    """Threads that help with each of a number of rows; they meet in a block's shared memory."""
    folded = {
        buffer.name: max(buffer.dtype.itemsize, _LEAST_BYTES)
        for s in ir.statements(draft.kernel.body) if isinstance(s, Reduce)
        for buffer in s.buffers
    }  # fmt: skip
    row = sum(folded.values()) * prod(draft.length(lane) or 1 for lane in lanes)
    width = max(threads, _WARP)
    while most > 1 and most * threads // width * threads * row > gpu.shared_bytes:
        most //= 2
    return most


def join_pieces(
    draft: Draft, turn: str, over: str, lanes: list[str], pieces: int, gpu: GpuMachine
) -> None:
    """Few rows to a block, and many threads to a row: pieces are many, and rows may be few."""
    helpers = min(_COLUMN_BLOCK // _JOINED_LANES, power_at_most(pieces))
    side_by_side = min(_COLUMN_BLOCK // helpers, power_at_least(draft.length(over) or 1))
    helpers = _helpers(draft, helpers, side_by_side, lanes, gpu)
    draft.do(Split(over, side_by_side, "guard"), Split(turn, helpers, "guard"))
    draft.do(Reorder((f"{turn}.1", f"{turn}.0", f"{over}.1", *lanes)))
    draft.do(Bind(f"{over}.1", "thread"), Bind(f"{turn}.1", "thread"))
