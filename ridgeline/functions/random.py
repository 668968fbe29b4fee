"""Random numbers: one stream per generator, the same on every device and in every way to run.

A draw is allotted its place in the stream when it is recorded, in program order, whether or not it
is ever computed. Key and offset are run-time arguments, so drawing again never recompiles.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.atomic import Block, kept
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, BadValueError, DTypeError, ShapeError
from ridgeline.functions.operands import Operand, as_node, defaults, require_real, sizes_from
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import Size, product
from ridgeline.ops.checked import within
from ridgeline.ops.elementwise import (
    cast,
    iota,
    select,
    stop_gradient,
)
from ridgeline.ops.math import cos, log, sin, sqrt
from ridgeline.ops.movement import reshape, stretch
from ridgeline.ops.random import blocks, random_bits
from ridgeline.record import recorder
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import modes
from ridgeline.record.turns import in_turn_of
from ridgeline.runtime.buffer import HostBuffer, require

_MASK = (1 << 64) - 1
_WORD = TensorType((), dtypes.uint64)


def word(value: int) -> Node:
    """A 64-bit number as a run-time argument."""
    made = leaf(_WORD)
    made.buffer = HostBuffer.borrow(np.array(value & _MASK, np.uint64))
    return made


_MOST_BLOCKS = 1 << 48  # no machine holds as many numbers


class Generator:
    """A stream of random numbers: a seed, and how much of the stream was used."""

    chosen: bool  # by somebody, and not taken from the system

    def __init__(self, device: Any = "cpu") -> None:
        require(device)
        self._seed, self._offset = 0, 0
        self.seed()

    @property
    def device(self) -> str:
        """Where the stream is kept; its bits are the same everywhere."""
        return "cpu"

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed from its beginning."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise BadTypeError(f"a seed is an int, not {type(seed).__name__}")
        if modes.capture is not None:
            raise CaptureError(
                "a generator cannot be seeded inside jit", help="seed it before the jitted call"
            )
        self._seed, self._offset = int(seed) & _MASK, 0
        self.chosen = True
        return self

    def seed(self) -> int:
        """Start the stream of a seed taken from the system."""
        self.manual_seed(secrets.randbits(63))
        self.chosen = False
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the stream."""
        seed = self._seed
        if modes.capture is not None:
            modes.capture.require(lambda: self._seed == seed, f"a generator's seed is {seed}")
        return seed

    def get_state(self) -> tuple[int, int]:
        """The seed and the place in the stream."""
        if modes.capture is not None:
            raise CaptureError(
                "where a generator stands is not known inside jit",
                help="ask for it before the jitted call",
            )
        return (self._seed, self._offset)

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to a place that `get_state` gave."""
        seed, offset = _checked_state(state)
        if modes.capture is not None:
            raise CaptureError(
                "a generator cannot be moved inside jit", help="set it before the jitted call"
            )
        self._seed, self._offset = seed & _MASK, offset

    def clone_state(self) -> Generator:
        """Another generator at the same place of the same stream."""
        made = Generator()
        made.set_state(self.get_state())
        return made

    def skip(self, count: int) -> int:
        """Move on by some blocks of the stream; where it stood before."""
        return in_turn_of(self, lambda: self._skip(count))  # a jitted call may be under way

    def _skip(self, count: int) -> int:
        start = self._offset
        self._offset = start + count
        return start

    def take(self, count: Size) -> tuple[Node, Node]:
        """The key and the offset of the next `count` blocks of the stream."""
        capture = modes.capture
        if capture is not None:
            return capture.random_blocks(self, count)
        if not 0 <= int(count) < _MOST_BLOCKS:  # before the stream moves on
            raise ShapeError(f"cannot draw so many numbers at once: {count} blocks of four")
        seed, counter = recorder.drawn(self, int(count))
        key, offset = word(seed), word(counter)
        recorder.drew(self, int(count), key, offset)
        return key, offset

    def advance(self, count: int) -> tuple[int, int]:
        """Move on by some blocks: the seed, and where it stood before."""
        return self._seed, self.skip(count)


def _checked_state(state: Any) -> tuple[int, int]:
    """A state, if it is one."""
    if isinstance(state, tuple | list) and len(state) == 2:
        seed, offset = state
        if isinstance(seed, int) and isinstance(offset, int) and offset >= 0:
            return seed, offset
    raise BadValueError(
        f"a generator's state is a seed and a place, got {state!r:.60}",
        help="give what get_state() returned",
    )


default_generator = Generator()


class _OfThread(threading.local):
    """The default generator of a thread that has its own: of a simulated rank."""

    generator: Generator | None = None


of_thread = _OfThread()


def chosen_generator() -> Generator:
    """The generator that draws are from where none is named."""
    return of_thread.generator or default_generator


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return chosen_generator().manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default generator."""
    return chosen_generator().initial_seed()


