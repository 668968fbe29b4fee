"""The names that a saved file may use, and what each stands for here: the whole list.

What a program allows by `safe_globals` comes to it (`allowed.py`). Anything else is `Refused`: it
may stand in a file without being used (torch writes hooks so), but a call of it is an error that
names it.
"""

from __future__ import annotations

import collections
import datetime
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError
from ridgeline.serialization import storages
from ridgeline.serialization.allowed import allowed
from ridgeline.tensors.handle import Size

STORAGES = {
    "BoolStorage": dtypes.bool_, "ByteStorage": dtypes.uint8, "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16, "IntStorage": dtypes.int32, "LongStorage": dtypes.int64,
    "HalfStorage": dtypes.float16, "BFloat16Storage": dtypes.bfloat16,
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64,
    "ComplexFloatStorage": dtypes.complex64, "ComplexDoubleStorage": dtypes.complex128,
}  # fmt: skip
STORAGE_NAMES = {dtype: name for name, dtype in STORAGES.items()}
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
_BUILTINS = ("__builtin__", "builtins")
_TIMES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
_LONGEST_KEY = 64  # elements of a tuple that is a key
_PLAIN = (str, int, float, bool, bytes, complex, DType, type(None))
_FACTORIES = (None, list, dict, set, int, float, str, bool)  # of dicts with defaults
_NUMERIC = "biufc"  # kinds of NumPy's types that hold numbers and nothing else


@dataclass(frozen=True, slots=True)
class Made:
    """A function that a file may call, and the class that it means where it is not called."""

    make: Callable[..., Any]
    value: type | None = None


@dataclass(frozen=True, slots=True)
class StorageKind:
    """The class of a storage: its element type, or None for bytes whose type comes later."""

    dtype: DType | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A name that stands for nothing here."""

    module: str
    name: str

    def error(self) -> InputFileError:
        """What is raised where the file uses it."""
        path = f"{self.module}.{self.name}"
        return InputFileError(
            f"the file is refused: it wants to run {path}, and loading runs no code",
            note="a whole module or a class of the author's was saved",
            help="where it was written, save model.state_dict() and plain values instead; or, if "
            f"you wrote {self.name} and trust it, load inside `with "
            f"ridgeline.serialization.safe_globals([{self.name}]):`",
        )


class Element:
    """An element type of NumPy's, on its way."""

    def __init__(self, text: Any, *_: Any) -> None:
        found = np.dtype(str(text))
        if found.kind not in _NUMERIC:
            raise ValueError(f"an array of {found}")
        self.numpy = found

    def build(self, state: Any) -> None:
        """Take the byte order, which is all that a plain type has besides its name."""
        if type(state) is tuple and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.numpy = self.numpy.newbyteorder(state[1])


class SavedArray:
    """An array of NumPy's, on its way: made first, filled later."""

    def __init__(self, *_: Any) -> None:
        self.built = False
        self._array: Any = None

    def build(self, state: Any) -> None:
        """Take shape, type and bytes."""
        _, shape, element, by_columns, data = state
        if not isinstance(element, Element) or not isinstance(data, bytes):
            raise ValueError("an array of objects")
        flat = np.frombuffer(data, element.numpy)
        self._array = flat.reshape(shape, order="F" if by_columns else "C").copy()
        self.built = True

    def value(self) -> Any:
        """The array."""
        return self._array


def _scalar(element: Any, data: Any) -> Any:
    if not isinstance(element, Element) or not isinstance(data, bytes):
        raise ValueError("a number that is an object")
    return np.frombuffer(data, element.numpy, count=1)[0]


def _encoded(text: Any, encoding: Any) -> bytes:
    if encoding != "latin1" or not isinstance(text, str):
        raise ValueError(f"bytes in {encoding!r:.20}")
    return text.encode("latin1")


def _ordered(pairs: Any = ()) -> collections.OrderedDict[Any, Any]:
    return collections.OrderedDict((plain_key(key), value) for key, value in pairs)


