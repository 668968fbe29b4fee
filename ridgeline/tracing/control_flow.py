"""Control flow inside the graph: `cond`, `while_loop` and `scan`.

The functions they take are traced once, whatever the values are; what they read from outside is
captured. A compiled program then branches and loops natively, without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline import dtypes
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.origins import here, stamp
from ridgeline.ops.control.branch import cond as cond_node
from ridgeline.ops.control.common import outputs_of
from ridgeline.ops.control.loop import loop
from ridgeline.ops.control.loop_gradient import keeping
from ridgeline.ops.control.repeat import while_loop as while_node
from ridgeline.ops.elementwise import add, full_like, iota, mul, stop_gradient, sub
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.tensors.cells import CUT, GRAPH, PLAIN, Cell
from ridgeline.tensors.modes import modes
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, as_tensor, read, wrap
from ridgeline.tracing.closing import close, entered, invariant
from ridgeline.tracing.enclosure import Enclosure

if TYPE_CHECKING:
    from ridgeline.random import Generator


class ControlFlowError(RidgelineError):
    """A function given to cond, while_loop or scan that cannot be a part of a graph."""

    code = "RL0404"


class _Frame(Enclosure):
    """One function that is traced; `length` is how often a loop runs it, None if unknown."""

    def __init__(self, name: str, length: int | None, reverse: bool = False) -> None:
        super().__init__()
        self.name, self.length, self.reverse = name, length, reverse
        self.offsets: dict[Node, Node] = {}  # leaves that see one of these at each iteration

    def element(self, kind: TensorType) -> Node:
        """A leaf that stands for a value of one iteration."""
        made = leaf(kind)
        self.own.add(made)
        return made

    def random_blocks(self, generator: Generator, count: int) -> tuple[Node, Node]:
        """The key and the offset of a draw; every iteration has blocks of its own."""
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
        places = add(mul(ramp, full_like(ramp, count)), broadcast_scalar(start, ramp.shape))
        made = self.element(TensorType((), dtypes.uint64))
        self.offsets[made] = places
        return key, made

    def finish(self) -> None:
        """Refuse what the function did besides computing its result."""
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
        """How what was read from outside stands to differentiation."""
        return max((shadow.mode for shadow in self.shadows.values()), default=PLAIN)


def _named(cell: Cell) -> str:
    from ridgeline.graph.origins import describe

    place = describe(cell.node)
    return f"the tensor {cell.node.types[0]}" + (f", written at {place}" if place else "")


def _tensors(tree: Any, what: str) -> tuple[Any, list[Any]]:
    """A structure, and its leaves as tensors; None stays as it is."""
    leaves: list[Any] = []
    structure = flatten(tree, leaves)
    for place, value in enumerate(leaves):
        if value is None or isinstance(value, Tensor):
            continue
        if not isinstance(value, bool | int | float | complex):
            raise ControlFlowError(
                f"{what} is made of tensors and numbers, not {type(value).__name__}",
                help="close over other values: the function may read them from outside",
            )
        leaves[place] = as_tensor(value)
    return structure, leaves


def _given(leaves: Sequence[Any], tracked: bool) -> list[Node]:
    """The nodes of tensors; those that are cut off do not let gradients pass."""
    nodes = []
    for value in leaves:
        if value is not None:
            node = read(value)
            cut = tracked and value._resolved()[1].mode == CUT
            nodes.append(stop_gradient(node) if cut else node)
    return nodes


def _traced(
    frame: _Frame, function: Callable[..., Any], args: Sequence[Any], what: str
) -> tuple[Any, list[Any], list[Node]]:
    """Run a function inside a frame: the structure, leaves and nodes of its result."""
    with frame.inside():
        structure, leaves = _tensors(function(*args), f"what {what} returns")
        nodes = _given(leaves, True)
    frame.finish()
    return structure, leaves, nodes


def _elements(frame: _Frame, leaves: Sequence[Any], nodes: Sequence[Node]) -> list[Any]:
    """Tensors that stand for values inside a frame, over leaves of its own."""
    own = iter(nodes)
    with frame.inside():
        mode = GRAPH if modes.gradients else PLAIN
        return [
            None
            if value is None
            else wrap(made := next(own), mode if made.types[0].dtype.is_differentiable else PLAIN)
            for value in leaves
        ]


def _mode(highest: int) -> int:
    if highest >= GRAPH:
        return GRAPH if modes.gradients else CUT
    return highest


def _highest(leaves: Sequence[Any]) -> int:
    return max((v._resolved()[1].mode for v in leaves if v is not None), default=PLAIN)


def _wrapped(structure: Any, leaves: Sequence[Any], nodes: Sequence[Node], mode: int) -> Any:
    """Results as tensors, in the structure that the function gave."""
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


def _place(structure: Any, number: int) -> str:
    """A leaf of the carried structure, in words."""
    return "what is carried" if structure is None else f"carried value {number + 1}"


def _check_carried(
    name: str, before: tuple[Any, Sequence[Node]], after: tuple[Any, Sequence[Node]]
) -> None:
    """What is carried must come out as it went in: nested alike, of one shape and type."""
    if before[0] != after[0]:
        raise ControlFlowError(
            f"{name}: what is carried is nested differently after an iteration",
            help="return the carried values in the structure in which the function got them",
        )
    for number, (old, new) in enumerate(zip(before[1], after[1])):
        a, b = old.types[0], new.types[0]
        if a == b:
            continue
        what = "shape" if a.dtype is b.dtype else "element type"
        fix = (
            "start with a tensor of the shape that it keeps, such as zeros(...)"
            if what == "shape"
            else f"start with a value of {b.dtype.name}, or convert with .to({a.dtype.name})"
        )
        raise ControlFlowError(
            f"{name}: the {what} of {_place(before[0], number)} changes from {a} to {b}", help=fix
        )


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`; only one is computed.

    Both are traced, so that the choice can be made where the value of `pred` is not known to
    Python, as inside `jit`. They return tensors of the same structure, shapes and types.

    >>> clip = rl.jit(lambda g: rl.cond(g.norm() > 1, lambda g: g / g.norm(), lambda g: g, g))
    >>> clip(rl.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    choice = _predicate(as_tensor(pred), "cond")
    sides = []
    frames = []
    for function, what in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        frame = _Frame("cond", 1)
        frames.append(frame)
        sides.append(_traced(frame, function, operands, what))
    (structure, leaves, nodes), (other, _, others) = sides
    _check_sides((structure, nodes), (other, others))
    starts = {s.node for f in frames for s in f.shadows.values() if isinstance(s, Cell)}
    captured, bodies = close([((), nodes), ((), others)], lambda outputs: entered(outputs, starts))
    if not nodes:
        return unflatten(structure, leaves)
    found = cond_node(choice, bodies[0], bodies[1], captured)
    mode = _mode(max(f.highest for f in frames))
    return _wrapped(structure, leaves, found, mode)


def _predicate(value: Tensor, name: str) -> Node:
    if value.numel() != 1 or value.dtype is not dtypes.bool_:
        raise ShapeError(
            f"{name} needs one truth value, got {value._type}",
            help="compare, such as with x > 0, and use any() or all() for more than one element",
        )
    from ridgeline.ops.movement import reshape

    return reshape(read(value), ())


def _check_sides(first: tuple[Any, Sequence[Node]], second: tuple[Any, Sequence[Node]]) -> None:
    if first[0] != second[0]:
        raise ControlFlowError(
            "cond: the two functions return differently nested values",
            help="return the same structure from both; use the same keys and lengths",
        )
    for number, (a, b) in enumerate(zip(first[1], second[1])):
        if a.types[0] != b.types[0]:
            raise ControlFlowError(
                f"cond: result {number + 1} is {a.types[0]} from true_fn and {b.types[0]} from "
                "false_fn",
                help="convert one of them, such as with .to() or expand()",
            )


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Any) -> Any:
    """`carried = body_fn(carried)` while `cond_fn(carried)` holds; what is carried in the end.

    `carried` is a tensor or a structure of tensors whose shapes and types stay the same. Forward
    derivatives (`jvp`) pass; for gradients use `scan`.

    >>> halve = lambda x: rl.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
    >>> halve(rl.tensor([3.0, 4.0]))
    tensor([0.3750, 0.5000])
    """
    structure, leaves = _tensors(carried, "carried")
    if any(value is None for value in leaves) or not leaves:
        raise ControlFlowError("while_loop carries at least one tensor, and no None")
    frames = [_Frame("while_loop", None), _Frame("while_loop", None)]
    own = [[f.element(v._type) for v in leaves] for f in frames]
    test_args = unflatten(structure, _elements(frames[0], leaves, own[0]))
    _, test, _ = _traced(frames[0], cond_fn, [test_args], "cond_fn")
    if len(test) != 1 or test[0] is None:
        raise ControlFlowError("while_loop: cond_fn returns one truth value")
    with frames[0].inside():
        goes_on = _predicate(test[0], "while_loop")
    body_args = unflatten(structure, _elements(frames[1], leaves, own[1]))
    after, _, nodes = _traced(frames[1], body_fn, [body_args], "body_fn")
    _check_carried("while_loop", (structure, own[1]), (after, nodes))
    highest = max(_highest(leaves), *(f.highest for f in frames))
    mode = _mode(highest)
    every = {*own[0], *own[1]}
    captured, bodies = close(
        [(own[0], [goes_on]), (own[1], nodes)], lambda outputs: invariant(outputs, every)
    )
    found = while_node(bodies[0], bodies[1], _given(leaves, mode == GRAPH), captured)
    return _wrapped(structure, leaves, found, mode)


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` over the slices of `xs` along their first axis.

    Gives the last carry and all `y` stacked. With `xs=None` it runs `length` times and `x` is
    None; with `reverse=True` it starts from the last slice. The carry keeps its structure, shapes
    and types. It is one node of the graph: recording and compiling it take the same time however
    long `xs` is, and gradients run it backwards.

    >>> total, sums = rl.scan(lambda c, x: (c + x, c + x), 0.0, rl.tensor([1.0, 2.0, 3.0]))
    >>> sums
    tensor([1., 3., 6.])
    """
    structure, leaves = _tensors(init, "init")
    arrays_structure, arrays = _tensors(xs, "xs")
    count = _length(arrays, length)
    frame = _Frame("scan", count, reverse)
    state = [frame.element(v._type) for v in leaves if v is not None]
    slices = [
        frame.element(TensorType(v._type.shape[1:], v.dtype, v.device))
        for v in arrays
        if v is not None
    ]
    args = [
        unflatten(structure, _elements(frame, leaves, state)),
        unflatten(arrays_structure, _elements(frame, arrays, slices)),
    ]
    results, returned, nodes = _traced(frame, lambda c, x: _pair(f(c, x)), args, "f")
    after, outputs = results[1]
    carried = len(state)
    places = len(leaves)
    if [v is None for v in returned[:places]] != [v is None for v in leaves]:
        after = ...  # None in the place of a tensor is another structure
    _check_carried("scan", (structure, state), (after, nodes[:carried]))
    mode = _mode(max(_highest(leaves), _highest(arrays), frame.highest))
    tracked = mode == GRAPH
    own = [*state, *slices, *frame.offsets]
    captured, (step,) = close([(own, nodes)], lambda o: invariant(o, frame.own))
    stacks = [*_given(arrays, tracked), *frame.offsets.values()]
    found: list[Node] = []
    if nodes:
        found = loop(step, _given(leaves, tracked), stacks, captured, count, reverse)
        if tracked and len(found) > 0:
            source = found[0] if len(found) == 1 else found[0].inputs[0]
            found = outputs_of(keeping(source))[: len(nodes)]
    carry = _wrapped(structure, leaves, found[:carried], mode)
    return carry, _wrapped(outputs, returned[places:], found[carried:], mode)


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ControlFlowError(
            f"scan: f returns (carry, y), not {type(result).__name__}",
            help="return (carry, None) where nothing is to be stacked",
        )
    return result[0], result[1]


def _length(arrays: Sequence[Any], length: int | None) -> int:
    """How often a scan runs: the size of the first axis of what it runs over."""
    sizes: dict[int, None] = {}
    for value in arrays:
        if value is None:
            continue
        if not value.shape:
            raise ShapeError("scan runs over the first axis of xs, but one of them has no axes")
        sizes[value.shape[0]] = None
    if length is not None:
        sizes[int(length)] = None
    if not sizes:
        raise ControlFlowError("scan needs xs to run over, or length=")
    if len(sizes) > 1:
        raise ShapeError(
            f"scan: the first axes have different sizes: {', '.join(map(str, sizes))}",
            help="length= must be the size of the first axis of xs, or be left out",
        )
    return next(iter(sizes))
