"""Fit the polynomials and rational functions behind `ridgeline/loops/math`, in high precision.

`python tools/minimax.py` writes the files of `ridgeline/loops/math/tables`, one a family of
functions; with `--check` it compares instead. With names it prints, or compares, these tables only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import mpmath as mp
from fitting import Fit, Function, Parts, Surface, Table, held, near, of_square, parts, rounded

FOLDER = Path(__file__).parent.parent / "ridgeline" / "loops" / "math" / "tables"
INCOMPLETE_FROM = 12  # from this a on, one expansion serves all x around it


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


def turns(exponent: int) -> list[mp.mpf]:
    """2**k / 2pi modulo 1 in two floats, scaled back by 2**-k.

    The first ends at the 53rd binary place, so that an integer times it, less the nearest integer,
    is exact.
    """
    with mp.workdps(100):
        fraction = mp.frac(mp.ldexp(1 / (2 * mp.pi), exponent))
        first = mp.ldexp(mp.floor(mp.ldexp(fraction, 53)), -53)
        return [mp.ldexp(part, -exponent) for part in (first, rounded(fraction - first, 53))]


def relative(name: str, f: Function, low: float, high: float, top: int, below: int) -> Fit:
    """Weighed by the function itself.

    Variables run from 0 upwards, so that coefficients are positive and nothing cancels.
    """
    return Fit(
        name, f, lambda x: 1 / f(x), mp.mpf(low), mp.mpf(high), top, 53, below, at_once=True
    )  # fmt: skip


def log_rest_by_atanh() -> Function:
    """2 (atanh(s) - s) / s**3 by the square of s."""
    return near(
        "1e-12", of_square(lambda s: 2 * (mp.atanh(s) - s) / s**3),
        lambda z: (mp.mpf(1) / 3 + z / 5) * 2,
    )  # fmt: skip


def elementary() -> list[Table]:
    """Exponentials, logarithms, powers, circular and hyperbolic functions; numbers in parts."""
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
    log2_of = near(
        "1e-12", of_square(lambda s: 2 * mp.atanh(s) / ln2 / s), lambda z: 2 / ln2 * (1 + z / 3)
    )
    tanh_rest = near(
        "1e-12", of_square(lambda x: (mp.tanh(x) / x - 1) / x**2), lambda z: z * 2 / 15 - one / 3
    )
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
    sinc_rest = near(
        "1e-12", of_square(lambda r: (mp.sincpi(r) - 1) / r**2), lambda z: -(mp.pi**2) / 6
    )
    return [
        Parts("TWO_LN2_32", parts(2 * ln2, 24, 2)),
        Parts("TWO_LN2_64", parts(2 * ln2, 53, 2)),
        Parts("LN2_32", parts(ln2, 24, 2)),
        Parts("LN2_64", parts(ln2, 53, 2)),
        Parts("LOG2_E_64", parts(1 / ln2, 53, 2)),
        Parts("LOG10_E_64", parts(1 / mp.ln(10), 53, 2)),
        Parts("LOG10_2_64", parts(mp.log10(2), 53, 2)),
        Parts("HALF_PI_64", parts(mp.pi / 2, 53, 4)),
        *(Parts(f"TURNS_{k}", turns(k)) for k in (0, 27, 54, 81)),
        Fit("EXP32", exp_rest, by_exp, -ln2, ln2, 5, 24),
        Fit("EXPM1_32", exp_rest, by_expm1, -ln2, ln2, 6, 24),
        Fit("EXP64", exp_rest, by_expm1, -ln2, ln2, 12, 53),
        Fit("EXP2_32", two_to, lambda f: two_to(-f), -one / 2, one / 2, 6, 24, fixed={0: 1.0}),
        Fit("EXP2_64", two_to, lambda f: two_to(-f), -one / 2, one / 2, 12, 53, fixed={0: 1.0}),
        Fit("LOG32", log_rest, by_log, smallest, largest, 7, 24),
        Fit("LOG64", log_rest_by_atanh(), lambda z: z / 2, zero, steepest, 6, 53),
        Fit("TANH32", tanh_rest, lambda z: z, zero, mp.mpf("0.625") ** 2, 4, 24),
        Fit("TANH64", tanh_rest, lambda z: z, zero, mp.mpf("0.625") ** 2, 2, 53, 3),
        Fit("SIN32", sin_rest, lambda z: z, zero, octant, 2, 24),
        Fit("COS32", cos_rest, lambda z: z**2, zero, octant, 2, 24),
        Fit("SIN64", sin_rest, lambda z: z, zero, octant, 6, 53),
        Fit("COS64", cos_rest, lambda z: z**2, zero, octant, 5, 53),
        Fit("SINC64", sinc_rest, lambda z: z, zero, one / 4, 9, 53),
        Fit("ATAN64", atan_rest, lambda z: z, zero, eighth, 11, 53),
        Fit("POW_LOG2", log2_of, lambda z: 1 / log2_of(z), zero, steepest, 5, 53),
        Fit("POW_EXP2", two_to, lambda f: two_to(-f), -one / 2, one / 2, 7, 53, fixed={0: 1.0}),
    ]  # fmt: skip


def error_function() -> list[Table]:
    """The error function, its complement, and their inverses."""
    zero, one = mp.mpf(0), mp.mpf(1)
    slope = 2 / mp.sqrt(mp.pi)
    erf_of = near("1e-30", of_square(lambda x: mp.erf(x) / x), lambda z: slope * (1 - z / 3))
    far = near("1e-30", of_square(lambda u: erfcx(1 / u) / u), lambda z: 1 / mp.sqrt(mp.pi))

    def quantile(t: mp.mpf) -> mp.mpf:
        y = mp.sqrt(abs(mp.mpf("0.7225") - t))
        return mp.erfinv(y) / y if y > mp.mpf("1e-30") else mp.sqrt(mp.pi) / 2

    return [
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
        relative("ERFCX64", erfcx, 0, 4, 8, 8),
        relative("ERFCX_FAR64", far, 0, 1 / 16, 5, 5),
        relative("ERFINV64", quantile, 0, 0.7225, 7, 7),
        relative("ERFINV_TAIL64", lambda t: tail_quantile(t + mp.mpf("1.6")), 0, 3.4, 7, 7),
        relative("ERFINV_FAR64", lambda t: tail_quantile(t + 5), 0, 22.4, 7, 7),
    ]  # fmt: skip


def gamma() -> list[Table]:
    """The gamma function's logarithm, and the incomplete gamma functions."""

    def by_zeros(t: mp.mpf) -> mp.mpf:
        x = t + 1
        if min(abs(x - 1), abs(x - 2)) < mp.mpf("1e-20"):
            x += mp.mpf("1e-18")
        return mp.loggamma(x) / ((x - 1) * (x - 2))

    return [
        relative("LGAMMA64", by_zeros, 0, 2, 7, 7),
        relative("LGAMMA_MID64", lambda t: mp.loggamma(t + 3), 0, 9, 9, 8),
        relative("STIRLING64", stirling_rest, 0, 1, 8, 8),
        Surface(
            "INCOMPLETE64", lambda x, y: incomplete_rest(x, (y + 1) / INCOMPLETE_FROM / 2), (28, 14)
        ),
    ]  # fmt: skip


