"""Convolutions by cuDNN: which ones it computes and in what order of axes, and how a call starts.

They are described once, with the library's best engine. What is done to every number of a result
before it is stored is part of the same graph. Tensor cores want channels last. In float32 without
them the engines for channels second take half the time, and nothing is transposed on the way.

`graph/passes/libraries/channels_last.py` finds them by the index maps of contractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ridgeline.config import config
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.channels_last import filled, is_product
from ridgeline.ops.convolve import CONVOLVE, DATA, FILTER, FORWARD, ConvolveAttrs, Way
from ridgeline.ops.strides import View, in_order
from ridgeline.runtime.cuda.cudnn_api import Attribute, Descriptor, Descriptors, Type
from ridgeline.runtime.cuda.cudnn_graph import (
    DTYPES,
    Described,
    HeldIn,
    Operation,
    TensorDesc,
    dense,
    described,
    operation_descriptor,
)
from ridgeline.runtime.cuda.cudnn_plans import (
    EnginePlan,
    GraphStep,
    Note,
    Pointer,
    best_plan,
    graph_of,
)
from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.launches import Starting
from ridgeline.runtime.cuda.steps import LaunchStep

_CROSS_CORRELATION = 1
_IMAGE, _FILTERS, _RESULT, _BIAS, _PLAIN, _TOTAL = range(6)  # the numbers of tensors
COMPUTED = ("float32", "float16", "bfloat16")
_LEAST = 1 << 26  # products; below, kernels of our own fuse with their neighbours
_LEAST_EXACT = 1 << 29  # the same in float32, for which there are no tensor cores
# Products of a number in 16 bits up to which a ReLU goes with them: on an H200 the engines with one
# do 0.84 of the products a second of those without, and a kernel of its own moves 4 bytes a number.
_DEEPEST_WITH_RELU = 1536


def memory_of(attrs: ConvolveAttrs, slots: Sequence[int]) -> Mapping[int, Pointer]:
    """The tensors of a convolution, from the slots of a call: operands, then the result."""
    *operands, result = slots
    tensors = {
        FORWARD: (_IMAGE, _FILTERS, _BIAS), DATA: (_RESULT, _FILTERS), FILTER: (_RESULT, _IMAGE),
    }[attrs.kind]  # fmt: skip
    made = {FORWARD: _RESULT, DATA: _IMAGE, FILTER: _FILTERS}[attrs.kind]
    memory = dict(zip(tensors, operands)) | {made: result}
    return {number: Pointer(slot) for number, slot in memory.items()}


@lru_cache(maxsize=1024)
def plan(
    device: int, attrs: ConvolveAttrs, dtype: str, shortened: bool, one_order: bool = False
) -> EnginePlan | None:
    """The first engine of the library's ranking that computes as precisely as it is asked to.

    `one_order` asks for sums in one order. None where there is no such engine.
    """
    refused = {Note.NONDETERMINISTIC} if one_order else set()
    if dtype == "float32" and not shortened:
        refused |= {Note.TENSOR_CORE, Note.DOWN_CONVERT}  # fewer bits in products
    graph = graph_of(device, _operations(attrs, dtype))
    return best_plan(device, graph, refused)


def _operations(attrs: ConvolveAttrs, dtype: str) -> list[Descriptor]:
    """The convolution as the library has it, and what follows it."""
    missing = (1,) * max(0, 2 - len(attrs.stride))  # the library has two spatial axes at least

    def shown(number: int, sizes: tuple[int, ...]) -> TensorDesc:
        held = HeldIn.NOWHERE if number in (_PLAIN, _TOTAL) else HeldIn.IN_MEMORY
        wide = "float32" if held is HeldIn.NOWHERE else dtype
        return _tensor(number, (*sizes[:2], *missing, *sizes[2:]), wide, held, attrs.second)

    tensor = described()
    result = shown(_RESULT, attrs.result)
    plain = shown(_PLAIN, attrs.result) if attrs.rectified else result
    image, filters = shown(_IMAGE, attrs.image), shown(_FILTERS, attrs.filters)
    made = [_convolution(attrs, (image, filters, plain), tensor)]
    if attrs.biased:
        bias = shown(_BIAS, (1, attrs.result[1], *(1,) * len(attrs.stride)))
        total = shown(_TOTAL, attrs.result)
        made.append(operation_descriptor(Operation("add", (plain, bias), total), tensor))
        plain = total
    if attrs.rectified:
        made.append(operation_descriptor(Operation("relu", (plain,), result), tensor))
    return made


def _convolution(
    attrs: ConvolveAttrs, tensors: tuple[TensorDesc, TensorDesc, TensorDesc], tensor: Described
) -> Descriptor:
    """A convolution of image and filters to a result, or a gradient of it."""
    missing = len(tensors[0].sizes) - 2 - len(attrs.stride)
    ones, zeros = (1,) * missing, (0,) * missing
    convolution = Descriptor(Descriptors.CONVOLUTION)
    convolution.set(Attribute.CONVOLUTION_COMPUTE, Type.DATA_TYPE, [DTYPES["float32"]])
    convolution.set(Attribute.CONVOLUTION_MODE, Type.CONVOLUTION_MODE, [_CROSS_CORRELATION])
    convolution.set(Attribute.CONVOLUTION_AXES, Type.INT64, [len(attrs.stride) + missing])
    for attribute, values in (
        (Attribute.CONVOLUTION_STRIDES, ones + attrs.stride),
        (Attribute.CONVOLUTION_BEFORE, zeros + attrs.margin),
        (Attribute.CONVOLUTION_AFTER, zeros + attrs.margin),
        (Attribute.CONVOLUTION_DILATIONS, ones + attrs.dilation),
    ):
        convolution.set(attribute, Type.INT64, values)
    convolution.finalize()
    kind = attrs.kind.upper()
    operation = Descriptor(Descriptors[kind])
    for name, one in zip(("IMAGE", "FILTERS", "RESULT"), tensors, strict=True):
        operation.set(Attribute[f"{kind}_{name}"], Type.DESCRIPTOR, [tensor(one)])
    operation.set(Attribute[f"{kind}_CONVOLUTION"], Type.DESCRIPTOR, [convolution])
    operation.set(Attribute[f"{kind}_ALPHA"], Type.FLOAT, [1.0])
    return operation.set(Attribute[f"{kind}_BETA"], Type.FLOAT, [0.0]).finalize()


def _tensor(
    number: int, sizes: tuple[int, ...], dtype: str, held: HeldIn, second: bool
) -> TensorDesc:
    """A tensor of [n, c, …] whose channels lie side by side, or that lies in this order."""
    if second:
        return TensorDesc(number, dtype, sizes, dense(sizes), held)
    last = (sizes[0], *sizes[2:], sizes[1])
    strides = dense(last)
    return TensorDesc(number, dtype, sizes, (strides[0], strides[-1], *strides[1:-1]), held)


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
        chosen = plan(on.device, self.attrs, self.dtype, self.shortened, self.one_order)
        assert chosen is not None, "the library has what it had when the program was compiled"
        memory = memory_of(self.attrs, slots)
        yield GraphStep(on.device, chosen, memory, on.workspace, on.words)


class CudnnConvolution:
    """Convolutions and their gradients."""

    ops = (CONVOLVE,)

    def __init__(self, device: Device) -> None:
        self._device = device

    def plan(self, attrs: ConvolveAttrs, dtype: str) -> EnginePlan | None:
        """How cuDNN computes a convolution; None where it does not."""
        self._device.activate()
        return plan(
            self._device.number, attrs, dtype, config.allow_tf32_convolutions, config.deterministic
        )

    def way(self, attrs: ConvolveAttrs, node: Node) -> Way | None:
        """How a convolution is computed that is large enough for a library; None for others."""
        exact = node.dtype.itemsize > 2 and not config.allow_tf32_convolutions
        least = _LEAST_EXACT if exact else _LEAST
        if node.dtype.name not in COMPUTED or attrs.products < least:
            return None
        if is_product(attrs) and exact and attrs.kind != FILTER:
            return None  # it is a product of matrices as they lie
        if is_product(attrs) and (node.dtype.itemsize == 2 or config.allow_tf32):
            return Way.PRODUCT
        laid = replace(attrs, second=True) if exact else filled(attrs, node.dtype)
        if self.plan(laid, node.dtype.name) is None:
            return None
        return Way.CHANNELS_SECOND if exact else Way.CHANNELS_LAST

    def matches_with_relu(self, attrs: ConvolveAttrs, node: Node) -> bool:
        """True for a convolution that cuDNN has with a ReLU, if that saves more than it costs."""
        pays = node.dtype.itemsize == 2 and prod(attrs.filters[1:]) <= _DEEPEST_WITH_RELU
        return pays and self.plan(attrs, node.dtype.name) is not None

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Memory as it is, or in order."""
        return [in_order(operand, graph.is_input) for operand in node.inputs]

    def launch(self, group: FusionGroup) -> ConvolutionLaunch:
        """The call, with the workspace of its best engine."""
        node = group.apart
        assert node is not None
        plan = self.plan(node.attrs, node.dtype.name)
        assert plan is not None, "a graph holds only convolutions that the library has"
        return ConvolutionLaunch(
            plan.workspace,
            node.attrs,
            node.dtype.name,
            config.allow_tf32_convolutions,
            config.deterministic,
        )
