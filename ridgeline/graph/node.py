"""The computation graph: immutable, hash-consed nodes.

A node is an op applied to nodes, with typed attributes; its output types are known at once, so
shape errors surface on the user's line. Nodes are pure. What is not part of their identity (where
they were made, the value once it is computed) hangs on them outside the hash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar
from weakref import ref

from ridgeline.dtypes import DType
from ridgeline.graph.sizes import Size, SizeExpr
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

# How the compiler treats an op; no pass need know it by name for that.
Family: TypeAlias = Literal[
    "leaf",  # a value that is given
    "pointwise",  # an element of the result for an element of each operand: computed in any loops
    "movement",  # elements at other places, or the operand itself: index arithmetic in any loops
    "gather",  # elements at places that are operands too: computed in any loops
    "reduce",  # folds axes: loops that pointwise work and other folds of the same axes may share
    "contract",  # a sum of products over affine index maps: loops that pointwise work may share
    "own_loops",  # loops by a rule of its own, `RULES` of loops/lowering/own_loops.py
    "library",  # no loops: its NumPy value runs between kernels, unless a pass replaces it
    "control",  # runs bodies, which are graphs
]


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of a value before it is computed."""

    shape: tuple[Size, ...]
    dtype: DType
    device: str = "cpu"

    def __repr__(self) -> str:
        suffix = "" if self.device == "cpu" else f" on {self.device}"
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]{suffix}"


@dataclass(frozen=True, eq=False)
class Attrs:
    """Base of the typed attributes of an op, compared by value; `NO_ATTRS` for ops without any."""

    __slots__ = ("hashed",)


A = TypeVar("A", bound=Attrs)


def hashed_once(kind: type[A]) -> type[A]:
    """Cache the hash of attributes that many nodes share: making a node asks for it three times."""
    compute = kind.__hash__

    def hashed(self: A) -> int:
        try:
            return self.hashed  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            value = compute(self)
            object.__setattr__(self, "hashed", value)
            return value

    kind.__hash__ = hashed  # type: ignore[assignment]
    return kind


Infer: TypeAlias = Callable[[Sequence[TensorType], Any], tuple[TensorType, ...]]
Value: TypeAlias = Callable[["Node", Sequence[Array]], tuple[Array, ...]]
Transpose: TypeAlias = Callable[["Node", Sequence["Node | None"]], Sequence["Node | None"]]
Batch: TypeAlias = Callable[
    ["Node", Sequence["Node"], Sequence[bool], "Batching"], Sequence["Node"]
]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One row of the op table: type rule, NumPy value, differentiation both ways, batching.

    `vjp(node, cotangents of its outputs)` gives the cotangents of its inputs, and
    `jvp(node, tangents of its inputs)` the tangents of its outputs; None stands for zero. A row
    without them is not differentiable, and `hint` may say what to do instead. `batch(node, inputs,
    which of them have a new leading axis, batching)` gives the outputs with that axis.

    What else is known of an op is in fields too, so that nobody keeps a list of names. `linear` has
    groups of operands in which it is linear (or flat) while the others stay: `((0,), (1,))` of a
    product, `((1, 2),)` of a choice. Its derivatives by a group then read no values but those of
    the others, so the backward pass lets none go. Movement ops are so in all operands.
    `reads(node)` says how often a kernel reads each element of each operand; without it, once. What
    is read more often is computed before the kernel where that is cheaper, and not at every read.

    A scalar operation of a kernel is an `OpExpr` (`loops/ir.py`).
    """

    name: str
    family: Family
    infer: Infer
    value: Value
    vjp: Transpose | None = None
    jvp: Transpose | None = None
    batch: Batch | None = None
    mixes_devices: bool = False  # its operands need not lie on one device
    hint: str = ""
    fixed: tuple[int, ...] = ()  # operands by which no derivative is known, though one exists
    linear: tuple[tuple[int, ...], ...] = ()
    linear_if: Callable[[Any], bool] | None = None  # attributes with which it is; None: with all
    by_parts: bool = False  # of complex numbers: real and imaginary parts alike, where it is linear
    reads: Callable[[Node], Sequence[int]] | None = None

    def __repr__(self) -> str:
        return self.name


if TYPE_CHECKING:

    def _unary(self: Node) -> Node: ...
    def _binary(self: Node, other: Node | complex | SizeExpr) -> Node: ...


class Node:
    """An op applied to inputs. Make one with `node(op, inputs, attrs)`."""

    __slots__ = (
        "__weakref__", "attrs", "buffer", "inputs", "kept", "op", "origins", "owner", "shown",
        "types", "watches",
    )  # fmt: skip
    op: Op
    inputs: tuple[Node, ...]
    attrs: Any
    types: tuple[TensorType, ...]
    buffer: Any  # the computed value, once there is one; not part of the node's identity
    origins: tuple[Any, ...]  # where it was made, see graph/origins.py
    owner: (
        Callable[[], Any] | None
    )  # a weak reference: the tensor that is the variable for which this node stands
    watches: list[Any]  # who wants to see its gradient; only where somebody does
    kept: dict[int, Any]  # values of outputs that were computed, by number; only of several outputs
    shown: bool  # only of what a tensor through which gradients flow reads as: see `Doubles`

    @property
    def type(self) -> TensorType:
        """The type of a node with one output."""
        return self.types[0]

    @property
    def shape(self) -> tuple[Size, ...]:
        """The shape of the first output."""
        return self.types[0].shape

    @property
    def dtype(self) -> DType:
        """The element type of the first output."""
        return self.types[0].dtype

    def __repr__(self) -> str:
        return f"<{self.op.name} {', '.join(map(repr, self.types))}>"

    # Operators make pointwise nodes of one shape and type; a number is repeated over the shape of
    # the other operand. `==` compares identities, so equality of elements is a method.
    # `ops/elementwise.py` and `ops/reduce.py`, which have the ops, define them.
    if TYPE_CHECKING:
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = (
            _binary
        )
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __rand__ = __ror__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = eq = ne = _binary
        __neg__ = __invert__ = __abs__ = _unary

        def full_like(self, value: complex | SizeExpr) -> Node: ...
        def cast(self, dtype: DType) -> Node: ...
        def select(self, yes: Node, no: Node) -> Node: ...
        def sum(self, axes: Sequence[int]) -> Node: ...

    def __bool__(self) -> NoReturn:
        raise TypeError("a node is neither true nor false: its value is not computed yet")


class Devices:
    """The rule that brings operands of several devices to one: `graph/placement.py` sets it."""

    together: Callable[[str, Sequence[Node]], Sequence[Node]]


devices = Devices()


class Doubles:
    """What is made where a node that was found is a tensor's: `ops/tracking.py` sets it.

    The gradient by a tensor must not count the uses of an equal expression of the package's own,
    such as the sigmoid inside of a SiLU.
    """

    apart: Callable[[Node, Sequence[Any]], Node]


class Inside(threading.local):
    """Whether the calling thread is inside a differentiable call of the package's own."""

    tracked = False


