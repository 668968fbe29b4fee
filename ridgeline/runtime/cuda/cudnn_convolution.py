"""cuDNN: convolutions with channels last, described once, with the library's best engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from ridgeline.ops.convolve import DATA, FILTER, FORWARD, ConvolveAttrs
from ridgeline.runtime.cuda.cudnn_api import Attribute, Descriptor, Kind, Type
from ridgeline.runtime.cuda.cudnn_graph import DTYPES, Held, Tensor, tensor_descriptor
from ridgeline.runtime.cuda.cudnn_plans import Place, Plan, best_plan, graph_of

_CROSS_CORRELATION = 1
_TENSOR_CORE, _DOWN_CONVERT = 0, 1  # notes on how an engine computes
_NOTES = 16
COMPUTED = ("float32", "float16", "bfloat16")


def memory_of(kind: str, slots: Sequence[int]) -> Mapping[int, Place]:
    """The tensors of a convolution, from the slots of a call: two operands, then the result."""
    places = {FORWARD: (0, 1, 2), DATA: (2, 1, 0), FILTER: (1, 2, 0)}[kind]
    return {number: Place(slots[place]) for number, place in enumerate(places)}


@lru_cache(maxsize=1024)
def plan(device: int, attrs: ConvolveAttrs, dtype: str, shortened: bool) -> Plan | None:
    """The first engine of the library's ranking that computes as precisely as it is asked to.

    None where there is none.
    """
    exact = dtype == "float32" and not shortened
    graph = graph_of(device, [_operation(attrs, dtype)])
    return best_plan(device, graph, lambda config: not (exact and _shortens(config)))


def _shortens(config: Descriptor) -> bool:
    """True for an engine that multiplies float32 with fewer bits."""
    (engine,) = config.parts(Attribute.CONFIG_ENGINE, Kind.ENGINE, 1)
    notes = engine.get(Attribute.ENGINE_NOTES, Type.NUMERICAL_NOTE, _NOTES)
    return _TENSOR_CORE in notes or _DOWN_CONVERT in notes


def _operation(attrs: ConvolveAttrs, dtype: str) -> Descriptor:
    """The convolution as the library has it."""
    missing = max(0, 2 - len(attrs.stride))  # the library has two spatial axes at least
    ones, zeros = (1,) * missing, (0,) * missing
    convolution = Descriptor(Kind.CONVOLUTION)
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
    operation = Descriptor(Kind[kind])
    tensors = {"IMAGE": attrs.image, "FILTERS": attrs.filters, "RESULT": attrs.result}
    for number, (name, sizes) in enumerate(tensors.items()):
        tensor = _tensor(number, (*sizes[:2], *ones, *sizes[2:]), dtype)
        operation.set(Attribute[f"{kind}_{name}"], Type.DESCRIPTOR, [tensor])
    operation.set(Attribute[f"{kind}_CONVOLUTION"], Type.DESCRIPTOR, [convolution])
    operation.set(Attribute[f"{kind}_ALPHA"], Type.FLOAT, [1.0])
    return operation.set(Attribute[f"{kind}_BETA"], Type.FLOAT, [0.0]).finalize()


def _tensor(number: int, sizes: tuple[int, ...], dtype: str) -> Descriptor:
    """A tensor of [n, c, …] whose channels lie side by side."""
    last = (sizes[0], *sizes[2:], sizes[1])
    dense = [prod(last[place + 1 :]) for place in range(len(last))]
    strides = (dense[0], dense[-1], *dense[1:-1])
    return tensor_descriptor(Tensor(number, dtype, sizes, strides, Held.IN_MEMORY))
