"""Any module as a shape: traced on an example input, cut into its blocks, counted block by block.

Blocks are those of `distributed.stages`: the longest list of layers. What comes before them belongs
to the first part of a pipeline, what comes after to the last. Nothing is computed and no weight is
made: leaves stand for inputs, as in `tracing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ridgeline import nn
from ridgeline.distributed.stages import blocks_of
from ridgeline.errors import BadValueError
from ridgeline.graph.graph import elements
from ridgeline.graph.node import Node, TensorType, topological
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.planner.graph_counts import GraphCounts, counted
from ridgeline.planner.shapes import ModelShape
from ridgeline.record.cells import PLAIN
from ridgeline.record.values import read
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.bodies import BodyFrame, traced

# A GPU computes some hundreds of FLOPs while it moves one element: for cutting stages of one cost.
_FLOPS_A_MOVE = 600


class _Frame(BodyFrame):
    """A traced model may write to its own state, such as the means of batches: nobody reads it."""

    def finish(self) -> None:
        """Refuse nothing."""


@dataclass(frozen=True)
class TracedBlock:
    """One block of a model, for all samples of the example."""

    counts: GraphCounts
    saved: int
    """Bytes that its backward pass reads."""
    sent: int
    """Elements that go on to the block behind it."""
    parameters: int

    @property
    def products(self) -> int:
        """FLOPs of products forwards."""
        return sum(
            2 * one.batch * one.rows * one.columns * one.terms * times
            for one, times in self.counts.products.items()
        )

    def attention(self, causal: bool) -> int:
        """FLOPs of attention forwards; with `causal`, of the scores that count."""
        return sum(
            4 * one.heads * one.rows * one.keys * one.width * times
            // (2 if causal and one.causal else 1)
            for one, times in self.counts.attention.items()
        )  # fmt: skip

    @property
    def weight(self) -> int:
        """What its time is about in proportion to."""
        return self.products + self.attention(True) + _FLOPS_A_MOVE * self.counts.moved


@dataclass(frozen=True, eq=False)
class TracedShape(ModelShape):
    """A module as blocks. `samples` are those of the example that it was traced with."""

    blocks: tuple[TracedBlock, ...] = ()
    before: TracedBlock = field(default_factory=lambda: TracedBlock(GraphCounts(), 0, 0, 0))
    after: TracedBlock = field(default_factory=lambda: TracedBlock(GraphCounts(), 0, 0, 0))
    samples: int = 1
    listed: bool = True
    """Whether it has a list of blocks, which stages and recomputation need."""

    unit: ClassVar[str] = "samples"

    @property
    def everything(self) -> tuple[TracedBlock, ...]:
        """All blocks with what is around them."""
        return self.before, *self.blocks, self.after

    @cached_property
    def layer_parameters(self) -> int:
        """Of the largest block."""
        return max(block.parameters for block in self.blocks)

    def parameters(self) -> int:
        """Of the whole model."""
        return sum(block.parameters for block in self.everything)

    def active_parameters(self) -> int:
        """All of them."""
        return self.parameters()

    def flops_per_token(self, length: int, causal: bool, frozen: bool = False) -> float:
        """Of a training step for one sample; backwards computes every product twice."""
        flops = sum(block.products + block.attention(causal) for block in self.everything)
        return 3 * flops / self.samples


def traced_shape(model: nn.Module, example: Sequence[Any], name: str) -> TracedShape:
    """A module as it computes what an example gives; the example's first axis is the samples."""
    kinds = [_kind(value, name) for value in example]
    samples = kinds[0].shape[0] if kinds and kinds[0].shape else 0
    if not samples:
        raise BadValueError(
            f"the example for {name} has no axis of samples",
            help="give inputs whose first axis is the batch, such as rl.zeros(8, 3, 224, 224)",
        )
    path, listed = _list_of_blocks(model)
    frame = _Frame("a plan", 1)
    leaves = [frame.element(kind) for kind in kinds]
    with frame.inside():
        given = [wrap(node, PLAIN) for node in leaves]
    ends: list[list[Node]] = []
    ran: list[int] = []
    handles = [_noted(block, number, ran, ends) for number, block in enumerate(listed)]

    def total(*args: Tensor) -> Tensor:
        found: list[Any] = []
        flatten(model.train()(*args), found)
        floats = [v for v in found if isinstance(v, Tensor) and v.dtype.is_differentiable]
        if not floats:
            raise BadValueError(f"{name} gives no tensor of floats that a loss could be made of")
        sums = [value.sum() for value in floats]
        return sum(sums[1:], sums[0])

    try:
        _, _, roots = traced(frame, total, given, "a plan")
    finally:
        for handle in handles:
            handle.remove()
    # Blocks that run twice, not at all or not in their order are one block.
    if ran != list(range(len(listed))):
        ends = []
    return _Cut(model, path, ends, set(leaves), roots[0], int(samples)).shape(name)


