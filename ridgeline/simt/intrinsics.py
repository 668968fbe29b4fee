"""Scalar operations that kernels have beside the table of `ridgeline/scalars.py`: bits, fast math.

Each has its meaning in NumPy, which the simulator runs and the other ways to run agree with;
functions whose name starts with `fast_` may differ from it in their last bits on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline import scalars
from ridgeline.float_errors import float_errors_ignored
from ridgeline.scalars import Array


def _unsigned(value: Array) -> Array:
    return np.asarray(value.view(np.dtype(f"uint{value.dtype.itemsize * 8}")))


def _popc(value: Array) -> Array:
    bits = np.ascontiguousarray(_unsigned(np.ascontiguousarray(value)))
    octets = bits.view(np.uint8).reshape(*bits.shape, bits.dtype.itemsize)
    counts: Array = np.unpackbits(octets, axis=-1).sum(axis=-1).astype(np.int32)
    return counts


def _clz(value: Array) -> Array:
    bits = _unsigned(np.ascontiguousarray(value))
    width = value.dtype.itemsize * 8
    for shift in (1 << k for k in range(width.bit_length() - 1)):  # smear the highest bit down
        bits = bits | (bits >> bits.dtype.type(shift))
    return (width - _popc(bits)).astype(np.int32)


def _ffs(value: Array) -> Array:
    bits = _unsigned(np.ascontiguousarray(value))
    with float_errors_ignored():
        lowest = bits & (~bits + bits.dtype.type(1))
    found = value.dtype.itemsize * 8 - _clz(lowest)
    return np.where(bits == 0, 0, found).astype(np.int32)


def _brev(value: Array) -> Array:
    bits = np.ascontiguousarray(_unsigned(np.ascontiguousarray(value)))
    octets = bits.view(np.uint8).reshape(*bits.shape, bits.dtype.itemsize)
    flipped = np.unpackbits(octets, axis=-1)[..., ::-1]  # little-endian bytes, high bit first
    return np.packbits(flipped, axis=-1, bitorder="big").view(bits.dtype)[..., 0].view(value.dtype)


def _mulhi(a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    product = a.astype(object) * b.astype(object) if width == 64 else _wide_product(a, b)
    return (product >> width).astype(a.dtype)


def _wide_product(a: Array, b: Array) -> Array:
    wide = np.uint64 if a.dtype.kind == "u" else np.int64
    return a.astype(wide) * b.astype(wide)


def _rsqrt(x: Array) -> Array:
    wide = x.astype(np.float64)
    return (1.0 / np.sqrt(wide)).astype(x.dtype)


EXTRA: dict[str, Callable[..., Array]] = {
    "popc": _popc,
    "clz": _clz,
    "ffs": _ffs,
    "brev": _brev,
    "mulhi": _mulhi,
    "rsqrt": _rsqrt,
    "isinf": np.isinf,
    "fast_exp": scalars.TABLE["exp"].numpy,
    "fast_log": scalars.TABLE["log"].numpy,
    "fast_sin": scalars.TABLE["sin"].numpy,
    "fast_cos": scalars.TABLE["cos"].numpy,
    "fast_reciprocal": scalars.TABLE["reciprocal"].numpy,
    "fast_rsqrt": _rsqrt,
    "fast_divide": scalars.TABLE["div"].numpy,
    "fast_pow": scalars.TABLE["pow"].numpy,
}
# element type of the result where it is not the operands': bits count into int32
COUNTS_BITS = frozenset({"popc", "clz", "ffs"})


def evaluate(name: str, operands: Sequence[Any]) -> Array:
    """The value of a scalar operation on arrays; the caller has told NumPy not to warn."""
    extra = EXTRA.get(name)
    if extra is None:
        return scalars.value_of(scalars.TABLE[name], operands)
    narrow = operands[0].dtype
    if narrow.itemsize < 4 and narrow.kind in "fV":
        found = extra(*[operand.astype(np.float32) for operand in operands])
        return found if found.dtype.kind == "b" else found.astype(narrow)
    return np.asarray(extra(*operands))
