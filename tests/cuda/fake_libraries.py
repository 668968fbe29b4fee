"""cuBLASLt and cuDNN without a GPU: they take what the runtime tells them, and note every call.

Products are computed, over the memory that the driver pretends to have, where a test wants that.
A call is noted as text in which memory is numbered as it appears.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ridgeline.dtypes import bfloat16
from ridgeline.runtime.cuda.cudnn_api import Attribute, Descriptors

from .fake_driver import FakeDriver

_TYPES = {0: np.dtype("f4"), 1: np.dtype("f8"), 2: np.dtype("f2"), 14: np.dtype(bfloat16.numpy)}
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = 3, 4, 7, 8
_BATCHES, _BETWEEN_BATCHES = 5, 6


@dataclass
class Launches:
    """What was launched, a line each."""

    lines: list[str] = field(default_factory=list)
    blocks: Callable[[int], int] = lambda address: address  # where the block of an address begins
    known: dict[int, int] = field(default_factory=dict)

    def at(self, address: int) -> str:
        """An address as the number of its memory in this program, and bytes behind it."""
        start = self.blocks(address)
        number = self.known.setdefault(start, len(self.known))
        return f"m{number}+{address - start}" if address != start else f"m{number}"


@dataclass
class _Described:
    """A descriptor of a library: what it is, and its attributes."""

    what: Any
    values: dict[int, Any] = field(default_factory=dict)


class FakeCublasLt:
    """Products as cuBLASLt has them: column-major, one layout for each operand."""

    def __init__(self, launches: Launches, driver: FakeDriver | None = None) -> None:
        """With a driver products are computed over its memory."""
        self.launches, self._driver = launches, driver
        self._made: dict[int, _Described] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)
        for end, found in (("Create", self._create), ("SetAttribute", self._set)):
            if name.endswith(end):
                return _named(name, found)
        return _named(name, self._destroy)

    def _create(self, into: Any, *settings: Any) -> int:
        into._obj.value = number = len(self._made) + 1
        self._made[number] = _Described([setting.value for setting in settings])
        return 0

    def _set(self, target: Any, attribute: Any, value: Any, size: Any) -> int:
        self._made[target.value].values[attribute.value] = value._obj.value
        return 0

    def _destroy(self, target: Any) -> int:
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        arguments[-1]._obj.value = 1
        return 0

    def cublasLtMatmul(self, handle: Any, description: Any, *rest: Any) -> int:
        _, left, of_left, right, of_right, _, _, _, result, of_result, *_ = rest
        how = self._made[description.value]
        pairs = ((left, of_left), (right, of_right), (result, of_result))
        operands = [(address.value, self._made[layout.value]) for address, layout in pairs]
        settings = dict(how.values)
        bias = settings.pop(_BIAS, None)
        shown = [
            f"{self.launches.at(at)}{layout.what}{sorted(layout.values.items())}"
            for at, layout in operands
        ]
        more = "" if bias is None else f" bias {self.launches.at(bias)}"
        text = f"matmul {how.what}{sorted(settings.items())} {' '.join(shown)}{more}"
        self.launches.lines.append(text)
        if self._driver is not None:
            self._multiply(how, operands, bias)
        return 0

    def _multiply(self, how: _Described, operands: list[tuple[int, _Described]], bias: Any) -> None:
        matrices = [self._matrices(at, layout) for at, layout in operands]
        left, right, result = matrices
        left = left.swapaxes(1, 2) if how.values.get(_TRANSPOSE_A) else left
        right = right.swapaxes(1, 2) if how.values.get(_TRANSPOSE_B) else right
        wide = np.float64 if left.dtype == np.float64 else np.float32
        made = left.astype(wide) @ right.astype(wide)
        if bias is not None:
            made += self._array(bias, result.dtype, result.shape[1])[:, None].astype(wide)
        result[...] = made

    def _matrices(self, at: int, layout: _Described) -> Any:
        kind, rows, columns, leading = layout.what
        batches = layout.values.get(_BATCHES, 1)
        between = layout.values.get(_BETWEEN_BATCHES, 0)
        dtype = _TYPES[kind]
        size = (batches - 1) * between + (columns - 1) * leading + rows
        strides = tuple(n * dtype.itemsize for n in (between, 1, leading))
        return as_strided(self._array(at, dtype, size), (batches, rows, columns), strides)

    def _array(self, at: int, dtype: Any, size: int) -> Any:
        assert self._driver is not None
        memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(self._driver.shown(at))
        return np.frombuffer(memory, dtype)


class FakeCudnn:
    """cuDNN's graphs, for each of which it has one engine without a workspace."""

    def __init__(self, launches: Launches) -> None:
        self.launches = launches
        self._made: dict[int, _Described] = {}

    def cudnnGetVersion(self) -> int:
        return 92000

    def cudnnCreate(self, into: Any) -> int:
        into._obj.value = 1
        return 0

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        return 0

    def cudnnBackendCreateDescriptor(self, kind: Any, into: Any) -> int:
        into._obj.value = number = len(self._made) + 1
        self._made[number] = _Described(Descriptors(kind.value))
        return 0

    def cudnnBackendDestroyDescriptor(self, target: Any) -> int:
        return 0

    def cudnnBackendFinalize(self, target: Any) -> int:
        return 0

    def cudnnBackendSetAttribute(
        self, target: Any, attribute: Any, kind: Any, count: Any, packed: Any
    ) -> int:
        self._made[target.value].values[attribute.value] = list(packed)
        return 0

    def cudnnBackendGetAttribute(
        self, target: Any, attribute: Any, kind: Any, most: Any, count: Any, packed: Any
    ) -> int:
        count._obj.value = 0
        if attribute.value in (Attribute.HEURISTICS_RESULTS, Attribute.CONFIG_ENGINE):
            self._made[packed[0]].values[-1] = [target.value]  # what it was made of
            count._obj.value = 1
        elif attribute.value == Attribute.PLAN_WORKSPACE:
            packed[0], count._obj.value = 0, 1
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        (config,) = self._made[plan.value].values[Attribute.PLAN_CONFIG]
        (ranking,) = self._made[config].values[-1]
        (graph,) = self._made[ranking].values[Attribute.HEURISTICS_GRAPH]
        given = self._made[pack.value].values
        operations = self._made[graph].values[Attribute.GRAPH_OPERATIONS]
        ids, pointers = given[Attribute.PACK_IDS], given[Attribute.PACK_POINTERS]
        by_value = {
            tensor.values[Attribute.TENSOR_ID][0]
            for tensor in self._made.values()
            if tensor.what is Descriptors.TENSOR
            and any(tensor.values[Attribute.TENSOR_IS_BY_VALUE])
        }
        memory = [
            f"{number}={'number' if number in by_value else self.launches.at(at)}"
            for number, at in zip(ids, pointers)
        ]
        shown = " ".join(self._shown(operation) for operation in operations)
        self.launches.lines.append(f"cudnn {shown} over {' '.join(memory)}")
        return 0

    def _shown(self, number: int) -> str:
        """A descriptor with those it refers to."""
        made = self._made[number]
        parts = []
        for attribute, values in sorted(made.values.items()):
            refers = attribute not in _PLAIN and all(v in self._made for v in values)
            shown = [self._shown(v) if refers else repr(v) for v in values]
            parts.append(f"{Attribute(attribute).name.lower()}={','.join(shown)}")
        return f"{made.what.name.lower()}({' '.join(parts)})"


_REFERRING = {
    "FORWARD_CONVOLUTION", "FORWARD_FILTERS", "FORWARD_IMAGE", "FORWARD_RESULT",
    "DATA_CONVOLUTION", "DATA_FILTERS", "DATA_IMAGE", "DATA_RESULT",
    "FILTER_CONVOLUTION", "FILTER_FILTERS", "FILTER_IMAGE", "FILTER_RESULT",
}  # fmt: skip
_PLAIN = {
    attribute.value
    for attribute in Attribute
    if attribute.name not in _REFERRING and not attribute.name.startswith("OPERATION_")
}


def _named(name: str, run: Callable[..., int]) -> Any:
    def call(*arguments: Any) -> int:
        return run(*arguments)

    call.__name__ = name
    return call