doubles, inside = Doubles(), Inside()
NO_ATTRS = Attrs()
# Nodes by the hash of what they are. The callback of each reference is C code that forgets the
# entry: one in Python would swallow an interrupt. It needs a key without a hash of Python's, and
# one that keeps neither operands nor attributes alive.
_table: dict[int, ref[Node]] = {}
_forget = _table.pop
MOST_CONSTANT = 64  # nodes that are looked at to find an expression of constants


def _known(key: int, op: Op, operands: tuple[Node, ...], attrs: Any) -> Node | None:
    """The existing node of these parts, if there is one.

    A constant expression whose value a graph keeps for its backward pass belongs to that graph:
    what others record must not depend on who holds a graph.
    """
    entry = _table.get(key)
    while entry is not None:
        found = entry()
        if (
            found is not None
            and found.op is op
            and found.inputs == operands
            and (found.attrs is attrs or found.attrs == attrs)
            and not (found.buffer is not None and is_constant_expression(found))
        ):
            return found
        key = _next_key(key)
        entry = _table.get(key)
    return None


def _double(found: Node) -> Node:
    """The node that was found, or a copy of it if it belongs to a tensor."""
    return doubles.apart(found, ()) if hasattr(found, "shown") else found


def _next_key(key: int) -> int:
    """The key to try next when another node has the same hash, as -1 and -2 do."""
    return hash((key,))


def node(op: Op, inputs: Iterable[Node] = (), attrs: Any = NO_ATTRS) -> Node:
    """The unique node that applies `op` to `inputs`; the type rule runs only if it is new."""
    operands = tuple(inputs)
    key = hash((op, operands, attrs))
    is_new = key not in _table  # as most are: no call is made to find that out
    if not is_new:
        found = _known(key, op, operands, attrs)
        if found is not None:
            return _double(found) if inside.tracked else found
    types: Sequence[TensorType]
    if len(operands) == 1:  # spelled out, since a comprehension is a call
        types = operands[0].types[:1]
    elif len(operands) == 2:
        types = operands[0].types[0], operands[1].types[0]
    else:
        types = [operand.types[0] for operand in operands]
    if len(types) > 1 and not op.mixes_devices:
        home = types[0].device
        for kind in types:
            if kind.device is not home and kind.device != home:
                return node(op, devices.together(op.name, operands), attrs)
    made = op.infer(types, attrs)
    if len(made) == 1 and operands and made[0] is types[-1]:
        made = operands[-1].types[:1]  # which is that tuple itself where there is one output
    fresh = Node()  # as `_new`
    fresh.op, fresh.inputs, fresh.attrs, fresh.types = op, operands, attrs, made
    fresh.buffer = fresh.owner = None
    fresh.origins = ()
    if is_new:
        _table[key] = ref(fresh, partial(_forget, key))
    else:
        _remember(key, fresh)
    return fresh


