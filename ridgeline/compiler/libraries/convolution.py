"""Convolutions by cuDNN: which ones it computes, and how a call is started.

`graph/passes/libraries/channels_last.py` finds them by the index maps of contractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ridgeline.compiler.cuda_launches import Starting
from ridgeline.config import config
from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.channels_last import is_product
from ridgeline.graph.strides import View, in_order
from ridgeline.ops.convolve import CONVOLVE, ConvolveAttrs
from ridgeline.runtime.cuda import cudnn_convolution
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan, GraphStep
from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.steps import LaunchStep

_LEAST = 1 << 26  # products; below, kernels of our own fuse with their neighbours
_LEAST_EXACT = 1 << 29  # the same in float32, for which there are no tensor cores
# Products of a number in 16 bits up to which a ReLU goes with them: on an H200 the engines with one
# do 0.84 of the products a second of those without, and a kernel of its own moves 4 bytes a number.
_DEEPEST_WITH_RELU = 1536


@dataclass(frozen=True, slots=True)
class ConvolutionLaunch:
    """A call of cuDNN; the slots are those of the operands, then of the result."""

    workspace: int
    attrs: ConvolveAttrs
    dtype: str
    shortened: bool  # whether float32 products may have fewer bits
    one_order: bool  # whether sums have one order

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """The call."""
        plan = cudnn_convolution.plan(
            on.device, self.attrs, self.dtype, self.shortened, self.one_order
        )
        assert plan is not None, "the library has what it had when the program was compiled"
        memory = cudnn_convolution.memory_of(self.attrs, slots)
        yield GraphStep(on.device, plan, memory, on.workspace, on.words)


class CudnnConvolution:
    """Convolutions with channels last, and their gradients."""

    ops = (CONVOLVE,)

    def __init__(self, device: Device) -> None:
        self._device = device

    def plan(self, attrs: ConvolveAttrs, dtype: str) -> EnginePlan | None:
        """How cuDNN computes a convolution; None where it does not."""
        self._device.activate()
        return cudnn_convolution.plan(
            self._device.number, attrs, dtype, config.allow_tf32, config.deterministic
        )

    def matches(self, attrs: ConvolveAttrs, node: Node) -> bool:
        """True for convolutions large enough for a library, of which cuDNN has this one."""
        exact = node.dtype.itemsize > 2 and not config.allow_tf32
        least = _LEAST_EXACT if exact else _LEAST
        if node.dtype.name not in cudnn_convolution.COMPUTED or attrs.products < least:
            return False
        return is_product(attrs) or self.plan(attrs, node.dtype.name) is not None

    def matches_with_relu(self, attrs: ConvolveAttrs, node: Node) -> bool:
        """True for a convolution that cuDNN has with a ReLU, if that saves more than it costs."""
        pays = node.dtype.itemsize == 2 and prod(attrs.filters[1:]) <= _DEEPEST_WITH_RELU
        return pays and self.plan(attrs, node.dtype.name) is not None

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Memory as it is, or in order."""
        return [in_order(operand, graph.is_input) for operand in node.inputs]

    def launch(self, group: Group) -> ConvolutionLaunch:
        """The call, with the workspace of its best engine."""
        node = group.apart
        assert node is not None
        plan = self.plan(node.attrs, node.dtype.name)
        assert plan is not None, "a graph holds only convolutions that the library has"
        return ConvolutionLaunch(
            plan.workspace, node.attrs, node.dtype.name, config.allow_tf32, config.deterministic
        )
