"""Contractions: tiles of the result in registers, operands through shared memory.

Output axes that belong to one operand are fused to rows and columns of a matrix, summed axes to its
depth, so convolutions are the same kernel. Lengths are padded to whole tiles.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops import ir
from ridgeline.loops.ir import Load, Reduce
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import (
    Bind,
    Pad,
    Partials,
    Reorder,
    ScheduleError,
    SetKind,
    Share,
    Split,
    Step,
    leave_out,
)
from ridgeline.schedules.accesses import access
from ridgeline.schedules.gpu import pointwise, rows, skinny, tensor_cores
from ridgeline.schedules.gpu.machine import Draft, GpuMachine
from ridgeline.schedules.gpu.tiles import choose

_FEWEST, _FEWEST_ELEMENTS = 3, 48  # rows or columns, and both: below, tiles are mostly padding
_SHORT = 16  # terms or columns of which threads alone make little
DEEP = 256  # terms that the threads of a block share out
_BANK_PAD = 4


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a contraction with its epilogue."""
    names = {letter: _axes(lowered, letter) for letter in "bmnk"}
    extents = {a.name: a.extent for a in (*lowered.rows, *lowered.inner)}
    lengths = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
    if not lowered.inner:
        return pointwise.steps(lowered, gpu)  # nothing is summed: an outer product
    if len(lengths) < len(extents):
        return rows.steps(lowered, gpu)
    sizes = {letter: prod(lengths[n] for n in names[letter]) for letter in "bmnk"}
    narrow = min(sizes["m"], sizes["n"])
    if 1 < narrow <= skinny.MOST_ROWS and sizes["k"] >= DEEP:
        try:
            return _along_depth(lowered, names, gpu)
        except ScheduleError as refusal:
            leave_out("vectors along the depth", refusal)
    few = narrow < _FEWEST or sizes["m"] * sizes["n"] < _FEWEST_ELEMENTS
    if few or sizes["k"] < 4 or max(narrow, sizes["k"]) < _SHORT:
        return rows.steps(lowered, gpu)
    if tensor_cores.is_wanted(lowered, gpu):
        try:
            return tensor_cores.steps(lowered, gpu)
        except ScheduleError as refusal:
            leave_out("tiles of tensor cores", refusal)
    try:
        return _tiled(lowered, names, sizes, gpu)
    except ScheduleError as refusal:  # an operand that is read in two ways
        leave_out("tiles of rows and columns", refusal)
        return rows.steps(lowered, gpu)


def _along_depth(lowered: Lowered, names: dict[str, list[str]], gpu: GpuMachine) -> list[Step]:
    """Few rows or columns, of operands that are both contiguous along the depth."""
    draft = Draft(lowered.kernel)
    if not all(deep for _, deep in _walks(draft, names).values()):
        raise ScheduleError("operands that lie along the depth")
    return skinny.steps(lowered, names, _operands(draft), gpu)


def _axes(lowered: Lowered, letter: str) -> list[str]:
    return [a.name for a in (*lowered.rows, *lowered.inner) if a.name[0] == letter]


def _tiled(
    lowered: Lowered, names: dict[str, list[str]], sizes: dict[str, int], gpu: GpuMachine
) -> list[Step]:
    draft = Draft(lowered.kernel)
    walks, operands = _walks(draft, names), _operands(draft)
    order = (*names["b"], *names["m"], *names["n"])
    near, far = ("m", "n") if lowered.rows[-1].name[0] == "m" else ("n", "m")
    if order != tuple(a.name for a in lowered.rows):
        draft.do(Reorder(order))
    axes = {letter: draft.fuse(group) for letter, group in names.items() if group}
    m, n, k = axes["m"], axes["n"], axes["k"]
    itemsize = max(load.dtype.itemsize for load in operands)
    tile = choose(sizes[near], sizes[far], sizes["b"], sizes["k"], itemsize, gpu)
    draft.do(Pad(k, tile.pieces * tile.depth))
    grid = [axes["b"]] if "b" in axes else []
    if tile.pieces > 1:
        rows_of = [*grid, m, n]
        draft.do(Partials(k, tile.pieces, tuple(rows_of)))
        result = draft.fuse([f"{axis}.j" for axis in rows_of])
        rows.join_pieces(draft, f"{k}.q", result, [], tile.pieces, gpu)
        grid = [f"{k}.p", *grid, f"{result}.0"]
    near, far = axes[near], axes[far]
    lanes = tile.near // tile.near_each
    for axis, part, split in ((near, tile.near, lanes), (far, tile.far, tile.far_each)):
        draft.do(Pad(axis, part), Split(axis, part), Split(f"{axis}.1", split))
    draft.do(Split(k, tile.depth), Split(f"{k}.1", tile.depth // tile.parts))
    shared, depth = f"{k}.1.0", f"{k}.1.1"
    threads = [shared, f"{far}.1.0", f"{near}.1.1"]  # neighbours write side by side
    own = [f"{near}.1.0", f"{far}.1.1"]
    draft.do(Reorder((f"{m}.0", f"{n}.0", f"{k}.0", *threads, depth, *own)))
    for load in operands:
        buffer, (letter, deep) = load.buffer.name, walks[load.buffer.slot]
        across = (f"{axes[letter]}.1.0", f"{axes[letter]}.1.1")
        walk = (*across, shared, depth) if deep else (shared, depth, *across)
        draft.do(Share(buffer, shared, (depth, shared, *across), walk, _BANK_PAD))
        draft.do(Split(f"{buffer}.s", tile.threads, "guard"))
        draft.do(Reorder((f"{buffer}.s.1", f"{buffer}.s.0")))
        draft.do(SetKind(f"{buffer}.s.0", "unroll"), Bind(f"{buffer}.s.1", "thread"))
    draft.do(*(SetKind(a, "unroll") for a in own), *(Bind(a, "thread") for a in threads))
    draft.grid([*grid, f"{m}.0", f"{n}.0"])
    return draft.steps


def _operands(draft: Draft) -> list[Load]:
    """The two reads of parameters that are multiplied."""
    loads = [
        expr
        for statement in ir.statements(draft.kernel.body)
        if isinstance(statement, Reduce)
        for expr in ir.subexpressions(*ir.expressions(statement))
        if isinstance(expr, Load) and expr.buffer.slot >= 0
    ]
    if len(loads) != 2 or loads[0].buffer.slot == loads[1].buffer.slot:
        raise ScheduleError("a product of two different operands")
    return loads


def _walks(draft: Draft, names: dict[str, list[str]]) -> dict[int, tuple[str, bool]]:
    """For the slot of each operand: whether it belongs to the rows or the columns of the result,
    and whether its elements lie side by side along the depth."""
    found: dict[int, tuple[str, bool]] = {}
    for load in _operands(draft):
        strides = access(load.buffer, load.index, False)
        down = [a for a in names["m"] if strides.stride(a) != 0]
        across = [a for a in names["n"] if strides.stride(a) != 0]
        if bool(down) == bool(across):
            raise ScheduleError("an operand of both rows and columns")
        letter = "m" if down else "n"
        deep = strides.stride(names["k"][-1]) == 1 and strides.stride(names[letter][-1]) != 1
        found[load.buffer.slot] = (letter, deep)
    return found
