"""The `fft` namespace: transforms with lengths, axes and norms as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import AxisError, BadValueError, DTypeError
from ridgeline.functions.movement import cut, roll
from ridgeline.functions.operands import axis_of, defaults, listed
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops.complex import complex_of, conj
from ridgeline.ops.elementwise import apply, cast, full_like, iota, scale
from ridgeline.ops.fft import complex_transform, half_transform, real_transform
from ridgeline.ops.movement import pad
from ridgeline.record.cells import known

Dims = int | Sequence[int] | None
Sizes = Sequence[int] | None


def _factor(norm: str | None, forward: bool, count: int) -> float:
    """What a transform is multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise BadValueError(f'norm is "backward", "ortho" or "forward", not {norm!r}')
    if norm == "ortho":
        return 1 / math.sqrt(count) if count else 1.0
    divided = forward if norm == "forward" else not forward
    return 1 / count if divided and count else 1.0


def _floats(input: Node, what: str) -> Node:
    """The input in a type that has transforms."""
    if not input.dtype.is_differentiable:
        return cast(input, defaults.dtype)
    if input.dtype.kind == "float" and input.dtype.itemsize < 4:
        raise DTypeError(f"{what} is not defined for {input.dtype.name}", help="use .float()")
    return input


def _complex(input: Node, what: str) -> Node:
    x = _floats(input, what)
    return cast(x, complex_of(x.dtype))


def _fitted(x: Node, axis: int, size: int, what: str) -> Node:
    """The input cut or filled with zeros to a size along one axis."""
    if size < 1:
        raise BadValueError(f"{what} needs at least one point along each axis, got {size}")
    own = known(x.shape[axis])
    if own >= size:
        return cut(x, axis, 0, size)
    rank = len(x.shape)
    return pad(x, (0,) * rank, tuple(size - own if a == axis else 0 for a in range(rank)))


def _axes(input: Node, s: Sizes, dim: Dims, what: str) -> tuple[list[int], list[int | None]]:
    """The axes of a transform of several axes, and the sizes asked for."""
    rank = len(input.shape)
    if dim is None:
        count = rank if s is None else len(s)
        if count > rank:
            raise AxisError(f"{what} of {count} sizes needs as many axes, got {rank}")
        axes = list(range(rank - count, rank))
    else:
        axes = [axis_of(d, rank) for d in listed(dim)]
    if len(set(axes)) < len(axes):
        raise AxisError(f"{what} names an axis twice: {dim}")
    sizes: list[int | None] = (
        [None] * len(axes) if s is None else [None if size == -1 else int(size) for size in s]
    )
    if len(sizes) != len(axes):
        raise BadValueError(f"{what} needs one size per axis, got {sizes} for axes {axes}")
    return axes, sizes


def _sized(x: Node, axes: Sequence[int], sizes: Sequence[int | None], what: str) -> Node:
    for axis, size in zip(axes, sizes):
        x = _fitted(x, axis, known(x.shape[axis]) if size is None else size, what)
    return x


def _count(x: Node, axes: Sequence[int]) -> int:
    return math.prod(known(x.shape[axis]) for axis in axes)


def _transform(
    input: Node, s: Sizes, dim: Dims, norm: str | None, forward: bool, what: str
) -> Node:
    """Complex values in, complex values out."""
    x = _complex(input, what)
    axes, sizes = _axes(x, s, dim, what)
    x = _sized(x, axes, sizes, what)
    if not axes:
        return x
    factor = _factor(norm, forward, _count(x, axes))
    return complex_transform(x, tuple(a - len(x.shape) for a in axes), forward, factor)


def _to_half(input: Node, s: Sizes, dim: Dims, norm: str | None, forward: bool, what: str) -> Node:
    """Real values in, half a spectrum along the last of the axes out."""
    x = _floats(input, what)
    if x.dtype.is_complex:
        raise DTypeError(f"{what} needs real values, got {x.dtype.name}")
    axes, sizes = _axes(x, s, dim, what)
    if not axes:
        raise AxisError(f"{what} needs at least one axis")
    x = _sized(x, axes, sizes, what)
    factor, rank = _factor(norm, forward, _count(x, axes)), len(x.shape)
    half = half_transform(x, axes[-1] - rank, factor)
    others = tuple(a - rank for a in axes[:-1])
    if not forward:  # a backward transform of real values is a conjugated forward one
        half = conj(half)
    return complex_transform(half, others, forward, 1.0) if others else half


