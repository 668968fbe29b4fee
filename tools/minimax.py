"""Fit the polynomials and rational functions behind `ridgeline/loops/math`, in high precision.

`python tools/minimax.py` writes `ridgeline/loops/math/coefficients.py`; with `--check` it compares
instead. Every fit minimises the largest weighed error; coefficients are then rounded to the
working precision one at a time, from the one that matters most, refitting the others each time.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]
TARGET = Path(__file__).parent.parent / "ridgeline" / "loops" / "math" / "coefficients.py"
mp.mp.dps = 50
INCOMPLETE_FROM = 12  # from this a on, one expansion serves all x around it


@dataclass(frozen=True)
class Fit:
    """f(x) ~ P(x) / Q(x), with the error weighed by `weight`; `bits` is the working precision."""

    name: str
    f: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    bits: int
    below: int = 0  # degree of Q, whose constant is 1
    fixed: dict[int, float] = field(default_factory=dict)  # numerator coefficients that are given
    at_once: bool = False  # coefficients are rounded together: an ulp more, and much sooner done


def rounded(value: mp.mpf, bits: int) -> mp.mpf:
    """The nearest float32 or float64."""
    number = float(value)
    return mp.mpf(struct.unpack("f", struct.pack("f", number))[0] if bits == 24 else number)


def chebyshev(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    """`count` points of the interval, dense at the ends, the ends included."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


def evaluate(numerator: Sequence[mp.mpf], denominator: Sequence[mp.mpf], x: mp.mpf) -> mp.mpf:
    """P(x) / Q(x) with Q = 1 + ..."""
    bottom = mp.polyval([*reversed(denominator), 1], x) if denominator else mp.mpf(1)
    return mp.polyval(list(reversed(numerator)), x) / bottom


def lawson(fit: Fit, top: dict[int, mp.mpf], bottom: dict[int, mp.mpf], steps: int) -> list[mp.mpf]:
    """Coefficients, numerator then denominator, some of them given.

    Least squares whose weights grow where the error is large, which tends to the minimax fit; a
    quotient is linearised around the previous denominator.
    """
    free_top = [k for k in range(fit.degree + 1) if k not in top]
    free_bottom = [k for k in range(1, fit.below + 1) if k not in bottom]
    points = chebyshev(fit.low, fit.high, 12 * (fit.degree + fit.below + 2))
    values, weights = [fit.f(x) for x in points], [fit.weight(x) for x in points]
    importance = [mp.mpf(1)] * len(points)
    previous = [mp.mpf(1)] * len(points)
    best: tuple[mp.mpf, list[mp.mpf]] | None = None
    for _ in range(steps):
        rows, right = [], []
        for x, value, weight, share, q in zip(points, values, weights, importance, previous):
            scale = mp.sqrt(share) * weight / q
            row = [scale * x**k for k in free_top]
            rows.append(row + [-scale * value * x**k for k in free_bottom])
            given = sum((c * x**k for k, c in top.items()), mp.mpf(0))
            given -= value * sum((c * x**k for k, c in bottom.items()), mp.mpf(0))
            right.append(scale * (value - given))
        answer = least_squares(rows, right)
        tops = {**top, **dict(zip(free_top, answer))}
        bottoms = {**bottom, **dict(zip(free_bottom, answer[len(free_top) :]))}
        result = [tops[k] for k in range(fit.degree + 1)]
        result += [bottoms[k] for k in range(1, fit.below + 1)]
        split = fit.degree + 1
        previous = [evaluate([mp.mpf(1)], result[split:], x) ** -1 for x in points]
        errors = [
            abs(weight * (evaluate(result[:split], result[split:], x) - value))
            for x, value, weight in zip(points, values, weights)
        ]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = worst, result
        importance = [share * (error / worst) for share, error in zip(importance, errors)]
        total = sum(importance)
        importance = [share / total for share in importance]
    assert best is not None
    return best[1]


def least_squares(rows: list[list[mp.mpf]], right: list[mp.mpf]) -> list[mp.mpf]:
    """The normal equations; fifty digits leave room for their condition."""
    size = len(rows[0])
    matrix, vector = mp.zeros(size), mp.zeros(size, 1)
    for a in range(size):
        column = [row[a] for row in rows]
        vector[a] = mp.fdot(column, right)
        for b in range(a, size):
            matrix[a, b] = matrix[b, a] = mp.fdot(column, (row[b] for row in rows))
    return list(mp.lu_solve(matrix, vector))


