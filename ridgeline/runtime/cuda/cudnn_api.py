"""cuDNN's graph interface by a thin binding: descriptors with attributes, and their errors.

Everything in that interface is a descriptor: attributes are set one by one, `finalize` checks them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_bool, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ridgeline.runtime.cuda.driver import DeviceFailure, destroy_discarded, destroying, load

_FOLDERS = ("cudnn/lib",)
_NAMES = ("libcudnn.so.9",)
_MOST_TEXT = 512


class Descriptors(IntEnum):
    """cudnnBackendDescriptorType_t."""

    POINTWISE = 0
    CONVOLUTION = 1
    ENGINE = 2
    ENGINE_CONFIG = 3
    HEURISTICS = 4
    PLAN = 5
    FORWARD = 10
    FILTER = 11
    DATA = 12
    OPERATION_POINTWISE = 13
    GRAPH = 15
    VARIANT_PACK = 16
    TENSOR = 17
    MATMUL = 18
    OPERATION_MATMUL = 19
    REDUCTION = 21
    OPERATION_REDUCTION = 22
    OPERATION_RESHAPE = 31


class Type(IntEnum):
    """cudnnBackendAttributeType_t."""

    HANDLE = 0
    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    FLOAT = 4
    POINTER = 6
    CONVOLUTION_MODE = 7
    HEURISTIC_MODE = 8
    NAN_PROPAGATION = 10
    NUMERICAL_NOTE = 11
    POINTWISE_MODE = 14
    DESCRIPTOR = 15
    REDUCTION = 18


class Attribute(IntEnum):
    """cudnnBackendAttributeName_t."""

    POINTWISE_MODE = 0
    POINTWISE_COMPUTE = 1
    POINTWISE_NAN = 2
    POINTWISE_AXIS = 9
    CONVOLUTION_COMPUTE = 100
    CONVOLUTION_MODE = 101
    CONVOLUTION_DILATIONS = 102
    CONVOLUTION_STRIDES = 103
    CONVOLUTION_AFTER = 104
    CONVOLUTION_BEFORE = 105
    CONVOLUTION_AXES = 106
    HEURISTICS_MODE = 200
    HEURISTICS_GRAPH = 201
    HEURISTICS_RESULTS = 202
    CONFIG_ENGINE = 300
    PLAN_HANDLE = 400
    PLAN_CONFIG = 401
    PLAN_WORKSPACE = 402
    FORWARD_ALPHA = 700
    FORWARD_BETA = 701
    FORWARD_CONVOLUTION = 702
    FORWARD_FILTERS = 703
    FORWARD_IMAGE = 704
    FORWARD_RESULT = 705
    DATA_ALPHA = 706
    DATA_BETA = 707
    DATA_CONVOLUTION = 708
    DATA_FILTERS = 709
    DATA_IMAGE = 710
    DATA_RESULT = 711
    FILTER_ALPHA = 712
    FILTER_BETA = 713
    FILTER_CONVOLUTION = 714
    FILTER_FILTERS = 715
    FILTER_IMAGE = 716
    FILTER_RESULT = 717
    OPERATION_POINTWISE = 750
    OPERATION_POINTWISE_X = 751
    OPERATION_POINTWISE_B = 752
    OPERATION_POINTWISE_Y = 753
    OPERATION_POINTWISE_T = 758
    GRAPH_HANDLE = 800
    GRAPH_OPERATIONS = 801
    TENSOR_ALIGNMENT = 900
    TENSOR_TYPE = 901
    TENSOR_SIZES = 902
    TENSOR_STRIDES = 903
    TENSOR_ID = 906
    TENSOR_IS_VIRTUAL = 907
    TENSOR_IS_BY_VALUE = 908
    PACK_IDS = 1000
    PACK_POINTERS = 1001
    PACK_WORKSPACE = 1003
    ENGINE_NOTES = 1303
    MATMUL_COMPUTE = 1500
    OPERATION_MATMUL_A = 1520
    OPERATION_MATMUL_B = 1521
    OPERATION_MATMUL_C = 1522
    OPERATION_MATMUL = 1523
    REDUCTION_OPERATOR = 1600
    REDUCTION_COMPUTE = 1601
    OPERATION_REDUCTION_X = 1610
    OPERATION_REDUCTION_Y = 1611
    OPERATION_REDUCTION = 1612
    OPERATION_RESHAPE_X = 2200
    OPERATION_RESHAPE_Y = 2201


_C_TYPES: dict[Type, Any] = {
    Type.HANDLE: c_void_p, Type.POINTER: c_void_p, Type.DESCRIPTOR: c_void_p,
    Type.INT64: c_int64, Type.FLOAT: c_float, Type.DATA_TYPE: c_int32,
    Type.CONVOLUTION_MODE: c_int32, Type.HEURISTIC_MODE: c_int32, Type.NUMERICAL_NOTE: c_int32,
    Type.BOOLEAN: c_bool, Type.POINTWISE_MODE: c_int32, Type.REDUCTION: c_int32,
    Type.NAN_PROPAGATION: c_int32,
}  # fmt: skip


@lru_cache(maxsize=1)
def library() -> Any:
    """The library, or None where it is not installed."""
    found = load(_FOLDERS, _NAMES)
    if found is not None:
        found.cudnnGetVersion.restype = ctypes.c_size_t
        found.cudnnGetErrorString.restype = ctypes.c_char_p
    return found


def version() -> int:
    """The library's version as one number; 0 where it is not installed."""
    found = library()
    return int(found.cudnnGetVersion()) if found is not None else 0