def _new(op: Op, inputs: tuple[Node, ...], attrs: Any, types: tuple[TensorType, ...]) -> Node:
    made = Node()
    made.op, made.inputs, made.attrs, made.types = op, inputs, attrs, types
    made.buffer = made.owner = None
    made.origins = ()
    return made


def _remember(key: int, made: Node) -> None:
    entry = _table.get(key)
    while entry is not None and entry() is not None:
        key = _next_key(key)
        entry = _table.get(key)
    _table[key] = ref(made, partial(_forget, key))


@dataclass(slots=True, eq=False)  # not frozen: every result of every program is made with one
class LeafAttrs:
    """An input of the graph: its type, in an object that equals no other."""

    type: TensorType


def _leaf_value(leaf: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    raise KeyError(f"a leaf of type {leaf.attrs.type} has no value in this evaluation")


LEAF = Op("leaf", "leaf", lambda types, attrs: (attrs.type,), _leaf_value)


def leaf(type: TensorType) -> Node:
    """A new input of a graph, equal to no other node."""
    # equal to no other, so it need not be looked up or remembered
    return _new(LEAF, (), LeafAttrs(type), (type,))


DEVICE: Callable[[Node], str] = attrgetter("type.device")  # of the first output


def has_value(node: Node) -> bool:
    """True if a node was computed already, or is given."""
    return node.buffer is not None


def is_constant_expression(node: Node) -> bool:
    """True for a small expression of constants alone."""
    stack, seen = [node], {node}
    while stack:
        each = stack.pop()
        if each.op is LEAF or len(seen) > MOST_CONSTANT:
            return False
        for operand in each.inputs:  # weights come last, and are looked at first
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return True


def shows_constant(node: Node) -> bool:
    """True for a constant, or a view of one."""
    while node.op.family == "movement" and len(node.inputs) == 1:
        node = node.inputs[0]
    return not node.inputs and node.op is not LEAF


def twin(node: Node, inputs: tuple[Node, ...] | None = None) -> Node:
    """A node of the same parts, or over other inputs, that is not interned."""
    made = _new(node.op, node.inputs if inputs is None else inputs, node.attrs, node.types)
    made.origins = node.origins
    return made


@dataclass(frozen=True, slots=True)
class ProjAttrs(Attrs):
    """Which output of a node with several outputs."""

    output: int


def _no_infer(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    raise TypeError("projections are made by proj()")


PROJ = Op("proj", "movement", _no_infer, lambda node, inputs: (inputs[node.attrs.output],))


def proj(source: Node, output: int) -> Node:
    """One output of a node; the node itself if it has only one."""
    if len(source.types) == 1:
        return source
    attrs = ProjAttrs(output)
    key = hash((PROJ, (source,), attrs))
    found = _known(key, PROJ, (source,), attrs)
    if found is None:
        found = _new(PROJ, (source,), attrs, (source.types[output],))
        found.buffer = getattr(source, "kept", _NOTHING_KEPT).get(output)
        _remember(key, found)
    elif inside.tracked:
        return _double(found)
    return found


_NOTHING_KEPT: dict[int, Any] = {}


def keep_output(output: Node) -> None:
    """Keep a computed output of a node alive as long as another, although nothing reads it yet.

    The backward pass may read it, such as the sums of exponentials of an attention.
    """
    source = output.inputs[0]
    if not hasattr(source, "kept"):
        source.kept = {}
    source.kept[output.attrs.output] = output.buffer


def over(current: Node, inputs: tuple[Node, ...]) -> Node:
    """The node's op and attributes over other inputs; if types are equal, no type rule runs."""
    if inputs == current.inputs:
        return current
    if current.op is PROJ:
        return proj(inputs[0], current.attrs.output)
    for given, known in zip(inputs, current.inputs):
        if given.types[0] is not known.types[0] and given.types[0] != known.types[0]:
            return node(current.op, inputs, current.attrs)
    key = hash((current.op, inputs, current.attrs))
    found = _known(key, current.op, inputs, current.attrs)
    if found is None:
        found = _new(current.op, inputs, current.attrs, current.types)
        _remember(key, found)
    return found


def topological(
    roots: Iterable[Node],
    stop: Callable[[Node], bool] = lambda n: False,
    follow: Callable[[Node, Node], bool] | None = None,
) -> list[Node]:
    """Every node below `roots` in topological order; `stop` cuts the walk below a node.

    With `follow`, only inputs count for which `follow(node, input)` holds.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[Node | None] = [*roots]
    stack.reverse()
    while stack:
        current = stack.pop()
        if current is None:  # the inputs of the node below this mark are done
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif current not in seen:
            seen.add(current)
            if not current.inputs or stop(current):
                order.append(current)
                continue
            stack.append(current)
            stack.append(None)
            for source in reversed(current.inputs):
                if source not in seen and (follow is None or follow(current, source)):
                    stack.append(source)
    return order


def outputs_of(node: Node) -> list[Node]:
    """The outputs of a node, as one node each."""
    return [proj(node, i) for i in range(len(node.types))]
