"""Matrix products in the loop form that tensor cores take, and how a GPU tiles them.

    for b…:                          # batches, any number of loops
      for m:                         # rows of the result
        for n.0:                     # octets: eight columns side by side
          alloc sums[8]
          for n.1 < 8: sums[n.1] = 0
          for k: for n.1 < 8: sums[n.1] += left[b, m, k] * right[b, n.0 * 8 + n.1, k]
          …                          # what is made of the sums, whatever it is

Such a nest is the body of an `Mma` whose instruction is a `TensorCoreTile`, as text. The loops are
its meaning; a code generator that knows the tile keeps what stands behind the sums, and decides
itself which threads fetch, multiply and wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import affine, sequence
from ridgeline.loops.instructions import factors
from ridgeline.loops.ir import Alloc, Buffer, Const, Expr, For, If, Load, Mma, Reduce, Seq, Stmt
from ridgeline.scalars import COSTLY

OCTET = 8  # columns that a thread makes side by side
_TEXT = re.compile(
    r"wgmma_(\d+)x(\d+)_of_(\d+)_by_(\d+)_on_(\d+)_near_(\d+)_cut_(\d+)_in_(\d+)(_in_turns)?"
)


@dataclass(frozen=True, slots=True)
class TensorCoreTile:
    """Which part of a result a block makes at a time, and how its operands come.

    Two groups of four warps multiply, which share one tile, or have tiles of their own `in_turns`:
    then one stores what it made while the other multiplies. Tiles of operands lie in shared memory,
    `stages` of them; blocks of a `cluster` have different rows and get the right operand together.
    There are so many `blocks`, which go on to the next tile; so many tiles of rows are `near` each
    other in that order. The sums of the last `cut` tiles, where tiles do not come out even, are cut
    into `parts`, which all these tiles go through together, so that they read the same operands at
    one time; whoever ends a tile joins its parts.
    """

    rows: int
    columns: int
    stages: int
    cluster: int = 1
    blocks: int = 132
    near: int = 8
    cut: int = 0
    parts: int = 0
    in_turns: bool = field(default=False, kw_only=True)

    @property
    def text(self) -> str:
        """The tile as the name of an instruction."""
        how = "_in_turns" if self.in_turns else ""
        return (
            f"wgmma_{self.rows}x{self.columns}_of_{self.stages}_by_{self.cluster}"
            f"_on_{self.blocks}_near_{self.near}_cut_{self.cut}_in_{self.parts}{how}"
        )

    @staticmethod
    def of(text: str) -> TensorCoreTile | None:
        """The tile that a text names; None for any other instruction."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        *numbers, how = found.groups()
        return TensorCoreTile(*map(int, numbers), in_turns=how is not None)


@dataclass(frozen=True, slots=True)
class MatrixRead:
    """How an operand is read: the offset of an element is a linear form in the loops."""

    buffer: Buffer
    offset: int
    across: int  # the step of a row of the left operand, of a column of the right one
    deep: int  # the step along the sum
    batches: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.buffer.dtype

    @property
    def turned(self) -> bool:
        """True if rows or columns are contiguous, and not the terms of a sum."""
        return self.deep != 1


@dataclass(frozen=True, slots=True)
class ProductNest:
    """A nest of the form above, matched."""

    batches: tuple[For, ...]
    rows: For
    octets: For
    columns: int
    depth: int
    sums: Buffer
    left: MatrixRead
    right: MatrixRead
    behind: Stmt  # what is made of the sums

    @property
    def row_count(self) -> int:
        """Rows of the result."""
        return _extent(self.rows)

    @property
    def batch_counts(self) -> tuple[int, ...]:
        """Lengths of the loops over batches."""
        return tuple(map(_extent, self.batches))


DTYPES = ("bfloat16", "float16")
_EXCHANGED, _COSTLY = 4, 14  # instructions that bring elements together, and of a function
_PIECE = 16  # bytes: the copy engine reads memory in pieces that begin at multiples of it
_MOST_BATCHES = 3  # axes of a tensor besides those of a matrix, that the copy engine takes


def unreadable(nest: ProductNest) -> str:
    """Why tiles of an operand cannot be loaded or multiplied; empty if they can."""
    if nest.left.dtype.name not in DTYPES or nest.left.dtype is not nest.right.dtype:
        return "operands are not both of one type of 16 bits"
    for read in (nest.left, nest.right):
        long = read.across if not read.turned else read.deep
        if read.turned and read.across != 1:
            return "an operand lies densely along neither axis"
        steps = [long, *(step for step in read.batches if step)]
        if any(step <= 0 or step * read.dtype.itemsize % _PIECE for step in steps):
            return f"rows of {read.buffer.name} do not begin at multiples of {_PIECE} bytes"
        if read.offset < 0 or read.offset * read.dtype.itemsize % _PIECE:
            return f"{read.buffer.name} does not begin at a multiple of {_PIECE} bytes"
        if sum(step != 0 for step in read.batches) > _MOST_BATCHES:
            return "there are too many loops over batches"
    return ""