def check(status: int, what: str) -> None:
    """Raise for a status that is not success, with the library's words."""
    if not status:
        return
    title = library().cudnnGetErrorString(status).decode()
    text = ctypes.create_string_buffer(_MOST_TEXT)
    library().cudnnGetLastErrorString(text, ctypes.c_size_t(_MOST_TEXT))
    words = text.value.decode(errors="replace").strip()
    raise DeviceFailure(f"cuDNN: {what} failed with {title}", note=words)


@lru_cache(maxsize=64)
def handle(device: int) -> c_void_p:
    """The library's state for a device, made while that device is the current one."""
    made = c_void_p()
    check(library().cudnnCreate(byref(made)), "cudnnCreate")
    return made


class Descriptor:
    """A descriptor; after this object is let go, the next one that is made destroys it."""

    __slots__ = ("__del__", "_kept", "kind", "raw")
    __del__: Callable[[], object]

    def __init__(self, kind: Descriptors) -> None:
        destroy_discarded()
        self.kind = kind
        self.raw = c_void_p()
        made = library().cudnnBackendCreateDescriptor(c_int32(kind), byref(self.raw))
        check(made, f"a {kind.name.lower()} descriptor")
        self.__del__ = destroying(library().cudnnBackendDestroyDescriptor, self.raw)
        self._kept: list[Any] = []  # descriptors that this one refers to

    def set(self, attribute: Attribute, kind: Type, values: Sequence[Any]) -> Descriptor:
        """Set an attribute to some values."""
        if kind is Type.DESCRIPTOR:
            self._kept.extend(values)
            values = [value.raw for value in values]
        packed = (_C_TYPES[kind] * len(values))(*values)
        status = library().cudnnBackendSetAttribute(
            self.raw, c_int32(attribute), c_int32(kind), c_int64(len(values)), packed
        )
        check(status, f"setting {attribute.name}")
        return self

    def status(self) -> int:
        """Finish; the status says whether the library takes what was set."""
        return int(library().cudnnBackendFinalize(self.raw))

    def finalize(self) -> Descriptor:
        """Finish, with an error if the library does not take what was set."""
        check(self.status(), f"finalizing a {self.kind.name.lower()} descriptor")
        return self

    def get(self, attribute: Attribute, kind: Type, most: int) -> list[Any]:
        """At most so many values of an attribute."""
        packed = (_C_TYPES[kind] * most)()
        return list(packed[: self._fetch(attribute, kind, packed)])

    def parts(self, attribute: Attribute, kind: Descriptors, most: int) -> list[Descriptor]:
        """At most so many descriptors that are an attribute."""
        made = [Descriptor(kind) for _ in range(most)]
        packed = (c_void_p * most)(*(part.raw for part in made))
        return made[: self._fetch(attribute, Type.DESCRIPTOR, packed)]

    def _fetch(self, attribute: Attribute, kind: Type, packed: Any) -> int:
        count = c_int64()
        status = library().cudnnBackendGetAttribute(
            self.raw, c_int32(attribute), c_int32(kind), c_int64(len(packed)), byref(count), packed
        )
        check(status, f"reading {attribute.name}")
        return min(count.value, len(packed))
