"""Bessel and Airy functions.

Near the origin: power series. Far from it: asymptotic series. Between: backward recurrence for the
ordinary functions, integrals whose rules converge exponentially for the others.
"""

from __future__ import annotations

import math

import numpy as np

from ridgeline.fma import fma
from ridgeline.values.wide import EULER, LOG2, PI, Array, number

_AIRY_AT_0 = "0.355028053887817239260063186004183177"
_AIRY_SLOPE_AT_0 = "0.258819403792806798405183560189203963"
_LEAST = 5e-324
_MODIFIED_FAR = 30.0
_ORDINARY_NEAR, _ORDINARY_FAR = 5.0, 25.0
_ORDERS = 90  # from here on functions of arguments up to 25 are 0 next to those of order 0


def modified_i(order: int, x: Array) -> Array:
    """exp(-|x|) I_order(x) for order 0 or 1."""
    size = np.abs(x)
    near = np.minimum(size, _MODIFIED_FAR)
    quarter = near * near / 4
    term = np.ones_like(near) if order == 0 else near / 2
    total = term.copy()
    for k in range(1, 90):
        term = term * quarter / (k * (k + order))
        total = total + term
    far = np.maximum(size, _MODIFIED_FAR)
    value = np.where(
        size <= _MODIFIED_FAR,
        total * np.exp(-near),
        _hankel(order, far, -1.0) / np.sqrt(2 * number(PI, x) * far),
    )
    value = np.where(np.isnan(x), x, value)
    return np.where((order == 1) & (x < 0), -value, value)


def i0e(x: Array) -> Array:
    """exp(-|x|) I_0(x)."""
    return modified_i(0, x)


def i1e(x: Array) -> Array:
    """exp(-|x|) I_1(x)."""
    return modified_i(1, x)


def i0(x: Array) -> Array:
    """The modified Bessel function of the first kind and order 0."""
    return _grown(modified_i(0, x), x)


def i1(x: Array) -> Array:
    """The modified Bessel function of the first kind and order 1."""
    return _grown(modified_i(1, x), x)


def _grown(scaled: Array, x: Array) -> Array:
    """A value times exp(|x|), in two factors of which neither overflows before the product."""
    root = np.exp(np.abs(x) / 2)
    return np.asarray(scaled * root * root)


def _hankel(order: float, x: Array, sign: float) -> Array:
    """The asymptotic series in 1/x that all modified functions share."""
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(1, 30):
        term = term * sign * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        total = total + term
    return total


def modified_k(order: float, x: Array) -> Array:
    """exp(x) K_order(x) for x > 0, by the trapezoidal rule; accurate from 0.1 on."""
    points = 120
    reach = np.arccosh(1 + 46 / x)
    step = reach / points
    total = np.full_like(x, 0.5)
    for i in range(1, points + 1):
        t = i * step
        # cosh(t) - 1 as 2 sinh(t/2)^2 keeps its digits where x is large and t small
        total = total + np.exp(-2 * x * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    return total * step


def scaled_k(order: int, x: Array) -> Array:
    """exp(x) K_order(x) for order 0 or 1."""
    near = np.clip(x, _LEAST, 2.0)
    log = np.log(near) + (number(EULER, x) - number(LOG2, x))
    quarter = near * near / 4
    if order == 0:
        term, harmonic = np.ones_like(near), x.dtype.type(0)
        total = -log
        for k in range(1, 25):
            term = term * quarter / (k * k)
            harmonic = harmonic + x.dtype.type(1) / k
            total = total + term * (harmonic - log)
    else:
        term, harmonic = near / 2, x.dtype.type(0)
        total = 1 / near + term * (log - 0.5)
        for k in range(1, 25):
            term = term * quarter / (k * (k + 1))
            harmonic = harmonic + x.dtype.type(1) / k
            total = total + term * (log - harmonic - x.dtype.type(0.5) / (k + 1))
    middle = modified_k(order, np.clip(x, 2.0, _MODIFIED_FAR))
    far = np.clip(x, _MODIFIED_FAR, None)
    far_value = _hankel(order, far, 1.0) * np.sqrt(number(PI, x) / 2 / far)
    value = np.where(x <= 2, total * np.exp(near), np.where(x > _MODIFIED_FAR, far_value, middle))
    value = np.where(x == 0, np.inf, np.where(x < 0, np.nan, value))
    return np.where(x == np.inf, 0.0, np.where(np.isnan(x), x, value))


def k0(x: Array) -> Array:
    """The modified Bessel function of the second kind and order 0."""
    return scaled_k(0, x) * np.exp(-x)


def k1(x: Array) -> Array:
    """The modified Bessel function of the second kind and order 1."""
    return scaled_k(1, x) * np.exp(-x)


def k0e(x: Array) -> Array:
    """exp(x) K_0(x)."""
    return scaled_k(0, x)


def k1e(x: Array) -> Array:
    """exp(x) K_1(x)."""
    return scaled_k(1, x)


def _phase(order: int, x: Array) -> tuple[Array, Array]:
    """The slowly varying parts P and Q of the ordinary functions far from the origin."""
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 40):
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        if k % 2:
            q = q + (term if k % 4 == 1 else -term)
        else:
            p = p + (term if k % 4 == 0 else -term)
    return p, q


