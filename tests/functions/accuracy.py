"""What public pointwise functions are by mpmath, hostile arguments, and errors in ulps.

`python -m tests.functions.accuracy` prints the largest error of every function, in each element
type and tier, next to torch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import mpmath as mp
import numpy as np
import numpy.typing as npt

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.dtypes import DType

Array = npt.NDArray[Any]
Truth = Callable[..., Any]
DTYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
TIERS = ("interpreter", "compiled")
_FAR = ("tan", "sin", "cos", "sinc", "frac", "remainder", "fmod", "floor_divide", "hypot")
_HALF = mp.mpf(1) / 2
_TANH = (("approximate", "tanh"),)


@dataclass(frozen=True, slots=True)
class Case:
    """A public function by its name in the namespace, what it is, and how many operands it has."""

    name: str
    truth: Truth
    arity: int = 1
    around: tuple[float, ...] = (0, 1, -1)  # where arguments are dense
    limit: float = 2.0  # in ulps
    limit_of_double: float | None = None
    terms: Truth | None = None  # the size of what cancels, whose ulps count then
    terms_of_double: Truth | None = None
    named: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The name with what it is called with."""
        return self.name + "".join(f" {key}={value}" for key, value in self.named)

    def allowed(self, dtype: DType) -> float:
        """How many ulps the error may have."""
        wide = dtype is dtypes.float64 and self.limit_of_double is not None
        return self.limit_of_double if wide else self.limit  # type: ignore[return-value]

    def size(self, dtype: DType) -> Truth | None:
        """What gives the size of what cancels."""
        return (dtype is dtypes.float64 and self.terms_of_double) or self.terms

    def call(self, library: Any, *operands: Any) -> Any:
        """The function of a library, called."""
        place = library
        for part in self.name.split("."):
            place = getattr(place, part)
        return place(*operands, **dict(self.named))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _logsigmoid(x: Any) -> Any:
    return -_softplus(-x)


def _elu(alpha: Any) -> Truth:
    return lambda x: x if x > 0 else alpha * mp.expm1(x)


def _gelu_tanh(x: Any) -> Any:
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)
    # 1 + tanh u without its loss at the left end
    return x / (1 + mp.exp(-2 * inner))


def _entr(x: Any) -> Any:
    return -x * mp.log(x) if x > 0 else mp.mpf(0) if x == 0 else -mp.inf


def _xlogy(x: Any, y: Any) -> Any:
    return mp.mpf(0) if x == 0 else x * mp.log(y)


def _xlog1py(x: Any, y: Any) -> Any:
    return mp.mpf(0) if x == 0 else x * mp.log1p(y)


def _logaddexp(a: Any, b: Any) -> Any:
    high, low = max(a, b), min(a, b)
    return high if mp.isinf(high) or mp.isinf(low) else high + mp.log1p(mp.exp(low - high))


def _logaddexp2(a: Any, b: Any) -> Any:
    high, low = max(a, b), min(a, b)
    if mp.isinf(high) or mp.isinf(low):
        return high
    return high + mp.log1p(mp.power(2, low - high)) / mp.ln2


def _logit(x: Any) -> Any:
    return mp.log(x) - mp.log1p(-x)


def _remainder(a: Any, b: Any) -> Any:
    return a - mp.floor(a / b) * b


def _fmod(a: Any, b: Any) -> Any:
    quotient = a / b
    return a - (mp.floor(quotient) if quotient > 0 else mp.ceil(quotient)) * b


def _held(low: Any, x: Any, high: Any) -> Any:
    return min(max(x, low), high)


def _softshrink(x: Any) -> Any:
    return x - _HALF if x > _HALF else x + _HALF if x < -_HALF else mp.mpf(0)


def _log_ndtr(x: Any) -> Any:
    return mp.log(mp.ncdf(x)) if x < 0 else mp.log1p(-mp.ncdf(-x))


def _gelu(x: Any) -> Any:
    return x * mp.ncdf(x)


