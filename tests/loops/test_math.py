"""Elementary functions: within 2 ulp of mpmath everywhere, and exact at the edges."""

from __future__ import annotations

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest

from ridgeline import dtypes, scalars
from ridgeline.loops import ir
from ridgeline.loops.build import op
from ridgeline.loops.interpreter.evaluate import evaluate
from ridgeline.loops.ir import Expr, Hole, OpExpr
from ridgeline.loops.math import EXPANSIONS, expand
from ridgeline.scalars import Array
from tests.loops.accuracy import Run, spread, worst, worst_dense
from tests.loops.runners import RUNNERS, expansion

INF, NAN = math.inf, math.nan
LIMIT = 2.0


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Run:
    return RUNNERS[request.param]


# the exponents over which each function is sampled, and a range where it is most delicate
DOMAINS: dict[str, tuple[int, int, float, float]] = {
    "exp": (-40, 11, -1, 1),
    "exp2": (-40, 12, -1, 1),
    "expm1": (-80, 11, -2, 2),
    "log": (-1080, 1024, 0.6, 1.5),
    "log2": (-1080, 1024, 0.6, 1.5),
    "log10": (-1080, 1024, 0.6, 1.5),
    "log1p": (-80, 1024, -1, 2),
    "tanh": (-80, 5, -1, 1),
    "erf": (-80, 4, -2, 2),
    "sin": (-80, 1024, -10, 10),
    "cos": (-80, 1024, -10, 10),
    "tan": (-80, 1024, -10, 10),
    "sinc": (-80, 60, -10, 10),
    "asin": (-80, 0, -1, 1),
    "acos": (-80, 0, -1, 1),
    "atan": (-1070, 1024, -3, 3),
    "sinh": (-80, 11, -2, 2),
    "cosh": (-80, 11, -2, 2),
    "asinh": (-80, 1024, -2, 2),
    "acosh": (0, 1024, 1, 3),
    "atanh": (-80, 0, -1, 1),
}


def samples(name: str, count: int, dtype: type) -> Array:
    low, high, near, far = DOMAINS[name]
    info = np.finfo(dtype)
    low, high = max(low, info.minexp - info.nmant), min(high, info.maxexp)
    wide = spread(low, high, count, dtype)
    dense = np.random.default_rng(1).uniform(near, far, count // 2).astype(dtype)
    x = np.concatenate([wide, dense])
    if name in ("log", "log2", "log10", "acosh"):
        x = np.abs(x)
    return x[x > -1] if name == "log1p" else x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", DOMAINS)
def test_within_two_ulp_of_mpmath(name: str, dtype: type, run: Run) -> None:
    error, where = worst(name, run, samples(name, 800, dtype))
    assert error <= LIMIT, f"{name}{where} is {error} ulp off"


REFERENCE = {
    "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "tan": np.tan,
    "sinc": scalars.TABLE["sinc"].numpy,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": np.vectorize(math.erf, otypes=[float]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOMAINS)
def test_float32_is_within_two_ulp_on_a_dense_sample(name: str, run: Run) -> None:
    x = samples(name, 120_000, np.float32)
    with np.errstate(over="ignore"):
        reference = REFERENCE[name](x.astype(np.float64))
    error, where = worst_dense(name, run, x, reference)
    assert error <= LIMIT, f"{name}({where}) is {error} ulp off"


# the worst arguments met in sweeps over float32, and the seams of each expansion
HARD = {
    "exp": [-75.55451, 88.72283, -87.33655, -103.97208, -104.0, 0.6931472, -0.6931472],
    "expm1": [11.741332, 0.6931472, -0.6931472, 88.72283, -17.3],
    "log": [0.70032936, 0.7071068, 1.4142135, 1.1754944e-38, 1e-45],
    "log1p": [0.44283214, -0.29289323, 0.41421357, 2.0**46, 3.4028235e38, -0.99999994],
    "tanh": [0.22064792, 0.17328680, 0.3465736, 9.01, 9.1, 8.66],
    "erf": [1.0029532, 0.99999994, 3.9192059, 3.95, 3.9],
    "sin": [2.366671e38, 2.3324811e30, 16367173.0, 3.1415927, 6.2831855, 1.1259e15, 1.5111573e23],
    "cos": [1.6373888e17, 1.5707964, 4.712389, 3.4028235e38, 2.02824e31],
}


@pytest.mark.parametrize("name", HARD)
def test_hard_arguments(name: str, run: Run) -> None:
    x = np.array(HARD[name], np.float32)
    if name not in ("log", "log1p"):
        x = np.concatenate([x, -x])
    error, where = worst(name, run, x)
    assert error <= LIMIT, f"{name}{where} is {error} ulp off"


EDGES: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (1000.0, INF), (-1000.0, 0.0)],
    "exp2": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (2000.0, INF), (-2000.0, 0.0), (3.0, 8)],
    "log2": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (8.0, 3)],
    "log10": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (1000.0, 3)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "sinc": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (1000.0, INF), (-1000.0, -1)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-INF, NAN), (-2.0, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (30.0, 1), (-30.0, -1)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (7.0, 1), (-7.0, -1)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (INF, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-1.5, NAN), (INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (-1000.0, -INF)],
    "cosh": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (1000.0, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (-INF, NAN)],
}


