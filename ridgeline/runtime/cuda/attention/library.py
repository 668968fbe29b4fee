"""Attention on a GPU: what cuDNN computes, what kernels of our own do, and over which memory.

Our kernels read rows of a head that are dense and begin at multiples of 16 bytes, at any strides
for heads and batches, and masks at any strides at all; cuDNN reads what its engines take. An
operand that lies otherwise is written to memory in order first. A long attention that cuDNN has is
a call of it (`graph/passes/libraries/attention.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ridgeline.codegen.cuda.source import KernelSource
from ridgeline.config import config
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node
from ridgeline.graph.passes.libraries.attention import ATTENTION_CALL, CALLS
from ridgeline.graph.sizes import bounds
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, is_masked
from ridgeline.ops.strides import View, itself, strided
from ridgeline.runtime.cuda.attention import cudnn
from ridgeline.runtime.cuda.attention.backward import backward
from ridgeline.runtime.cuda.attention.cudnn import BACKWARD, FORWARD, TensorMemory
from ridgeline.runtime.cuda.attention.few_rows import few_rows, has_few_rows
from ridgeline.runtime.cuda.attention.forward import forward
from ridgeline.runtime.cuda.attention.masks import Mask
from ridgeline.runtime.cuda.attention.problem import Problem, Strides, is_generated
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan, GraphStep, Pointer
from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.launches import KernelLaunch, Starting, grids_of
from ridgeline.runtime.cuda.steps import LaunchStep

_MASK = 3  # the place of a mask among operands
_MOST = 1 << 31  # elements of a head: indices inside one have 32 bits
_LEAST_CALL = 512  # rows and columns from which cuDNN was measured to be faster
_TENSOR_CORES = 80  # the compute capability from which on kernels of our own are


class AttentionKernels:
    """Attention and its gradient as kernels written by hand."""

    ops = (ATTENTION, ATTENTION_GRADIENT)

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def matches(self, node: Node) -> bool:
        """True for what there are kernels for."""
        return self._capability >= _TENSOR_CORES and is_attention(node)

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Views at any strides whose rows are dense."""
        return operand_views(node, graph)

    def launch(self, group: FusionGroup) -> KernelLaunch | None:
        """The grids of one direction."""
        source = self.source(group)
        grids = grids_of(source)
        return KernelLaunch(source.workspace_bytes, grids) if grids else None

    def source(self, group: FusionGroup) -> KernelSource:
        """The text of one direction."""
        assert group.apart is not None
        found = problem_of(group)
        if group.apart.op is not ATTENTION:
            return backward(found)
        return few_rows(found) if has_few_rows(found) else forward(found)


@dataclass(frozen=True, slots=True)
class AttentionLaunch:
    """A call of cuDNN: the direction, the attention, and where each tensor of its graph lies."""

    workspace: int
    kind: str
    problem: Problem
    memory: tuple[TensorMemory, ...]
    one_order: bool  # whether sums have one order

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """The call."""
        plain = replace(self.problem, written=())
        plan = cudnn.plan(on.device, self.kind, plain, self.one_order)
        assert plan is not None, "the library has what it had when the program was compiled"
        memory = {
            at.number: Pointer(
                on.workspace if at.argument is None else slots[at.argument], at.offset
            )
            for at in self.memory
        }
        network = cudnn.network(self.kind, self.problem)
        values = {one.number: one.value for one in network.values}
        yield GraphStep(on.device, plan, memory, on.workspace, on.words, values)


class CudnnAttention:
    """Attention without a mask, and its gradient, as calls of cuDNN."""

    ops = CALLS

    def __init__(self, device: Device) -> None:
        self._device = device

    def plan(self, kind: str, problem: Problem) -> EnginePlan | None:
        """How cuDNN computes an attention; None where it does not."""
        self._device.activate()
        plain = replace(problem, written=())
        return cudnn.plan(self._device.number, kind, plain, config.deterministic)

    def matches(self, node: Node) -> bool:
        """True for a long attention that cuDNN has, over operands in order."""
        rows, columns = (bounds(operand.shape[-2])[0] for operand in node.inputs[:2])
        in_order = [*map(itself, node.inputs)]
        return min(rows, columns) >= _LEAST_CALL and self._has(node, in_order)

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """The operands where they lie, or in order where cuDNN does not read them there."""
        found = operand_views(node, graph)
        return found if self._has(node, found) else [*map(itself, node.inputs)]

    def launch(self, group: FusionGroup) -> AttentionLaunch:
        """The call, with the workspace of its best engine."""
        assert group.apart is not None
        kind, problem = _direction(group.apart), problem_of(group)
        plan = self.plan(kind, problem)
        assert plan is not None, "a graph holds only calls that the library has"
        memory, workspace = cudnn.memory(kind, problem, plan.workspace)
        return AttentionLaunch(workspace, kind, problem, tuple(memory), config.deterministic)

    def _has(self, node: Node, views: Sequence[View]) -> bool:
        return self.plan(_direction(node), over(node, views, frozenset())) is not None


