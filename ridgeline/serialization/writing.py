"""Writing what torch reads: a pickle that names torch's functions, and the bytes of storages."""

from __future__ import annotations

import io
import struct
import uuid
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError
from ridgeline.nn.parameter import Parameter
from ridgeline.record.values import memory_and_view
from ridgeline.scalars import Array
from ridgeline.serialization.names import STORAGE_NAMES
from ridgeline.serialization.objects import put_object
from ridgeline.tensors.handle import Size
from ridgeline.tensors.tensor import Tensor

_ALIGNED = 64  # where storages begin in a file, so that it can be mapped
_HEADER = 30  # bytes of a zip entry before its name
_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same content
_PROTOCOL = b"\x80\x02"


def archive_bytes(obj: Any, name: str) -> bytes:
    """The file that holds an object, under a root folder of a name."""
    pickler = TorchPickler()
    try:
        text = pickler.dump(obj)
    except RecursionError:
        raise ArgumentError("save: the object is nested too deeply to be written") from None
    file = io.BytesIO()
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
    try:
        _add(archive, file, f"{name}/data.pkl", text)
        _add(archive, file, f"{name}/.format_version", b"1")
        _add(archive, file, f"{name}/.storage_alignment", str(_ALIGNED).encode())
        _add(archive, file, f"{name}/byteorder", b"little")
        for key, array in pickler.storages:
            _add(archive, file, f"{name}/data/{key}", array.tobytes())
        _add(archive, file, f"{name}/version", b"3\n")
        _add(archive, file, f"{name}/.data/serialization_id", _identifier(text))
        archive.close()
    except BaseException:  # half an archive cannot be closed: that would hide an interrupt
        archive.fp = None
        raise
    return file.getvalue()


def _add(archive: zipfile.ZipFile, file: io.BytesIO, name: str, data: bytes) -> None:
    """An entry whose data begins at an aligned place: a field without meaning fills the gap."""
    info = zipfile.ZipInfo(name, _DATE)
    begin = file.tell() + _HEADER + len(name.encode()) + 4
    gap = -begin % _ALIGNED
    info.extra = struct.pack("<HH", 0x4246, gap) + b"Z" * gap
    archive.writestr(info, data)