def _softplus_to_20(x: Any) -> Any:
    """What torch calls softplus: from 20 on it is the argument."""
    return x if x > 20 else _softplus(x)


def _atan2(y: Any, x: Any) -> Any:
    return mp.atan2(y, x) if y else None  # else it depends on the sign of zero


def _larger(a: Any, b: Any) -> Any:
    return max(abs(a), abs(b))


_SELU_ALPHA, _SELU_SCALE = mp.mpf(1.6732632423543772848), mp.mpf(1.0507009873554804934)
CASES: tuple[Case, ...] = (
    Case("sqrt", mp.sqrt),
    Case("rsqrt", lambda x: 1 / mp.sqrt(x)),
    Case("reciprocal", lambda x: 1 / x),
    Case("square", lambda x: x * x),
    Case("exp", mp.exp),
    Case("exp2", lambda x: mp.power(2, x), around=(0, 13, -79, -126, -1022)),
    Case("expm1", mp.expm1),
    Case("log", mp.log),
    Case("log2", lambda x: mp.log(x) / mp.ln2, around=(0, 1, 8)),
    Case("log10", mp.log10, around=(0, 1, 1000)),
    Case("log1p", mp.log1p),
    Case("sin", mp.sin, around=(0, 3.14159265, 1e5)),
    Case("cos", mp.cos, around=(0, 1.57079633, 1e5)),
    Case("tan", mp.tan, around=(0, 1.57079633, 3.14159265, 1e5)),
    Case("sinh", mp.sinh),
    Case("cosh", mp.cosh),
    Case("tanh", mp.tanh),
    Case("asin", mp.asin),
    Case("acos", mp.acos),
    Case("atan", mp.atan),
    Case("asinh", mp.asinh),
    Case("acosh", mp.acosh),
    Case("atanh", mp.atanh),
    Case("erf", mp.erf),
    Case("erfc", mp.erfc, limit=8),
    Case("sigmoid", _sigmoid, around=(0, -2, -87, -100, 17)),
    Case("nn.functional.logsigmoid", _logsigmoid, around=(0, 17, 88, -17)),
    Case("logit", _logit, around=(0, 0.5, 1)),
    # left of -87 the sigmoid is subnormal in float32, and has few digits
    Case("nn.functional.silu", lambda x: x * _sigmoid(x), around=(0, -87, -100), limit=128),
    Case("nn.functional.mish", lambda x: x * mp.tanh(_softplus(x)), around=(0, -87, 20), limit=128),
    Case("nn.functional.softplus", _softplus_to_20, around=(0, 19, -17, -87)),
    Case("nn.functional.gelu", _gelu, around=(0, -1, -5, -12), terms=abs),
    Case("nn.functional.gelu", _gelu_tanh, around=(0, -1, -5), terms=abs, named=_TANH),
    Case("nn.functional.elu", _elu(1)),
    Case(
        "nn.functional.celu", lambda x: x if x > 0 else mp.expm1(x / 3) * 3, named=(("alpha", 3.0),)
    ),
    Case("nn.functional.selu", lambda x: _SELU_SCALE * _elu(_SELU_ALPHA)(x)),
    Case("nn.functional.softsign", lambda x: x / (1 + abs(x))),
    Case("nn.functional.tanhshrink", lambda x: x - mp.tanh(x), terms=abs),
    Case("nn.functional.softshrink", _softshrink, around=(0.5, -0.5)),
    Case("nn.functional.hardsigmoid", lambda x: _held(0, (x + 3) / 6, 1), around=(-3, 0, 3)),
    Case("nn.functional.hardswish", lambda x: x * _held(0, x / 6 + _HALF, 1), around=(-3, 0, 3)),
    Case("nn.functional.leaky_relu", lambda x: x if x > 0 else x * mp.mpf(0.01)),
    Case("frac", lambda x: x - (mp.floor(x) if x > 0 else mp.ceil(x)), around=(1, 1e4)),
    Case("deg2rad", lambda x: x * mp.pi / 180),
    Case("rad2deg", lambda x: x * 180 / mp.pi),
    Case("sinc", mp.sincpi, around=(0, 1, 7, 1e4)),
    Case("special.entr", _entr),
    Case("special.ndtr", mp.ncdf, around=(0, -1, -12, 5), limit=8),
    Case("special.log_ndtr", _log_ndtr, around=(0, -12, 5), limit=8),
    Case("pow", lambda x: x**3, named=(("exponent", 3),)),
    Case("pow", lambda x: x**5, named=(("exponent", 5),)),
    Case("pow", lambda x: x**-2, named=(("exponent", -2),)),
    Case("pow", lambda x: x**-0.5, named=(("exponent", -0.5),)),
    Case("pow", lambda x: mp.power(x, mp.mpf(1.5)), named=(("exponent", 1.5),)),
    Case("div", lambda a, b: a / b, 2),
    Case("pow", mp.power, 2),
    Case("atan2", _atan2, 2),
    Case("hypot", mp.hypot, 2),
    Case("remainder", _remainder, 2),
    Case("fmod", _fmod, 2),
    Case("floor_divide", lambda a, b: mp.floor(a / b), 2),
    # float32 is computed in float64; for float64 the larger operand is what is added up
    Case("logaddexp", _logaddexp, 2, around=(0, 1, 100), terms_of_double=_larger),
    Case("logaddexp2", _logaddexp2, 2, around=(0, 1, 100), terms_of_double=_larger),
    Case("xlogy", _xlogy, 2),
    Case("special.xlog1py", _xlog1py, 2),
    Case("ldexp", lambda x, n: x * mp.power(2, n), 2, around=(0, 1, 100, -100)),
)