def _kind(value: Any, name: str) -> TensorType:
    if not isinstance(value, Tensor):
        raise BadValueError(
            f"the example for {name} has a {type(value).__name__}, expected tensors",
            help="such as example = rl.zeros(8, 3, 224, 224), or a tuple of them",
        )
    return TensorType(tuple(map(int, value.shape)), value.dtype)


def _list_of_blocks(model: nn.Module) -> tuple[str, list[nn.Module]]:
    try:
        path, blocks = blocks_of(model)
    except BadValueError:
        return "", []
    return path, list(blocks.children())


def _noted(block: nn.Module, number: int, ran: list[int], ends: list[list[Node]]) -> Any:
    """Note when a block runs, what goes into it and what comes out of it."""

    def hook(module: nn.Module, args: Any, result: Any) -> None:
        ran.append(number)
        for value in (args, result):
            found: list[Any] = []
            flatten(value, found)
            ends.append([read(v) for v in found if isinstance(v, Tensor)])

    return block.register_forward_hook(hook)


class _Cut:
    """The graph of a model, cut where its blocks end."""

    def __init__(
        self, model: nn.Module, path: str, ends: list[list[Node]], leaves: set[Node], root: Node,
        samples: int,
    ) -> None:  # fmt: skip
        self.listed = len(ends) > 2
        self.model, self.path, self.samples = model, path, samples
        self.leaves, self.order = leaves, topological([root])
        made = set(leaves)
        for node in self.order:
            if any(source in made for source in node.inputs):
                made.add(node)
        self.made = made
        kept = saved_for_backward([root], lambda node: False)
        self.saved = [node for node in kept if node in made]
        self.pieces = self._pieces(ends if self.listed else [])

    def _pieces(self, ends: list[list[Node]]) -> list[list[Node]]:
        """Nodes by what they belong to: what is before, each block, what is after."""
        home: dict[Node, int] = {}
        borders = [ends[0], *ends[1::2]] if ends else []
        for number, border in enumerate(borders):
            for node in topological(border, lambda n: n in home):
                home.setdefault(node, number)
        last = len(borders) if borders else 1
        pieces: list[list[Node]] = [[] for _ in range(last + 1 if borders else 3)]
        for node in self.order:
            if node in self.made and node not in self.leaves:
                pieces[home.get(node, last)].append(node)
        return pieces

    def shape(self, name: str) -> TracedShape:
        """What was found, block by block."""
        home = {node: number for number, piece in enumerate(self.pieces) for node in piece}
        read_later: list[set[Node]] = [set() for _ in self.pieces]
        given: list[set[Node]] = [set(self.leaves) for _ in self.pieces]
        for node, number in home.items():
            for source in node.inputs:
                there = home.get(source, number)
                if there != number:
                    read_later[there].add(source)
                    given[number].add(source)
        saved = [0] * len(self.pieces)
        for node in self.saved:
            if node in home:
                saved[home[node]] += elements(node) * _kept_bytes(node)
        parameters = self._parameters(len(self.pieces))
        found = [
            TracedBlock(
                counted(piece, given[at], read_later[at]),
                saved[at],
                sum(map(elements, read_later[at])),
                parameters[at],
            )
            for at, piece in enumerate(self.pieces)
        ]
        before, *blocks, after = found
        passed = max([one.sent for one in found[:-1]], default=0)
        return TracedShape(
            name, len(blocks), -(-passed // self.samples), 1, 1, 1, False, 0, tied=True,
            blocks=tuple(blocks), before=before, after=after, samples=self.samples,
            listed=self.listed,
        )  # fmt: skip

    def _parameters(self, pieces: int) -> list[int]:
        """By piece, as stages have them: what is named before the blocks is on the first."""
        found, before = [0] * pieces, True
        for name, value in self.model.named_parameters():
            if not self.listed:
                at = 1
            elif name.startswith(f"{self.path}."):
                before = False
                at = 1 + int(name[len(self.path) + 1 :].partition(".")[0])
            else:
                at = 0 if before else pieces - 1
            found[at] += int(value.numel())
        return found


def _kept_bytes(node: Node) -> int:
    """Of an element: floats are kept in the 16 bits of products."""
    size = int(node.dtype.itemsize)
    return min(size, 2) if node.dtype.is_differentiable else size
