"""Tiles of an operand: what the copy engine is told of the tensor, and the copies of one tile.

A row of a tile is 128 bytes: so many terms of a sum for one row of the left operand, or, where the
operand is turned, 64 rows of it for one term, in as many blocks as the tile has. Blocks of a
cluster that share a tile fetch a part each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ridgeline.codegen.cuda.hopper.instructions import SWIZZLE
from ridgeline.codegen.cuda.source import TileMap
from ridgeline.loops.tensor_cores import MatrixRead


@dataclass(frozen=True, slots=True)
class OperandTiles:
    """Tiles of `length` rows of an operand (of columns, of the right one)."""

    read: MatrixRead
    parameter: int
    count: int  # of the operand's rows
    depth: int
    batch_counts: tuple[int, ...]
    length: int
    blocks: int  # that share a tile
    name: str
    own: str  # the variable that says where a tile begins

    @property
    def _width(self) -> int:
        """Elements in a row of a tile."""
        return SWIZZLE // self.read.dtype.itemsize

    @property
    def _batches(self) -> list[tuple[int, int, str]]:
        """Length, stride and variable of every batch axis that the operand has."""
        axes = zip(self.batch_counts, self.read.batches)
        return [(count, step, f"batch{n}") for n, (count, step) in enumerate(axes) if step]

    @property
    def rank(self) -> int:
        """Axes of the tensor."""
        return 2 + len(self._batches)

    @property
    def map(self) -> TileMap:
        """What the copy engine is told."""
        read, batches = self.read, self._batches
        matrix = (self.count, self.depth) if read.turned else (self.depth, self.count)
        high = (self._width if read.turned else self.length) // self.blocks
        return TileMap(
            self.parameter, read.dtype.name, read.offset,
            (*matrix, *(count for count, _, _ in batches)),
            (read.deep if read.turned else read.across, *(step for _, step, _ in batches)),
            (self._width, high, *(1 for _ in batches)),
        )  # fmt: skip

    def fetches(self) -> Iterator[str]:
        """The copies of the tile at a step of the sum."""
        batches = "".join(f", {variable}" for _, _, variable in self._batches)
        part = self._width if self.read.turned else self.length
        part //= self.blocks
        mask = f"{(1 << self.blocks) - 1}, " if self.blocks > 1 else ""
        call = f"          rl_fetch{'_for' * bool(mask)}({mask}"
        offset = f" + (int)rank * {part}" if self.blocks > 1 else ""
        moved = f" + rank * {part * SWIZZLE}" if self.blocks > 1 else ""
        told = f"&{self.name}_map, told"
        if not self.read.turned:
            yield (
                f"{call}{self.name}{moved}, {told}, k * TILE_DEPTH, {self.own}{offset}{batches});"
            )
            return
        for block in range(self.length // self._width):
            at = f"{self.name} + {block * self._width * SWIZZLE}{moved}"
            first = f"{self.own} + {block * self._width}"
            yield f"{call}{at}, {told}, {first}, k * TILE_DEPTH{offset}{batches});"
