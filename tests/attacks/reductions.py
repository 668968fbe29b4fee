"""Sums of hostile numbers in every form and way to run, against what they are exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import ridgeline as rl
from ridgeline.scalars import Array
from tests.attacks.attack import Attack
from tests.attacks.exact_sums import KINDS, Sum, exact
from tests.fuzz.faults import Fault

UNITS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LEAST = {"float64": 0.0, "float16": 2.0**-24}  # what a result loses where it is subnormal
_WAYS = ("interpreted", "deferred", "eager", "jit", "dynamic")
_MOST = 200_000
_MOST_STEPS = 3_000  # of a recurrence, which is interpreted step by step
Found = tuple[Array, list[tuple[int, Sum]]]  # results, and what some of them should be


def _run(way: str, function: Callable[..., Any], *inputs: Array) -> Array:
    tier = "interpreter" if way == "interpreted" else "compiled"
    tensors = [rl.tensor(array) for array in inputs]
    with rl.config.override(tier=tier):
        if way == "eager":
            with rl.eager():
                return np.asarray(function(*tensors).numpy(), np.float64)
        made = rl.jit(function, dynamic=way == "dynamic") if way in ("jit", "dynamic") else function
        return np.asarray(made(*tensors).numpy(), np.float64)


# ---- what is summed ------------------------------------------------------------------------------


def _rows(rng: np.random.Generator, n: int, kind: str, unit: float, count: int) -> Array:
    """Rows of n hostile numbers."""
    with np.errstate(all="ignore"):
        return np.stack([KINDS[kind](rng, n, unit) for _ in range(count)])


def _laid_out(rng: np.random.Generator, rows: Array) -> tuple[Array, tuple[int, ...], int]:
    """Rows as an array in some order of axes: itself, the axes that a row runs over, and the axis
    that counts the rows."""
    count, n = rows.shape
    outer = next(d for d in (8, 5, 3, 2, 1) if n % d == 0)
    places = [
        (rows, (1,), 0),
        (rows.T, (0,), 1),
        (rows.reshape(count, outer, -1), (1, 2), 0),
        (rows.reshape(count, outer, -1).transpose(1, 0, 2), (0, 2), 1),
        (rows.reshape(count, outer, -1).transpose(1, 2, 0), (0, 1), 2),
    ]
    array, axes, kept = places[rng.integers(len(places))]
    return np.ascontiguousarray(array), axes, kept


def _sum(way: str, rng: np.random.Generator, rows: Array) -> Found:
    array, axes, _ = _laid_out(rng, rows)
    found = _run(way, lambda x: x.sum(axes), array)
    return found, [(i, exact(row)) for i, row in enumerate(rows)]


def _whole(way: str, rng: np.random.Generator, rows: Array) -> Found:
    return _run(way, lambda x: x.sum(), rows).reshape(1), [(0, exact(rows))]


def _mean(way: str, rng: np.random.Generator, rows: Array) -> Found:
    array, axes, _ = _laid_out(rng, rows)
    found = _run(way, lambda x: x.mean(axes), array) * rows.shape[1]
    return found, [(i, exact(row)) for i, row in enumerate(rows)]


def _squares(way: str, rng: np.random.Generator, rows: Array) -> Found:
    array, axes, _ = _laid_out(rng, rows)
    found = _run(way, lambda x: (x * x).sum(axes), array)
    squares = rows.astype(np.float64) ** 2
    return found, [(i, exact(row)) for i, row in enumerate(squares)]


def _running(way: str, rng: np.random.Generator, rows: Array) -> Found:
    along = int(rng.integers(2))
    array = rows.T if along == 0 else rows
    found = _run(way, lambda x: x.cumsum(along), np.ascontiguousarray(array))
    found = found.T if along == 0 else found
    places = [0, rows.shape[1] // 3, rows.shape[1] - 1]
    sums = [(r * rows.shape[1] + p, exact(rows[r, : p + 1])) for r in (0, -1) for p in places]
    return found.ravel(), [(i % found.size, s) for i, s in sums]


def _variance(way: str, rng: np.random.Generator, rows: Array) -> Found:
    """Squares of deviations from the mean, to the error of their sum."""
    array, axes, _ = _laid_out(rng, rows)
    count = rows.shape[1]
    wide = rows.astype(np.float64)
    away = wide - np.array([exact(row).value for row in wide])[:, None] / count
    away -= np.array([exact(row).value for row in away])[:, None] / count  # which had rounded
    found = _run(way, lambda x: x.var(axes, correction=0), array) * count
    return found, [(i, exact(row**2, own=4)) for i, row in enumerate(away)]


def _recurrence(way: str, rng: np.random.Generator, rows: Array) -> Found:
    """The gradient of a running product of ones, which is a running sum from the end."""
    terms = np.ascontiguousarray(rows[:, :_MOST_STEPS])

    def function(upstream: Any) -> Any:
        ones = rl.ones(*upstream.shape, dtype=upstream.dtype, requires_grad=True)
        (ones.cumprod(1) * upstream).sum().backward()
        return ones.grad

    found = _run(way, function, terms)
    places = [(r, p) for r in (0, len(terms) - 1) for p in (0, terms.shape[1] // 2)]
    return found, [(r * terms.shape[1] + p, exact(terms[r, p:])) for r, p in places]


def _bias_gradient(way: str, rng: np.random.Generator, rows: Array) -> Found:
    array, _, kept = _laid_out(rng, rows)
    shape = [1] * array.ndim
    shape[kept] = rows.shape[0]

    def function(upstream: Any) -> Any:
        bias = rl.zeros(rows.shape[0], dtype=upstream.dtype, requires_grad=True)
        ((bias.reshape(shape) * upstream).sum()).backward()
        return bias.grad

    return _run(way, function, array), [(i, exact(row)) for i, row in enumerate(rows)]


def _scattered(way: str, rng: np.random.Generator, rows: Array) -> Found:
    count, n = rows.shape
    order = rng.permutation(count * n) if rng.random() < 0.5 else np.arange(count * n)
    index, values = np.repeat(np.arange(count), n)[order], rows.ravel()[order]
    forms: list[Callable[[Any, Any], Any]] = [
        lambda v, i: rl.zeros(count, dtype=v.dtype).index_add(0, i, v),
        lambda v, i: rl.zeros(count, dtype=v.dtype).scatter_add(0, i, v),
        lambda v, i: rl.zeros(count, dtype=v.dtype).index_put((i,), v, accumulate=True),
        lambda v, i: rl.zeros(count, dtype=v.dtype).scatter_reduce(0, i, v, "mean") * (n + 1),
    ]
    form = forms[rng.integers(len(forms))]
    sums = [(i, exact(row)) for i, row in enumerate(rows)]
    return _run(way, form, values, index), sums


def _table_gradient(way: str, rng: np.random.Generator, rows: Array) -> Found:
    count, n = rows.shape
    index = np.repeat(np.arange(count), n)
    upstream = np.stack([rows.ravel(), rows.ravel()[::-1], -rows.ravel()], 1)

    def function(values: Any, index: Any) -> Any:
        table = rl.zeros(count, 3, dtype=values.dtype, requires_grad=True)
        (table[index] * values).sum().backward()
        return table.grad

    found = _run(way, function, upstream, index)
    return found[:, 0], [(i, exact(row)) for i, row in enumerate(rows)]


def _exponentials(way: str, rng: np.random.Generator, rows: Array) -> Found:
    """The denominators of softmax, from logarithms that are exact in every type."""
    powers = np.round(np.log2(np.maximum(np.abs(rows.astype(np.float64)), 2.0**-9))).clip(-9, 9)
    array, axes, _ = _laid_out(rng, powers.astype(rows.dtype))
    if len(axes) > 1:
        array, axes = powers.astype(rows.dtype), (1,)
    top = powers.max(1)
    found = _run(way, lambda x: rl.softmax(x, axes[0]).amax(axes), array)
    terms = np.exp(powers - top[:, None])
    return 1 / found, [(i, exact(row, own=4)) for i, row in enumerate(terms)]


FORMS = (
    _sum, _whole, _mean, _squares, _variance, _running, _recurrence, _bias_gradient, _scattered,
    _table_gradient, _exponentials,
)  # fmt: skip


def trial(seed: int) -> None:
    """One form of sum over one kind of numbers, in one type and one way to run."""
    rng = np.random.default_rng(seed)
    form = FORMS[seed % len(FORMS)]
    way = _WAYS[rng.integers(len(_WAYS))]
    kind = list(KINDS)[rng.integers(len(KINDS))]
    name = list(UNITS)[rng.choice(4, p=(0.5, 0.3, 0.1, 0.1))]
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    count = int(rng.choice([1, 2, 7, 16]))
    n = int(2 * (_MOST / count / 2) ** math.sqrt(rng.random()))  # long ones are the harder ones
    rows = _rows(rng, n, kind, UNITS[name], count)
    if name == "float16":
        rows = rows / max(1.0, float((rows**2).sum(1).max()) / 1e4)  # below the largest number
    rows = rows.astype(dtype)
    found, sums = form(way, rng, rows)
    for place, should in sums:
        error = abs(float(found.ravel()[place]) - should.value)
        least = LEAST.get(name, 2.0**-136)
        assert error <= should.bound(UNITS[name]) + least * should.n, (
            f"{form.__name__[1:]} of {n} numbers ({kind}, {name}, {way}): off by {error:.3g}, "
            f"allowed are {should.bound(UNITS[name]):.3g}"
        )


ATTACK = Attack(
    "reductions",
    "a sum of n numbers is off by at most (log2 n + 8) units of their magnitudes",
    trial,
    88,
    (
        Fault("a block has no end", "schedules.accurate_sums", "_cut",
              "inside * length <= longest", "inside * length <= 10**9"),
        Fault("a variance is about the first element",
              "graph.passes.contractions.precise_moments", "_squares",
              "found = sub(_sum(mul(shifted, shifted), axes), square)",
              "found = _sum(mul(shifted, shifted), axes)"),
        Fault("blocks of a recurrence forget what came before", "ops.blocked_scan", "_recurrence",
              "_whole(add(came, inner)", "_whole(inner"),
        Fault("what an addition lost is forgotten", "loops.monoids", "_compensated_join",
              "p + missed + q", "p + q"),
        Fault("interpreted sums are rounded at every step", "ops.values.sums", "total",
              "dtype=wide))", "dtype=array.dtype))"),
        Fault("updates are added in their own type", "loops.lowering.own_loops", "_scatter",
              "dtypes.float64, scope", "node.dtype, scope"),
    ),
)  # fmt: skip
