"""DLPack both ways. NumPy packs and unpacks the capsules; the small floats it lacks are relabelled.

A capsule points to a C structure with the memory's address, type, shape and strides. NumPy has no
bfloat16 and float8 in DLPack, so such memory travels through it as unsigned integers, and the
type field inside the capsule is rewritten on the way out and on the way in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import shared_array
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor, tensor

CPU = (1, 0)  # kDLCPU, the first device of that type
_UNSIGNED, _COMPLEX, _BOOL = 1, 5, 6
_CODES = {"int": 0, "uint": _UNSIGNED, "float": 2, "complex": _COMPLEX, "bool": _BOOL}
_SMALL_CODES = {dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e5m2: 12}
_SMALL = {(code, dtype.bits): dtype for dtype, code in _SMALL_CODES.items()}
_ROWS = {(_CODES[d.kind], d.bits): d for d in dtypes.ALL if d not in _SMALL_CODES}


class ExchangeError(RidgelineError, BufferError, ValueError):
    """Memory that cannot be handed over in the way that was asked for."""

    code = "RL0801"


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _type_field(capsule: Any) -> _Type | None:
    """The type inside a capsule nobody has consumed yet; None for what is no such capsule."""
    name = _capsule_name(capsule)
    if name not in (b"dltensor", b"dltensor_versioned"):
        return None
    address = _capsule_pointer(capsule, name)
    if name == b"dltensor":
        legacy = ctypes.cast(address, ctypes.POINTER(_Tensor)).contents
        field: _Type = legacy.dtype
        return field
    versioned = ctypes.cast(address, ctypes.POINTER(_Versioned)).contents
    # before the header's major version is known to be 1 nothing behind it may be read
    return versioned.tensor.dtype if versioned.major == 1 else None


def _carrier(dtype: DType) -> np.dtype[Any]:
    """The unsigned integers that a small floating type travels as."""
    return np.dtype(f"uint{dtype.bits}")


# ---- out -----------------------------------------------------------------------------------------


def export(
    source: Tensor,
    stream: Any,
    max_version: Sequence[int] | None,
    dl_device: Sequence[int] | None,
    copy: bool | None,
) -> Any:
    """A capsule over a tensor's memory, for `Tensor.__dlpack__`."""
    if source.requires_grad:
        raise ExchangeError(
            "a tensor that requires gradients cannot be handed to another library",
            help="hand over x.detach()",
        )
    if source.device != "cpu":
        raise ExchangeError(
            f"memory of {source.device} is not handed to other libraries",
            help="hand over x.cpu()",
        )
    if stream is not None:
        raise ExchangeError(f"memory of the host has no streams, got stream={stream!r}")
    wanted = None if dl_device is None else tuple(int(part) for part in dl_device)
    if wanted not in (None, CPU):
        raise ExchangeError(
            f"memory of the host cannot be exported to device {wanted}",
            help="only (1, 0), the CPU, exists here",
        )
    array = shared_array(source)
    small = source.dtype in _SMALL_CODES
    if small:
        array = array.view(_carrier(source.dtype))
    version = None if max_version is None else (int(max_version[0]), int(max_version[1]))
    capsule = array.__dlpack__(max_version=version, dl_device=wanted, copy=copy)
    if small:
        field = _type_field(capsule)
        assert field is not None, "NumPy packs known capsules"
        field.code = _SMALL_CODES[source.dtype]
    return capsule


upcalls.to_dlpack = export


# ---- in ------------------------------------------------------------------------------------------


class _Relabelled:
    """A producer for NumPy: another producer whose small floats are called integers."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.dtype: DType | None = None

    def __dlpack_device__(self) -> Any:
        return self.producer.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.producer.__dlpack__(**options)
        except TypeError:  # a producer from before version 1 knows no options
            if options.get("copy"):
                raise
            capsule = self.producer.__dlpack__()
        field = _type_field(capsule)
        if field is not None:
            self._identify(field)
        return capsule

    def _identify(self, field: _Type) -> None:
        key = (field.code, field.bits)
        if field.lanes != 1 or (key not in _ROWS and key not in _SMALL):
            raise ExchangeError(
                f"there is no element type for DLPack's code {field.code} with {field.bits} bits "
                f"and {field.lanes} lanes"
            )
        small = _SMALL.get(key)
        if small is not None:
            field.code, self.dtype = _UNSIGNED, small


def check_producer(producer: Any) -> None:
    """Raise unless an object speaks DLPack and its memory is the host's."""
    if not (hasattr(producer, "__dlpack__") and hasattr(producer, "__dlpack_device__")):
        raise NotAProducerError(
            f"from_dlpack needs an object with __dlpack__ and __dlpack_device__, "
            f"not {type(producer).__name__}"
        )
    kind, number = (int(part) for part in producer.__dlpack_device__())
    if kind != CPU[0]:
        raise ExchangeError(
            f"the memory is on DLPack device ({kind}, {number}), which does not exist here",
            help="copy it to the CPU with its own library first",
        )


class NotAProducerError(RidgelineError, TypeError):
    """An object that does not speak DLPack."""

    code = "RL0802"


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array; each sees what the other writes.

    `copy=True` gives memory of its own, `copy=False` refuses to copy. Read-only memory is
    respected: writing to such a tensor raises.
    """
    check_producer(x)
    producer = _Relabelled(x)
    array = np.from_dlpack(producer)
    if producer.dtype is not None:
        array = array.view(producer.dtype.numpy)
    made = tensor(array) if copy else from_numpy(array)
    return made if device is None else made.to(device=device)
