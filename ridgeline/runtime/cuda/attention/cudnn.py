"""Attention and its gradient as graphs of cuDNN, written as its engines recognise them.

    forward     out = softmax(q kᵀ * scale) v, lse = max + log(sum of exponentials)
    backward    weights = exp(q kᵀ * scale - lse), and from them the three gradients

The gradient by queries is a sum over blocks of keys, which are added in any order into `sums`: its
last bits differ from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod

from ridgeline.runtime.cuda.attention.problem import Problem, Strides
from ridgeline.runtime.cuda.cudnn_graph import Network, Sizes, TensorDesc, dense, operations
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan, Note, best_plan, graph_of

SINCE = 91600  # earlier versions compute the gradient wrongly where keys are no whole tiles
FORWARD, BACKWARD = "forward", "backward"
_OPERANDS = {FORWARD: ("q", "k", "v"), BACKWARD: ("q", "k", "v", "lse", "out", "ct")}
_RESULTS = {FORWARD: ("out", "lse"), BACKWARD: ("dq", "dk", "dv")}
_LAID = {
    FORWARD: ("q", "k", "v", "out"),
    BACKWARD: ("q", "k", "v", "out", "ct", "dq", "dk", "dv"),
}  # the order of an attention's strides
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """Where a tensor lies: behind an operand or result of the call, or, without one, behind the
    workspace."""

    number: int
    argument: int | None
    offset: int


@lru_cache(maxsize=256)
def plan(device: int, kind: str, attention: Problem, one_order: bool = False) -> EnginePlan | None:
    """How the library computes an attention, with sums in one order if asked to; None: not at all.

    It takes no operand whose elements are seen more than once or from behind.
    """
    net = network(kind, attention)
    if any(min(tensor.strides) <= 0 for tensor in net.memory.values()):
        return None
    refused = {Note.NONDETERMINISTIC} if one_order else set()
    return best_plan(device, graph_of(device, operations(net)), refused)


def network(kind: str, attention: Problem) -> Network:
    """The graph of either direction."""
    return forward(attention) if kind == FORWARD else backward(attention)


def arguments(kind: str, attention: Problem) -> Mapping[str, tuple[int, int]]:
    """By role, the place of an operand or result in the call, and the bytes before it there."""
    roles = (*_OPERANDS[kind], *_RESULTS[kind])
    index_of = {role: index for index, role in enumerate(roles)}
    if attention.joined:
        index_of = {role: min(index, len(_OPERANDS[kind])) for role, index in index_of.items()}
    wanted = dict(zip(_RESULTS[kind], attention.written))
    strides = dict(zip(_LAID[kind], attention.strides))
    size = _BYTES[attention.dtype]
    return {
        role: (index, strides[role].offset * size if role in strides else 0)
        for role, index in index_of.items()
        if wanted.get(role, True)
    }


def memory(kind: str, attention: Problem, begin: int) -> tuple[list[TensorMemory], int]:
    """Where every tensor of a call lies, and the bytes of the workspace they need.

    Those that only the call uses, and results that nobody reads, lie in it from `begin` on.
    """
    given = arguments(kind, attention)
    found = []
    end = begin
    for role, tensor in network(kind, attention).memory.items():
        if role in given:
            found.append(TensorMemory(tensor.number, *given[role]))
            continue
        end = -(-end // _ALIGNMENT) * _ALIGNMENT
        found.append(TensorMemory(tensor.number, None, end))
        end += prod(tensor.sizes) * _BYTES[tensor.dtype]
    return found, end


def forward(attention: Problem) -> Network:
    """Roles: q, k, v, out, lse."""
    net, problem = Network(), _Problem(attention)
    q, k, v, out = problem.operands(net, "q", "k'", "v", "out")
    lse = net.held("lse", "float32", problem.rows)
    scores = problem.scores(net, q, k)
    if attention.causal:
        scores = _causal(net, scores)
    top = net.apply("max", scores, sizes=problem.rows)
    weights = net.apply("exp", net.apply("sub", scores, top))
    total = net.apply("sum", weights, sizes=problem.rows)
    net.apply("add", top, net.apply("log", total), into=lse)
    weights = net.apply("div", weights, total, dtype=attention.dtype)
    net.apply("matmul", weights, v, into=out)
    return net


def backward(attention: Problem) -> Network:
    """Roles: q, k, v, out, ct, lse, dq, dk, dv, and two that only this call uses: delta, sums."""
    net, problem = Network(), _Problem(attention)
    q, k, v, out, ct = problem.operands(net, "q", "k'", "v'", "out", "ct")
    lse = net.held("lse", "float32", problem.rows)
    dq, dk, dv = problem.operands(net, "dq", "dk", "dv")
    delta = net.held("delta", "float32", problem.rows)
    sums = net.held("sums", "float32", dq.sizes)
    along = net.apply("sum", net.apply("mul", ct, out), sizes=problem.rows)
    # the factor of a dropout: without one the library takes `delta` for something else
    net.apply("mul", along, net.number(1.0), into=delta)
    scale = net.number(attention.scale)
    scores = net.apply("sub", problem.scores(net, q, k, scale), lse)
    if attention.causal:
        scores = _causal(net, scores)
    weights = net.apply("exp", scores)
    problem.by_columns(net, weights, ct, dv)
    change = net.apply("matmul", ct, v, sizes=problem.pairs)
    change = net.apply("mul", net.apply("sub", change, delta), weights)
    change = net.apply("mul", change, scale)
    problem.by_columns(net, change, q, dk)
    keys = problem.transposed(net, k, attention.dtype)
    net.apply("matmul", change, keys, into=sums)
    net.apply("identity", sums, into=dq)
    return net


class _Problem:
    """Sizes and strides of an attention, as the library has them."""

    def __init__(self, attention: Problem) -> None:
        self._attention = attention
        of = attention
        self.rows: Sizes = (of.batch, of.heads, of.rows, 1)
        self.pairs: Sizes = (of.batch, of.heads, of.rows, of.columns)
        self._strides = iter(of.strides)

    def operands(self, net: Network, *roles: str) -> list[TensorDesc]:
        """The next operands in memory; those marked with ' are shown as transposed matrices."""
        return [self._operand(net, role, next(self._strides)) for role in roles]

    def _operand(self, net: Network, role: str, at: Strides) -> TensorDesc:
        of, turned = self._attention, role.endswith("'")
        name = role.rstrip("'")
        heads, length = (of.shared_heads, of.columns) if name[-1] in "kv" else (of.heads, of.rows)
        sizes: Sizes = (of.batch, heads, length, of.width)
        in_order = dense(sizes)
        given: Sizes = (at.batch, at.head, at.row, 1)
        strides = tuple(o if n == 1 else g for n, o, g in zip(sizes, in_order, given))
        if turned:
            sizes, strides = _turned(sizes), _turned(strides)
        return net.held(name, of.dtype, sizes, strides)

    def scores(
        self, net: Network, q: TensorDesc, k: TensorDesc, scale: TensorDesc | None = None
    ) -> TensorDesc:
        """Products of queries and keys, times the scale."""
        products = net.apply("matmul", q, k, sizes=self.pairs)
        return net.apply("mul", products, scale or net.number(self._attention.scale))

    def transposed(self, net: Network, matrices: TensorDesc, dtype: str) -> TensorDesc:
        """The same elements, seen as transposed matrices."""
        sizes, strides = _turned(matrices.sizes), _turned(matrices.strides)
        return net.apply("reshape", matrices, dtype=dtype, sizes=sizes, strides=strides)

    def by_columns(
        self, net: Network, pairs: TensorDesc, rows: TensorDesc, into: TensorDesc
    ) -> None:
        """A sum over the rows for each column; heads that share keys are added up."""
        of = self._attention
        turned = self.transposed(net, pairs, of.dtype)
        if of.group == 1:
            net.apply("matmul", turned, rows, into=into)
            return
        sizes = (of.batch, of.heads, of.columns, of.width)
        each = net.apply("matmul", turned, rows, dtype=of.dtype, sizes=sizes)
        net.apply("sum", each, into=into)


def _causal(net: Network, scores: TensorDesc) -> TensorDesc:
    """Scores with minus infinity where a column lies behind its row."""
    row, column = (net.apply("index", scores, dtype="int32", axis=axis) for axis in (2, 3))
    seen = net.apply("greater_equal", row, column, dtype="bool")
    return net.apply("select", scores, net.number(-inf), seen)


def _turned(along: Sizes) -> Sizes:
    return (*along[:2], along[3], along[2])
