"""Random numbers: one stream per generator, the same on every device and in every way to run.

A draw is allotted its place in the stream when it is recorded, in program order, whether or not it
is ever computed. Key and offset are run-time arguments, so drawing again never recompiles.
"""

from __future__ import annotations

import math
import secrets
import threading
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, RidgelineError
from ridgeline.functions.operands import Operand, as_node, defaults, sizes_from, stretch
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import Size
from ridgeline.modes import modes
from ridgeline.ops.elementwise import apply, cast, full_like, scale, stop_gradient
from ridgeline.ops.random import blocks, random_bits
from ridgeline.runtime.buffer import Buffer

_MASK = (1 << 64) - 1
_lock = threading.Lock()
_WORD = TensorType((), dtypes.uint64)


def word(value: int) -> Node:
    """A 64-bit number as a run-time argument."""
    made = leaf(_WORD)
    made.buffer = Buffer.borrow(np.array(value & _MASK, np.uint64))
    return made


class Generator:
    """A stream of random numbers: a seed, and how much of the stream was used."""

    def __init__(self, device: Any = None) -> None:
        self._seed, self._offset = 0, 0
        self.seed()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed from its beginning."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise RidgelineError(f"a seed is an int, not {type(seed).__name__}")
        if modes.capture is not None:
            raise RidgelineError(
                "a generator cannot be seeded inside jit", help="seed it before the jitted call"
            )
        self._seed, self._offset = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        """Start the stream of a seed taken from the system."""
        self.manual_seed(secrets.randbits(63))
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """The seed and the place in the stream."""
        return (self._seed, self._offset)

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to a place that `get_state` gave."""
        self._seed, self._offset = state

    def skip(self, count: int) -> int:
        """Move on by some blocks of the stream; where it stood before."""
        with _lock:
            start = self._offset
            self._offset = start + count
        return start

    def take(self, count: int) -> tuple[Node, Node]:
        """The key and the offset of the next `count` blocks of the stream."""
        capture = modes.capture
        if capture is not None:
            return capture.random_blocks(self, count)
        return word(self._seed), word(self.skip(count))


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def draw(shape: tuple[Size, ...], generator: Generator | None) -> Node:
    """Random 32-bit words."""
    key, offset = (generator or default_generator).take(blocks(shape))
    return random_bits(key, offset, shape)


def _unit(shape: tuple[Size, ...], dtype: DType, generator: Generator | None) -> Node:
    """Uniform in [0, 1), with as many random bits as the type can hold."""
    if not dtype.is_floating_point:
        raise DTypeError(f"random numbers need a floating type, not {dtype.name}")
    if dtype is dtypes.float64:
        high = cast(apply_shift(draw(shape, generator), 6), dtypes.float64)  # 26 bits
        low = cast(apply_shift(draw(shape, generator), 5), dtypes.float64)  # 27 bits
        return scale(apply("add", scale(high, 2.0**27), low), 2.0**-53)
    digits = {2: 11 if dtype is dtypes.float16 else 8, 1: 4}.get(dtype.itemsize, 24)
    bits = apply_shift(draw(shape, generator), 32 - digits)
    return cast(scale(cast(bits, dtypes.float32), 2.0**-digits), dtype)


def apply_shift(bits: Node, count: int) -> Node:
    """The words shifted right by a fixed count."""
    return apply("shr", bits, full_like(bits, count))


def _normal(shape: tuple[Size, ...], dtype: DType, generator: Generator | None) -> Node:
    """Standard normal numbers, by Box and Muller."""
    wide = dtype if dtype is dtypes.float64 else dtypes.float32
    first = _unit(shape, wide, generator)
    angle = scale(_unit(shape, wide, generator), 2 * math.pi)
    away = apply("log", apply("sub", full_like(first, 1), first))  # 1 - u is never 0
    radius = apply("sqrt", scale(away, -2.0))
    return cast(apply("mul", radius, apply("cos", angle)), dtype)


@public(method=False, creation=True)
def rand(*size: Any, dtype: DType | None = None, generator: Generator | None = None) -> Node:
    """Uniform in [0, 1)."""
    return _unit(sizes_from(size), dtype or defaults.dtype, generator)


@public(method=False, creation=True)
def randn(*size: Any, dtype: DType | None = None, generator: Generator | None = None) -> Node:
    """Standard normal."""
    return _normal(sizes_from(size), dtype or defaults.dtype, generator)


@public(method=False, creation=True)
def rand_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Uniform in [0, 1), in the shape of another tensor."""
    return _unit(input.shape, dtype or input.dtype, None)


@public(method=False, creation=True)
def randn_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Standard normal, in the shape of another tensor."""
    return _normal(input.shape, dtype or input.dtype, None)


@public(method=False, creation=True)
def randint(
    low: int,
    high: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    generator: Generator | None = None,
) -> Node:
    """Integers from `low` up to but not including `high`."""
    if size is None:
        low, high, size = 0, low, high
    if not low < high:
        raise RidgelineError(f"randint needs low < high, got {low} and {high}")
    shape = sizes_from((size,))
    return cast(_integers(shape, low, int(high), generator), dtype or dtypes.int64)


def _integers(shape: tuple[Size, ...], low: int, high: int, generator: Generator | None) -> Node:
    """Integers from 64 random bits, so that the remainder's bias is below 2**-31."""
    span = high - low
    wide = cast(draw(shape, generator), dtypes.uint64)
    more = cast(draw(shape, generator), dtypes.uint64)
    joined = apply("or", apply("shl", wide, full_like(wide, 32)), more)
    within = cast(apply("mod", joined, full_like(joined, span)), dtypes.int64)
    return apply("add", within, full_like(within, low))


@public(function=False, inplace=True)
def uniform(
    input: Node, a: Operand = 0.0, b: Operand = 1.0, *, generator: Generator | None = None
) -> Node:
    """Uniform in [a, b), in the shape of this tensor."""
    unit = _unit(input.shape, input.dtype, generator)
    low, high = (stretch(as_node(v, input.dtype), input.shape) for v in (a, b))
    return stop_gradient(apply("add", low, apply("mul", apply("sub", high, low), unit)))


@public(function=False, inplace=True)
def normal(
    input: Node, mean: Operand = 0.0, std: Operand = 1.0, *, generator: Generator | None = None
) -> Node:
    """Normal with a mean and a standard deviation, in the shape of this tensor."""
    unit = _normal(input.shape, input.dtype, generator)
    shift, width = (stretch(as_node(v, input.dtype), input.shape) for v in (mean, std))
    return stop_gradient(apply("add", shift, apply("mul", width, unit)))


@public()
def bernoulli(input: Node, *, generator: Generator | None = None) -> Node:
    """1 with the given probabilities, else 0."""
    chance = stop_gradient(input)
    hit = apply("lt", _unit(input.shape, input.dtype, generator), chance)
    return cast(hit, input.dtype)


@public(method=False)
def dropout(input: Node, p: float = 0.5, training: bool = True) -> Node:
    """Elements set to zero with probability p, the others scaled by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise RidgelineError(f"a dropout probability lies in 0…1, not {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return apply("mul", input, full_like(input, 0))
    kept = apply(
        "le",
        stretch(as_node(float(p), dtypes.float32), input.shape),
        _unit(input.shape, dtypes.float32, None),
    )
    factor = stretch(as_node(1.0 / (1.0 - p), input.dtype), input.shape)
    return apply("mul", apply("mul", input, cast(kept, input.dtype)), factor)
