"""The interface of a running jit capture, as the record core and the functions see it.

This page is all that the record core and the functions know of tracing: `modes.capture` is None, or
something that answers to `RunningCapture`. Guards are behind it: a number, an array, an attribute
or a gradient that is read while a capture runs goes through it, and what the trace depends on is
written down there (`tracing/capture.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.errors import RidgelineError
from ridgeline.graph.node import Node, TensorType
from ridgeline.record.cells import Cell, Track
from ridgeline.record.modes import modes

if TYPE_CHECKING:
    from ridgeline.dtypes import DType
    from ridgeline.graph.sizes import Size
    from ridgeline.record.numbers import Lifted
    from ridgeline.scalars import Array


class RunningCapture(Protocol):
    """A function that is being traced, with inputs for memory, numbers and random streams."""

    @property
    def name(self) -> str:
        """The traced function, for messages."""

    symbolic: bool  # are there sizes that stand for more than one number
    made: list[weakref.ref[Cell]]  # cells of tensors made inside
    tracks: list[weakref.ref[Track]]  # detached handles made inside

    def cell(self, cell: Cell) -> Cell:
        """The cell inside this capture that represents one from outside."""

    def track(self, track: Track) -> Track:
        """The track inside this capture that represents one from outside."""

    def cut(self, tensor: Any) -> None:
        """A handle from outside is about to be detached, or to be a variable of its own."""

    def sees(self, cell: Cell) -> None:
        """The form of memory from outside was asked for: its shape, type or place."""

    def depends(self, node: Node) -> bool:
        """True if a value is not known while tracing."""

    def read_grad(self, owner: Any) -> Any:
        """`.grad` as the traced program sees it."""

    def write_grad(self, owner: Any, value: Any) -> None:
        """Assign `.grad` inside the traced program."""

    def check_backward(self, order: list[Node]) -> None:
        """Raise if gradients would leave the traced function into graphs recorded outside."""

    def set_number(self, name: Hashable, owner: Any, value: Any) -> None:
        """A number with a name was written while the function is traced."""

    def number(self, name: Hashable, getter: Callable[[], float], value: float) -> Any:
        """The lifted number of a name: one input, however often it is read."""

    def lifted(self, number: Lifted, dtype: DType) -> Node:
        """A number as an input that is read on every call."""

    def array(self, array: Array, dtype: DType) -> Node | None:
        """A large array as an input; None for one that guards compare by value."""

    def lend(self, cell: Cell, array: Array) -> bool:
        """A tensor over an array is made inside; False if it is one of the trace's own."""

    def random_blocks(self, generator: Any, count: Size) -> tuple[Node, Node]:
        """The key and the offset of the next blocks of a generator's stream."""

    def watch(self, obj: Any) -> None:
        """The trace depends on the attributes of a module or an optimizer."""

    def refuse(self, error: Exception) -> None:
        """Give up: the function cannot be traced, whatever its code does about the error."""

    def require(self, holds: Callable[[], bool], text: str) -> None:
        """The trace is valid only while `holds()` is true."""

    def places(self, mask: Node) -> list[Node] | None:
        """Index vectors of a mask's true elements, of unknown length, if it may be unknown."""


class CallObserver(Protocol):
    """Is told what the function that jit traces calls and reads."""

    prints: bool

    def called(self, function: Any) -> Any:
        """A user's function as a copy that reports what it reads."""

    def called_method(self, owner: Any, name: str) -> Any:
        """The same for a method that a user may have defined."""

    def opens(self, reason: str) -> None:
        """Something was asked for that no guard can compare."""


class CaptureError(RidgelineError):
    """Something that cannot be done while jit traces a function.

    Made inside a trace, it marks the capture: the error comes back when the trace ends, even if the
    function caught it and went on.
    """

    code = "RL0401"

    def __init__(self, message: str, *, note: str = "", help: str = "") -> None:
        super().__init__(message, note=note, help=help)
        if modes.capture is not None:
            modes.capture.refuse(self)


class LeakError(RidgelineError):
    """A tensor that existed only while jit traced a function is used afterwards."""

    code = "RL0402"


class DonatedError(RidgelineError):
    """A tensor that was donated to a jitted function is used afterwards."""

    code = "RL0405"


class Donated:
    """Takes the place of a cell's capture after its memory was donated to a function."""

    name = "jit"

    def __init__(self, function: str, line: str) -> None:
        self._function, self._line = function, line

    def error(self, kind: TensorType) -> DonatedError:
        """The error for a use of the tensor."""
        return DonatedError(
            f"this tensor was donated to {self._function}, and its memory holds something else now",
            note=f"the tensor was {kind}" + (f", donated at {self._line}" if self._line else ""),
            help="use what the function returned, give it a clone(), or leave the argument out of "
            "donate",
        )


def check_held(track: Track) -> None:
    """Raise for memory that was donated."""
    if isinstance(track.capture, Donated):
        assert isinstance(track, Cell)
        raise track.capture.error(track.node.types[0])


def foreign(cell: Cell, track: Track, capture: RunningCapture | None) -> tuple[Cell, Track]:
    """What represents a cell and a track from elsewhere inside the running capture."""
    check_held(cell)
    if capture is None:
        raise LeakError(
            f"this tensor was made while {tracer(cell, track)} traced a function and has no value "
            "of its own",
            help="return it from that function",
        )
    return capture.cell(cell), capture.track(track)


def tracer(cell: Cell, track: Track) -> str:
    """The capture in which a tensor was made."""
    made = cell.capture or track.capture
    return "jit" if made is None else made.name
