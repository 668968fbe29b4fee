"""Collectives as ops, with derivatives and batching.

A group is named by a key that is the same on all ranks, and looked up when the op runs
(`communicators/current.py`), so ranks share compiled programs. `all_gather`, `reduce_scatter` and
`all_to_all` go along the first axis; the builders bring another one there. Derivatives are those
of the sum of what all ranks compute: what one rank gives to all comes back from all, added up.

A collective happens once for each time that it is recorded, so each is a node of its own: ranks
that are threads of one process must not share one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.communicators.agreements import Agreement
from ridgeline.communicators.calls import Call, even_counts
from ridgeline.communicators.current import current_rank
from ridgeline.communicators.interface import Communicator, Work
from ridgeline.errors import GradientError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, twin
from ridgeline.graph.origins import describe
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import cast
from ridgeline.ops.movement import broadcast, permute
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group of ranks as a program names it: not which ranks, but which of their groups."""

    key: str
    axis: str
    size: int

    @classmethod
    def of(cls, group: Communicator) -> GroupName:
        """The name of a group, which programs of this rank find under it from now on."""
        current_rank().add(group)
        return cls(group.key, group.axis, group.size)


@dataclass(frozen=True, slots=True)
class GroupCallAttrs(Attrs):
    """Over which group, and how; `Call` says what these mean.

    Without `counts` all ranks have as many rows. `rows` is how many this rank gets. `result` is
    the type of a message that is to come.
    """

    group: GroupName
    reduction: str = ""
    counts: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    rows: int = -1
    root: int = -1
    tag: int = 0
    result: TensorType | None = None
    inserted: bool = False  # by the propagation of placements alone: nobody asked for it
    bucketed: bool = False  # small sums that are ready about the same time may go as one
    number: int = 0  # among the collectives that are recorded with it, in the order of the calls


class _Recorded(threading.local):
    """How many collectives this thread has recorded that are computed together."""

    count = 0


recorded = _Recorded()


# ---- builders ------------------------------------------------------------------------------------


def _made(op: Op, attrs: GroupCallAttrs, *operands: Node) -> Node:
    recorded.count += 1
    return twin(node(op, operands, replace(attrs, number=recorded.count)))


def _along(a: Node, dim: int, build: Callable[[Node], Node]) -> Node:
    """What goes along the first axis, along another one."""
    rank = len(a.shape)
    if not 0 <= dim < max(rank, 1):
        raise ShapeError(f"a collective along axis {dim} of a tensor with {rank} axes")
    if dim == 0:
        return build(a)
    order = (dim, *[axis for axis in range(rank) if axis != dim])
    back = tuple(order.index(axis) for axis in range(rank))
    return permute(build(permute(a, order)), back)


def all_reduce(a: Node, group: GroupName, reduction: str = "sum", bucketed: bool = False) -> Node:
    """The values of all ranks, joined."""
    return _made(ALL_REDUCE, GroupCallAttrs(group, reduction, bucketed=bucketed), a)


def all_gather(a: Node, group: GroupName, dim: int = 0, counts: tuple[int, ...] = ()) -> Node:
    """The parts of all ranks, one after the other along an axis."""
    attrs = GroupCallAttrs(group, counts=counts)
    return _along(a, dim, lambda rows: _made(ALL_GATHER, attrs, rows))


def reduce_scatter(
    a: Node,
    group: GroupName,
    reduction: str = "sum",
    dim: int = 0,
    counts: tuple[int, ...] = (),
    rank: int = -1,
) -> Node:
    """This rank's part along an axis of the joined values; with `counts`, `rank` is this one."""
    rows = counts[rank] if counts else -1
    attrs = GroupCallAttrs(group, reduction, counts, rows=rows)
    return _along(a, dim, lambda whole: _made(REDUCE_SCATTER, attrs, whole))


def all_to_all(
    a: Node,
    group: GroupName,
    dim: int = 0,
    counts: tuple[int, ...] = (),
    receives: tuple[int, ...] = (),
) -> Node:
    """A part along an axis to each rank, and one from each, one after the other."""
    attrs = GroupCallAttrs(group, counts=counts, receives=receives)
    return _along(a, dim, lambda rows: _made(ALL_TO_ALL, attrs, rows))


