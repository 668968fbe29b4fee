"""Functions that oscillate: Bessel's J and Y of orders 0 and 1, Airy's Ai, sin(x)/x; in float64.

Up to 5 J is a polynomial in x*x, and Y another one with log(x) times J. Beyond, both are
sqrt(2/(pi x)) times P cos w - Q sin w, or P sin w + Q cos w, where w is x less some eighths of a
turn and P and Q are quotients in 1/x**2. The eighths are taken off by adding sine and cosine of x,
so that x itself is never rounded. Close to their zeros, all of these are accurate to the last place
of the size of the wave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline.loops.ir import Expr
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.logarithm import log
from ridgeline.loops.math.tables import waves as table
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    fma,
    op,
    quotient,
    select,
    series,
)
from ridgeline.loops.math.trigonometric import cos, sin

_NEAR = 5.0
_AIRY_LEFT, _AIRY_RIGHT = -4.0, 1.0
_AIRY_MOST = 200.0  # it is 0 long before
_EXACT_PHASE = 2.0**26  # up to here what a rounded phase lost can be put back
Quotient = tuple[Sequence[float], Sequence[float]]
_WAVE_0 = ((table.P0_64, table.P0_64_BELOW), (table.Q0_64, table.Q0_64_BELOW))
_WAVE_1 = ((table.P1_64, table.P1_64_BELOW), (table.Q1_64, table.Q1_64_BELOW))
_WAVE_AIRY = (
    (table.AIRY_P64, table.AIRY_P64_BELOW),
    (table.AIRY_Q64, table.AIRY_Q64_BELOW),
)


def j0(x: Expr) -> Expr:
    """The Bessel function of the first kind and order 0."""
    a = abs(x)
    rising, falling, sine, cosine = _far(_WAVE_0, a)
    far = fma(rising, cosine, falling * sine)
    return _joined(a, series(table.J0_64, _square(a)), far)


def j1(x: Expr) -> Expr:
    """The Bessel function of the first kind and order 1."""
    a = abs(x)
    rising, falling, sine, cosine = _far(_WAVE_1, a)
    far = fma(rising, sine, -(falling * cosine))
    value = _joined(a, a * series(table.J1_64, _square(a)), far)
    return select(x < 0, -value, value)


def y0(x: Expr) -> Expr:
    """The Bessel function of the second kind and order 0."""
    rising, falling, sine, cosine = _far(_WAVE_0, x)
    far = fma(rising, sine, -(falling * cosine))
    t = _square(x)
    near = fma(_two_logs(x), series(table.J0_64, t), series(table.Y0_64, t))
    return select(x.eq(0), const(-math.inf, x), _joined(x, near, far))


def y1(x: Expr) -> Expr:
    """The Bessel function of the second kind and order 1."""
    rising, falling, sine, cosine = _far(_WAVE_1, x)
    far = -fma(falling, sine, rising * cosine)
    t = _square(x)
    smooth = fma(_two_logs(x), series(table.J1_64, t), series(table.Y1_64, t))
    near = fma(x, smooth, const(-2 / math.pi, x) / x)
    return select(x.eq(0), const(-math.inf, x), _joined(x, near, far))


def spherical_j0(x: Expr) -> Expr:
    """sin(x) / x; 1 at 0."""
    zero = x.eq(0)
    value = sin(x) / select(zero, const(1, x), x)
    infinite = abs(x).eq(math.inf)
    return select(zero, const(1, x), select(infinite, const(0, x), value))


def airy_ai(x: Expr) -> Expr:
    """The Airy function Ai."""
    left = series(table.AIRY_LEFT64, fma(clamp(x, _AIRY_LEFT, 0.0), 0.5, 1.0))
    right = series(table.AIRY64, fma(clamp(x, 0.0, _AIRY_RIGHT), 2.0, -1.0))
    near = select(x < 0, left, right)
    value = select(const(_AIRY_RIGHT, x) < x, _airy_decay(x), near)
    value = select(x < _AIRY_LEFT, _airy_wave(x), value)
    return select(x.eq(-math.inf), const(0, x), value)


def _airy_decay(x: Expr) -> Expr:
    root, phase, rest = _phase(clamp(x, _AIRY_RIGHT, _AIRY_MOST))
    inverse = 1 / phase
    scaled = quotient(table.AIRY_RIGHT64, table.AIRY_RIGHT64_BELOW, inverse)
    shrunk = fma(-rest, scaled, scaled)
    slow = const(math.sqrt(0.5) / math.pi, x) / op("sqrt", root)
    return shrunk * slow * exp(-phase)


def _airy_wave(x: Expr) -> Expr:
    root, phase, rest = _phase(-clamp(x, -1e200, _AIRY_LEFT))
    rest = select(phase < _EXACT_PHASE, rest, const(0, x))
    rising, falling, sine, cosine = _slow(_WAVE_AIRY, 1 / phase, phase)
    turned_sine = fma(rest, cosine, sine)
    turned_cosine = fma(-rest, sine, cosine)
    wave = fma(falling, turned_cosine, rising * turned_sine)
    return wave * (const(math.sqrt(0.5 / math.pi), x) / op("sqrt", root))


def _phase(x: Expr) -> tuple[Expr, Expr, Expr]:
    """sqrt(x), and 2/3 x**(3/2) with what its rounding lost."""
    root = op("sqrt", x)
    root_rest = fma(-root, root, x) / (root + root)
    cube = x * root
    cube_rest = fma(x, root_rest, fma(x, root, -cube))
    high, low = table.TWO_THIRDS
    phase = cube * high
    rest = fma(cube, high, -phase)
    return root, phase, rest + fma(cube_rest, high, cube * low)


def _square(a: Expr) -> Expr:
    """x*x up to the limit, as a number from -1 to 1."""
    held = clamp(a, None, _NEAR)
    half = _NEAR * _NEAR / 2
    return fma(held, held, -half) * (1 / half)


def _two_logs(x: Expr) -> Expr:
    return log(clamp(x, None, _NEAR)) * (2 / math.pi)


def _joined(a: Expr, near: Expr, far: Expr) -> Expr:
    """Zero far out, where sine and cosine are not defined."""
    value = select(const(_NEAR, a) < a, far, near)
    return select(a.eq(math.inf), const(0, a), value)


def _far(wave: tuple[Quotient, Quotient], a: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """(P + Q) / sqrt(pi x), (P - Q) / sqrt(pi x), and sine and cosine of x."""
    held = clamp(a, _NEAR, None)
    inverse = 1 / held
    rising, falling, sine, cosine = _slow(wave, inverse, held)
    size = op("sqrt", inverse * (1 / math.pi))
    return rising * size, falling * size, sine, cosine


def _slow(
    wave: tuple[Quotient, Quotient], inverse: Expr, phase: Expr
) -> tuple[Expr, Expr, Expr, Expr]:
    """P + Q, P - Q, and sine and cosine of a phase."""
    z = inverse * inverse
    p = fma(z, quotient(*wave[0], z), 1.0)
    q = inverse * quotient(*wave[1], z)
    return p + q, p - q, sin(phase), cos(phase)
