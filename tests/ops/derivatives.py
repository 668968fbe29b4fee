"""Derivatives checked against differences: forward mode, reverse mode, and forward over reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ridgeline as rl

Function = Callable[..., Any]


def _draw(like: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    values = random.standard_normal(like.shape)
    if np.iscomplexobj(like):
        values = values + 1j * random.standard_normal(like.shape)
    return values.astype(like.dtype)


def _parts(result: Any) -> list[Any]:
    listed = list(result) if isinstance(result, list | tuple) else [result]
    return [part for part in listed if part.dtype.is_differentiable]


def _difference(function: Function, arrays: list[Any], moves: list[Any], step: float) -> list[Any]:
    ends = []
    for sign in (1, -1):
        moved = [rl.tensor(a + sign * step * m) for a, m in zip(arrays, moves)]
        ends.append([part.numpy() for part in _parts(function(*moved))])
    return [(high - low) / (2 * step) for high, low in zip(*ends)]


def _joined(function: Function) -> Function:
    return lambda *inputs: tuple(_parts(function(*inputs)))


def check_derivatives(
    function: Function, *arrays: Any, second: bool = True, rtol: float = 1e-5, step: float = 1e-5
) -> None:
    """Both modes of a function of float64 or complex128 arrays, and the derivative of reverse."""
    given = [np.asarray(a) for a in arrays]
    joined = _joined(function)
    moves = [_draw(a, 1 + i) for i, a in enumerate(given)]
    inputs = tuple(rl.tensor(a) for a in given)
    tangents = tuple(rl.tensor(m) for m in moves)
    _, forward = rl.jvp(joined, inputs, tangents)
    expected = _difference(function, given, moves, step)
    for got, want in zip(forward, expected):
        np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=rtol)
    outputs, pull = rl.vjp(joined, *inputs)
    cotangents = [_draw(part.numpy(), 10 + i) for i, part in enumerate(outputs)]
    reverse = pull(tuple(rl.tensor(c) for c in cotangents))
    along = sum(np.vdot(c, f.numpy()).real for c, f in zip(cotangents, forward))
    back = sum(np.vdot(r.numpy(), m).real for r, m in zip(reverse, moves))
    np.testing.assert_allclose(back, along, rtol=1e-7, atol=1e-7)
    if second:

        def gradient(*values: Any) -> Any:
            _, pulled = rl.vjp(joined, *values)
            return pulled(tuple(rl.tensor(c) for c in cotangents))

        check_derivatives(gradient, *given, second=False, rtol=max(rtol, 1e-4), step=step)