def all_to_all_rows(sends: Node, receives: Node, a: Node, group: GroupName, rows: int = -1) -> Node:
    """Rows to each rank and from each, as many as two vectors say when it runs.

    The result has `rows` of them, or as many as the operand: zeros behind those that came.
    """
    attrs = GroupCallAttrs(group, rows=rows)
    return _made(ALL_TO_ALL_ROWS, attrs, sends, receives, a)


def broadcast_from(a: Node, group: GroupName, root: int) -> Node:
    """The values of one rank."""
    return _made(BROADCAST_FROM, GroupCallAttrs(group, root=root), a)


def shift(a: Node, group: GroupName, by: int = 1) -> Node:
    """The values of the rank `by` places before this one, around the ring of the group."""
    return _made(SHIFT, GroupCallAttrs(group, root=by % group.size), a)


def send(a: Node, group: GroupName, to: int, tag: int = 0) -> Node:
    """Give a value to a rank, which receives it; a token of no elements, to be waited for."""
    return _made(SEND, GroupCallAttrs(group, root=to, tag=tag), a)


def receive(token: Node, group: GroupName, source: int, result: TensorType, tag: int = 0) -> Node:
    """The value that a rank sends; `token`, of no elements, says what comes before it."""
    return _made(RECEIVE, GroupCallAttrs(group, root=source, tag=tag, result=result), token)


# ---- types ---------------------------------------------------------------------------------------