def scaled_k(order: mp.mpf) -> Function:
    """exp(x) K(x) sqrt(x) by 1/x."""
    limit = mp.sqrt(mp.pi / 2)
    of = lambda u: mp.exp(1 / u) * mp.besselk(order, 1 / u) / mp.sqrt(u)  # noqa: E731
    return near("1e-30", of, lambda u: limit)


def bessel() -> list[Table]:
    """The modified Bessel functions I and K, of orders 0 and 1."""

    def by_root(order: int) -> Function:
        limit = 1 / mp.sqrt(2 * mp.pi)
        return near(
            "1e-30", lambda u: mp.exp(-1 / u) * mp.besseli(order, 1 / u) / mp.sqrt(u),
            lambda u: limit,
        )  # fmt: skip

    def up_to_sixteen(order: int) -> Function:
        start = mp.mpf(1) / (order + 1)
        of = of_square(lambda x: mp.besseli(order, 16 * x) / (16 * x) ** order)
        return near("1e-30", of, lambda z: start)

    def k0(x: mp.mpf) -> mp.mpf:
        return mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)

    def k1(x: mp.mpf) -> mp.mpf:
        return (mp.besselk(1, x) - 1 / x - mp.log(x) * mp.besseli(1, x)) / x

    return [
        relative("I0_64", up_to_sixteen(0), 0, 1, 21, 0),
        relative("I0E_FAR64", by_root(0), 0, 1 / 16, 12, 0),
        relative("I1_64", up_to_sixteen(1), 0, 1, 21, 0),
        relative("I1E_FAR64", by_root(1), 0, 1 / 16, 12, 0),
        relative("I0_NEAR64", held(lambda x: mp.besseli(0, x)), 0, 1, 7, 0),
        relative("I1_NEAR64", held(lambda x: mp.besseli(1, x) / x), 0, 1, 7, 0),
        relative("K0_64", held(k0), 0, 1, 7, 0),
        relative("K1_64", held(k1), 0, 1, 7, 0),
        relative("K0E_64", scaled_k(mp.mpf(0)), 0, 1, 9, 9),
        relative("K1E_64", scaled_k(mp.mpf(1)), 0, 1, 9, 9),
    ]


