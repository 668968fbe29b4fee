"""Programs from files: `load_program("step.rlx")(x, y)`, without a compiler or the model's source.

The file is read and checked whole, and what was checked is what is mapped. Each loaded program has
state of its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.llvm.machine_code import usable_threads
from ridgeline.config import config
from ridgeline.deploy.file import digest, read_program
from ridgeline.deploy.sizes import SizeError, evaluate, solve
from ridgeline.errors import (
    BadTypeError,
    BadValueError,
    ComputeError,
    DeviceError,
    DTypeError,
    InputFileError,
    ShapeError,
)
from ridgeline.files import file_in_memory
from ridgeline.graph.node import TensorType
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import PLAIN, filled_leaf
from ridgeline.record.memory import settled
from ridgeline.record.modes import modes
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tensors.tensor import Tensor, holding

_ABI = 1


def load_program(path: str | Path) -> DeployedProgram:
    """A program from a file that `export` wrote, ready to be called with tensors or arrays.

    A program file is machine code: load only files from people you trust. A file that is damaged,
    or is for another machine, is an error.
    """
    return DeployedProgram(path)


class _Tensor:
    """A tensor of a program's interface."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.name: str = row["name"]
        kind = getattr(dtypes, {"bool": "bool_"}.get(row["dtype"], row["dtype"]), None)
        if not isinstance(kind, dtypes.DType):
            raise InputFileError(f"the program has a tensor of {row['dtype']}")
        self.dtype, self.shape = kind, tuple(row["shape"])
        self.fixed = all(isinstance(length, int) for length in self.shape)

    def __str__(self) -> str:
        lengths = (str(n) if isinstance(n, int | str) else "…" for n in self.shape)
        return f"{self.name}: {self.dtype.name}[{', '.join(lengths)}]"