def arguments(case: Case, dtype: DType, count: int, seed: int = 0) -> list[Array]:
    """Ends of the range, whole numbers, dense and wide random ones; of two operands, pairs."""
    draw = np.random.default_rng(seed)
    info = ml_dtypes.finfo(dtype.numpy)
    tiny, small, top = (float(v) for v in (info.smallest_subnormal, info.tiny, info.max))
    eps = float(info.eps)
    ends = [0, tiny, 3 * tiny, small, small - tiny, top, top / 2, 1 - eps / 2, 1 + eps, eps]
    whole = np.array([*range(1, 21), 127, 128, 255, 1023, 1024], np.float64)
    wide = 2.0 ** draw.uniform(np.log2(tiny), np.log2(top), count // 3)
    parts = [np.array([np.nan, np.inf, *ends]), whole, whole + 0.5, wide]
    parts.append(2.0 ** draw.uniform(-12, 12, count // 3))
    for place in case.around:
        parts.append(place + draw.normal(0, abs(place) * 0.05 + 0.3, count // 6))
        parts.append(place * (1 + eps * draw.integers(-3, 4, 7)))
    x = _rounded(np.concatenate([*parts, *(-part for part in parts)]), dtype)
    if case.arity == 1:
        return [np.unique(x.astype(np.float64)).astype(dtype.numpy)]
    some, other = draw.permutation(x)[:count], draw.permutation(x)[:count]
    edges = _rounded(np.array([*ends, *(-e for e in ends), 1, -1, 2, 0.5, np.nan]), dtype)
    chosen = draw.permutation(edges.size**2)[: 8 * count]
    a, b = (grid.ravel()[chosen] for grid in np.meshgrid(edges, edges))
    beside = _rounded(some.astype(np.float64) * (1 - eps), dtype)
    return [np.concatenate([a, some, some]), np.concatenate([b, other, beside])]


def _rounded(values: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def truth(case: Case, operands: Sequence[Array]) -> list[Any]:
    """The true values; None where there is none, or where infinities make it a convention."""
    return [_one(case, case.truth, [float(v) for v in row]) for row in zip(*operands)]


def _one(case: Case, function: Truth, row: Sequence[float]) -> Any:
    if not np.isfinite(row).all():
        return None
    # enough that sums of operands of any size lose nothing that counts
    far = case.name in _FAR
    try:
        with mp.workprec(2400 if far else 500):
            value = function(*(mp.mpf(v) for v in row))
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    if isinstance(value, mp.mpc):
        return None if value.imag != 0 else value.real
    return value


def ulps(got: Array, wanted: Sequence[Any], dtype: DType, sizes: Sequence[Any] = ()) -> Array:
    """Errors in units of the last place; beyond the range, infinity is right.

    The place is the last one of the true value, or of `sizes` where these are larger.
    """
    units = sizes or wanted
    with mp.workprec(200):
        return np.array([_error(*row, dtype) for row in zip(got.tolist(), wanted, units)])


def _error(value: float, right: Any, size: Any, dtype: DType) -> float:
    info = ml_dtypes.finfo(dtype.numpy)
    if right is None:
        return 0.0
    if mp.isnan(right) or np.isnan(value):
        return 0.0 if mp.isnan(right) and np.isnan(value) else np.inf
    mantissa = int(info.nmant)
    beyond = mp.mpf(float(info.max)) + mp.ldexp(1, int(info.maxexp) - mantissa - 1)
    right, found = (min(max(v, -beyond), beyond) for v in (right, mp.mpf(value)))
    largest = min(max(abs(right), abs(size)), beyond)
    exponent = max(mp.frexp(largest)[1] - 1, int(info.minexp)) if largest else int(info.minexp)
    return float(abs(found - right) / mp.ldexp(1, exponent - mantissa))


def ours(case: Case, operands: Sequence[Array], tier: str, device: str = "cpu") -> Array:
    """What we give in a tier, as float64."""
    with rl.config.override(tier=tier):
        found = case.call(rl, *(rl.tensor(o, device=device) for o in operands))
        return np.asarray(found.cpu().numpy()).astype(np.float64)


def torchs(case: Case, operands: Sequence[Array]) -> Array | None:
    """What torch gives, if it can."""
    import torch

    dtype = getattr(torch, str(operands[0].dtype))
    given = [torch.from_numpy(o.astype(np.float64)).to(dtype) for o in operands]
    try:
        return np.asarray(case.call(torch, *given).double().numpy())
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Sample:
    """Arguments of a function in an element type, and its true values there."""

    case: Case
    dtype: DType
    operands: list[Array]
    right: list[Any]
    sizes: list[Any]

    def errors(self, got: Array) -> Array:
        """How far values are off, in ulps."""
        return ulps(got, self.right, self.dtype, self.sizes)

    def worst(self, got: Array) -> tuple[float, str]:
        """The largest error, and the arguments where it is."""
        errors = self.errors(got)
        at = int(errors.argmax())
        return float(errors[at]), ", ".join(repr(float(o[at])) for o in self.operands)


def sample(case: Case, dtype: DType, count: int, seed: int = 0) -> Sample:
    """Hostile arguments of a function."""
    operands = arguments(case, dtype, count, seed)
    size = case.size(dtype)
    rows = [[float(v) for v in row] for row in zip(*operands)] if size is not None else []
    sizes = [_one(case, size, row) for row in rows] if size is not None else []
    return Sample(case, dtype, operands, truth(case, operands), sizes)


def main(names: Sequence[str]) -> None:
    """Print the table."""
    print(f"{'function':36} {'type':9} {'interpreted':>11} {'compiled':>11} {'torch':>11}")
    for case, dtype in product(CASES, DTYPES):
        if names and case.name not in names:
            continue
        points = sample(case, dtype, 300)
        found = [points.worst(ours(case, points.operands, tier)) for tier in TIERS]
        theirs = torchs(case, points.operands)
        other = points.worst(theirs)[0] if theirs is not None else np.nan
        error, place = max(found)
        columns = " ".join(f"{e:11.4g}" for e in (*(e for e, _ in found), other))
        late = f"  > {case.allowed(dtype):g} at {place}" if error > case.allowed(dtype) else ""
        print(f"{case.label:36} {dtype.name:9} {columns}{late}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