def seed() -> int:
    """Seed the default generator from the system."""
    return chosen_generator().seed()


def get_rng_state() -> tuple[int, int]:
    """The seed and the place of the default generator."""
    return chosen_generator().get_state()


def set_rng_state(new_state: tuple[int, int]) -> None:
    """Put the default generator where `get_rng_state` found it."""
    chosen_generator().set_state(new_state)


def fork_rng(enabled: bool = True) -> AbstractContextManager[Any]:
    """Draws inside do not move the default generator outside."""
    if not enabled:
        return nullcontext()
    if modes.capture is not None:
        raise CaptureError(
            "a generator cannot be moved back inside jit", help="fork it around the jitted call"
        )
    generator = chosen_generator()
    keep, back = zip(*[kept(generator, name) for name in ("_seed", "_offset")])
    return Block(map(itemgetter(0), zip(*keep)), zip(*back))


def draw(shape: tuple[Size, ...], generator: Generator | None) -> Node:
    """Random 32-bit words."""
    key, offset = (generator or chosen_generator()).take(blocks(shape))
    return random_bits(key, offset, shape)


def unit(shape: tuple[Size, ...], dtype: DType, generator: Generator | None) -> Node:
    """Uniform in [0, 1), with as many random bits as the type can hold."""
    if not dtype.is_floating_point:
        raise DTypeError(f"random numbers need a floating type, not {dtype.name}")
    return _from_bits([draw(shape, generator) for _ in range(_draws(dtype))], dtype)


def _draws(dtype: DType) -> int:
    """How many random words a number takes."""
    return 2 if dtype is dtypes.float64 else 1


def _from_bits(words: Sequence[Node], dtype: DType, span: float = 1.0) -> Node:
    """Uniform in [0, span), from random words."""
    if dtype is dtypes.float64:
        high, low = (cast(apply_shift(w, n), dtype) for w, n in zip(words, (6, 5)))  # 26, 27 bits
        return (high * 2.0**27 + low) * (span * 2.0 ** (-53))
    digits = {2: 11 if dtype is dtypes.float16 else 8, 1: 4}.get(dtype.itemsize, 24)
    bits = apply_shift(words[0], 32 - digits)
    return cast(cast(bits, dtypes.float32) * (span * 2.0 ** (-digits)), dtype)


def wide(dtype: DType) -> DType:
    """The type that random numbers of a type are computed in."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def apply_shift(bits: Node, count: int) -> Node:
    """The words shifted right by a fixed count."""
    return bits >> count


def standard_normal(shape: tuple[Size, ...], dtype: DType, generator: Generator | None) -> Node:
    """Standard normal numbers, by Box and Muller: two neighbours from their two uniform ones."""
    if not dtype.is_floating_point:
        raise DTypeError(f"random numbers need a floating type, not {dtype.name}")
    source, inner = generator or chosen_generator(), wide(dtype)
    streams = [source.take(blocks(shape)) for _ in range(_draws(inner))]
    first, angle = (
        _from_bits([random_bits(*at, shape, of_two) for at in streams], inner, span)
        for of_two, span in enumerate((1.0, 2 * math.pi))
    )
    away = log(1 - first)  # 1 - u is never 0
    radius = sqrt(away * -2.0)
    positions = iota((product(shape),), 0, dtypes.int64)
    odd = cast(positions % 2, dtypes.bool_)
    side = select(reshape(odd, shape), sin(angle), cos(angle))
    return cast(radius * side, dtype)


@public(method=False, creation=True)
def rand(*size: Any, dtype: DType | None = None, generator: Generator | None = None) -> Node:
    """Uniform in [0, 1)."""
    return unit(sizes_from(size), dtype or defaults.dtype, generator)


@public(method=False, creation=True)
def randn(*size: Any, dtype: DType | None = None, generator: Generator | None = None) -> Node:
    """Standard normal."""
    return standard_normal(sizes_from(size), dtype or defaults.dtype, generator)


@public(method=False, creation=True)
def rand_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Uniform in [0, 1), in the shape of another tensor."""
    return unit(input.shape, dtype or input.dtype, None)


