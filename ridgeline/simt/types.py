"""The types of a kernel's parameters: elements, arrays with named sizes, and how they are passed.

`f32["k m"]` is an array of float32 whose two sizes are called k and m; sizes of one name are equal
at a launch, and a number fixes a size (`f32["n 3"]`). `out[...]` arrays are made by the launch and
returned, `inout[...]` ones are read and written, others are read only. A bare element type is a
scalar argument, `const` a value known when the kernel is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, BadValueError

Access = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class ElementType:
    """An element type by its CUDA-like short name; called in a kernel it converts a value."""

    name: str
    dtype: DType

    def __getitem__(self, sizes: str | int | tuple[str | int, ...]) -> ArrayType:
        return ArrayType(self, _sizes(sizes))

    def __call__(self, value: Any) -> Any:
        """The value as a NumPy scalar of this type, outside kernels."""
        return self.dtype.numpy.type(value)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class TypeParameter:
    """An element type that the arguments of a launch decide, one of `choices`."""

    name: str
    choices: tuple[ElementType, ...]

    def __getitem__(self, sizes: str | int | tuple[str | int, ...]) -> ArrayType:
        return ArrayType(self, _sizes(sizes))

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ArrayType:
    """An array parameter: its element type, its sizes by name or number, and its direction."""

    element: ElementType | TypeParameter
    sizes: tuple[str | int, ...]
    access: Access = "in"

    def __repr__(self) -> str:
        inner = f'{self.element}["{" ".join(map(str, self.sizes))}"]'
        return inner if self.access == "in" else f"{self.access}[{inner}]"


class Direction:
    """`out[...]` and `inout[...]` around an array type."""

    def __init__(self, access: Access) -> None:
        self.access: Access = access

    def __getitem__(self, array: Any) -> ArrayType:
        if not isinstance(array, ArrayType):
            raise BadTypeError(
                f"{self.access}[...] takes an array type, not {array!r:.40}",
                help=f'write {self.access}[f32["n"]]',
            )
        return replace(array, access=self.access)

    def __repr__(self) -> str:
        return self.access


class ConstMark:
    """`const`: a parameter whose value is compiled in."""

    def __repr__(self) -> str:
        return "const"


def _sizes(sizes: str | int | tuple[str | int, ...]) -> tuple[str | int, ...]:
    if isinstance(sizes, int):
        sizes = (sizes,)
    parts = sizes.replace(",", " ").split() if isinstance(sizes, str) else sizes
    found = tuple(int(part) if str(part).isdigit() else part for part in parts)
    for size in found:
        if isinstance(size, str) and not size.isidentifier():
            raise BadValueError(
                f"{size!r} is no name of a size", help='name sizes as in f32["rows columns"]'
            )
    if not found:
        raise BadValueError(
            "an array type needs its sizes", help='f32["n"] has one axis of length n'
        )
    return found


i8 = ElementType("i8", dtypes.int8)
i16 = ElementType("i16", dtypes.int16)
i32 = ElementType("i32", dtypes.int32)
i64 = ElementType("i64", dtypes.int64)
u8 = ElementType("u8", dtypes.uint8)
u16 = ElementType("u16", dtypes.uint16)
u32 = ElementType("u32", dtypes.uint32)
u64 = ElementType("u64", dtypes.uint64)
f16 = ElementType("f16", dtypes.float16)
bf16 = ElementType("bf16", dtypes.bfloat16)
f32 = ElementType("f32", dtypes.float32)
f64 = ElementType("f64", dtypes.float64)
e4m3 = ElementType("e4m3", dtypes.float8_e4m3fn)
e5m2 = ElementType("e5m2", dtypes.float8_e5m2)
bool_ = ElementType("bool_", dtypes.bool_)
ELEMENTS = (i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, e4m3, e5m2, bool_)
_SHORT = {element.dtype: element.name for element in ELEMENTS}
out, inout, const = Direction("out"), Direction("inout"), ConstMark()


def typevar(name: str, *choices: ElementType) -> TypeParameter:
    """A kernel's template parameter: `T = typevar("T", f32, f64)`, then `x: T["n"]`."""
    return TypeParameter(name, choices or (f32, f64, f16, bf16))


def short(dtype: DType) -> str:
    """How a kernel writes an element type: `f32` for float32."""
    return _SHORT.get(dtype, dtype.name)


def element_of(value: Any) -> ElementType | None:
    """The element type that a value in a kernel's scope means, or None."""
    if isinstance(value, ElementType):
        return value
    if isinstance(value, DType):
        return next((element for element in ELEMENTS if element.dtype is value), None)
    if value is bool:
        return bool_
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        row = dtypes.from_numpy(value)
        return None if row is None else element_of(row)
    return None
