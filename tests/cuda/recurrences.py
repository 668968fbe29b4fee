"""Scans whose rows need nothing of each other, and scans whose rows do, with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import ridgeline as rl

Run: TypeAlias = Callable[..., Any]


def numbers(*shape: int, seed: int = 0) -> Any:
    """Numbers around zero."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def leaves(found: Any) -> list[Any]:
    """The tensors of nested tuples, in order."""
    if isinstance(found, (tuple, list)):
        return [leaf for part in found for leaf in leaves(part)]
    return [found]


def selective(u: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
    """A state of several numbers for each row, read by a sum over them."""
    start = rl.zeros((*u.shape[1:], a.shape[1]), device=u.device)

    def step(state: Any, now: Any) -> Any:
        u, dt, b, c = now
        state = rl.exp(dt[..., None] * a) * state + (dt * u)[..., None] * b[:, None]
        return state, (state * c[:, None]).sum(-1)

    return rl.scan(step, start, (u, dt, b, c))


def selective_inputs(length: int, batch: int, width: int, states: int) -> list[Any]:
    """With rates that make the state decay."""
    u, dt = numbers(length, batch, width), np.abs(numbers(length, batch, width, seed=1)) * 0.3
    rates = -np.abs(numbers(width, states)) - 0.1
    return [u, dt, rates, *(numbers(length, batch, states, seed=s) for s in (2, 3))]


def oscillator(x: Any, v: Any, force: Any) -> Any:
    """Two carried values, and slices of what was before."""

    def step(state: Any, f: Any) -> Any:
        x, v = state
        new = v * 0.9 - x * 0.1 + f
        return (x + new, new), (x, new, new)

    return rl.scan(step, (x, v), force)


def spikes(v: Any, xs: Any) -> Any:
    """A neuron that is reset, which also counts in whole numbers."""

    def step(state: Any, x: Any) -> Any:
        v, count = state
        v = v * 0.8 + x
        fired = v > 0.5
        return (rl.where(fired, 0.0, v), count + fired.to(rl.int32)), fired

    return rl.scan(step, (v, (v * 0).to(rl.int32)), xs)


def backwards(start: Any, xs: Any) -> Any:
    """Returns, from the last to the first."""
    return rl.scan(lambda s, x: (x + 0.95 * s,) * 2, start, xs, reverse=True)


def mixed_within(start: Any, xs: Any) -> Any:
    """A row's elements read one another: its last axis is turned."""
    return rl.scan(lambda s, x: (s.flip(-1) * 0.5 + x.unsqueeze(-1), s.sum(-1)), start, xs)


def narrow(start: Any, xs: Any) -> Any:
    """What is carried has 16 bits, and is rounded every time."""
    step = lambda s, x: ((s * 0.5 + x).tanh(), s)  # noqa: E731
    return rl.scan(step, start.to(rl.bfloat16), xs.to(rl.bfloat16))


ALONE: dict[str, tuple[Run, list[Any]]] = {
    "selective": (selective, selective_inputs(9, 2, 5, 3)),
    "selective, wide": (selective, selective_inputs(16, 1, 70, 16)),
    "oscillator": (oscillator, [numbers(7), numbers(7, seed=1), numbers(8, 7)]),
    "a plane": (oscillator, [numbers(3, 41), numbers(3, 41, seed=1), numbers(5, 3, 41)]),
    "spikes": (spikes, [numbers(33), numbers(12, 33)]),
    "backwards": (backwards, [numbers(4, 9), numbers(11, 4, 9)]),
    "once": (backwards, [numbers(6), numbers(1, 6)]),
    "one number": (backwards, [numbers(1), numbers(10, 1)]),
    "mixed within a row": (mixed_within, [numbers(5, 4), numbers(6, 5)]),
    "narrow": (narrow, [numbers(20), numbers(9, 20)]),
}  # fmt: skip


def rolled(start: Any, xs: Any) -> Any:
    """Every row reads its neighbour."""
    return rl.scan(lambda s, x: (s.roll(1, 0) * 0.5 + x, s), start, xs)


def summed(start: Any, xs: Any) -> Any:
    """Every row reads all rows."""
    return rl.scan(lambda s, x: (s * 0.5 + x - s.mean(), s), start, xs)


def multiplied(start: Any, xs: Any) -> Any:
    """A product mixes the columns."""
    return rl.scan(lambda s, x: ((s @ x).tanh(), s), start, xs)


def large(start: Any, xs: Any) -> Any:
    """More state for a row than a thread has registers for."""
    return rl.scan(lambda s, x: (s * 0.5 + x.unsqueeze(-1), s.sum(-1)), start, xs)


def handed_on(start: Any, xs: Any) -> Any:
    """What is carried is the slice itself, which no kernel writes."""
    return rl.scan(lambda s, x: (x, s + x), start, xs)


TOGETHER: dict[str, tuple[Run, list[Any]]] = {
    "rolled": (rolled, [numbers(99), numbers(5, 99)]),
    "summed": (summed, [numbers(99), numbers(5, 99)]),
    "multiplied": (multiplied, [numbers(3, 40), numbers(5, 40, 40) / 40]),
    "large": (large, [numbers(4, 200), numbers(5, 4)]),
    "handed on": (handed_on, [numbers(99), numbers(5, 99)]),
}