def _far(order: int, x: Array, second_kind: bool) -> Array:
    p, q = _phase(order, x)
    # sine and cosine of x less an odd number of eighths of a turn, without rounding x
    sine, cosine = np.sin(x) - np.cos(x), np.cos(x) + np.sin(x)
    if order == 1:
        sine, cosine = -cosine, sine
    wave = p * sine + q * cosine if second_kind else p * cosine - q * sine
    return np.asarray(wave / np.sqrt(number(PI, x) * x))


def ordinary_j(order: int, x: Array) -> Array:
    """J_order(x) for order 0 or 1."""
    size = np.abs(x)
    near = np.minimum(size, _ORDINARY_NEAR)
    series = _near_j(order, near)
    middle = np.clip(size, _ORDINARY_NEAR, _ORDINARY_FAR)
    between, _ = _recurred(order, middle)
    far = _far(order, np.where(np.isfinite(size), np.maximum(size, _ORDINARY_FAR), 1e3), False)
    value = np.where(size <= _ORDINARY_NEAR, series, between)
    value = np.where(size > _ORDINARY_FAR, far, value)
    value = np.where(np.isinf(x), 0.0, np.where(np.isnan(x), x, value))
    return np.where((order == 1) & (x < 0), -value, value)


def j0(x: Array) -> Array:
    """The Bessel function of the first kind and order 0."""
    return ordinary_j(0, x)


def j1(x: Array) -> Array:
    """The Bessel function of the first kind and order 1."""
    return ordinary_j(1, x)


def spherical_j0(x: Array) -> Array:
    """sin(x) / x; 1 at 0 and 0 at infinity, as in torch."""
    inside = (x != 0) & ~np.isinf(x)
    return np.where(inside, np.sin(x) / np.where(inside, x, 1.0), np.where(x == 0, 1.0, 0.0))


def _near_j(order: int, x: Array) -> Array:
    quarter = x * x / 4
    term = np.ones_like(x) if order == 0 else x / 2
    total = term.copy()
    for k in range(1, 35):
        term = -term * quarter / (k * (k + order))
        total = total + term
    return total


def ordinary_y(order: int, x: Array) -> Array:
    """Y_order(x) for order 0 or 1."""
    near = np.clip(x, _LEAST, _ORDINARY_NEAR)
    series = _near_y(order, near)
    _, middle = _recurred(order, np.clip(x, _ORDINARY_NEAR, _ORDINARY_FAR))
    far = _far(order, np.where(np.isfinite(x), np.maximum(x, _ORDINARY_FAR), 1e3), True)
    value = np.where(x <= _ORDINARY_NEAR, series, np.where(x > _ORDINARY_FAR, far, middle))
    value = np.where(x == 0, -np.inf, np.where(x < 0, np.nan, value))
    return np.where(x == np.inf, 0.0, np.where(np.isnan(x), x, value))


def y0(x: Array) -> Array:
    """The Bessel function of the second kind and order 0."""
    return ordinary_y(0, x)


def y1(x: Array) -> Array:
    """The Bessel function of the second kind and order 1."""
    return ordinary_y(1, x)