def _direction(node: Node) -> str:
    return FORWARD if node.op is ATTENTION_CALL else BACKWARD


# ---- an attention over memory --------------------------------------------------------------------


def is_attention(node: Node) -> bool:
    """True for attention and its gradient, where there are kernels for them."""
    if node.op not in (ATTENTION, ATTENTION_GRADIENT):
        return False
    if not all(isinstance(size, int) for operand in node.inputs for size in operand.shape):
        return False
    q, k, v = map(_sizes, node.inputs[:3])
    short = max(q[-2], k[-2]) * q[-1] < _MOST
    generated = is_generated(node.inputs[0].dtype.name, q[-1])
    if is_masked(node) and _mask(itself(node.inputs[_MASK]), node) is None:
        return False
    return generated and q[-1] == v[-1] and short and node.attrs.scale > 0


def operand_views(node: Node, graph: Graph) -> list[View]:
    """The views through which the kernels read a node's operands."""
    found = []
    for index, operand in enumerate(node.inputs):
        view = strided(operand, graph.is_input)
        whole = itself(operand)
        in_order = view.offset == 0 and view.strides == whole.strides
        if is_masked(node) and index == _MASK:
            readable = _mask(view, node) is not None
        else:
            matrix = len(operand.shape) == len(node.inputs[0].shape)
            readable = matrix and _readable(view, operand)
        found.append(view if in_order or readable else whole)
    return found


def problem_of(group: FusionGroup) -> Problem:
    """What is computed over which memory, with the results that are wanted."""
    node = group.apart
    assert node is not None and group.views is not None
    present = {value.attrs.output for value in group.values if value.op is PROJ}
    return over(node, group.views, present)


def over(node: Node, views: Sequence[View], present: Set[int]) -> Problem:
    """An attention over operands that lie so; `present` are the numbers of results wanted."""
    batch, heads, rows, width = _four(_sizes(node.inputs[0]))
    _, shared, columns, _ = _four(_sizes(node.inputs[1]))
    mask = _mask(views[_MASK], node) if is_masked(node) else None
    read = [
        _strides(view, operand)
        for index, (view, operand) in enumerate(zip(views, node.inputs))
        if len(operand.shape) == len(node.inputs[0].shape) and (mask is None or index != _MASK)
    ]
    by_rows, by_columns = (
        _written(of, length, width, node.attrs.beside)
        for of, length in ((heads, rows), (shared, columns))
    )
    is_forward = node.op in (ATTENTION, ATTENTION_CALL)
    made = [by_rows] if is_forward else [by_rows, by_columns, by_columns]
    if node.attrs.joined:
        row = 3 * heads * width
        made = [Strides(rows * row, width, row, n * heads * width) for n in range(3)]
        present = {0, 1, 2}
    return Problem(
        node.inputs[0].dtype.name, batch, heads, shared, rows, columns, width,
        node.attrs.scale, node.attrs.causal, (*read, *made),
        tuple(index in present for index in range(2 if is_forward else 3)), node.attrs.joined, mask,
    )  # fmt: skip


def _sizes(node: Node) -> tuple[int, ...]:
    return tuple(size for size in node.shape if isinstance(size, int))


def _four(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Batches, heads, rows and width."""
    *lead, heads, rows, width = shape
    return prod(lead), heads, rows, width


def _readable(view: View, operand: Node) -> bool:
    """True for dense rows at aligned places, whose batches lie at multiples of one stride."""
    strides, sizes = view.strides, _sizes(operand)
    lead = [axis for axis in range(len(sizes) - 3) if sizes[axis] != 1]
    joined = all(strides[a] == strides[b] * sizes[b] for a, b in pairwise(lead))
    return strides[-1] == 1 and joined and _strides(view, operand).aligned


def _strides(view: View, operand: Node) -> Strides:
    lead = [s for s, size in zip(view.strides[:-3], _sizes(operand)) if size != 1]
    head, row = view.strides[-3:-1]
    return Strides(lead[-1] if lead else 0, head, row, view.offset)


def _mask(view: View, node: Node) -> Mask | None:
    """A mask as kernels read it; None where its batches do not lie at multiples of one stride."""
    scores = (*_sizes(node.inputs[0])[:-1], _sizes(node.inputs[1])[-2])
    shape = _sizes(node.inputs[_MASK])
    steps = [0 if size == 1 else step for size, step in zip(shape, view.strides)]
    lead = [axis for axis in range(len(scores) - 3) if scores[axis] != 1]
    if any(steps[a] != steps[b] * scores[b] for a, b in pairwise(lead)):
        return None
    batch = steps[lead[-1]] if lead else 0
    head, row, column = steps[-3:]
    return Mask(node.inputs[_MASK].dtype.name, batch, head, row, column, view.offset)


def _written(heads: int, rows: int, width: int, beside: bool) -> Strides:
    """Where the kernels write a result."""
    if beside:
        return Strides(rows * heads * width, width, heads * width)
    return Strides.dense(heads, rows, width)
