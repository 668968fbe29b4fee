"""cuBLASLt by a thin binding: matrix products described once, with the library's best algorithm.

The library is found in NVIDIA's wheels or on the system. A product is described column-major, as
the library has it; one whose result is row-major is computed transposed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any

from ridgeline.runtime.cuda.driver import DeviceFailure, destroy_discarded, destroying, load
from ridgeline.runtime.cuda.steps import ArgumentWords

WORKSPACE = 32 << 20
_FOLDERS = ("cu13/lib", "cublas/lib", "cu12/lib")
_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")

_REAL = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_FLOAT_32, _FLOAT_64, _FAST_TF32 = 68, 70, 77
_TRANSPOSE = 1
# attributes of matmul descriptions, layouts and preferences
_DESC_TRANSA, _DESC_TRANSB, _DESC_EPILOGUE, _DESC_BIAS = 3, 4, 7, 8
_ADD_BIAS = 4  # of the epilogues: a number for each row of the column-major result
_ALIGNED = 256  # bytes, at least, that memory begins at a multiple of
_LAYOUT_BATCH_COUNT, _LAYOUT_BATCH_STRIDE = 5, 6
_PREF_WORKSPACE = 1
_PREF_REDUCTION = 3
_PREF_ALIGNMENT = (5, 6, 7, 8)
_WIDE_REDUCTIONS = 1 | 2  # pieces of a sum meet in float32, never rounded to the result's type


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int32),
        ("waves", c_float),
        ("reserved", c_int32 * 4),
    )


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A matrix: its slot, byte offset, strides of rows and columns, stride between batches."""

    slot: int
    offset: int
    row: int
    column: int
    batch: int
    outer: tuple[int, ...]


@lru_cache(maxsize=1)
def library() -> Any:
    """The library, or None where it is not installed."""
    return load(_FOLDERS, _NAMES)


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceFailure(f"cuBLASLt: {what} failed with status {status}")


@lru_cache(maxsize=64)
def _handle(device: int) -> c_void_p:
    made = c_void_p()
    _check(library().cublasLtCreate(byref(made)), "cublasLtCreate")
    return made


def _compute_type(dtype: str, shortened: bool) -> int:
    if dtype == "float64":
        return _FLOAT_64
    return _FAST_TF32 if dtype == "float32" and shortened else _FLOAT_32


class _Description:
    """A description that the library made; after this is let go, the next one destroys it."""

    __slots__ = ("__del__", "_setter", "raw")
    __del__: Callable[[], object]

    def __init__(self, kind: str, *settings: Any) -> None:
        destroy_discarded()
        found, self.raw = library(), c_void_p()
        made = getattr(found, f"cublasLt{kind}Create")(byref(self.raw), *settings)
        _check(made, f"cublasLt{kind}Create")
        self.__del__ = destroying(getattr(found, f"cublasLt{kind}Destroy"), self.raw)
        self._setter = getattr(found, f"cublasLt{kind}SetAttribute")

    def set(self, attribute: int, value: Any) -> None:
        """Set an attribute."""
        size = c_size_t(ctypes.sizeof(value))
        status = self._setter(self.raw, c_int32(attribute), byref(value), size)
        _check(status, self._setter.__name__)


def _layout(
    dtype: str, rows: int, columns: int, leading: int, batch: int, stride: int
) -> _Description:
    sizes = (c_uint64(rows), c_uint64(columns), c_int64(leading))
    made = _Description("MatrixLayout", c_int32(_REAL[dtype]), *sizes)
    if batch > 1:
        made.set(_LAYOUT_BATCH_COUNT, c_int32(batch))
        made.set(_LAYOUT_BATCH_STRIDE, c_int64(stride))
    return made