def _near_y(order: int, x: Array) -> Array:
    log = np.log(x) + (number(EULER, x) - number(LOG2, x))
    quarter = x * x / 4
    if order == 0:
        term, harmonic, total = np.ones_like(x), x.dtype.type(0), log.copy()
        for k in range(1, 35):
            term = -term * quarter / (k * k)
            harmonic = harmonic + x.dtype.type(1) / k
            total = total + term * (log - harmonic)
        return np.asarray(2 / number(PI, x) * total)
    term, harmonic = x / 2, x.dtype.type(0)
    total = -1 / x + term * (log - 0.5)
    for k in range(1, 35):
        term = -term * quarter / (k * (k + 1))
        harmonic = harmonic + x.dtype.type(1) / k
        total = total + term * (log - harmonic - x.dtype.type(0.5) / (k + 1))
    return np.asarray(2 / number(PI, x) * total)


def _recurred(order: int, x: Array) -> tuple[Array, Array]:
    """J and Y of order 0 or 1: J of all orders from the highest down, and Neumann's series for Y.

    Downwards the recurrence is stable; J_0 + 2 J_2 + 2 J_4 + … is 1.
    """
    later, current = np.zeros_like(x), np.ones_like(x)
    norm, series = np.zeros_like(x), np.zeros_like(x)
    first = later
    for n in range(_ORDERS, 0, -1):
        k = (n - order) // 2
        if n % 2 == 0:
            norm = norm + 2 * current
        if n % 2 == order and k:
            series = series + (-1) ** k * current * n / (x.dtype.type(k) * (k + order))
        first = current
        current, later = 2 * n / x * current - later, current
    norm = norm + current
    value = (current, first)[order] / norm
    log = np.log(x) + (number(EULER, x) - number(LOG2, x)) - order
    second = 2 / number(PI, x) * (log * value - series / norm)
    return value, second - order * 2 / (number(PI, x) * x) * current / norm


def airy_ai(x: Array) -> Array:
    """The Airy function Ai."""
    near = _near_airy(np.clip(x, -5, 2))
    right = np.where(x > 2, np.minimum(x, 200), 2)
    zeta, third = 2 * right * np.sqrt(right) / 3, x.dtype.type(1) / 3
    decayed = np.sqrt(right / 3) / number(PI, x) * modified_k(third, zeta) * np.exp(-zeta)
    left = _left_airy(np.where(x < -5, np.minimum(-x, 1e200), 5).astype(np.float64))
    value = np.where(x > 2, decayed, np.where(x < -5, left, near))
    return np.where(np.isnan(x), x, np.where(np.isinf(x), 0.0, value))


def _airy_phase(x: Array) -> tuple[Array, Array]:
    """2/3 x**(3/2), and what its rounding lost, where that is small."""
    root = np.sqrt(x)
    cube = x * root
    cube_rest = fma(x, root, -cube) + x * fma(-root, root, x) / (2 * root)
    high, low = 2 / 3, 3.700743415417188e-17
    zeta = cube * high
    rest = fma(cube, np.full_like(x, high), -zeta) + cube_rest * high + cube * low
    return zeta, np.where(zeta < 2.0**26, rest, 0.0)


def _near_airy(x: Array) -> Array:
    cube = x**3
    first, second = np.ones_like(x), x.copy()
    f, g = first.copy(), second.copy()
    for k in range(1, 45):
        first = first * cube / ((3 * k - 1) * (3 * k))
        second = second * cube / ((3 * k) * (3 * k + 1))
        f, g = f + first, g + second
    return np.asarray(number(_AIRY_AT_0, x) * f - number(_AIRY_SLOPE_AT_0, x) * g)


def _left_airy(size: Array) -> Array:
    """Ai(-size): the sum of two conjugate waves, by Gauss's rule for t^(-1/6) exp(-t)."""
    count, alpha = 40, -1 / 6
    k = np.arange(count)
    jacobi = np.diag(2 * k + alpha + 1) + np.diag(np.sqrt(k[1:] * (k[1:] + alpha)), 1)
    nodes, vectors = np.linalg.eigh(jacobi + np.triu(jacobi, 1).T)
    weights = vectors[0] ** 2 * math.gamma(alpha + 1)
    phase, rest = _airy_phase(size)
    zeta = 1j * phase
    total = np.zeros(size.shape, np.complex128)
    for node, weight in zip(nodes, weights):
        total = total + weight * (2 + node / zeta) ** (-1 / 6)
    wave = np.exp(-zeta) * (1 - 1j * rest) * zeta ** (-1 / 6) * total
    wave = wave / (math.sqrt(math.pi) * 48 ** (1 / 6) * math.gamma(5 / 6))
    return np.asarray(2 * (np.exp(1j * math.pi / 3) * wave).real)
