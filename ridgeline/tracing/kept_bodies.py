"""A cache of traced bodies of the package's own functions, by the types of their arguments.

A function of this package that reads nothing but its arguments records the same nodes for all
tensors of the same types. So it is traced for the first of them, as control flow traces its
functions, and what comes later takes their places: tensors are inputs of the body, and so are
finite numbers, as wherever they are recorded. This is never done for functions of users, whose
globals, attributes and closures may change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Generic, TypeVar

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.functions.operands import defaults
from ridgeline.graph.body import Body
from ridgeline.graph.node import Node
from ridgeline.ops.control.call import call
from ridgeline.ops.elementwise import CONSTANT
from ridgeline.record.cells import PLAIN
from ridgeline.record.modes import modes, no_grad
from ridgeline.record.numbers import Number0d, lift
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.bodies import BodyFrame
from ridgeline.tracing.closure_conversion import close, entered
from ridgeline.weak import Recent

MOST_BODIES, MOST_NODES = 256, 1 << 16
T = TypeVar("T")


class KeptBodies(Generic[T]):
    """The cache: traced bodies by all that they depend on."""

    def __init__(self) -> None:
        self._entries: Recent[Hashable, T] = Recent(MOST_BODIES, MOST_NODES)
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """What was traced under a key."""
        with self._lock:
            return self._entries.get(key)

    def keep(self, key: Hashable, traced: T, body: Body) -> None:
        """Keep what was traced, and forget the least recently used."""
        with self._lock:
            self._entries.keep(key, traced, len(body.order))


@dataclass(frozen=True, slots=True)
class _Number:
    """An input of a body that is a number of the call, in an element type."""

    index: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class _Kept:
    """A traced function: its body, and what this takes besides the tensors of a call."""

    body: Body
    others: tuple[_Number | Node, ...]

    def inputs(self, nodes: Sequence[Node], numbers: Sequence[float]) -> list[Node] | None:
        """The inputs of the body in a call; None if a number does not fit its type."""
        inputs = list(nodes)
        for other in self.others:
            if isinstance(other, Node):
                inputs.append(other)
            elif dtypes.fits(numbers[other.index], other.dtype):
                inputs.append(lift(numbers[other.index], other.dtype))
            else:
                return None
        return inputs


_kept: KeptBodies[_Kept] = KeptBodies()


def as_one_node(
    function: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    *settings: Hashable,
) -> list[Node] | None:
    """What `function(tensors, *numbers, *settings)` returns, as outputs of a single node.

    It has no gradients. None if the function has to run: inside captures and modes that look at
    single ops, and for tensors on several devices.
    """
    if modes.capture is not None or modes.eager or modes.on_read or modes.autocast:
        return None
    nodes = [read(tensor) for tensor in tensors]
    types = tuple([node.types[0] for node in nodes])
    if modes.anomaly is not None or len({kind.device for kind in types}) != 1:
        return None
    marks = tuple([None if isfinite(number) else repr(number) for number in numbers])
    key = function, settings, marks, types, defaults.dtype
    kept = _kept.get(key)
    if kept is None:
        kept = _traced(function, nodes, numbers, settings)
        if kept is None:
            return None
        _kept.keep(key, kept, kept.body)
    inputs = kept.inputs(nodes, numbers)
    return None if inputs is None else call(kept.body, inputs)


def _traced(
    function: Callable[..., Sequence[Tensor]],
    nodes: Sequence[Node],
    numbers: Sequence[float],
    settings: Sequence[Hashable],
) -> _Kept | None:
    """The traced function; None if it depends on more than the types of its arguments."""
    own_numbers = [number * 1.0 for number in numbers]  # new objects: leaves are found by identity
    frame = BodyFrame(function.__name__, 1)
    own = [frame.element(node.types[0]) for node in nodes]
    try:
        with no_grad(), frame.inside():
            results = function([wrap(made, PLAIN) for made in own], *own_numbers, *settings)
            outputs = [read(result) for result in results]
    except RidgelineError:
        return None  # the plain way says what is wrong
    captured, (body,) = close([(own, outputs)], lambda roots: entered(roots, set()))
    others = [_source(node, own_numbers) for node in captured]
    found = {other.index for other in others if isinstance(other, _Number)}
    if found != {index for index, number in enumerate(numbers) if isfinite(number)}:
        return None  # a number has become structure
    if any(isinstance(o, Node) and not is_steady(o) for o in others):
        return None
    return _Kept(body, tuple(others))


def _source(node: Node, numbers: Sequence[float]) -> _Number | Node:
    """The source of an input that is not a tensor of the call."""
    if isinstance(node.buffer, Number0d):
        for index, number in enumerate(numbers):
            if node.buffer.value is number:
                return _Number(index, node.dtype)
    return node


def is_steady(node: Node) -> bool:
    """True for a number that stands in the function itself."""
    return isinstance(node.buffer, Number0d) or node.op is CONSTANT
