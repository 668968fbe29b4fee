"""True values by mpmath, and the error of a result in units of its last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np

from ridgeline.scalars import Array

Run = Callable[..., Array]  # (name of an operation, operands) -> values

mp.mp.dps = 40

TRUTH: dict[str, Callable[..., mp.mpf]] = {
    "exp2": lambda x: mp.power(2, x), "log2": lambda x: mp.log(x) / mp.ln2, "log10": mp.log10,
    "tan": mp.tan, "sinc": mp.sincpi,
    "exp": mp.exp, "expm1": mp.expm1, "log": mp.log, "log1p": mp.log1p, "tanh": mp.tanh,
    "erf": mp.erf, "sin": mp.sin, "cos": mp.cos, "pow": mp.power, "asin": mp.asin,
    "acos": mp.acos, "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "asinh": mp.asinh,
    "acosh": mp.acosh, "atanh": mp.atanh, "atan2": mp.atan2, "hypot": mp.hypot,
    "fmod": lambda a, b: mp.sign(a) * mp.fmod(abs(a), abs(b)),
}  # fmt: skip
_MANTISSA = {2: 10, 4: 23, 8: 52}
_LEAST = {2: -14, 4: -126, 8: -1022}
_TOP = {2: 15, 4: 127, 8: 1023}


def true_value(name: str, operands: Sequence[float]) -> mp.mpf:
    """The value for finite operands inside the function's domain, to forty digits or more."""
    # room to reduce huge arguments
    with mp.workdps(340 if name in ("sin", "cos", "tan", "sinc") else 40):
        return TRUTH[name](*(mp.mpf(float(x)) for x in operands))


def ulps(found: float, truth: mp.mpf, itemsize: int) -> float:
    """|found - truth| in units of the last place of the truth; overflow must come just in time."""
    if not truth:
        return 0.0 if found == 0 else float("inf")
    exponent = max(int(mp.floor(mp.log(abs(truth), 2))), _LEAST[itemsize])
    if abs(truth) >= mp.ldexp(1, exponent + 1):  # the logarithm was rounded
        exponent += 1
    if exponent > _TOP[itemsize]:
        return 0.0 if np.isinf(found) and (found > 0) == (truth > 0) else float("inf")
    unit = mp.ldexp(1, exponent - _MANTISSA[itemsize])
    if np.isnan(found):
        return float("inf")
    limit = mp.ldexp(1, _TOP[itemsize] + 1)
    value = mp.mpf(found) if np.isfinite(found) else (limit if found > 0 else -limit)
    return float(abs(value - truth) / unit)


def worst(name: str, run: Run, *operands: Array) -> tuple[float, tuple[float, ...]]:
    """The largest error over arrays of finite operands, and where it is."""
    found = run(name, *operands)
    itemsize = operands[0].dtype.itemsize
    largest, where = 0.0, tuple(float(x[0]) for x in operands)
    for value, *point in zip(found.tolist(), *(x.tolist() for x in operands)):
        error = ulps(value, true_value(name, point), itemsize)
        if error > largest:
            largest, where = error, tuple(point)
    return largest, where


def worst_dense(name: str, run: Run, x: Array, reference: Array) -> tuple[float, float]:
    """The same for float32, against float64 values that are good to far more than an ulp."""
    found = run(name, x).astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(reference)))
        unit = np.exp2(np.clip(exponent, _LEAST[4], _TOP[4]) - _MANTISSA[4])
        beyond = np.abs(reference) >= (2.0 - 2.0**-24) * 2.0 ** _TOP[4]
        error = np.abs(np.clip(found, -(2.0**128), 2.0**128) - reference) / unit
    error = np.where(beyond, np.where(np.isinf(found), 0.0, 1.0), error)
    error = np.where(reference == 0, np.where(found == 0, 0.0, np.inf), error)
    at = int(np.argmax(error))
    return float(error[at]), float(x[at])


def spread(low: int, high: int, count: int, dtype: type, seed: int = 0) -> Array:
    """Random numbers of both signs whose exponents are uniform between two powers of two."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(low, high, count)
    values = np.ldexp(rng.uniform(1, 2, count), exponents) * rng.choice([-1.0, 1.0], count)
    return values.astype(dtype)