def rounded_fit(fit: Fit) -> tuple[list[mp.mpf], list[mp.mpf], mp.mpf]:
    """Coefficients in working precision and the largest weighed error they leave."""
    top = {k: mp.mpf(value) for k, value in fit.fixed.items()}
    bottom: dict[int, mp.mpf] = {}
    if fit.at_once:
        with mp.workdps(110):  # close fits of high degree are badly conditioned
            coefficients = lawson(fit, top, bottom, 60)
        split = fit.degree + 1
        top = {k: rounded(c, fit.bits) for k, c in enumerate(coefficients[:split])}
        bottom = {k: rounded(c, fit.bits) for k, c in enumerate(coefficients[split:], 1)}
    else:
        coefficients = lawson(fit, top, bottom, 120)
    for k in range(max(fit.degree, fit.below) + 1):
        for side, limit in ((top, fit.degree + 1), (bottom, fit.below + 1)):
            if k in side or k >= limit or (side is bottom and k == 0):
                continue
            place = k if side is top else fit.degree + k
            side[k] = rounded(coefficients[place], fit.bits)
            if len(top) + len(bottom) <= fit.degree + fit.below:
                coefficients = lawson(fit, top, bottom, 25)
    numerator = [top[k] for k in range(fit.degree + 1)]
    denominator = [bottom[k] for k in range(1, fit.below + 1)]
    worst = max(
        abs(fit.weight(x) * (evaluate(numerator, denominator, x) - fit.f(x)))
        for x in chebyshev(fit.low, fit.high, 1500)
    )
    return numerator, denominator, worst


def near(limit: str, f: Function, series: Function) -> Function:
    """`f`, replaced by its series where it would cancel."""
    return lambda x: f(x) if abs(x) > mp.mpf(limit) else series(x)


def of_square(f: Function) -> Function:
    """An even function given by its square root argument."""
    return lambda z: f(mp.sqrt(z))


def erfcx(x: mp.mpf) -> mp.mpf:
    """exp(x*x) * erfc(x)."""
    return mp.exp(x * x) * mp.erfc(x)


def tail_quantile(r: mp.mpf) -> mp.mpf:
    """The v with erfc(v) = 2 exp(-r*r), by Newton's steps on the logarithm."""
    v = r
    for _ in range(60):
        value = mp.erfc(v)
        slope = -2 / mp.sqrt(mp.pi) * mp.exp(-v * v) / value
        change = (mp.log(value) - mp.ln(2) + r * r) / slope
        v -= change
        if abs(change) < mp.mpf(10) ** -45:
            break
    return v


def specials() -> list[Fit]:
    """Tables of the special functions, each weighed by the function itself."""

    def relative(name: str, f: Function, low: float, high: float, top: int, below: int) -> Fit:
        return Fit(
            name, f, lambda x: 1 / f(x), mp.mpf(low), mp.mpf(high), top, 53, below, at_once=True
        )

    def by_root(order: int) -> Function:
        limit = 1 / mp.sqrt(2 * mp.pi)
        return near(
            "1e-30", lambda u: mp.exp(-1 / u) * mp.besseli(order, 1 / u) / mp.sqrt(u),
            lambda u: limit,
        )  # fmt: skip

    def by_zeros(t: mp.mpf) -> mp.mpf:
        x = t + 1
        if min(abs(x - 1), abs(x - 2)) < mp.mpf("1e-20"):
            x += mp.mpf("1e-18")
        return mp.loggamma(x) / ((x - 1) * (x - 2))

    def quantile(t: mp.mpf) -> mp.mpf:
        y = mp.sqrt(abs(mp.mpf("0.7225") - t))
        return mp.erfinv(y) / y if y > mp.mpf("1e-30") else mp.sqrt(mp.pi) / 2

    def bessel(order: int) -> Function:
        start = mp.mpf(1) / (order + 1)
        of = of_square(lambda x: mp.besseli(order, 16 * x) / (16 * x) ** order)
        return near("1e-30", of, lambda z: start)

    # variables from 0 upwards, so that coefficients are positive and nothing cancels
    return [
        relative("ERFCX64", erfcx, 0, 4, 8, 8),
        relative(
            "ERFCX_FAR64",
            near("1e-30", of_square(lambda u: erfcx(1 / u) / u), lambda z: 1 / mp.sqrt(mp.pi)),
            0, 1 / 16, 5, 5,
        ),
        relative("ERFINV64", quantile, 0, 0.7225, 7, 7),
        relative("ERFINV_TAIL64", lambda t: tail_quantile(t + mp.mpf("1.6")), 0, 3.4, 7, 7),
        relative("ERFINV_FAR64", lambda t: tail_quantile(t + 5), 0, 22.4, 7, 7),
        relative("LGAMMA64", by_zeros, 0, 2, 7, 7),
        relative("LGAMMA_MID64", lambda t: mp.loggamma(t + 3), 0, 9, 9, 8),
        relative("I0_64", bessel(0), 0, 1, 21, 0),
        relative("I0E_FAR64", by_root(0), 0, 1 / 16, 12, 0),
        relative("I1_64", bessel(1), 0, 1, 21, 0),
        relative("I1E_FAR64", by_root(1), 0, 1 / 16, 12, 0),
    ]  # fmt: skip