def _to_real(input: Node, s: Sizes, dim: Dims, norm: str | None, forward: bool, what: str) -> Node:
    """Half a spectrum along the last of the axes in, real values out."""
    x = _complex(input, what)
    axes, sizes = _axes(x, s, dim, what)
    if not axes:
        raise AxisError(f"{what} needs at least one axis")
    last, rank = axes[-1], len(x.shape)
    length = 2 * (known(x.shape[last]) - 1) if sizes[-1] is None else sizes[-1]
    if length < 1:
        raise BadValueError(f"{what} needs at least one point along each axis, got {length}")
    x = _sized(x, axes, [*sizes[:-1], length // 2 + 1], what)
    factor = _factor(norm, forward, _count(x, axes[:-1]) * length)
    others = tuple(a - rank for a in axes[:-1])
    if others:
        x = complex_transform(x, others, forward, 1.0)
    return real_transform(conj(x) if forward else x, last - rank, length, factor)


def _one(n: int | None) -> Sizes:
    return None if n is None else (n,)


def _along(input: Node, dim: int) -> Sizes:
    """The only axis of a transform."""
    return (axis_of(dim, len(input.shape)),)


def _family(
    name: str, compute: Callable[..., Node], forward: bool, *abouts: str
) -> Callable[..., Node]:
    """Register a transform along one axis, which is returned, along two, and along some or all."""

    def one(input: Node, n: int | None = None, dim: int = -1, norm: str | None = None) -> Node:
        return compute(input, _one(n), _along(input, dim), norm, forward, name)

    def two(input: Node, s: Sizes = None, dim: Dims = (-2, -1), norm: str | None = None) -> Node:
        return compute(input, s, dim, norm, forward, f"{name}2")

    def some(input: Node, s: Sizes = None, dim: Dims = None, norm: str | None = None) -> Node:
        return compute(input, s, dim, norm, forward, f"{name}n")

    bodies: tuple[Callable[..., Node], ...] = (one, two, some)
    for body, suffix, about in zip(bodies, ("", "2", "n"), abouts, strict=True):
        body.__name__ = body.__qualname__ = name + suffix
        body.__doc__ = about
        public(namespace="fft")(body)
    return one


def _inverse(name: str) -> tuple[str, ...]:
    return tuple(f"The inverse of `{name}{suffix}`." for suffix in ("", "2", "n"))


fft = _family(
    "fft", _transform, True, "The transform along one axis.", "The transform along two axes.",
    "The transform along some axes, or all.",
)  # fmt: skip
ifft = _family("ifft", _transform, False, *_inverse("fft"))
rfft = _family(
    "rfft", _to_half, True, "The non-negative frequencies of a real signal.",
    "`rfft` along the last of two axes, `fft` along the other.",
    "`rfft` along the last of some axes, `fft` along the others.",
)  # fmt: skip
irfft = _family("irfft", _to_real, False, *_inverse("rfft"))
_family(
    "hfft", _to_real, True, "The real spectrum of half a Hermitian signal.",
    "`hfft` along the last of two axes, `fft` along the other.",
    "`hfft` along the last of some axes, `fft` along the others.",
)  # fmt: skip
_family("ihfft", _to_half, False, *_inverse("hfft"))


def _shift(input: Node, dim: Dims, back: bool) -> Node:
    rank = len(input.shape)
    axes = [axis_of(d, rank) for d in (range(rank) if dim is None else listed(dim))]
    halves = [known(input.shape[a]) // 2 for a in axes]
    if back:
        halves = [-half for half in halves]
    return roll(input, halves, axes) if axes else input


@public(namespace="fft")
def fftshift(input: Node, dim: Dims = None) -> Node:
    """The zero frequency moved to the centre."""
    return _shift(input, dim, False)


@public(namespace="fft")
def ifftshift(input: Node, dim: Dims = None) -> Node:
    """The inverse of `fftshift`."""
    return _shift(input, dim, True)


@public(namespace="fft", creation=True)
def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None) -> Node:
    """The frequencies of `fft`, in cycles per unit, for samples `d` apart."""
    positions = iota((n,), 0, dtypes.int64)
    upper = full_like(positions, (n - 1) // 2) < positions
    wrapped = apply("select", upper, positions - n, positions)
    return scale(cast(wrapped, dtype or defaults.dtype), 1 / (n * d) if n else 1.0)


@public(namespace="fft", creation=True)
def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None) -> Node:
    """The frequencies of `rfft`."""
    positions = iota((n // 2 + 1,), 0, dtype or defaults.dtype)
    return scale(positions, 1 / (n * d) if n else 1.0)