class MatmulStep:
    """One matrix product of a plan, for every outer index."""

    waits = False

    def __init__(
        self,
        device: int,
        dtypes: tuple[str, str],
        sizes: tuple[int, int, int, int],
        outer: tuple[int, ...],
        operands: Sequence[MatrixOperand],
        workspace_slot: int,
        words: ArgumentWords,
        shortened: bool,
        bias: int | None = None,
    ) -> None:
        left, right, result = operands
        dtype = dtypes[0]
        m, n, k, batch = sizes
        if bias is not None or (result.row != 1 and m != 1):
            # row-major, or a bias for every column: the transposed product, column-major
            left, right = _turned(right), _turned(left)
            result, m, n = _turned(result), n, m
        self.slots = frozenset(operand.slot for operand in operands) | {workspace_slot}
        self.slots |= frozenset(() if bias is None else (bias,))
        self._library, self._handle = library(), _handle(device)
        self._words, self._workspace, self._bias = words, workspace_slot, bias
        self._operands = (left, right, result)
        self._scale = c_double if dtype == "float64" else c_float
        self._one, self._zero = self._scale(1.0), self._scale(0.0)
        self._describe(dtypes, _compute_type(dtype, shortened), (m, n, k, batch))
        kinds = (dtype, dtype, dtypes[1])
        self._offsets = [
            _offsets(operand, outer, _BYTES[kind]) for operand, kind in zip(self._operands, kinds)
        ]
        self._choose(dtype)

    def _describe(
        self, dtypes: tuple[str, str], compute: int, sizes: tuple[int, int, int, int]
    ) -> None:
        left, right, result = self._operands
        dtype = dtypes[0]
        m, n, k, batch = sizes
        scale_type = _REAL["float64" if dtype == "float64" else "float32"]
        self._description = _Description("MatmulDesc", c_int32(compute), c_int32(scale_type))
        if self._bias is not None:
            self._description.set(_DESC_EPILOGUE, c_int32(_ADD_BIAS))
            self._description.set(_DESC_BIAS, c_uint64(_ALIGNED))
        self._layouts = []
        for operand, rows, columns, attribute in (
            (left, m, k, _DESC_TRANSA),
            (right, k, n, _DESC_TRANSB),
            (result, m, n, None),
        ):
            tall = (operand.row == 1 or rows == 1) and (operand.column >= rows or columns == 1)
            if not tall:
                assert attribute is not None, "the result is column-major"
                self._description.set(attribute, c_int32(_TRANSPOSE))
                rows, columns = columns, rows
            leading = max(operand.column if tall else operand.row, rows)
            kind = dtype if attribute is not None else dtypes[1]
            self._layouts.append(_layout(kind, rows, columns, leading, batch, operand.batch))

    def _choose(self, dtype: str) -> None:
        """The library's first choice among its algorithms, for how the operands are aligned."""
        preference = _Description("MatmulPreference")
        preference.set(_PREF_WORKSPACE, c_uint64(WORKSPACE))
        preference.set(_PREF_REDUCTION, ctypes.c_uint32(_WIDE_REDUCTIONS))
        aligned = [_alignment(offsets) for offsets in self._offsets]
        for attribute, alignment in zip(_PREF_ALIGNMENT, (*aligned, aligned[-1])):
            preference.set(attribute, ctypes.c_uint32(alignment))
        self._algorithm = _Heuristic()
        count = c_int32()
        left, right, result = self._layouts
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, self._description.raw, left.raw, right.raw, result.raw, result.raw,
            preference.raw, c_int32(1), byref(self._algorithm), byref(count),
        )  # fmt: skip
        _check(status or int(count.value == 0), f"finding an algorithm for {dtype}")

    def enqueue(self, stream: Any) -> None:
        """Put the product onto a stream, with the addresses as they are now."""
        words = self._words
        bases = [words[operand.slot] for operand in self._operands]
        left, right, result = self._layouts
        if self._bias is not None:
            self._description.set(_DESC_BIAS, c_uint64(words[self._bias]))
        for offsets in zip(*self._offsets):
            a, b, c = (c_void_p(base + offset) for base, offset in zip(bases, offsets))
            status = self._library.cublasLtMatmul(
                self._handle, self._description.raw, byref(self._one), a, left.raw, b, right.raw,
                byref(self._zero), c, result.raw, c, result.raw, byref(self._algorithm.algo),
                c_void_p(words[self._workspace]), c_size_t(WORKSPACE), c_void_p(int(stream)),
            )  # fmt: skip
            _check(status, "cublasLtMatmul")


def _turned(operand: MatrixOperand) -> MatrixOperand:
    """The transposed matrix."""
    return MatrixOperand(
        operand.slot, operand.offset, operand.column, operand.row, operand.batch, operand.outer
    )


def _offsets(operand: MatrixOperand, outer: tuple[int, ...], itemsize: int) -> Sequence[int]:
    """Byte offsets of an operand for every outer index."""
    return [
        (operand.offset + sum(i * stride for i, stride in zip(index, operand.outer))) * itemsize
        for index in product(*map(range, outer))
    ]


def _alignment(offsets: Sequence[int]) -> int:
    """The power of two that all offsets into aligned memory share, at most 256."""
    shared = gcd(256, *offsets)
    return shared & -shared
