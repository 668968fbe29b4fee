"""cuDNN: convolutions with channels last, described once, with the library's best engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from ridgeline.ops.convolve import DATA, FILTER, FORWARD, ConvolveAttrs
from ridgeline.runtime.cuda.cudnn_api import (
    Attribute,
    Descriptor,
    Kind,
    Type,
    check,
    handle,
    library,
)
from ridgeline.runtime.cuda.steps import Words

DTYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
_ALIGNMENT = 16
_CROSS_CORRELATION = 1
_BEST_FIRST, _LAST_RESORT = 3, 2  # heuristics: those that rank engines, those that always have one
_MOST_ENGINES = 16
_TENSOR_CORE, _DOWN_CONVERT = 0, 1  # notes on how an engine computes
_NOTES = 16
_MOST_WORKSPACE = 1 << 30
_executing = threading.Lock()  # a handle serves one thread at a time


@dataclass(frozen=True, slots=True)
class Plan:
    """How the library computes a convolution."""

    descriptor: Descriptor
    workspace: int


class ConvolutionStep:
    """One convolution of a plan: two operands, then what is computed."""

    def __init__(
        self,
        device: int,
        kind: str,
        plan: Plan,
        slots: Sequence[int],
        workspace_slot: int,
        words: Words,
    ) -> None:
        self.slots = frozenset((*slots, workspace_slot))
        places = {FORWARD: (0, 1, 2), DATA: (2, 1, 0), FILTER: (1, 2, 0)}[kind]
        self._tensors = [slots[place] for place in places]  # image, filters, result
        self._workspace, self._words = workspace_slot, words
        self._handle, self._plan = handle(device), plan.descriptor

    def enqueue(self, stream: Any) -> None:
        """Put the convolution onto a stream, with the addresses as they are now."""
        words = self._words
        pack = Descriptor(Kind.VARIANT_PACK)
        pack.set(Attribute.PACK_IDS, Type.INT64, range(3))
        pack.set(Attribute.PACK_POINTERS, Type.POINTER, [words[slot] for slot in self._tensors])
        pack.set(Attribute.PACK_WORKSPACE, Type.POINTER, [words[self._workspace]])
        pack.finalize()
        with _executing:
            check(library().cudnnSetStream(self._handle, c_void_p(int(stream))), "cudnnSetStream")
            status = library().cudnnBackendExecute(self._handle, self._plan.raw, pack.raw)
        check(status, "a convolution")


@lru_cache(maxsize=1024)
def plan(device: int, attrs: ConvolveAttrs, dtype: str, shortened: bool) -> Plan | None:
    """The first engine of the library's ranking that computes as precisely as it is asked to.

    None where there is none.
    """
    graph = _graph(device, attrs, dtype)
    exact = dtype == "float32" and not shortened
    for config in _configurations(graph):
        if exact and _shortens(config):
            continue
        made = Descriptor(Kind.PLAN)
        made.set(Attribute.PLAN_HANDLE, Type.HANDLE, [handle(device)])
        made.set(Attribute.PLAN_CONFIG, Type.DESCRIPTOR, [config])
        if made.status():
            continue
        (workspace,) = made.get(Attribute.PLAN_WORKSPACE, Type.INT64, 1)
        if workspace <= _MOST_WORKSPACE:
            return Plan(made, workspace)
    return None


def _configurations(graph: Descriptor) -> Iterator[Descriptor]:
    """Engines with their settings, best first."""
    for mode in (_BEST_FIRST, _LAST_RESORT):
        ranking = Descriptor(Kind.HEURISTICS)
        ranking.set(Attribute.HEURISTICS_GRAPH, Type.DESCRIPTOR, [graph])
        ranking.set(Attribute.HEURISTICS_MODE, Type.HEURISTIC_MODE, [mode])
        if not ranking.status():
            yield from ranking.parts(
                Attribute.HEURISTICS_RESULTS, Kind.ENGINE_CONFIG, _MOST_ENGINES
            )


def _shortens(config: Descriptor) -> bool:
    """True for an engine that multiplies float32 with fewer bits."""
    (engine,) = config.parts(Attribute.CONFIG_ENGINE, Kind.ENGINE, 1)
    notes = engine.get(Attribute.ENGINE_NOTES, Type.NUMERICAL_NOTE, _NOTES)
    return _TENSOR_CORE in notes or _DOWN_CONVERT in notes


def _graph(device: int, attrs: ConvolveAttrs, dtype: str) -> Descriptor:
    """The convolution as the library's graph of one operation."""
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
    operation.set(Attribute[f"{kind}_BETA"], Type.FLOAT, [0.0]).finalize()
    graph = Descriptor(Kind.GRAPH)
    graph.set(Attribute.GRAPH_OPERATIONS, Type.DESCRIPTOR, [operation])
    return graph.set(Attribute.GRAPH_HANDLE, Type.HANDLE, [handle(device)]).finalize()


def _tensor(number: int, sizes: tuple[int, ...], dtype: str) -> Descriptor:
    """A tensor of [n, c, …] whose channels lie side by side."""
    last = (sizes[0], *sizes[2:], sizes[1])
    dense = [prod(last[place + 1 :]) for place in range(len(last))]
    strides = (dense[0], dense[-1], *dense[1:-1])
    tensor = Descriptor(Kind.TENSOR)
    tensor.set(Attribute.TENSOR_TYPE, Type.DATA_TYPE, [DTYPES[dtype]])
    tensor.set(Attribute.TENSOR_SIZES, Type.INT64, sizes)
    tensor.set(Attribute.TENSOR_STRIDES, Type.INT64, strides)
    tensor.set(Attribute.TENSOR_ID, Type.INT64, [number])
    return tensor.set(Attribute.TENSOR_ALIGNMENT, Type.INT64, [_ALIGNMENT]).finalize()