class DeployedProgram:
    """A program of a file. It may be called by several threads at once; its state is its own.

    What closes it is C code: see `HostBuffer`.
    """

    __slots__ = (
        "__del__", "__weakref__", "_handle", "_kept", "_library", "_run", "_sizes", "inputs",
        "manifest", "outputs", "path",
    )  # fmt: skip
    __del__: Callable[[], object]

    def __init__(self, path: str | Path) -> None:
        content, manifest = read_program(path)
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            raise DeviceError(f"{path} has code for Linux on x86-64, and this is another machine")
        self.path, self.manifest = Path(path), manifest
        self.inputs = [_Tensor(row) for row in manifest["inputs"]]
        self.outputs = [_Tensor(row) for row in manifest["outputs"]]
        self._kept = [_Tensor(row) for row in manifest["state"]]
        self._sizes: list[str] = [row["name"] for row in manifest["sizes"]]
        self._library = _library(content, self.path)
        if self._library.rlx_version() != _ABI:
            raise InputFileError(f"{path} has another version of the interface")
        self._library.rlx_threads(config.threads or usable_threads())
        handle = ctypes.c_void_p()
        self._check(self._library.rlx_open(None, ctypes.byref(handle)))
        self._handle = handle
        self.__del__ = partial(self._library.rlx_close, handle)
        self._run = self._library.rlx_run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.capture is not None:
            raise CaptureError(
                f"{self.path.name} is called while jit traces a function: it would run once, now",
                help="call it outside of the jitted function",
            )
        given: dict[int, Any] = {}
        _match(self.manifest["arguments"], (args, kwargs), given, "the arguments")
        buffers = [_memory(given[n], spec) for n, spec in enumerate(self.inputs)]
        sizes = self._lengths([shape for _, shape in buffers])
        shapes = [
            spec.shape if spec.fixed else tuple(evaluate(n, sizes) for n in spec.shape)
            for spec in self.outputs
        ]
        made = [
            HostBuffer.allocate(prod(shape) * spec.dtype.itemsize)
            for spec, shape in zip(self.outputs, shapes)
        ]
        self._check(
            self._run(
                self._handle,
                _addresses([buffer for buffer, _ in buffers]),
                _addresses(made),
                (ctypes.c_int64 * max(len(sizes), 1))(*sizes.values()),
            )
        )
        results = [
            holding(filled_leaf(TensorType(shape, spec.dtype), buffer), PLAIN)
            for spec, shape, buffer in zip(self.outputs, shapes, made)
        ]
        return _built(self.manifest["results"], given, results)

    def _lengths(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes of a call, from the shapes of its inputs."""
        try:
            return solve(self._sizes, [(t.name, t.shape) for t in self.inputs], shapes)
        except SizeError as error:
            expected = ", ".join(map(str, self.inputs))
            raise ShapeError(str(error), note=f"the program takes {expected}") from None

    def _check(self, status: int) -> None:
        if status:
            text = ctypes.c_char_p(self._library.rlx_message(status)).value or b""
            kind = DeviceError if status == 2 else IndexError if status == 4 else ComputeError
            raise kind(f"{self.path.name}: {text.decode()}")

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of all that the program keeps from call to call, by name."""
        return {spec.name: self._view(number).copy() for number, spec in enumerate(self._kept)}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Replace some of what the program keeps, by name."""
        numbers = {spec.name: number for number, spec in enumerate(self._kept)}
        for name, value in values.items():
            if name not in numbers:
                known = ", ".join(numbers) or "none"
                raise BadValueError(f"there is no state {name!r}", help=f"there is {known}")
            place = self._view(numbers[name])
            new = np.asarray(value.numpy() if isinstance(value, Tensor) else value)
            if new.shape != place.shape:
                raise ShapeError(f"{name} has shape {place.shape}, not {new.shape}")
            place[...] = new
            if not place.shape:  # a number that the program reads in several types
                for other, number in numbers.items():
                    if other not in values and re.fullmatch(rf"{re.escape(name)}\.\d+", other):
                        self._view(number)[...] = new

    def _view(self, number: int) -> np.ndarray[Any, Any]:
        spec = self._kept[number]
        address = self._library.rlx_state(self._handle, number)
        count = prod(spec.shape) * spec.dtype.itemsize
        memory = (ctypes.c_char * count).from_address(address)
        return np.frombuffer(memory, spec.dtype.numpy).reshape(spec.shape)

    @property
    def instruction_set(self) -> str:
        """The name of the code that this processor runs, of those in the file."""
        found = ctypes.c_char_p(self._library.rlx_instruction_set(self._handle)).value
        return (found or b"").decode()

    def __repr__(self) -> str:
        given, made = (", ".join(map(str, each)) for each in (self.inputs, self.outputs))
        return f"{self.manifest['name']}({given}) -> ({made}), {self.instruction_set}"


# What is mapped, by the hash of the file: code stays in the process, and is there once.
_mapped: dict[bytes, tuple[ctypes.CDLL, FileIO]] = {}


def _library(content: bytes, path: Path) -> ctypes.CDLL:
    """The code of a file in this process, which programs of equal files share."""
    key = digest(content)
    if key not in _mapped:
        _mapped.setdefault(key, _map(content, path))
    return _mapped[key][0]


def _map(content: bytes, path: Path) -> tuple[ctypes.CDLL, FileIO]:
    """The file in this process, by a name of its own: it may be written anew under the old one.

    The nameless file stays open as long as the code is mapped, so that its number is not another's.
    """
    file = file_in_memory(path.name)
    with memoryview(content) as view:
        done = 0
        while done < len(view):
            done += os.write(file.fileno(), view[done:])
    try:
        library = ctypes.CDLL(f"/proc/self/fd/{file.fileno()}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        file.close()
        raise InputFileError(f"the system does not load {path}: {error}") from None
    for name in ("rlx_message", "rlx_instruction_set", "rlx_state"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rlx_close.restype = None
    library.rlx_state.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library, file


def _addresses(buffers: Sequence[HostBuffer]) -> Any:
    return (ctypes.c_void_p * max(len(buffers), 1))(*[buffer.address for buffer in buffers])


def _memory(value: Any, spec: _Tensor) -> tuple[HostBuffer, tuple[int, ...]]:
    """The memory of an argument as the program reads it, and its shape."""
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            raise DeviceError(f"{spec.name} is on {value.device}, and the program on the CPU")
        if value.dtype is not spec.dtype:
            raise DTypeError(f"{spec.name} is {value.dtype.name}, not {spec.dtype.name}")
        shape = tuple(value.shape)
        if not value._steps:
            buffer = settled(value._cell).buffer
            if isinstance(buffer, HostBuffer):
                return buffer, shape
        value = value.detach().numpy()
    array = np.asarray(value)
    if array.dtype != spec.dtype.numpy:
        raise DTypeError(f"{spec.name} is {array.dtype}, not {spec.dtype.name}")
    return HostBuffer.borrow(np.require(array, requirements=["C", "A"])), array.shape


def _match(tree: Mapping[str, Any], value: Any, given: dict[int, Any], where: str) -> None:
    """Find the inputs among arguments that are nested as those of the export."""
    ((kind, inner),) = tree.items()
    if kind == "input":
        given[inner] = value
    elif kind == "is":
        if value is not inner and value != inner:
            raise BadValueError(
                f"{where} is {value!r}, and the program was exported for {inner!r}",
                help="numbers and strings are part of a program; give tensors for what changes",
            )
    elif kind == "dict":
        if not isinstance(value, Mapping) or set(value) != set(inner):
            raise BadTypeError(f"{where} must have the names {', '.join(inner) or 'of nothing'}")
        for key, part in inner.items():
            _match(part, value[key], given, key)
    else:
        if not isinstance(value, list | tuple) or len(value) != len(inner):
            count = len(value) if isinstance(value, list | tuple) else "another kind"
            raise BadTypeError(f"{where} must be {len(inner)} values, not {count}")
        for number, (part, item) in enumerate(zip(inner, value)):
            _match(part, item, given, f"{where}[{number}]")


def _built(tree: Mapping[str, Any], given: Mapping[int, Any], results: Sequence[Tensor]) -> Any:
    """What a call returns."""
    ((kind, inner),) = tree.items()
    if kind == "input":
        return given[inner]
    if kind == "output":
        return results[inner]
    if kind == "is":
        return inner
    if kind == "dict":
        return {key: _built(part, given, results) for key, part in inner.items()}
    parts = [_built(part, given, results) for part in inner]
    return tuple(parts) if kind == "tuple" else parts
