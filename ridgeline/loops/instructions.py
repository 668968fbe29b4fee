"""Matrix instructions: tiles of multiply-adds that a machine has one instruction for.

A contraction in loops has one normal form, `acc[m, n] += left[m, k] * right[k, n]`, so that an
instruction is a row here (element types, tile, layout) and matching it is a comparison. Its meaning
is always the loops themselves; a target that lacks it runs those.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import affine, free_vars
from ridgeline.loops.ir import Buffer, Const, Expr, For, Load, OpExpr, Reduce, Stmt


@dataclass(frozen=True, slots=True)
class Instruction:
    """`rows` × `depth` times `depth` × lanes, joined into `rows` × lanes sums.

    The lanes of the sums lie next to each other. The right operand has, for every lane, `word`
    elements of the summed axis next to each other; the left operand has all `depth` of them so.
    `rows` is 0 and `lanes` is empty where any number will do: such a tile is a group of
    instructions.

    An instruction of several rows has them in tile registers, of which there are `TILE_REGISTERS`.
    Sums stay there from the first step to the last, so a nest of such a tile holds whole sums: any
    number of steps, around as many tiles as there are registers for.
    """

    name: str
    left: DType
    right: DType
    total: DType
    rows: int
    lanes: tuple[int, ...]
    depth: int
    word: int
    feature: str  # what the CPU must have, in LLVM's words; empty for any CPU


TILE_REGISTERS = 8

INSTRUCTIONS: dict[str, Instruction] = {
    row.name: row
    for row in (
        Instruction("fma", dtypes.float32, dtypes.float32, dtypes.float32, 0, (), 1, 1, ""),
        Instruction("fma64", dtypes.float64, dtypes.float64, dtypes.float64, 0, (), 1, 1, ""),
        Instruction(
            "vdpbf16ps", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32, 1, (4, 8, 16), 2, 2,
            "avx512bf16",
        ),
        Instruction(
            "vpdpbusd", dtypes.uint8, dtypes.int8, dtypes.int32, 1, (4, 8, 16), 4, 4, "avx512vnni"
        ),
        Instruction(
            "vpdpwssd", dtypes.int16, dtypes.int16, dtypes.int32, 1, (4, 8, 16), 2, 2, "avx512vnni"
        ),
        Instruction(
            "tdpbf16ps", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32, 16, (16,), 32, 2,
            "amx-bf16",
        ),
        *(
            Instruction(name, left, right, dtypes.int32, 16, (16,), 64, 4, "amx-int8")
            for name, left, right in (
                ("tdpbssd", dtypes.int8, dtypes.int8),
                ("tdpbsud", dtypes.int8, dtypes.uint8),
                ("tdpbusd", dtypes.uint8, dtypes.int8),
                ("tdpbuud", dtypes.uint8, dtypes.uint8),
            )
        ),
    )
}  # fmt: skip


def tile_registers(high: int, wide: int) -> int:
    """Registers for a number of tiles of sums, with a column of left and one right operand."""
    return high * wide + high + 1


# ---- the normal form of a small contraction in loops: `acc[m, n] += left[m, k] * right[k, n]` ----


@dataclass(frozen=True, slots=True)
class ContractionTile:
    """A perfect loop nest around one sum of products; its loops classified by what they index."""

    reduce: Reduce
    left: Load
    right: Load
    rows: tuple[For, ...]
    lanes: tuple[For, ...]
    depth: tuple[For, ...]


def tile_of(statement: Stmt) -> ContractionTile | str:
    """The normal form of a nest, or the reason why it has none."""
    loops: list[For] = []
    while isinstance(statement, For):
        loops.append(statement)
        statement = statement.body
    if not isinstance(statement, Reduce) or statement.monoid != "sum":
        return "the loops do more than sum products"
    read = factors(statement)
    if read is None:
        return "what is summed is not a product of two values from memory"
    left, right = _by_columns(read, loops)
    total = _variables(statement.index)
    classes: dict[str, list[For]] = {"rows": [], "lanes": [], "depth": []}
    for loop in loops:
        in_left = loop.name in _variables(left.index)
        in_right = loop.name in _variables(right.index)
        if loop.name not in total and in_left and in_right:
            classes["depth"].append(loop)
        elif loop.name in total and in_left != in_right:
            classes["rows" if in_left else "lanes"].append(loop)
        else:
            return f"loop {loop.name!r} is neither a row, a column nor summed"
    found = {name: tuple(group) for name, group in classes.items()}
    return ContractionTile(statement, left, right, found["rows"], found["lanes"], found["depth"])


def _by_columns(read: tuple[Load, Load], loops: list[For]) -> tuple[Load, Load]:
    """The right operand is the one along which the innermost row or column loop moves."""
    for loop in reversed(loops):
        moved = [loop.name in _variables(load.index) for load in read]
        if not all(moved):
            return read if moved[1] else (read[1], read[0])
    return read


def factors(statement: Reduce) -> tuple[Load, Load] | None:
    """The two loads whose product is summed, converted or not; None for any other sum."""
    value = statement.values[0]
    if statement.monoid != "sum" or not (isinstance(value, OpExpr) and value.name == "mul"):
        return None
    left, right = map(_uncast, value.args)
    return (left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def _uncast(expr: Expr) -> Expr:
    return expr.args[0] if isinstance(expr, OpExpr) and expr.name == "cast" else expr


def _variables(index: tuple[Expr, ...]) -> frozenset[str]:
    return frozenset().union(*(free_vars(i) for i in index))


def stride(buffer: Buffer, index: tuple[Expr, ...], variable: str) -> int | None:
    """Elements that an access moves for one step of a variable; None if that varies."""
    linear: Expr = ir.index(0)
    for size, coordinate in zip(buffer.shape, index):
        linear = linear * size + coordinate
    form = affine(linear)
    return None if form is None else form.strides.get(variable, 0)


def length(loops: tuple[For, ...]) -> int | None:
    """The iterations of a class of loops; None if unknown."""
    total = 1
    for loop in loops:
        if not isinstance(loop.extent, Const):
            return None
        total *= int(loop.extent.value)
    return total
