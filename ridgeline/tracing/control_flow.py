"""Control flow inside the graph: `cond`, `while_loop` and `scan`.

The functions they take are traced once, whatever the values are; what they read from outside is
captured. A compiled program then branches and loops natively, without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import ShapeError
from ridgeline.graph.body import Body
from ridgeline.graph.node import Node, TensorType
from ridgeline.ops.control.branch import cond as cond_node
from ridgeline.ops.control.common import outputs_of
from ridgeline.ops.control.loop import keeping, loop
from ridgeline.ops.control.repeat import while_loop as while_node
from ridgeline.ops.movement import reshape
from ridgeline.record.cells import GRAPH, Cell
from ridgeline.record.values import read
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.pytree import unflatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.bodies import (
    BodyFrame,
    ControlFlowError,
    elements,
    given_nodes,
    highest_mode,
    result_mode,
    tensors_of,
    traced,
    wrapped,
)
from ridgeline.tracing.closure_conversion import close, entered, invariant


def _carried_name(structure: Any, number: int) -> str:
    """A leaf of the carried structure, in words."""
    return "what is carried" if structure is None else f"carried value {number + 1}"


def _nested_differently(name: str) -> ControlFlowError:
    return ControlFlowError(
        f"{name}: what is carried is nested differently after an iteration",
        help="return the carried values in the structure in which the function got them",
    )


def _check_carried(
    name: str, before: tuple[Any, Sequence[Node]], after: tuple[Any, Sequence[Node]]
) -> None:
    """Carried values must keep their structure, shapes and types."""
    if before[0] != after[0]:
        raise _nested_differently(name)
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
            f"{name}: the {what} of {_carried_name(before[0], number)} changes from {a} to {b}",
            help=fix,
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
        frame = BodyFrame("cond", 1)
        frames.append(frame)
        sides.append(traced(frame, function, operands, what))
    (structure, leaves, nodes), (other, _, others) = sides
    _check_sides((structure, nodes), (other, others))
    starts = {s.node for f in frames for s in f.shadows.values() if isinstance(s, Cell)}
    captured, bodies = close([((), nodes), ((), others)], lambda outputs: entered(outputs, starts))
    if not nodes:
        return unflatten(structure, leaves)
    found = cond_node(choice, bodies[0], bodies[1], captured)
    mode = result_mode(max(f.highest for f in frames))
    return wrapped(structure, leaves, found, mode)


def _predicate(value: Tensor, name: str) -> Node:
    if value.numel() != 1 or value.dtype is not dtypes.bool_:
        raise ShapeError(
            f"{name} needs one truth value, got {value._type}",
            help="compare, such as with x > 0, and use any() or all() for more than one element",
        )
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
    structure, leaves = tensors_of(carried, "carried")
    if any(value is None for value in leaves) or not leaves:
        raise ControlFlowError("while_loop carries at least one tensor, and no None")
    frames = [BodyFrame("while_loop", None), BodyFrame("while_loop", None)]
    own = [[f.element(v._type) for v in leaves] for f in frames]
    test_args = unflatten(structure, elements(frames[0], leaves, own[0]))
    _, test, _ = traced(frames[0], cond_fn, [test_args], "cond_fn")
    if len(test) != 1 or test[0] is None:
        raise ControlFlowError("while_loop: cond_fn returns one truth value")
    with frames[0].inside():
        goes_on = _predicate(test[0], "while_loop")
    body_args = unflatten(structure, elements(frames[1], leaves, own[1]))
    after, _, nodes = traced(frames[1], body_fn, [body_args], "body_fn")
    _check_carried("while_loop", (structure, own[1]), (after, nodes))
    highest = max(highest_mode(leaves), *(f.highest for f in frames))
    mode = result_mode(highest)
    every = {*own[0], *own[1]}
    captured, bodies = close(
        [(own[0], [goes_on]), (own[1], nodes)], lambda outputs: invariant(outputs, every)
    )
    found = while_node(bodies[0], bodies[1], given_nodes(leaves, mode == GRAPH), captured)
    return wrapped(structure, leaves, found, mode)


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
    given = ScanInputs.of(init, xs, length, reverse)
    return looped(given, iteration(f, given))


@dataclass(frozen=True, slots=True)
class ScanInputs:
    """What a scan runs over: structures and leaves of the first carry and of all slices."""

    carry: Hashable
    carried: list[Any]  # a tensor each, or None
    slices: Hashable
    arrays: list[Any]
    length: int
    reverse: bool

    @classmethod
    def of(cls, init: Any, xs: Any, length: int | None, reverse: bool) -> ScanInputs:
        """The arguments of `scan`."""
        carry, carried = tensors_of(init, "init")
        slices, arrays = tensors_of(xs, "xs")
        return cls(carry, carried, slices, arrays, _length(arrays, length), reverse)


@dataclass(frozen=True, slots=True)
class Iteration:
    """A function traced for a scan."""

    step: Body
    captured: list[Node]  # what it read from outside
    offsets: list[Node]  # places in random streams, one for each iteration
    highest: int  # how what it read from outside stands to differentiation
    outputs: Hashable  # how its second result is nested
    returned: list[Any]  # None where that has one


def iteration(f: Callable[[Any, Any], Any], given: ScanInputs) -> Iteration:
    """One iteration of `f`, traced."""
    frame = BodyFrame("scan", given.length, given.reverse)
    state = [frame.element(v._type) for v in given.carried if v is not None]
    slices = [
        frame.element(TensorType(v._type.shape[1:], v.dtype, v.device))
        for v in given.arrays
        if v is not None
    ]
    args = [
        unflatten(given.carry, elements(frame, given.carried, state)),
        unflatten(given.slices, elements(frame, given.arrays, slices)),
    ]
    results, returned, nodes = traced(frame, lambda c, x: _pair(f(c, x)), args, "f")
    after, outputs = results[1]
    count = len(given.carried)
    if [v is None for v in returned[:count]] != [v is None for v in given.carried]:
        raise _nested_differently("scan")
    _check_carried("scan", (given.carry, state), (after, nodes[: len(state)]))
    own = [*state, *slices, *frame.offsets]
    captured, (step,) = close([(own, nodes)], lambda o: invariant(o, frame.own))
    present = [None if v is None else True for v in returned[count:]]
    return Iteration(step, captured, list(frame.offsets.values()), frame.highest, outputs, present)


def looped(given: ScanInputs, found: Iteration) -> tuple[Any, Any]:
    """The last carry and all further results of a scan over given inputs."""
    highest = max(highest_mode(given.carried), highest_mode(given.arrays), found.highest)
    mode = result_mode(highest)
    tracked = mode == GRAPH
    state = given_nodes(given.carried, tracked)
    stacks = [*given_nodes(given.arrays, tracked), *found.offsets]
    made: list[Node] = []
    if found.step.outputs:
        made = loop(found.step, state, stacks, found.captured, given.length, given.reverse)
        if tracked and len(made) > 0:
            source = made[0] if len(made) == 1 else made[0].inputs[0]
            made = outputs_of(keeping(source))[: len(found.step.outputs)]
    carry = wrapped(given.carry, given.carried, made[: len(state)], mode)
    return carry, wrapped(found.outputs, found.returned, made[len(state) :], mode)


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ControlFlowError(
            f"scan: f returns (carry, y), not {type(result).__name__}",
            help="return (carry, None) where nothing is to be stacked",
        )
    return result[0], result[1]


def _length(arrays: Sequence[Any], length: int | None) -> int:
    """The number of iterations: the size of the first axis of the inputs."""
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