def waves() -> list[Table]:
    """Bessel's J and Y of orders 0 and 1, and Airy's function."""
    one = mp.mpf(1)

    def inside(name: str, f: Function, degree: int) -> Fit:
        """To the same absolute error everywhere, in t from -1 to 1."""
        return Fit(name, f, lambda t: one, -one, one, degree, 53, at_once=True)

    def up_to_five(f: Function) -> Function:
        return lambda t: held(f)((t + 1) * mp.mpf("12.5"))

    def y0(x: mp.mpf) -> mp.mpf:
        return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)

    def y1(x: mp.mpf) -> mp.mpf:
        log = 2 / mp.pi * mp.log(x) * mp.besselj(1, x)
        return (mp.bessely(1, x) - log + 2 / (mp.pi * x)) / x

    return [
        Parts("TWO_THIRDS", parts(2 * one / 3, 53, 2)),
        inside("J0_64", up_to_five(lambda x: mp.besselj(0, x)), 14),
        inside("J1_64", up_to_five(lambda x: mp.besselj(1, x) / x), 13),
        inside("Y0_64", up_to_five(y0), 14),
        inside("Y1_64", up_to_five(y1), 14),
        *far_waves(("P0_64", "Q0_64"), bessel_waves(0), 1 / 25, 6),
        *far_waves(("P1_64", "Q1_64"), bessel_waves(1), 1 / 25, 6),
        inside("AIRY_LEFT64", lambda t: mp.airyai(2 * t - 2), 26),
        Fit(
            "AIRY64", lambda t: mp.airyai((t + 1) / 2), lambda t: 1 / mp.airyai((t + 1) / 2),
            -one, one, 15, 53, at_once=True,
        ),
        relative("AIRY_RIGHT64", scaled_k(one / 3), 0, 1.5, 9, 9),
        *far_waves(("AIRY_P64", "AIRY_Q64"), airy_waves, 0.0352, 5),
    ]  # fmt: skip


FAMILIES: Mapping[str, Callable[[], list[Table]]] = {
    "elementary": elementary,
    "error_function": error_function,
    "gamma": gamma,
    "bessel": bessel,
    "waves": waves,
}


def header(family: Callable[[], list[Table]]) -> str:
    """The docstring of a family's file."""
    return (
        f'"""{family.__doc__}\n\n'
        'Coefficients, lowest power first; written by `tools/minimax.py`.\n"""\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    parser.add_argument("names", nargs="*", help="only these tables")
    options = parser.parse_args()
    families = {name: family() for name, family in FAMILIES.items()}
    known = {table.name for tables in families.values() for table in tables}
    if unknown := set(options.names) - known:
        parser.error(f"no table is called {', '.join(sorted(unknown))}")
    for name, tables in families.items():
        sources = [t.source() for t in tables if not options.names or t.name in options.names]
        text = "\n".join(sources if options.names else [header(FAMILIES[name]), *sources])
        file = FOLDER / f"{name}.py"
        if options.check:
            kept = file.read_text()
            if not (all(s in kept for s in sources) if options.names else kept == text):
                raise SystemExit(f"the coefficients in {file} differ")
        elif options.names:
            print(text, end="")
        else:
            file.write_text(text)


if __name__ == "__main__":
    main()