def _same(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
    return (types[0],)


def _token(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
    return (TensorType((0,), types[0].dtype, types[0].device),)


def _received(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
    assert attrs.result is not None
    return (attrs.result,)


def _with_rows(
    rows: Callable[[Size, GroupCallAttrs], Size],
) -> Callable[[Sequence[TensorType], GroupCallAttrs], tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
        (kind,) = types
        if not kind.shape:
            raise ShapeError("a collective along an axis needs one, and a number has none")
        return (TensorType((rows(kind.shape[0], attrs), *kind.shape[1:]), kind.dtype, kind.device),)

    return infer


def _gathered_rows(rows: Size, attrs: GroupCallAttrs) -> Size:
    return sum(attrs.counts) if attrs.counts else rows * attrs.group.size


def _scattered_rows(rows: Size, attrs: GroupCallAttrs) -> Size:
    if attrs.counts:
        return attrs.rows
    if rows % attrs.group.size != 0:
        raise ShapeError(
            f"{rows} rows cannot be shared out evenly over {attrs.group.size} ranks along "
            f"{attrs.group.axis}",
            help="give counts, the rows of each rank",
        )
    return rows // attrs.group.size


def _infer_rows(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
    *_, kind = types
    rows = kind.shape[0] if attrs.rows < 0 else attrs.rows
    return (TensorType((rows, *kind.shape[1:]), kind.dtype, kind.device),)


def _exchanged_rows(rows: Size, attrs: GroupCallAttrs) -> Size:
    if attrs.receives:
        return sum(attrs.receives)
    return _scattered_rows(rows, replace(attrs, counts=())) * attrs.group.size


# ---- values --------------------------------------------------------------------------------------


def call_of(op: Op, attrs: GroupCallAttrs, kind: TensorType) -> Call:
    """What a collective asks of its group, given the type of its operand.

    How many rows an exchange of counted rows has is known when it runs.
    """
    shape = tuple(map(int, kind.shape))
    counts, receives, size = attrs.counts, attrs.receives, attrs.group.size
    if op is ALL_GATHER:
        counts = counts or (shape[0],) * size
    elif op in (REDUCE_SCATTER, ALL_TO_ALL):
        counts = counts or even_counts(shape[0], size)
        receives = (receives or counts) if op is ALL_TO_ALL else ()
    root = -1 if op is REDUCE_TO else attrs.root
    name = kind.dtype.numpy.name
    return Call(_KINDS[op.name], shape, name, attrs.reduction, counts, receives, root)


def asked_of_group(op: Op, attrs: GroupCallAttrs, kind: TensorType) -> Call | None:
    """What all ranks of the group have to ask alike; messages are between two of them."""
    if op in (SHIFT, *MESSAGES):
        return None
    if op is ALL_TO_ALL_ROWS:
        rows = tuple(map(int, kind.shape))
        return Call("all_to_all", rows, kind.dtype.numpy.name)
    return call_of(op, attrs, kind)


def started(
    current: Node,
    op: Op,
    array: Array,
    lengths: Sequence[Array] = (),
    out: Array | None = None,
    agreement: Agreement | None = None,
) -> Work:
    """Begin a collective over its group of the calling rank; `current` is the node that does.

    `lengths` are the rows that go to each rank and come from each, where operands say so; `out` is
    where the result is wanted, and `agreement` is for calls of a program.
    """
    attrs: GroupCallAttrs = current.attrs
    group = current_rank().group(attrs.group.key)
    dense = np.ascontiguousarray(array).reshape(array.shape)
    line = describe(current)
    if op is SHIFT:
        return _shift(group, attrs.root, dense, line, out)
    if op is ALL_TO_ALL_ROWS:
        rows = len(array) if attrs.rows < 0 else attrs.rows
        return _exchanged_rows_of(group, dense, lengths, rows, line, agreement)
    if op in (SEND, RECEIVE):
        return _message(group, op, attrs, dense, line, out)
    kind = TensorType(dense.shape, current.inputs[-1].dtype)
    return _call(group, call_of(op, attrs, kind), dense, out, line, agreement)


def _call(
    group: Communicator, call: Call, array: Array, out: Array | None, line: str,
    agreement: Agreement | None,
) -> Work:  # fmt: skip
    if agreement is None:
        return group.start(call, array, out, line)
    return group.start_posted(call, array, out, line, agreement)


def _shift(group: Communicator, by: int, array: Array, line: str, out: Array | None) -> Work:
    target, source = (group.rank + by) % group.size, (group.rank - by) % group.size
    name, out = array.dtype.name, np.empty_like(array) if out is None else out
    sent = group.start(Call("send", array.shape, name, root=target), array, line=line)
    came = group.start(Call("recv", out.shape, name, root=source), out, out, line)
    return _Afterwards(came, lambda found: (sent.wait(), found)[1], sent)


class _Afterwards(Work):
    """Work under way with something to do when it is done."""

    def __init__(
        self, work: Work, finish: Callable[[Array], Array], beside: Work | None = None
    ) -> None:
        self._work, self._finish, self._beside = work, finish, beside

    def done(self) -> bool:
        """True when waiting takes no time."""
        return self._work.done() and (self._beside is None or self._beside.done())

    def expected(self) -> None:
        """Somebody waits for it."""
        self._work.expected()

    def over_at(self) -> float | None:
        """When the call itself was."""
        return self._work.over_at()

    def wait(self) -> Array:
        """The result."""
        return self._finish(self._work.wait())


def _exchanged_rows_of(
    group: Communicator, array: Array, lengths: Sequence[Array], rows: int, line: str,
    agreement: Agreement | None,
) -> Work:  # fmt: skip
    """As many rows to each rank and from each as are counted now; zeros behind those that came."""
    sends, receives = (tuple(each.tolist()) for each in lengths)
    given = array[: sum(sends)]
    call = Call("all_to_all", given.shape, given.dtype.name, counts=sends, receives=receives)

    def padded(found: Array) -> Array:
        whole = np.zeros((rows, *found.shape[1:]), found.dtype)
        whole[: len(found)] = found
        return whole

    return _Afterwards(_call(group, call, given, None, line, agreement), padded)


def _message(
    group: Communicator, op: Op, attrs: GroupCallAttrs, array: Array, line: str, out: Array | None
) -> Work:
    if op is RECEIVE:
        assert attrs.result is not None
        shape = tuple(map(int, attrs.result.shape))
        array = np.empty(shape, attrs.result.dtype.numpy) if out is None else out
    kind = "send" if op is SEND else "recv"
    call = Call(kind, array.shape, array.dtype.name, root=attrs.root, tag=attrs.tag)
    return group.start(call, array, array if op is RECEIVE else None, line)


def _sent(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    started(current, current.op, inputs[0]).wait()
    return (np.empty(0, inputs[0].dtype),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (started(current, current.op, inputs[0]).wait(),)


def _rows_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    sends, receives, rows = inputs
    return (started(current, current.op, rows, (sends, receives)).wait(),)


def _returned(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    total = started(current, current.op, inputs[0]).wait()
    is_root = current_rank().group(current.attrs.group.key).rank == current.attrs.root
    return (total if is_root else np.zeros_like(total),)


# ---- derivatives ---------------------------------------------------------------------------------

_Parts = Sequence[Node | None]
_LINEAR = ("sum", "mean")


def _linear(again: Callable[[Node, Node], Node]) -> Callable[[Node, _Parts], list[Node | None]]:
    def rule(current: Node, parts: _Parts) -> list[Node | None]:
        return [None if parts[0] is None else again(current, parts[0])]

    return rule


def _reduced_vjp(current: Node, cotangent: Node) -> Node:
    attrs = current.attrs
    joined = all_reduce(cotangent, attrs.group, _linear_reduction(attrs))
    return joined if attrs.reduction in _LINEAR else joined * _share(current)


def _reduced_jvp(current: Node, tangent: Node) -> Node:
    attrs = current.attrs
    if attrs.reduction in _LINEAR:
        return all_reduce(tangent, attrs.group, attrs.reduction)
    return all_reduce(tangent * _share(current), attrs.group)


def _linear_reduction(attrs: GroupCallAttrs) -> str:
    if attrs.reduction == "product":
        raise GradientError(
            "all_reduce has no derivative for products of ranks",
            help="all_gather the values and multiply them",
        )
    return attrs.reduction if attrs.reduction in _LINEAR else "sum"


def _share(current: Node) -> Node:
    """Of the largest (or smallest) value of the ranks, how much is this rank's: ties share it."""
    (a,) = current.inputs
    is_it = cast(a.eq(current), a.dtype)
    return is_it / all_reduce(is_it, current.attrs.group)


def _gathered_vjp(current: Node, cotangent: Node) -> Node:
    attrs = current.attrs
    made = GroupCallAttrs(attrs.group, "sum", attrs.counts, rows=_own_rows(current))
    return _made(REDUCE_SCATTER, made, cotangent)


def _own_rows(current: Node) -> int:
    rows = current.inputs[0].shape[0]
    return rows if current.attrs.counts and isinstance(rows, int) else -1


def _scattered_vjp(current: Node, cotangent: Node) -> Node:
    attrs = current.attrs
    if attrs.reduction not in _LINEAR:
        raise GradientError(f"reduce_scatter has no derivative for {attrs.reduction} of ranks")
    gathered = _made(ALL_GATHER, GroupCallAttrs(attrs.group, counts=attrs.counts), cotangent)
    return gathered / attrs.group.size if attrs.reduction == "mean" else gathered


def _exchanged_vjp(current: Node, cotangent: Node) -> Node:
    attrs = current.attrs
    made = GroupCallAttrs(attrs.group, counts=attrs.receives, receives=attrs.counts)
    return _made(ALL_TO_ALL, made, cotangent)


def _rows_vjp(current: Node, cotangents: _Parts) -> list[Node | None]:
    ct, (sends, receives, a) = cotangents[0], current.inputs
    if ct is None:
        return [None] * 3
    rows = a.shape[0]
    assert isinstance(rows, int)
    return [None, None, all_to_all_rows(receives, sends, ct, current.attrs.group, rows)]


def _rows_jvp(current: Node, tangents: _Parts) -> list[Node | None]:
    sends, receives, _ = current.inputs
    t, attrs = tangents[2], current.attrs
    return [None if t is None else all_to_all_rows(sends, receives, t, attrs.group, attrs.rows)]


def _copied_vjp(current: Node, cotangent: Node) -> Node:
    """What all ranks have of a value comes back to the rank that gave it."""
    attrs = current.attrs
    return _made(REDUCE_TO, GroupCallAttrs(attrs.group, "sum", root=attrs.root), cotangent)


def _returned_vjp(current: Node, cotangent: Node) -> Node:
    return broadcast_from(cotangent, current.attrs.group, current.attrs.root)


def _shifted_vjp(current: Node, cotangent: Node) -> Node:
    return shift(cotangent, current.attrs.group, -current.attrs.root)


def _sent_vjp(current: Node, cotangent: Node) -> Node:
    """The gradient of what was given comes from the rank that got it."""
    attrs, kind = current.attrs, current.inputs[0].type
    return receive(cotangent, attrs.group, attrs.root, kind, attrs.tag)


def _received_vjp(current: Node, cotangent: Node) -> Node:
    return send(cotangent, current.attrs.group, current.attrs.root, current.attrs.tag)


def _again(current: Node, tangent: Node) -> Node:
    return _made(current.op, current.attrs, tangent)


# ---- batching ------------------------------------------------------------------------------------


def _leading(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    return [_made(current.op, current.attrs, inputs[0])]


def _sent_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """One message has the whole batch; so has its token."""
    token = _made(SEND, current.attrs, inputs[0])
    return [broadcast(token, (inputs[0].shape[0], 0), (1,))]


def _received_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    kind = current.attrs.result
    whole = TensorType((inputs[0].shape[0], *kind.shape), kind.dtype, kind.device)
    return [_made(RECEIVE, replace(current.attrs, result=whole), inputs[0])]


def _rows_first(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """The axis of the batch goes behind the rows, and comes back."""
    order = (1, 0, *range(2, len(inputs[0].shape)))
    return [permute(_made(current.op, current.attrs, permute(inputs[0], order)), order)]


def _each_rows(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """Rows with the batch behind them; lengths are those of every element."""
    sends, receives, a = inputs
    if batched[0] or batched[1]:
        raise ShapeError("vmap over the lengths of an all-to-all is not possible")
    order = (1, 0, *range(2, len(a.shape)))
    attrs = current.attrs
    return [
        permute(all_to_all_rows(sends, receives, permute(a, order), attrs.group, attrs.rows), order)
    ]


# ---- the rows ------------------------------------------------------------------------------------


def _is_linear(attrs: GroupCallAttrs) -> bool:
    return attrs.reduction in _LINEAR


ALL_REDUCE = Op(
    "all_reduce", "library", _same, _value, _linear(_reduced_vjp), _linear(_reduced_jvp), _leading,
    linear=((0,),), linear_if=_is_linear,
)  # fmt: skip
ALL_GATHER = Op(
    "all_gather", "library", _with_rows(_gathered_rows), _value, _linear(_gathered_vjp),
    _linear(_again), _rows_first, linear=((0,),),
)  # fmt: skip
REDUCE_SCATTER = Op(
    "reduce_scatter", "library", _with_rows(_scattered_rows), _value, _linear(_scattered_vjp),
    _linear(_again), _rows_first, linear=((0,),), linear_if=_is_linear,
)  # fmt: skip
ALL_TO_ALL = Op(
    "all_to_all", "library", _with_rows(_exchanged_rows), _value, _linear(_exchanged_vjp),
    _linear(_again), _rows_first, linear=((0,),),
)  # fmt: skip
BROADCAST_FROM = Op(
    "broadcast_from", "library", _same, _value, _linear(_copied_vjp), _linear(_again), _leading,
    linear=((0,),),
)  # fmt: skip
REDUCE_TO = Op(
    "reduce_to", "library", _same, _returned, _linear(_returned_vjp), _linear(_again), _leading,
    linear=((0,),),
)  # fmt: skip
SHIFT = Op(
    "shift", "library", _same, _value, _linear(_shifted_vjp), _linear(_again), _leading,
    linear=((0,),),
)  # fmt: skip
SEND = Op(
    "send", "library", _token, _sent, _linear(_sent_vjp), _linear(_again), _sent_batch,
    linear=((0,),),
)  # fmt: skip
RECEIVE = Op(
    "receive", "library", _received, _value, _linear(_received_vjp), _linear(_again),
    _received_batch, linear=((0,),),
)  # fmt: skip
ALL_TO_ALL_ROWS = Op(
    "all_to_all_rows", "library", _infer_rows, _rows_value, _rows_vjp, _rows_jvp, _each_rows,
    linear=((2,),),
)  # fmt: skip
OPERANDS = {"all_to_all_rows": 3}  # of ops with more than one; what is sent comes last
MESSAGES = (SEND, RECEIVE)
COLLECTIVES = frozenset(
    [
        *(ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST_FROM, REDUCE_TO, SHIFT),
        *(ALL_TO_ALL_ROWS, *MESSAGES),
    ]
)
# what an op asks of its group; messages, of which `shift` is two, ask one rank of it
_KINDS = {op.name: op.name for op in COLLECTIVES} | {
    "broadcast_from": "broadcast",
    "reduce_to": "all_reduce",
}


def holds_collectives(order: Iterable[Node]) -> bool:
    """True where one of these nodes needs other ranks."""
    return any(node.op in COLLECTIVES for node in order)
