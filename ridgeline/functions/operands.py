"""Operands: torch's type promotion, broadcasting and axis rules, over graph nodes.

Primitives want equal shapes and element types; these helpers bring operands there. Python floats
become *lifted* scalars, leaves whose value is given at run time, so that a number which changes
from step to step never changes the graph's structure; ints and bools are part of the structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.errors import (
    ArgumentError,
    AxisError,
    AxisKindError,
    BadValueError,
    DTypeError,
    SizeKindError,
)
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, SizeExpr
from ridgeline.ops.elementwise import cast, constant
from ridgeline.ops.movement import broadcast_shapes, stretch
from ridgeline.record.numbers import Lifted, lift

T = TypeVar("T")
Number: TypeAlias = bool | int | float | complex
Operand: TypeAlias = Node | Number

_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_LARGEST = (1 << 63) - 1
_SIGNED = {8: dtypes.int16, 16: dtypes.int32, 32: dtypes.int64}


class Defaults:
    """The element type that Python floats and new tensors get, and where these are made."""

    __slots__ = ("device", "dtype")
    dtype: DType
    device: str

    def __init__(self) -> None:
        self.dtype, self.device = dtypes.float32, CPU


defaults = Defaults()


def number(value: T) -> T:
    """A value that is not to be a tensor: a body could compute with a node as with a number."""
    if isinstance(value, Node):
        raise TypeError("a tensor stands for a number")
    return value


def default_complex() -> DType:
    """The complex type that goes with the default floating type."""
    return dtypes.complex128 if defaults.dtype is dtypes.float64 else dtypes.complex64


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts hold a real type."""
    return dtypes.complex128 if dtype is dtypes.float64 else dtypes.complex64


def promote_types(a: DType, b: DType) -> DType:
    """The smallest type that both convert to, as torch has it."""
    if a is b:
        return a
    if _CATEGORY[a.kind] > _CATEGORY[b.kind]:
        a, b = b, a
    if a.kind == "bool" or _CATEGORY[a.kind] < 2 <= _CATEGORY[b.kind]:
        return b
    if b.kind == "complex":
        wide = a.itemsize == 8 if a.kind == "float" else a.itemsize == 16
        return dtypes.complex128 if wide else b
    if b.kind == "float":
        if a.itemsize == b.itemsize:  # float16 with bfloat16, or two kinds of float8
            return dtypes.float32 if a.itemsize == 2 else dtypes.bfloat16
        return a if a.itemsize > b.itemsize else b
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned is dtypes.uint64:
        raise DTypeError(
            f"no type holds both {signed.name} and uint64", help="convert one of them first"
        )
    return _SIGNED[unsigned.bits]


def kind_of_number(value: Number) -> str:
    """The kind of a Python number: bool, int, float or complex."""
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, int | np.integer | SizeExpr):
        return "int"
    if isinstance(value, float | np.floating | Lifted):
        return "float"
    if isinstance(value, complex):
        return "complex"
    raise DTypeError(
        f"expected a tensor or a number, got {type(value).__name__}",
        help="convert it with ridgeline.tensor(...)",
    )


def dtype_of_number(value: Number) -> DType:
    """The type a Python number has when nothing else decides it."""
    kind = kind_of_number(value)
    if kind == "float":
        return defaults.dtype
    if kind == "complex":
        return default_complex()
    return dtypes.bool_ if kind == "bool" else dtypes.int64


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """Dimensioned tensors before 0-d ones before Python numbers, unless the kind is higher."""
    if higher is None or lower is None:
        return higher or lower
    if higher.kind == "complex":
        return higher
    if higher.kind == "float":
        return complex_of(higher) if lower.kind == "complex" else higher
    if higher.kind == "bool" or _CATEGORY[lower.kind] >= 2:
        return promote_types(higher, lower)
    return higher


def result_type(*operands: Operand) -> DType:
    """The element type in which an op on these operands computes."""
    dimensioned: DType | None = None
    scalars: DType | None = None
    numbers: DType | None = None
    for operand in operands:
        if isinstance(operand, Node):
            found = operand.types[0]
            if found.shape:
                dimensioned = (
                    promote_types(dimensioned, found.dtype) if dimensioned else found.dtype
                )
            else:
                scalars = promote_types(scalars, found.dtype) if scalars else found.dtype
        else:
            dtype = dtype_of_number(operand)
            numbers = promote_types(numbers, dtype) if numbers else dtype
    result = _combine(dimensioned, _combine(scalars, numbers))
    assert result is not None, "an op has operands"
    return result


def floating(dtype: DType) -> DType:
    """The type in which a floating function computes: the type itself, or the default one."""
    return dtype if dtype.is_differentiable else defaults.dtype


def as_float(input: Node) -> Node:
    """The input in a floating type, its own if it has one."""
    return cast(input, floating(input.dtype))


def as_node(operand: Operand, dtype: DType) -> Node:
    """An operand in the given element type; numbers become 0-d nodes."""
    if isinstance(operand, Node):
        return cast(operand, dtype)
    kind = kind_of_number(operand)
    if kind == "complex" and not dtype.is_complex:
        raise DTypeError(f"a complex number does not fit into {dtype.name}", help="use its .real")
    if kind in ("float", "complex") and dtype.is_differentiable:
        return lift(operand, dtype)  # type: ignore[arg-type]
    return literal(operand, dtype)


def check_fits(operand: Operand, dtype: DType) -> None:
    """Raise for a number that is stored as it is but has no place in the type.

    In arithmetic integers wrap round instead.
    """
    if isinstance(operand, int | float | np.number) and not dtypes.fits(operand, dtype):
        raise BadValueError(
            f"{operand} does not fit into {dtype.name}",
            help="use a wider element type",
        )