def assert_same(found: Array, expected: Array, what: str = "") -> None:
    np.testing.assert_array_equal(found, expected, err_msg=what)
    signs = np.signbit(found) == np.signbit(expected)
    assert np.all(signs | np.isnan(expected)), f"{what}: signs of {found} and {expected} differ"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, dtype: type, run: Run) -> None:
    x, expected = (np.array(column, dtype) for column in zip(*EDGES[name], (NAN, NAN)))
    assert_same(run(name, x), expected, name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "tanh", "sin", "asin", "atan", "sinh", "asinh", "atanh"]
)
def test_tiny_arguments_come_back(name: str, dtype: type, run: Run) -> None:
    info = np.finfo(dtype)
    tiny = [info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny, info.tiny * 1.5]
    x = np.array([*tiny, *(-t for t in tiny)], dtype)
    assert_same(run(name, x), x, name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_underflow_is_gradual_and_overflow_exact(dtype: type, run: Run) -> None:
    info = np.finfo(dtype)
    top = float(mp.log(mp.mpf(float(info.max))))
    bottom = float(mp.log(mp.mpf(float(info.smallest_subnormal)) / 2))
    x = np.array([top], dtype)
    steps = np.concatenate([x, np.nextafter(x, dtype(INF)), np.nextafter(x, dtype(0))])
    low = np.linspace(bottom, float(np.log(info.tiny)), 60).astype(dtype)
    error, where = worst("exp", run, np.concatenate([steps, low]))
    assert error <= LIMIT, f"exp{where} is {error} ulp off"


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_bounded_functions_never_exceed_one(name: str, run: Run) -> None:
    for dtype in (np.float32, np.float64):
        x = np.linspace(0, 12, 20_001).astype(dtype)
        assert np.all(run(name, x) <= 1) and np.all(run(name, -x) >= -1)


def test_pow_follows_the_c_library_at_the_edges(run: Run) -> None:
    bases = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, INF, -INF, NAN, 1e-45, -1e-40, 3e38]
    powers = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -2.0, -3.0, 0.5, -0.5, 1.5, INF, -INF, NAN, 1e10]
    pairs = np.array(list(product(bases, powers)), np.float32)
    x, y = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    with np.errstate(all="ignore"):
        wide = np.power(x.astype(np.float64), y.astype(np.float64))
        expected = wide.astype(np.float32)
    found = run("pow", x, y)
    plain = (wide == 0) | ~np.isfinite(expected) | (np.abs(wide) == 1)
    assert_same(found[plain], expected[plain], "pow")
    np.testing.assert_allclose(found[~plain], expected[~plain], rtol=2.5e-7, atol=2e-45)


def test_pow_within_two_ulp(run: Run) -> None:
    rng = np.random.default_rng(4)
    x = np.abs(spread(-149, 128, 3000, np.float32))
    reach = 150 / np.maximum(np.abs(np.log2(x)), 1e-3)
    y = (rng.uniform(-1, 1, 3000) * reach).astype(np.float32)
    near = (1 + rng.uniform(-1e-3, 1e-3, 1000)).astype(np.float32)
    far = rng.uniform(-5e4, 5e4, 1000).astype(np.float32)
    error, where = worst("pow", run, np.concatenate([x, near]), np.concatenate([y, far]))
    assert error <= LIMIT, f"pow{where} is {error} ulp off"


EVERY = np.array([0.0, 1.0, 2.5, 1e-310, 1e-30, 1e30, 1.7e308, INF, NAN])