@public(method=False, creation=True)
def randn_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Standard normal, in the shape of another tensor."""
    return standard_normal(input.shape, dtype or input.dtype, None)


@public(method=False, creation=True)
def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    dtype: DType | None = None,
    generator: Generator | None = None,
) -> Node:
    """Integers from `low` (or 0) up to but not including `high`: `randint(low, high, size)`."""
    if size is None:  # randint(high, size)
        low, high, size = 0, low, high
    elif high is None:  # randint(high, size=size)
        low, high = 0, low
    if size is None or not all(isinstance(v, int | np.integer) for v in (low, high)):
        raise BadValueError(f"randint needs integers and a size, got {low!r}, {high!r}, {size!r}")
    if not low < high:
        raise BadValueError(f"randint needs low < high, got {low} and {high}")
    shape = sizes_from((size,))
    return cast(integers(shape, int(low), int(high), generator), dtype or dtypes.int64)


def integers(shape: tuple[Size, ...], low: int, high: int, generator: Generator | None) -> Node:
    """Integers from 64 random bits: a remainder, whose bias is below span / 2**64."""
    span = high - low
    joined = joined_bits(shape, generator)
    within = cast(joined % span, dtypes.int64)
    return within + low


def joined_bits(shape: tuple[Size, ...], generator: Generator | None) -> Node:
    """Random 64-bit words."""
    high = cast(draw(shape, generator), dtypes.uint64)
    low = cast(draw(shape, generator), dtypes.uint64)
    return high << 32 | low


def not_negative(value: Operand, what: str) -> Operand:
    """A number or tensor whose elements must be at least 0."""
    if isinstance(value, Node):
        return within(value, 0.0, math.inf, what)
    if not value >= 0:  # type: ignore[operator]
        raise BadValueError(f"{what} is at least 0, not {value}")
    return value


@public(function=False, inplace=True)
def uniform(
    input: Node, a: Operand = 0.0, b: Operand = 1.0, *, generator: Generator | None = None
) -> Node:
    """Uniform in [a, b), in the shape of this tensor."""
    if not isinstance(a, Node) and not isinstance(b, Node) and not a <= b:  # type: ignore[operator]
        raise BadValueError(f"uniform_ needs a range that does not end before it begins: {a}…{b}")
    drawn = unit(input.shape, input.dtype, generator)
    low, high = (stretch(as_node(v, input.dtype), input.shape) for v in (a, b))
    return stop_gradient(low + (high - low) * drawn)


@public(function=False, inplace=True)
def normal(
    input: Node, mean: Operand = 0.0, std: Operand = 1.0, *, generator: Generator | None = None
) -> Node:
    """Normal with a mean and a standard deviation, in the shape of this tensor."""
    std = not_negative(std, "a standard deviation")
    drawn = standard_normal(input.shape, input.dtype, generator)
    shift, width = (stretch(as_node(v, input.dtype), input.shape) for v in (mean, std))
    return stop_gradient(shift + width * drawn)


@public()
def bernoulli(input: Node, p: float | None = None, *, generator: Generator | None = None) -> Node:
    """1 with the given probabilities (or all with probability p), else 0."""
    if p is None and not input.dtype.is_floating_point:
        raise DTypeError(f"bernoulli needs floating probabilities, got {input.dtype.name}")
    return _trials(input, input if p is None else p, generator)


@public(name="bernoulli", function=False, method=False, inplace=True)
def bernoulli_inplace(input: Node, p: Operand = 0.5, *, generator: Generator | None = None) -> Node:
    """1 with probability p, else 0, in the shape of this tensor."""
    return _trials(input, p, generator)


def _trials(input: Node, p: Operand, generator: Generator | None) -> Node:
    if isinstance(p, Node):
        p = within(p, 0.0, 1.0, "a probability")
    elif not 0 <= p <= 1:  # type: ignore[operator]
        raise BadValueError(f"a probability lies in 0…1, not {p}")
    kind = wide(p.dtype if isinstance(p, Node) else input.dtype)
    chance = stop_gradient(stretch(as_node(p, kind), input.shape))
    return cast(unit(input.shape, kind, generator) < chance, input.dtype)


@public(method=False, shares=True)
def dropout(input: Node, p: float = 0.5, training: bool = True) -> Node:
    """Elements set to zero with probability p, the others scaled by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise BadValueError(f"a dropout probability lies in 0…1, not {p}")
    if not training or p == 0:
        return input
    require_real(input.dtype, "dropout")
    if p == 1:
        return input * 0
    factor, nothing = (stretch(as_node(v, input.dtype), input.shape) for v in (1.0 / (1.0 - p), 0))
    return input * select(_at_least(p, input.shape), factor, nothing)


def _at_least(p: float, shape: tuple[Size, ...]) -> Node:
    """True with probability 1 - p: where a uniform float32 would be at least p, for a p above 0.

    Its 24 bits are the upper ones of a word, so that the words below some number are those of less.
    """
    below = math.ceil(float(np.float32(p)) * 2**24) * 2**8
    last = stretch(cast(word(max(below, 1) - 1), dtypes.uint32), shape)
    return last < draw(shape, None)