def _identifier(text: bytes) -> bytes:
    """Forty digits that follow from the content."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text.hex()).int).zfill(40)[:40].encode()


class TorchPickler:
    """An object as a pickle of protocol 2: plain values, and tensors as torch names them."""

    def __init__(self) -> None:
        self.storages: list[tuple[str, Array]] = []
        self._out = io.BytesIO()
        self._memo: dict[Any, int] = {}  # by identity, or by name for names
        self._cells: dict[int, str] = {}
        self._held: list[Any] = []  # keeps identities unique while this writes

    def dump(self, obj: Any) -> bytes:
        """The whole pickle."""
        self._out.write(_PROTOCOL)
        self.put(obj)
        self._out.write(b".")
        return self._out.getvalue()

    def put(self, obj: Any) -> None:
        """Write a value, or refer to where it was written."""
        if id(obj) in self._memo and not isinstance(obj, int | float | str | tuple):
            self._get(self._memo[id(obj)])
            return
        writer = self._writer(obj)
        if writer is None:
            put_object(self, obj)
        else:
            writer(obj)

    def write(self, opcode: bytes) -> None:
        """Write an opcode."""
        self._out.write(opcode)

    def _writer(self, obj: Any) -> Callable[[Any], None] | None:
        if isinstance(obj, Tensor):
            return self._tensor
        for kind in (Size, device):
            if isinstance(obj, kind):
                return self._sizes if kind is Size else self._device
        if isinstance(obj, DType):
            return lambda dtype: self.name("torch", dtype.name)
        if isinstance(obj, np.generic | np.ndarray):
            return self._number if isinstance(obj, np.generic) else self._array
        found = _WRITERS.get(type(obj))
        return None if found is None else found(self)

    # ---- plain values ---------------------------------------------------------------------------

    def _constant(self, obj: Any) -> None:
        self._out.write({None: b"N", True: b"\x88", False: b"\x89"}[obj])

    def _int(self, obj: int) -> None:
        if -(1 << 31) <= obj < 1 << 31:
            self._out.write(b"J" + struct.pack("<i", obj))
            return
        data = obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True)
        short = len(data) < 256
        size = bytes([len(data)]) if short else struct.pack("<i", len(data))
        self._out.write((b"\x8a" if short else b"\x8b") + size + data)

    def _float(self, obj: float) -> None:
        self._out.write(b"G" + struct.pack(">d", obj))

    def _text(self, obj: str) -> None:
        data = obj.encode("utf-8", "surrogatepass")
        self._out.write(b"X" + struct.pack("<I", len(data)) + data)

    def _bytes(self, obj: bytes) -> None:
        self._call("_codecs", "encode", (obj.decode("latin1"), "latin1"))

    def _tuple(self, obj: Iterable[Any]) -> None:
        self._out.write(b"(")
        for value in obj:
            self.put(value)
        self._out.write(b"t")

    def _list(self, obj: list[Any]) -> None:
        self._out.write(b"]")
        self.keep(obj)
        self.elements(obj)

    def _dict(self, obj: dict[Any, Any]) -> None:
        self._out.write(b"}")
        self.keep(obj)
        self.items(obj)

    def _ordered(self, obj: OrderedDict[Any, Any]) -> None:
        self._call("collections", "OrderedDict", ())
        self.keep(obj)
        self.items(obj)
        state = {k: v for k, v in vars(obj).items() if k == "_metadata"}
        if state:
            self.put(state)
            self._out.write(b"b")

    def elements(self, obj: list[Any]) -> None:
        """Elements for the list that was written last."""
        self._out.write(b"(")
        for value in obj:
            self.put(value)
        self._out.write(b"e")

    def items(self, obj: dict[Any, Any]) -> None:
        """Items for the dict that was written last."""
        self._out.write(b"(")
        for key, value in obj.items():
            self.put(key)
            self.put(value)
        self._out.write(b"u")

    # ---- calls ----------------------------------------------------------------------------------

    def name(self, module: str, name: str) -> None:
        """Write the name of a class or a function."""
        key = (module, name)
        if key in self._memo:
            self._get(self._memo[key])
            return
        self._out.write(b"c" + f"{module}\n{name}\n".encode())
        self._memo[key] = len(self._memo)
        self._out.write(b"r" + struct.pack("<I", self._memo[key]))

    def _call(self, module: str, name: str, arguments: tuple[Any, ...]) -> None:
        self.name(module, name)
        self._tuple(arguments)
        self._out.write(b"R")

    def _sizes(self, obj: Size) -> None:
        self._call("torch", "Size", (tuple(obj),))

    def _device(self, obj: device) -> None:
        kind, _, number = str(obj).partition(":")
        self._call("torch", "device", (kind, int(number)) if number else (kind,))

    def _number(self, obj: Any) -> None:
        self._call("numpy.core.multiarray", "scalar", (_Element(obj.dtype), obj.tobytes()))

    def _array(self, obj: Array) -> None:
        if obj.dtype.kind not in "biufc":
            raise ArgumentError(f"save: an array of {obj.dtype} cannot be written")
        self.name("numpy.core.multiarray", "_reconstruct")
        self._out.write(b"(")
        self.name("numpy", "ndarray")
        self._tuple((0,))
        self.put(b"b")
        self._out.write(b"tR")
        self.keep(obj)
        self.put((1, obj.shape, _Element(obj.dtype), False, obj.tobytes()))
        self._out.write(b"b")

    def _element(self, obj: _Element) -> None:
        text = obj.dtype.str
        self._call("numpy", "dtype", (text[1:], False, True))
        self.put((3, text[0], None, None, None, -1, -1, 0))
        self._out.write(b"b")

    # ---- tensors --------------------------------------------------------------------------------

    def _tensor(self, obj: Tensor) -> None:
        own = isinstance(obj, Parameter)
        if own:
            self.name("torch._utils", "_rebuild_parameter")
            self._out.write(b"(")
        self._view(obj, obj.requires_grad and not own)
        if own:
            self.put(obj.requires_grad)
            self.put(OrderedDict())
            self._out.write(b"tR")
        self.keep(obj)

    def _view(self, obj: Tensor, tracked: bool) -> None:
        memory, view = memory_and_view(obj.detach(), "save")
        size, typed = obj.dtype.itemsize, obj.dtype in STORAGE_NAMES
        begin = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        self.name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._out.write(b"(")
        self._storage(obj, memory)
        self.put(begin // size if view.size else 0)
        self._tuple(view.shape)
        self._tuple(by // size for by in view.strides)
        self.put(tracked)
        self.put(OrderedDict())
        if not typed:
            self.put(obj.dtype)
        self._out.write(b"tR")

    def _storage(self, obj: Tensor, memory: Array) -> None:
        """The identity of the memory, which is written once however many tensors show it."""
        whole = memory.size == _elements(obj)
        key = self._cells.get(id(obj._cell)) if whole else None
        if key is None:
            key = str(len(self.storages))
            self.storages.append((key, memory))
            self._held.append(obj._cell)
            if whole:
                self._cells[id(obj._cell)] = key
        kind = STORAGE_NAMES.get(obj.dtype)
        self._out.write(b"(")
        self.put("storage")
        self.name(*(("torch.storage", "UntypedStorage") if kind is None else ("torch", kind)))
        self.put(key)
        self.put(str(obj.device) if obj.device != CPU else "cpu")
        self.put(memory.nbytes if kind is None else memory.nbytes // obj.dtype.itemsize)
        self._out.write(b"tQ")

    # ---- what was written before ----------------------------------------------------------------

    def keep(self, obj: Any) -> None:
        """Remember what was written last, for other places that hold it."""
        self._memo[id(obj)] = len(self._memo)
        self._held.append(obj)
        self._out.write(b"r" + struct.pack("<I", self._memo[id(obj)]))

    def _get(self, number: int) -> None:
        self._out.write(b"j" + struct.pack("<I", number))


class _Element:
    """An element type of NumPy's."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype


def _elements(obj: Tensor) -> int:
    """How many elements all of a tensor's memory has."""
    kind = obj._cell.node.types[0]
    count = 1
    for size in kind.shape:
        count *= int(size)
    return count * kind.dtype.itemsize // obj.dtype.itemsize


def _by_elements(module: str, name: str) -> Callable[[TorchPickler], Callable[[Any], None]]:
    return lambda pickler: lambda obj: pickler._call(module, name, (list(obj),))


_WRITERS: dict[type, Callable[[TorchPickler], Callable[[Any], None]]] = {
    type(None): lambda p: p._constant,
    bool: lambda p: p._constant,
    int: lambda p: p._int,
    float: lambda p: p._float,
    str: lambda p: p._text,
    bytes: lambda p: p._bytes,
    tuple: lambda p: p._tuple,
    list: lambda p: p._list,
    dict: lambda p: p._dict,
    OrderedDict: lambda p: p._ordered,
    Counter: lambda p: lambda obj: p._call("collections", "Counter", (dict(obj),)),
    bytearray: lambda p: lambda obj: p._call("__builtin__", "bytearray", (bytes(obj),)),
    complex: lambda p: lambda obj: p._call("__builtin__", "complex", (obj.real, obj.imag)),
    slice: lambda p: lambda s: p._call("__builtin__", "slice", (s.start, s.stop, s.step)),
    range: lambda p: lambda r: p._call("__builtin__", "range", (r.start, r.stop, r.step)),
    set: _by_elements("__builtin__", "set"),
    frozenset: _by_elements("__builtin__", "frozenset"),
    _Element: lambda p: p._element,
}
