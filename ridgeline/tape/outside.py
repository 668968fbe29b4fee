"""Memory from outside of a tape that calls of a run use, and views without nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.graph.node import Node, TensorType
from ridgeline.record.cells import LEAF, Cell, Step, Track
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.run import Run


class StandIn:
    """Stands for the node of a view whose memory has none: something that has its type."""

    __slots__ = ("types",)

    def __init__(self, types: Any) -> None:
        self.types = types


def stand_in(kind: TensorType) -> Any:
    """What stands for the node of a view of some type."""
    return StandIn((kind,))


class Outside:
    """Memory from outside of the tape: its cell, and how it was when it was first used."""

    __slots__ = (
        "block", "cell", "memory", "mode", "node", "rest", "steps", "variable", "version",
        "written",
    )  # fmt: skip
    cell: Cell
    node: Node
    block: bool
    variable: Track | None  # of the variable whose memory it is
    version: int
    mode: int
    written: bool  # by the tape, whose memory it is from then on
    # of a block that a matched call read: all of the memory, how it is shown, and what of the block
    memory: Node | None
    steps: tuple[Step, ...]
    rest: tuple[Step, ...]

    def __init__(self, cell: Cell, node: Node, block: bool) -> None:
        self.cell, self.node, self.block = cell, node, block
        self.variable = None
        self.version, self.mode = cell.version, cell.mode
        self.memory = None
        self.written = False

    @property
    def own(self) -> bool:
        """True where the cell itself is the track of the variable."""
        return self.variable is self.cell

    def is_written(self, run: Run) -> bool:
        """True where a cell holds what calls of a run wrote, which nobody has taken back."""
        return self.written and self.cell.run is run

    def shows(self, value: Tensor, memory: Node) -> bool:
        """True for a view that shows the same block of the same memory."""
        return self.memory is memory and self.steps is value._steps

    def stands_for(self, track: Track) -> bool:
        """True unless another variable has the same memory."""
        if track.mode != LEAF:
            return True
        if self.variable is None:
            self.variable = track
        return self.variable is track