def _counted(counts: Any = ()) -> collections.Counter[Any]:
    return collections.Counter({plain_key(key): int(n) for key, n in dict(counts).items()})


def _bytes(data: Any = b"") -> bytearray:
    if not isinstance(data, bytes):
        raise ValueError("a bytearray of what are no bytes")
    return bytearray(data)


def _default_dict(factory: Any = None) -> collections.defaultdict[Any, Any]:
    if factory not in _FACTORIES:
        raise ValueError("a dict whose default is no plain value")
    return collections.defaultdict(factory)


def _no_call(name: str, *_: Any) -> Any:
    raise ValueError(f"a call of {name}, which a file may name and not call")


def _deque(values: Any = (), longest: Any = None) -> collections.deque[Any]:
    return collections.deque(values, longest)


def plain_key(value: Any) -> Any:
    """A key or an element of a set, if it is a plain value or a short tuple of them.

    Hashing anything deeper would recurse, as deep as a file likes.
    """
    inner = value if type(value) is tuple else (value,)
    if len(inner) > _LONGEST_KEY or not all(isinstance(v, _PLAIN) for v in inner):
        raise ValueError(f"a key of the kind {type(value).__name__}")
    return value


def _table() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): Made(_ordered),
        ("collections", "Counter"): Made(_counted),
        ("collections", "defaultdict"): Made(_default_dict),
        ("collections", "deque"): Made(_deque),
        ("_codecs", "encode"): Made(_encoded),
        ("torch", "Size"): Made(lambda sizes=(): Size(map(int, sizes))),
        ("torch", "device"): Made(lambda *given: device(":".join(map(str, given)))),
        ("torch.storage", "UntypedStorage"): StorageKind(None),
        ("torch", "UntypedStorage"): StorageKind(None),
        ("torch._utils", "_rebuild_tensor"): Made(storages.tensor),
        ("torch._utils", "_rebuild_tensor_v2"): Made(storages.tensor_v2),
        ("torch._utils", "_rebuild_tensor_v3"): Made(storages.tensor_v3),
        ("torch._utils", "_rebuild_parameter"): Made(storages.parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): Made(storages.parameter),
        ("torch._tensor", "_rebuild_from_type_v2"): Made(storages.of_type),
        ("torch", "Tensor"): StorageKind(None),
        ("torch.nn.parameter", "Buffer"): StorageKind(None),
        ("torch.nn.parameter", "Parameter"): StorageKind(None),
        ("numpy", "dtype"): Made(Element),
        ("numpy", "ndarray"): StorageKind(None),
    }  # fmt: skip
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "PurePosixPath", "PurePath", "Path"):
            found[module, name] = Made(pathlib.Path)
    for time in _TIMES:
        found["datetime", time.__name__] = Made(time)
    for name, dtype in STORAGES.items():
        found["torch", name] = StorageKind(dtype)
    for dtype in dtypes.ALL:
        found["torch", dtype.name] = dtype
    for module in _NUMPY:
        found[module, "_reconstruct"] = Made(SavedArray)
        found[module, "scalar"] = Made(_scalar)
    for module in _BUILTINS:
        for kind in filter(None, _FACTORIES):
            found[module, kind.__name__] = Made(partial(_no_call, kind.__name__), kind)
        found[module, "set"] = Made(lambda values=(): set(map(plain_key, values)), set)
        found[module, "frozenset"] = Made(lambda values=(): frozenset(map(plain_key, values)))
        found[module, "bytearray"] = Made(_bytes)
        found[module, "complex"] = Made(complex)
        found[module, "slice"] = Made(slice)
        found[module, "range"] = Made(range)
    return found


_KNOWN: dict[tuple[str, str], Any] = {}


def name_of(module: str, name: str) -> Any:
    """What a name in a file stands for."""
    if not _KNOWN:
        _KNOWN.update(_table())
    return _KNOWN.get((module, name)) or allowed(module, name) or Refused(module, name)
