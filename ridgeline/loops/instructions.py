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
    """Those that so many tiles of sums take, with a column of the left operand and a right one."""
    return high * wide + high + 1