def fitting(operand: Operand, dtype: DType) -> Node:
    """An operand in an element type in which it has a place."""
    check_fits(operand, dtype)
    return as_node(operand, dtype)


def literal(value: Number | SizeExpr, dtype: DType) -> Node:
    """A number as part of the structure; integers of up to 64 bits wrap round, as in torch."""
    if isinstance(value, SizeExpr):
        return constant(value, dtype)
    if dtype.is_integer and not isinstance(value, complex):
        if not -(1 << 63) <= value < 1 << 64:
            raise DTypeError(f"{value} does not fit into {dtype.name}", help="make it a float")
        whole = int(value) & ((1 << dtype.bits) - 1)
        negative = dtype.kind == "int" and whole >> (dtype.bits - 1)
        return constant(whole - (1 << dtype.bits) if negative else whole, dtype)
    return constant(value, dtype)


def align(*operands: Operand, dtype: DType | None = None) -> list[Node]:
    """Operands in one element type (by promotion unless given) and one shape."""
    wanted = dtype or result_type(*operands)
    nodes = [as_node(operand, wanted) for operand in operands]
    shape = broadcast_shapes(*[node.types[0].shape for node in nodes])
    return [stretch(node, shape) for node in nodes]


def pair(a: Operand, b: Operand) -> tuple[Node, Node]:
    """Two operands of a binary op, brought together; nothing to do costs nothing."""
    if isinstance(a, Node):
        ta = a.types[0]
        if isinstance(b, Node):
            tb = b.types[0]
            if ta.dtype is tb.dtype:
                if len(ta.shape) == len(tb.shape) and ta.shape == tb.shape:
                    return a, b
                shape = broadcast_shapes(ta.shape, tb.shape)
                return stretch(a, shape), stretch(b, shape)
        elif type(b) is float and ta.dtype.kind == "float":
            return a, stretch(lift(b, ta.dtype), ta.shape)
        elif type(b) is int and ta.dtype.kind in ("float", "int"):
            return a, stretch(literal(b, ta.dtype), ta.shape)
    elif type(a) is float and isinstance(b, Node) and b.types[0].dtype.kind == "float":
        return stretch(lift(a, b.types[0].dtype), b.types[0].shape), b
    left, right = align(a, b)
    return left, right


MOST_STEPS = 1 << 20  # what a function may write out one by one; more would hardly end


def step_count(count: Any, what: str) -> int:
    """A number of pieces or steps that a function makes one by one."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise DTypeError(f"{what} needs an int, not {type(count).__name__} {count!r:.40}")
    if count > MOST_STEPS:
        raise ArgumentError(f"{what}: {count} steps are too many, at most {MOST_STEPS}")
    return int(count)


def axis_of(dim: Any, rank: int) -> int:
    """A non-negative axis; negative ones count from the end. A 0-d tensor has axis 0 and -1."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise AxisKindError(f"an axis is an int, not {type(dim).__name__}")
    span = max(rank, 1)
    if not -span <= dim < span:
        raise AxisError(
            f"axis {dim} does not exist in a tensor with {rank} axes",
            help=f"axes run from {-span} to {span - 1}",
        )
    return int(dim) % span


def listed(given: Any) -> list[Any]:
    """One int, or several in a sequence; text and mappings are neither."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return list(given)
    return [given]


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """Sorted axes from None (all), an int or a sequence; each at most once."""
    if dim is None:
        return tuple(range(rank))
    axes = [axis_of(d, rank) for d in listed(dim)]
    if not axes:
        return tuple(range(rank))
    if len(set(axes)) < len(axes):
        raise AxisError(f"axes {tuple(dim)} name the same axis twice")
    return tuple(sorted(axes)) if rank else ()


def require_float(node: Node, what: str) -> None:
    """Raise where an op needs floating values."""
    if not node.dtype.is_differentiable:
        raise DTypeError(
            f"{what} needs floating values, got {node.dtype.name}", help="convert with .float()"
        )


def require_real(dtype: DType, what: str) -> None:
    """Raise where an op needs floating values that are not complex."""
    if not dtype.is_floating_point:
        raise DTypeError(
            f"{what} needs real floating values, got {dtype.name}", help="convert with .float()"
        )


def whole_numbers(values: Any, what: str = "") -> tuple[int, ...]:
    """The ints of a tuple or list, such as the windows of a layer."""
    prefix = f"{what}: " if what else ""
    try:
        found = tuple(map(index, listed(values)))  # of bytes and mappings too elements may be ints
    except TypeError:
        raise SizeKindError(f"{prefix}ints are needed, not {values!r:.60}") from None
    if any(not -_LARGEST < value < _LARGEST for value in found):
        raise BadValueError(f"{prefix}ints of at most 64 bits are needed, not {values!r:.60}")
    return found


def sizes_from(args: Sequence[Any]) -> tuple[Size, ...]:
    """A shape written as `f(2, 3)`, `f((2, 3))` or `f([2, 3])`."""
    if len(args) == 1 and isinstance(args[0], Iterable):
        if isinstance(args[0], str | bytes | Mapping):
            raise SizeKindError(f"sizes are ints, not {args[0]!r:.40}")
        args = tuple(args[0])
    for size in args:
        if isinstance(size, bool) or not isinstance(size, int | np.integer | SizeExpr):
            raise SizeKindError(f"a size is an int, not {type(size).__name__}: {tuple(args)}")
        if not isinstance(size, SizeExpr) and size > _LARGEST:
            raise SizeKindError(f"a size has at most 64 bits: {tuple(args)}")
    return tuple(size if isinstance(size, SizeExpr) else int(size) for size in args)
