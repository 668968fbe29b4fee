"""Minimax fits of polynomials and rational functions in high precision, and their Python source.

Every fit minimises the largest weighed error; coefficients are then rounded to the working
precision one at a time, from the one that matters most, refitting the others each time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]
mp.mp.dps = 50


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

    def source(self) -> str:
        """The largest error, and the coefficients, lowest power first."""
        numerator, denominator, worst = rounded_fit(self)
        error = mp.nstr(mp.log(worst, 2), 4)
        lines = [f"# largest weighed error 2**{error}", *_tuple(self.name, numerator)]
        if self.below:
            lines += _tuple(f"{self.name}_BELOW", [mp.mpf(1), *denominator])
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Parts:
    """A number as an unevaluated sum of floats."""

    name: str
    values: list[mp.mpf]

    def source(self) -> str:
        """The largest first."""
        return "\n".join(_tuple(self.name, self.values)) + "\n"


@dataclass(frozen=True)
class Surface:
    """A function of two numbers from -1 to 1."""

    name: str
    f: Callable[[mp.mpf, mp.mpf], mp.mpf]
    sizes: tuple[int, int]

    def source(self) -> str:
        """Polynomials of the first number, the coefficients by powers of the second.

        Chebyshev's series is cut below a last place.
        """
        half = mp.mpf(1) / 2
        nodes = [[mp.cos(mp.pi * (i + half) / n) for i in range(n)] for n in self.sizes]
        basis = [[[mp.chebyt(k, x) for x in xs] for k in range(len(xs))] for xs in nodes]
        values = [[self.f(x, y) for y in nodes[1]] for x in nodes[0]]
        powers = [[mp.mpf(0)] * self.sizes[0] for _ in range(self.sizes[1])]
        for k, first in enumerate(basis[0]):
            along = [mp.fdot(first, column) for column in zip(*values)]
            for j, second in enumerate(basis[1]):
                weight = (2 if k else 1) * (2 if j else 1) / mp.mpf(self.sizes[0] * self.sizes[1])
                coefficient = mp.fdot(second, along) * weight
                if abs(coefficient) < mp.mpf(2) ** -57:
                    continue
                for p, c in enumerate(chebyshev_powers(k)):
                    for q, d in enumerate(chebyshev_powers(j)):
                        powers[q][p] += coefficient * c * d
        lines = [f"{self.name} = ("]
        for row in powers:
            while row and not row[-1]:
                row.pop()
            if row:
                lines += ["    (", *(f"        {float(c)!r}," for c in row), "    ),"]
        return "\n".join([*lines, ")\n"])


Table = Fit | Parts | Surface


def _tuple(name: str, values: Sequence[mp.mpf]) -> list[str]:
    return [f"{name} = (", *(f"    {float(c)!r}," for c in values), ")"]


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


def held(f: Function) -> Function:
    """An even function by its square, kept off 0, where it would cancel; it is flat there."""
    return lambda z: f(mp.sqrt(max(z, mp.mpf("1e-20"))))


def parts(value: mp.mpf, bits: int, count: int) -> list[mp.mpf]:
    """A number as an unevaluated sum of floats, each the nearest to what is left."""
    found: list[mp.mpf] = []
    for _ in range(count):
        found.append(rounded(value - sum(found), bits))
    return found


def chebyshev_powers(degree: int) -> list[int]:
    """The coefficients of Chebyshev's polynomial, lowest power first."""
    before, last = [1], [0, 1]
    for _ in range(degree):
        doubled = [0, *(2 * c for c in last)]
        longer = [*before, *([0] * (len(doubled) - len(before)))]
        before, last = last, [a - b for a, b in zip(doubled, longer)]
    return before