def held(f: Function) -> Function:
    """An even function by its square, kept off 0, where it would cancel; it is flat there."""
    return lambda z: f(mp.sqrt(max(z, mp.mpf("1e-20"))))


def rotated(first: mp.mpf, second: mp.mpf, turn: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """P and Q of first = P cos w - Q sin w and second = P sin w + Q cos w."""
    cosine, sine = mp.cos(turn), mp.sin(turn)
    return first * cosine + second * sine, second * cosine - first * sine


def bessel_waves(order: int) -> Function:
    """P and Q of J and Y times sqrt(pi x / 2), by 1/x, with w = x - (order/2 + 1/4) pi."""

    def value(u: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        x = 1 / u
        turn = x - mp.mpf(2 * order + 1) / 4 * mp.pi
        p, q = rotated(mp.besselj(order, x), mp.bessely(order, x), turn)
        return p * mp.sqrt(mp.pi * x / 2), q * mp.sqrt(mp.pi * x / 2)

    return value


def airy_waves(u: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """P and Q of Ai(-x) and Bi(-x) times sqrt(pi) x**(1/4), by 1/zeta, w = pi/4 - zeta."""
    x = (mp.mpf(3) / 2 / u) ** (mp.mpf(2) / 3)
    p, q = rotated(mp.airyai(-x), mp.airybi(-x), mp.pi / 4 - 1 / u)
    return p * mp.sqrt(mp.pi) * mp.root(x, 4), q * mp.sqrt(mp.pi) * mp.root(x, 4)


def far_waves(names: tuple[str, str], waves: Function, high: float, degree: int) -> list[Fit]:
    """(P - 1) / z and Q / u for z = u**2, to one part in all of a wave of size 1."""
    p = held(lambda u: (waves(u)[0] - 1) / u**2)
    q = held(lambda u: waves(u)[1] / u)
    end = mp.mpf(high)
    return [
        Fit(names[0], p, lambda z: z, mp.mpf(0), end, degree, 53, degree, at_once=True),
        Fit(names[1], q, mp.sqrt, mp.mpf(0), end, degree, 53, degree, at_once=True),
    ]


def bessels() -> list[Fit]:
    """Bessel's J, Y and K of orders 0 and 1, and Airy's function."""
    zero, one = mp.mpf(0), mp.mpf(1)

    def inside(name: str, f: Function, degree: int) -> Fit:
        """To the same absolute error everywhere, in t from -1 to 1."""
        return Fit(name, f, lambda t: one, -one, one, degree, 53, at_once=True)

    def up_to_five(f: Function) -> Function:
        return lambda t: held(f)((t + 1) * mp.mpf("12.5"))

    def relative(name: str, f: Function, high: float, top: int, below: int) -> Fit:
        return Fit(name, f, lambda x: 1 / f(x), zero, mp.mpf(high), top, 53, below, at_once=True)

    def scaled_k(order: mp.mpf) -> Function:
        limit = mp.sqrt(mp.pi / 2)
        of = lambda u: mp.exp(1 / u) * mp.besselk(order, 1 / u) / mp.sqrt(u)  # noqa: E731
        return near("1e-30", of, lambda u: limit)

    def k1(x: mp.mpf) -> mp.mpf:
        return (mp.besselk(1, x) - 1 / x - mp.log(x) * mp.besseli(1, x)) / x

    def y0(x: mp.mpf) -> mp.mpf:
        return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)

    def y1(x: mp.mpf) -> mp.mpf:
        log = 2 / mp.pi * mp.log(x) * mp.besselj(1, x)
        return (mp.bessely(1, x) - log + 2 / (mp.pi * x)) / x

    return [
        inside("J0_64", up_to_five(lambda x: mp.besselj(0, x)), 14),
        inside("J1_64", up_to_five(lambda x: mp.besselj(1, x) / x), 13),
        inside("Y0_64", up_to_five(y0), 14),
        inside("Y1_64", up_to_five(y1), 14),
        *far_waves(("P0_64", "Q0_64"), bessel_waves(0), 1 / 25, 6),
        *far_waves(("P1_64", "Q1_64"), bessel_waves(1), 1 / 25, 6),
        relative("I0_NEAR64", held(lambda x: mp.besseli(0, x)), 1, 7, 0),
        relative("I1_NEAR64", held(lambda x: mp.besseli(1, x) / x), 1, 7, 0),
        relative("K0_64", held(lambda x: mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)), 1, 7, 0),
        relative("K1_64", held(k1), 1, 7, 0),
        relative("K0E_64", scaled_k(zero), 1, 9, 9),
        relative("K1E_64", scaled_k(one), 1, 9, 9),
        inside("AIRY_LEFT64", lambda t: mp.airyai(2 * t - 2), 26),
        Fit(
            "AIRY64", lambda t: mp.airyai((t + 1) / 2), lambda t: 1 / mp.airyai((t + 1) / 2),
            -one, one, 15, 53, at_once=True,
        ),
        relative("AIRY_RIGHT64", scaled_k(one / 3), 1.5, 9, 9),
        *far_waves(("AIRY_P64", "AIRY_Q64"), airy_waves, 0.0352, 5),
    ]  # fmt: skip


def stirling_rest(u: mp.mpf) -> mp.mpf:
    """gamma(a) over Stirling's formula for it, by 1/a."""
    if u < mp.mpf("1e-20"):
        return 1 + u / 12
    a = 1 / u
    return mp.exp(mp.loggamma(a) - (a - mp.mpf("0.5")) * mp.log(a) + a) / mp.sqrt(2 * mp.pi)


def incomplete_rest(eta: mp.mpf, inverse: mp.mpf) -> mp.mpf:
    """What the normal distribution leaves of the upper incomplete gamma function Q(a, x).

    Q = erfc(eta sqrt(a/2)) / 2 + exp(-a eta**2 / 2) / sqrt(2 pi a) * rest, where eta**2 / 2 is
    x/a - 1 - log(x/a), and eta has the sign of x - a (Temme's uniform expansion).
    """
    log = eta
    for _ in range(60):
        change = (mp.expm1(log) - log - eta * eta / 2) / mp.expm1(log)
        log -= change
        if abs(change) < mp.mpf(10) ** -45:
            break
    a = 1 / inverse
    x, exponent = a * mp.exp(log), a * eta * eta / 2
    if eta > 0:
        value = mp.gammainc(a, x, mp.inf, regularized=True) - mp.erfc(mp.sqrt(exponent)) / 2
    else:
        value = mp.erfc(mp.sqrt(exponent)) / 2 - mp.gammainc(a, 0, x, regularized=True)
    return mp.sqrt(2 * mp.pi * a) * mp.exp(exponent) * value


def surface(name: str, f: Callable[[mp.mpf, mp.mpf], mp.mpf], sizes: tuple[int, int]) -> str:
    """The Python source of a function of two numbers from -1 to 1: polynomials of the first.

    They are the coefficients by powers of the second; Chebyshev's series is cut below a last place.
    """
    half = mp.mpf(1) / 2
    nodes = [[mp.cos(mp.pi * (i + half) / n) for i in range(n)] for n in sizes]
    basis = [[[mp.chebyt(k, x) for x in xs] for k in range(len(xs))] for xs in nodes]
    values = [[f(x, y) for y in nodes[1]] for x in nodes[0]]
    powers = [[mp.mpf(0)] * sizes[0] for _ in range(sizes[1])]
    for k, first in enumerate(basis[0]):
        along = [mp.fdot(first, column) for column in zip(*values)]
        for j, second in enumerate(basis[1]):
            weight = (2 if k else 1) * (2 if j else 1) / mp.mpf(sizes[0] * sizes[1])
            coefficient = mp.fdot(second, along) * weight
            if abs(coefficient) < mp.mpf(2) ** -57:
                continue
            for p, c in enumerate(chebyshev_powers(k)):
                for q, d in enumerate(chebyshev_powers(j)):
                    powers[q][p] += coefficient * c * d
    lines = [f"{name} = ("]
    for row in powers:
        while row and not row[-1]:
            row.pop()
        if row:
            lines += ["    (", *(f"        {float(c)!r}," for c in row), "    ),"]
    return "\n".join([*lines, ")\n"])


def chebyshev_powers(degree: int) -> list[int]:
    """The coefficients of Chebyshev's polynomial, lowest power first."""
    before, last = [1], [0, 1]
    for _ in range(degree):
        doubled = [0, *(2 * c for c in last)]
        longer = [*before, *([0] * (len(doubled) - len(before)))]
        before, last = last, [a - b for a, b in zip(doubled, longer)]
    return before


def surfaces() -> str:
    """Every table of two variables."""
    return surface(
        "INCOMPLETE64", lambda x, y: incomplete_rest(x, (y + 1) / INCOMPLETE_FROM / 2), (28, 14)
    )


def incompletes() -> list[Fit]:
    """The parts of incomplete gamma functions that depend on one number."""
    rest = near(
        "1e-12", of_square(lambda s: 2 * (mp.atanh(s) - s) / s**3),
        lambda z: (mp.mpf(1) / 3 + z / 5) * 2,
    )  # fmt: skip
    widest = mp.mpf("0.7") / mp.mpf("1.3")
    return [
        Fit(
            "STIRLING64", stirling_rest, lambda u: 1 / stirling_rest(u), mp.mpf(0), mp.mpf(1), 8,
            53, 8, at_once=True,
        ),
        Fit(
            "LOG_WIDE64", rest, lambda z: z, mp.mpf(0), widest**2 * mp.mpf("1.001"), 6, 53, 6,
            at_once=True,
        ),
    ]  # fmt: skip


def fits() -> list[Fit]:
    """Every table the expansions use."""
    one, ln2, zero = mp.mpf(1), mp.ln(2), mp.mpf(0)
    exp_rest = near("1e-12", lambda r: (mp.expm1(r) - r) / r**2, lambda r: one / 2 + r / 6)
    by_exp = near("0", lambda r: r**2 / mp.exp(r), lambda r: zero)
    by_expm1 = near("0", lambda r: r**2 / mp.expm1(r), lambda r: zero)
    log_rest = near(
        "1e-8", lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, lambda f: one / 3 - f / 4 + f**2 / 5
    )
    by_log = near("0", lambda f: f**3 / mp.log1p(f), lambda f: zero)
    smallest, largest = mp.sqrt(one / 2) - 1, mp.sqrt(2) - 1
    steepest = (largest / (2 + largest)) ** 2
    atanh_rest = near(
        "1e-12", of_square(lambda s: 2 * (mp.atanh(s) - s) / s**3), lambda z: (one / 3 + z / 5) * 2
    )
    log2_of = near(
        "1e-12", of_square(lambda s: 2 * mp.atanh(s) / ln2 / s), lambda z: 2 / ln2 * (1 + z / 3)
    )
    tanh_rest = near(
        "1e-12", of_square(lambda x: (mp.tanh(x) / x - 1) / x**2), lambda z: z * 2 / 15 - one / 3
    )
    slope = 2 / mp.sqrt(mp.pi)
    erf_of = near("1e-30", of_square(lambda x: mp.erf(x) / x), lambda z: slope * (1 - z / 3))
    sin_rest = near(
        "1e-12", of_square(lambda x: (mp.sin(x) / x - 1) / x**2), lambda z: z / 120 - one / 6
    )
    cos_rest = near(
        "1e-10", of_square(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4),
        lambda z: one / 24 - z / 720,
    )  # fmt: skip
    atan_rest = near(
        "1e-12", of_square(lambda x: (mp.atan(x) / x - 1) / x**2), lambda z: z / 5 - one / 3
    )
    eighth = mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.0001")
    two_to = lambda f: mp.mpf(2) ** f  # noqa: E731
    octant = (mp.pi / 4) ** 2 * mp.mpf("1.0001")
    return [
        Fit("EXP32", exp_rest, by_exp, -ln2, ln2, 5, 24),
        Fit("EXPM1_32", exp_rest, by_expm1, -ln2, ln2, 6, 24),
        Fit("EXP64", exp_rest, by_expm1, -ln2, ln2, 12, 53),
        Fit("LOG32", log_rest, by_log, smallest, largest, 7, 24),
        Fit("LOG64", atanh_rest, lambda z: z / 2, zero, steepest, 6, 53),
        Fit(
            "TANH32", lambda r: 2 * exp_rest(2 * r), lambda r: by_expm1(2 * r) / 2,
            -ln2 / 4, ln2 / 4, 4, 24,
        ),
        Fit("TANH64", tanh_rest, lambda z: z, zero, mp.mpf("0.625") ** 2, 2, 53, 3),
        Fit("ERF32", lambda z: erf_of(z) - 1, lambda z: 1 / erf_of(z), zero, one, 6, 24),
        Fit(
            "ERFC32", lambda x: mp.erfc(x) ** (one / 4),
            lambda x: 4 * mp.erfc(x) ** (3 * one / 4) / mp.erf(x), one, mp.mpf("3.95"), 8, 24,
        ),
        Fit("ERF64", lambda z: erf_of(z) - 1, lambda z: 1 / erf_of(z), zero, one, 12, 53),
        Fit(
            "ERFC64", lambda t: -mp.log(mp.erfc(t + 1)), lambda t: mp.erfc(t + 1) / mp.erf(t + 1),
            zero, mp.mpf(5), 8, 53, 6,
        ),
        Fit("SIN32", sin_rest, lambda z: z, zero, octant, 2, 24),
        Fit("COS32", cos_rest, lambda z: z**2, zero, octant, 2, 24),
        Fit("SIN64", sin_rest, lambda z: z, zero, octant, 6, 53),
        Fit("COS64", cos_rest, lambda z: z**2, zero, octant, 5, 53),
        Fit("ATAN64", atan_rest, lambda z: z, zero, eighth, 11, 53),
        Fit("POW_LOG2", log2_of, lambda z: 1 / log2_of(z), zero, steepest, 5, 53),
        Fit("POW_EXP2", two_to, lambda f: two_to(-f), -one / 2, one / 2, 7, 53, fixed={0: 1.0}),
        *specials(),
        *bessels(),
        *incompletes(),
    ]  # fmt: skip


def parts(value: mp.mpf, bits: int, count: int) -> list[mp.mpf]:
    """A number as an unevaluated sum of floats, each the nearest to what is left."""
    found: list[mp.mpf] = []
    for _ in range(count):
        found.append(rounded(value - sum(found), bits))
    return found


def turns(exponent: int) -> list[mp.mpf]:
    """2**k / 2pi modulo 1 in two floats, scaled back by 2**-k.

    The first ends at the 53rd binary place, so that an integer times it, less the nearest integer,
    is exact.
    """
    with mp.workdps(100):
        fraction = mp.frac(mp.ldexp(1 / (2 * mp.pi), exponent))
        first = mp.ldexp(mp.floor(mp.ldexp(fraction, 53)), -53)
        return [mp.ldexp(part, -exponent) for part in (first, rounded(fraction - first, 53))]


def constants() -> dict[str, list[mp.mpf]]:
    """Numbers the expansions need in several parts."""
    return {
        "TWO_LN2_32": parts(2 * mp.ln(2), 24, 2),
        "TWO_LN2_64": parts(2 * mp.ln(2), 53, 2),
        "LN2_32": parts(mp.ln(2), 24, 2),
        "LN2_64": parts(mp.ln(2), 53, 2),
        "HALF_PI_64": parts(mp.pi / 2, 53, 4),
        "TWO_THIRDS": parts(mp.mpf(2) / 3, 53, 2),
        **{f"TURNS_{k}": turns(k) for k in (0, 27, 54, 81)},
    }


def split_table(constant: tuple[str, list[mp.mpf]]) -> str:
    """The Python source of a number in several parts."""
    name, values = constant
    return "\n".join([f"{name} = (", *(f"    {float(x)!r}," for x in values), ")\n"])


def table(fit: Fit) -> str:
    """The Python source of one table, lowest power first."""
    numerator, denominator, worst = rounded_fit(fit)
    error = mp.nstr(mp.log(worst, 2), 4)
    lines = [f"# largest weighed error 2**{error}", f"{fit.name} = ("]
    lines += [f"    {float(c)!r}," for c in numerator]
    lines.append(")")
    if fit.below:
        lines += [f"{fit.name}_BELOW = (", "    1.0,"]
        lines += [f"    {float(c)!r}," for c in denominator]
        lines.append(")")
    return "\n".join(lines) + "\n"


HEADER = '''"""Coefficients of the expansions, lowest power first; written by `tools/minimax.py`."""
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("names", nargs="*", help="only print these tables")
    options = parser.parse_args()
    chosen = [fit for fit in fits() if not options.names or fit.name in options.names]
    text = "\n".join([HEADER, *map(split_table, constants().items()), *map(table, chosen)])
    if options.names:
        print(text)
        return
    text += "\n" + surfaces()
    if options.check:
        raise SystemExit(None if TARGET.read_text() == text else "the coefficients differ")
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
