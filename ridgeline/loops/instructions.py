"""Tile instructions: multiply-add tiles that a machine does in one instruction, as a table.

A contraction in loops has one normal form, `acc[m, n] += left[m, k] * right[k, n]`, so that an
instruction is a row here (element types, tile, layout) and matching it is a comparison. Its meaning
is always the loops themselves; a target that lacks it runs those.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.dtypes import DType


@dataclass(frozen=True, slots=True)
class Instruction:
    """`rows` × `depth` times `depth` × lanes, joined into `rows` × lanes sums.

    The lanes of the sums lie next to each other. The right operand has, for every lane, its
    `depth` elements next to each other; the left operand has its own `depth` elements so.
    `rows` is 0 and `lanes` is empty where any number will do: such a tile is a group of
    instructions.
    """

    name: str
    left: DType
    right: DType
    total: DType
    rows: int
    lanes: tuple[int, ...]
    depth: int
    feature: str  # what the CPU must have, in LLVM's words; empty for any CPU


INSTRUCTIONS: dict[str, Instruction] = {
    row.name: row
    for row in (
        Instruction("fma", dtypes.float32, dtypes.float32, dtypes.float32, 0, (), 1, ""),
        Instruction("fma64", dtypes.float64, dtypes.float64, dtypes.float64, 0, (), 1, ""),
        Instruction(
            "vdpbf16ps", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32, 1, (4, 8, 16), 2,
            "avx512bf16",
        ),
        Instruction(
            "vpdpbusd", dtypes.uint8, dtypes.int8, dtypes.int32, 1, (4, 8, 16), 4, "avx512vnni"
        ),
        Instruction(
            "vpdpwssd", dtypes.int16, dtypes.int16, dtypes.int32, 1, (4, 8, 16), 2, "avx512vnni"
        ),
    )
}  # fmt: skip