def pairs_of_edges(dtype: type) -> tuple[Array, Array]:
    with np.errstate(over="ignore"):
        values = np.concatenate([EVERY, -EVERY]).astype(dtype)
    return tuple(np.array(column, dtype) for column in zip(*product(values, values)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["atan2", "hypot", "copysign", "fmod"])
def test_pairs_of_edges_are_as_in_numpy(name: str, dtype: type, run: Run) -> None:
    x, y = pairs_of_edges(dtype)
    with np.errstate(all="ignore"):
        expected = scalars.TABLE[name].numpy(x, y)
    found = run(name, x, y)
    np.testing.assert_array_almost_equal_nulp(
        np.nan_to_num(found, posinf=3.0, neginf=-3.0),
        np.nan_to_num(expected, posinf=3.0, neginf=-3.0), 2,
    )  # fmt: skip
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    assert np.all((np.signbit(found) == np.signbit(expected)) | np.isnan(expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["atan2", "hypot", "fmod"])
def test_two_operands_within_two_ulp(name: str, dtype: type, run: Run) -> None:
    reach = 30 if name == "fmod" else (1020 if dtype is np.float64 else 120)
    wide = [spread(-reach, reach, 300, dtype, seed) for seed in (1, 2)]
    close = [spread(-3, 3, 300, dtype, seed) for seed in (3, 4)]
    x, y = (np.concatenate(columns) for columns in zip(wide, close))
    error, where = worst(name, run, x, y)
    assert error <= (0 if name == "fmod" else LIMIT), f"{name}{where} is {error} ulp off"


@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, 0.5, -0.5])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_known_exponents_need_no_logarithm(exponent: float, dtype: dtypes.DType) -> None:
    x = Hole.make(dtype, "x")
    expr = expand(op("pow", x, ir.const(exponent, dtype)))
    assert len(ir.subexpressions(expr)) < 10
    edges = np.array([0.0, -0.0, INF, -INF, NAN, 4.0, -4.0, 0.3], dtype.numpy)
    found = evaluate([expr], len(edges), lambda node, below, lanes: edges)[0]
    with np.errstate(all="ignore"):
        expected = np.power(edges, np.full_like(edges, exponent))
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    assert np.all((np.signbit(found) == np.signbit(expected)) | np.isnan(expected))


@pytest.mark.parametrize("name", DOMAINS)
def test_narrow_floats_round_once(name: str, run: Run) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = halves[np.isfinite(halves)][::7]
    if name in ("log", "log2", "log10", "log1p"):
        x = x[x > 0]
    if name in ("asin", "acos", "atanh"):
        x = x[np.abs(x) < 1]
    if name == "acosh":
        x = x[x >= 1]
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(np.float64)).astype(np.float16)
    found = run(name, x)
    steps = np.abs(found.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert steps.max() <= 1 and np.mean(steps > 0) < 0.002


def names_in(expr: Expr) -> set[str]:
    return {node.name for node in ir.subexpressions(expr) if isinstance(node, OpExpr)}


# what the library computes in float64: powers, and waves far from 0
LIBRARY = {
    "sin": {"libm_sin"}, "cos": {"libm_cos"}, "pow": {"libm_pow"},
    "spherical_bessel_j0": {"libm_sin"},
    **{name: {"libm_sin", "libm_cos"} for name in ("tan", "j0", "j1", "y0", "y1", "airy_ai")},
}  # fmt: skip


FAST = ("sin", "cos", "tan", "pow")


@pytest.mark.parametrize("name", EXPANSIONS)
def test_expansions_use_basic_operations_only(name: str) -> None:
    for dtype in (dtypes.float32, dtypes.float64):
        _, made = expansion(name, dtype, scalars.TABLE[name].arity)
        assert not names_in(made) & set(EXPANSIONS)
        wide = dtype is dtypes.float64 or name not in FAST  # others are in float64
        expected = LIBRARY.get(name, set()) if wide else set()
        assert {n for n in names_in(made) if n.startswith("libm")} == expected


def test_expand_works_inside_larger_expressions() -> None:
    x = Hole.make(dtypes.float32, "x")
    expr = op("add", op("exp", op("neg", op("exp", x))), op("sqrt", x))
    assert "exp" not in names_in(expand(expr)) and "sqrt" in names_in(expand(expr))
    assert expand(x) is x
    deep: Expr = x
    for _ in range(300):
        deep = op("tanh", deep)
    assert "tanh" not in names_in(expand(deep))


def test_instruction_counts_stay_small() -> None:
    """Distinct operations per element: what a vector loop has to issue."""
    most = {"exp": 26, "tanh": 30, "erf": 32, "expm1": 34, "log": 36, "log1p": 40}
    for name, limit in most.items():
        _, expr = expansion(name, dtypes.float32, 1)
        count = sum(
            isinstance(node, OpExpr) and node.name != "bitcast" for node in ir.subexpressions(expr)
        )
        assert count <= limit, f"{name} takes {count} operations"


def test_tanh_is_hardly_further_off_than_its_rounding(run: Run) -> None:
    """In the mean square: networks go through it in both directions, again and again."""
    x = np.linspace(-3, 3, 40_001).astype(np.float32)
    exact = np.tanh(x.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)

    def off(found: Array) -> float:
        return float(np.sqrt(np.mean(((found - exact) / unit) ** 2)))

    assert off(run("tanh", x)) < 1.1 * off(exact.astype(np.float32))
