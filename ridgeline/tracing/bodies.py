"""Tracing the functions that control flow takes: frames, arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline import dtypes
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.origins import describe, here, stamp
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import add, full_like, iota, mul, stop_gradient, sub
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.record.cells import CUT, GRAPH, PLAIN, Cell
from ridgeline.record.modes import called, modes
from ridgeline.record.values import read
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.subtrace import Enclosure

if TYPE_CHECKING:
    from ridgeline.functions.random import Generator


class ControlFlowError(RidgelineError):
    """A function given to cond, while_loop or scan cannot be part of a graph."""

    code = "RL0404"


class BodyFrame(Enclosure):
    """One function that is being traced; `length` is its number of iterations, None if unknown."""

    def __init__(self, name: str, length: int | None, reverse: bool = False) -> None:
        super().__init__()
        self.name, self.length, self.reverse = name, length, reverse
        self.offsets: dict[Node, Node] = {}  # leaves that see one of these at each iteration

    def element(self, kind: TensorType) -> Node:
        """A leaf that represents a value of one iteration."""
        made = leaf(kind)
        self.own.add(made)
        return made

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """The key and the offset of a draw; every iteration has its own blocks."""
        if self.length is None:
            raise ControlFlowError(
                f"{self.name} cannot draw random numbers: how many is not known in advance",
                help="draw them before and index into them, or use scan()",
            )
        if self.name == "cond":
            return self.take_outside(generator, count)
        key, start = self.take_outside(generator, count * self.length)
        ramp = iota((self.length,), 0, dtypes.uint64)
        if self.reverse:
            ramp = sub(full_like(ramp, self.length - 1), ramp)
        indices = add(mul(ramp, full_like(ramp, count)), broadcast_scalar(start, ramp.shape))
        made = self.element(TensorType((), dtypes.uint64))
        self.offsets[made] = indices
        return key, made

    def finish(self) -> None:
        """Refuse side effects of the function."""
        if self.written():
            raise ControlFlowError(
                f"a tensor from outside is written to inside {self.name}",
                note=_named(next(iter(self.written().values()))),
                help="carry it: take it as an argument and return its new value",
            )
        if any(owner._track.capture is not self for owner, _ in self.gradients.values()):
            raise ControlFlowError(
                f"the .grad of a tensor from outside is set inside {self.name}",
                help="use grad() or value_and_grad() inside, and return the gradients",
            )

    @property
    def highest(self) -> int:
        """How the values read from outside relate to differentiation."""
        return max((shadow.mode for shadow in self.shadows.values()), default=PLAIN)


def _named(cell: Cell) -> str:
    line = describe(cell.node)
    return f"the tensor {cell.node.types[0]}" + (f", written at {line}" if line else "")


def tensors_of(tree: Any, what: str) -> tuple[Any, list[Any]]:
    """A structure, and its leaves as tensors; None stays as it is."""
    leaves: list[Any] = []
    structure = flatten(tree, leaves)
    for index, value in enumerate(leaves):
        if value is None or isinstance(value, Tensor):
            continue
        if not isinstance(value, bool | int | float | complex):
            raise ControlFlowError(
                f"{what} is made of tensors and numbers, not {type(value).__name__}",
                help="close over other values: the function may read them from outside",
            )
        leaves[index] = as_tensor(value)
    return structure, leaves


def given_nodes(leaves: Sequence[Any], tracked: bool) -> list[Node]:
    """The nodes of tensors, detached where no gradient may pass."""
    nodes = []
    for value in leaves:
        if value is not None:
            node = read(value)
            cut = tracked and value._resolved()[1].mode == CUT
            nodes.append(stop_gradient(node) if cut else node)
    return nodes


def traced(
    frame: BodyFrame, function: Callable[..., Any], args: Sequence[Any], what: str
) -> tuple[Any, list[Any], list[Node]]:
    """Run a function inside a frame: the structure, leaves and nodes of its result."""
    with frame.inside():
        structure, leaves = tensors_of(called(function)(*args), f"what {what} returns")
        nodes = given_nodes(leaves, True)
    frame.finish()
    return structure, leaves, nodes


def elements(frame: BodyFrame, leaves: Sequence[Any], nodes: Sequence[Node]) -> list[Any]:
    """Tensors for values inside a frame, over leaves of its own."""
    own = iter(nodes)
    with frame.inside():
        mode = GRAPH if modes.gradients else PLAIN
        return [
            None
            if value is None
            else wrap(made := next(own), mode if made.types[0].dtype.is_differentiable else PLAIN)
            for value in leaves
        ]


def result_mode(highest: int) -> int:
    if highest >= GRAPH:
        return GRAPH if modes.gradients else CUT
    return highest


def highest_mode(leaves: Sequence[Any]) -> int:
    return max((v._resolved()[1].mode for v in leaves if v is not None), default=PLAIN)


def wrapped(structure: Any, leaves: Sequence[Any], nodes: Sequence[Node], mode: int) -> Any:
    """Results as tensors, in the structure that the function returned."""
    found, mark = iter(nodes), here(3)
    made: list[Tensor | None] = []
    for value in leaves:
        if value is None:
            made.append(None)
            continue
        node = next(found)
        stamp(node, mark)
        made.append(wrap(node, mode if node.types[0].dtype.is_differentiable else PLAIN))
    return unflatten(structure, made)