def work_behind(nest: ProductNest) -> int:
    """Roughly the number of instructions of the epilogue of one element."""
    roots = [e for s in ir.statements(nest.behind) for e in ir.expressions(s)]
    found = [e for e in ir.subexpressions(*roots) if isinstance(e, ir.OpExpr)]
    return _EXCHANGED + sum(_COSTLY if e.name in COSTLY else 1 for e in found)


def tile_around(body: Stmt) -> tuple[TensorCoreTile, ProductNest] | None:
    """The tile and the nest, if a launch is such a product."""
    if not isinstance(body, Mma):
        return None
    tile = TensorCoreTile.of(body.instruction)
    if tile is None:
        return None
    nest = product_nest(body.body)
    assert isinstance(nest, ProductNest), f"what was named {body.instruction} is a product: {nest}"
    return tile, nest


def product_nest(statement: Stmt) -> ProductNest | str:
    """The matched nest, or the reason why it does not match."""
    loops: list[For] = []
    while isinstance(statement, For):
        loops.append(statement)
        statement = statement.body
    if len(loops) < 2 or not isinstance(statement, Alloc) or not isinstance(statement.body, Seq):
        return "there are no loops around sums"
    if not all(isinstance(loop.extent, Const) and loop.axis == "spatial" for loop in loops):
        return "loops around the sums are in order, or of unknown length"
    sums, (start, fold, *behind) = statement.buffer, statement.body.body
    *batches, rows, octets = loops
    found = _fold(fold, sums)
    if isinstance(found, str):
        return found
    depth, lanes, reduce, columns = found
    if not _starts_from_zero(start, sums):
        return "the sums do not begin with zero"
    columns = _extent(octets) * OCTET if columns is None else columns
    if any(isinstance(s, Reduce) for part in behind for s in ir.statements(part)):
        return "more is summed than products"
    own = (octets.name, OCTET), (lanes.name, 1)
    names = [loop.name for loop in batches]
    read = factors(reduce)
    if read is None:
        return "what is summed is not a product of two values from memory"
    by_row = [r for r in (_read(x, ((rows.name, 1),), depth.name, names) for x in read) if r]
    by_column = [r for r in (_read(x, own, depth.name, names) for x in read) if r]
    if len(by_row) != 1 or len(by_column) != 1:
        return "the operands are not a matrix of rows and one of columns"
    return ProductNest(
        tuple(batches), rows, octets, columns, _extent(depth), sums, by_row[0], by_column[0],
        sequence(*behind),
    )  # fmt: skip


def _fold(fold: Stmt, sums: Buffer) -> tuple[For, For, Reduce, int | None] | str:
    """The reduction loops, the sum, and the number of columns if octets are not whole."""
    if not (isinstance(fold, For) and fold.axis == "reduce" and isinstance(fold.body, For)):
        return "there is no loop that sums eight columns"
    lanes, columns = fold.body, None
    inner: Stmt = lanes.body
    if isinstance(inner, If):
        columns, inner = _bound(inner.guard), inner.body
        if columns is None:
            return "products are left out by a test"
    if not isinstance(inner, Reduce) or inner.buffers != (sums,):
        return "there is no loop that sums eight columns"
    if not isinstance(fold.extent, Const) or lanes.extent != ir.index(OCTET):
        return "there is no loop of known length that sums eight columns"
    if inner.index != (ir.Var.make(lanes.name),):
        return "sums of an octet do not lie side by side"
    return fold, lanes, inner, columns


def _bound(guard: Expr) -> int | None:
    """The upper bound that a test puts on its left side."""
    if isinstance(guard, ir.OpExpr) and guard.name == "lt" and isinstance(guard.args[1], Const):
        return int(guard.args[1].value)
    return None


def _starts_from_zero(start: Stmt, sums: Buffer) -> bool:
    inner = start
    while isinstance(inner, (For, If)):
        inner = inner.body
    plain = isinstance(inner, ir.Store) and inner.buffer == sums and isinstance(inner.value, Const)
    return plain and float(inner.value.value) == 0.0  # type: ignore[union-attr]


def _read(
    load: Load, own: Sequence[tuple[str, int]], depth: str, batches: Iterable[str]
) -> MatrixRead | None:
    """A load as an operand with the strides of its own loops; None if it has another form."""
    linear: Expr = ir.index(0)
    for size, coordinate in zip(load.buffer.shape, load.index):
        linear = linear * size + coordinate
    form = affine(linear)
    if form is None or load.buffer.slot < 0:
        return None
    strides = dict(form.strides)
    along = tuple(strides.pop(name, 0) for name in batches)
    deep = strides.pop(depth, 0)
    steps = {strides.pop(name, 0) / unit for name, unit in own}
    if len(steps) != 1 or strides or not deep:
        return None
    across = steps.pop()
    return MatrixRead(load.buffer, form.offset, int(across), deep, along) if across else None


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)
