"""The `signal.windows` namespace, and the window functions under their older names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, DTypeError
from ridgeline.functions.operands import defaults
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast, full_like, iota, scale
from ridgeline.ops.math import cos, exp, maximum, sin, sqrt
from ridgeline.ops.special import special

_SPACE = "signal.windows"


def _ramp(m: int, sym: bool) -> tuple[Node, int]:
    """The places of a window's points, and the number of steps that a period has."""
    if m < 0:
        raise BadValueError(f"a window needs a length of at least 0, got {m}")
    return iota((m,), 0, dtypes.float64), (m - 1 if sym else m)


def _finished(values: Node, m: int, dtype: DType | None) -> Node:
    wanted = dtype or defaults.dtype
    if not wanted.is_floating_point:
        raise DTypeError(f"windows have floating values, not {wanted.name}")
    return cast(full_like(values, 1) if m == 1 else values, wanted)


def _cosines(m: int, sym: bool, weights: Sequence[float], dtype: DType | None) -> Node:
    """The sum of weights[k] * cos(2 pi k x) with alternating signs."""
    positions, steps = _ramp(m, sym)
    total = full_like(positions, 0)
    for k, weight in enumerate(weights):
        turn = scale(positions, 2 * math.pi * k / steps if steps else 0.0)
        total = total + cos(turn) * ((-1) ** k * weight)
    return _finished(total, m, dtype)


@public(namespace=_SPACE, creation=True)
def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: DType | None = None
) -> Node:
    """A sum of cosines with given weights."""
    if not len(a):
        raise BadValueError("general_cosine needs at least one weight")
    return _cosines(M, sym, a, dtype)


@public(namespace=_SPACE, creation=True)
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None
) -> Node:
    """alpha - (1 - alpha) * cos."""
    return _cosines(M, sym, (alpha, 1 - alpha), dtype)


@public(namespace=_SPACE, creation=True)
def hamming(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """Hamming's window."""
    return _cosines(M, sym, (0.54, 0.46), dtype)


@public(namespace=_SPACE, creation=True)
def hann(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """Hann's window."""
    return _cosines(M, sym, (0.5, 0.5), dtype)


@public(namespace=_SPACE, creation=True)
def blackman(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """Blackman's window."""
    return _cosines(M, sym, (0.42, 0.5, 0.08), dtype)


@public(namespace=_SPACE, creation=True)
def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """Nuttall's minimum 4-term window."""
    return _cosines(M, sym, (0.3635819, 0.4891775, 0.1365995, 0.0106411), dtype)


@public(namespace=_SPACE, creation=True)
def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """A triangle that is 0 at both ends."""
    positions, steps = _ramp(M, sym)
    x = scale(positions, 2 / steps if steps else 0.0) + full_like(positions, -1)
    return _finished(full_like(x, 1) - abs(x), M, dtype)


@public(namespace=_SPACE, creation=True)
def cosine(M: int, *, sym: bool = True, dtype: DType | None = None) -> Node:
    """Half a period of the sine."""
    positions, steps = _ramp(M, sym)
    middle = positions + 0.5
    return _finished(sin(middle * (math.pi / max(steps + 1, 1))), M, dtype)


@public(namespace=_SPACE, creation=True)
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
) -> Node:
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise BadValueError(f"exponential needs a positive tau, got {tau}")
    if sym and center is not None:
        raise BadValueError("exponential takes a center for windows that are not symmetric only")
    positions, steps = _ramp(M, sym)
    middle = steps / 2 if center is None else center
    away = abs(positions + -middle)
    return _finished(exp(away * (-1 / tau)), M, dtype)


@public(namespace=_SPACE, creation=True)
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None) -> Node:
    """A bell of some width."""
    if std <= 0:
        raise BadValueError(f"gaussian needs a positive std, got {std}")
    positions, steps = _ramp(M, sym)
    x = (positions + -steps / 2) * (1 / (std * math.sqrt(2)))
    return _finished(exp(-(x * x)), M, dtype)


@public(namespace=_SPACE, creation=True)
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None) -> Node:
    """Kaiser's window."""
    if beta < 0:
        raise BadValueError(f"kaiser needs a beta of at least 0, got {beta}")
    positions, steps = _ramp(M, sym)
    x = scale(positions, 2 / steps if steps else 0.0) + full_like(positions, -1)
    inside = full_like(x, 1) - x * x
    root = sqrt(maximum(inside, full_like(x, 0)))
    bell = special("i0", root * beta)
    return _finished(bell / special("i0", full_like(x, beta)), M, dtype)


@public(method=False, creation=True)
def hann_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None) -> Node:
    """Hann's window."""
    return hann(window_length, sym=not periodic, dtype=dtype)


@public(method=False, creation=True)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
) -> Node:
    """Hamming's window."""
    return _cosines(window_length, not periodic, (alpha, beta), dtype)


@public(method=False, creation=True)
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None
) -> Node:
    """Blackman's window."""
    return blackman(window_length, sym=not periodic, dtype=dtype)


@public(method=False, creation=True)
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None
) -> Node:
    """A triangle that is 0 at both ends."""
    return bartlett(window_length, sym=not periodic, dtype=dtype)


@public(method=False, creation=True)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None
) -> Node:
    """Kaiser's window."""
    return kaiser(window_length, beta=beta, sym=not periodic, dtype=dtype)
