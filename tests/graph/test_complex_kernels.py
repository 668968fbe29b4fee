"""Complex arithmetic as kernels over pairs of reals, against NumPy and mpmath.

A kernel must give what NumPy gives, also where parts are infinite, NaN or zeros of either sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler.memory_plan import HostCall, KernelCall
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf, topological
from ridgeline.graph.passes.legalize.complex_pairs import split_complex
from ridgeline.graph.printer import format_graph
from ridgeline.ops.elementwise import mul

TYPES = (np.complex64, np.complex128)
EDGES = np.array([0.0, -0.0, 1.0, -2.5, 1e-30, -1e30, np.inf, -np.inf, np.nan])


def compiled(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    with rl.config.override(tier="compiled"):
        return function(*map(rl.tensor, arrays)).numpy()


def calls_of(function: Callable[..., Any], *arrays: np.ndarray) -> list[type]:
    jitted = rl.jit(function)
    jitted(*map(rl.tensor, arrays))
    return [type(call) for call in jitted._traces[0].executable.program.layout.calls]


def numbers(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def grid(dtype: type) -> np.ndarray:
    x, y = np.meshgrid(EDGES, EDGES)
    made = np.empty(x.shape, dtype)
    made.real, made.imag = x, y
    return made.ravel()


def same_parts(found: np.ndarray, wanted: np.ndarray, ulps: float, signs: bool = True) -> None:
    """Parts agree to some units of the larger part, and exactly where they are not finite."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    size = np.abs(wanted)
    for got, want in ((found.real, wanted.real), (found.imag, wanted.imag)):
        unit = np.finfo(found.dtype).eps * np.where(np.isfinite(size), size, np.abs(want))
        finite = np.isfinite(want)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)])
        with np.errstate(invalid="ignore"):
            assert np.all((np.abs(got - want) <= ulps * unit)[finite])
        if signs:
            zero = want == 0
            assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


UNARY = {
    "neg": np.negative, "conj": np.conj, "reciprocal": lambda z: z.dtype.type(1) / z, "exp": np.exp,
    "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "sinh": np.sinh, "cosh": np.cosh, "expm1": np.expm1, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_those_of_numpy(name: str, dtype: type) -> None:
    z = np.concatenate([numbers(dtype, 200), 20 * numbers(dtype, 100), 0.01 * numbers(dtype, 50)])
    same_parts(compiled(getattr(rl, name), z), UNARY[name](z), 4)


# C leaves the signs of some results open, and NumPy's own functions differ between systems there
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_edges_are_those_of_numpy(name: str, dtype: type) -> None:
    z = grid(dtype)
    with np.errstate(all="ignore"):
        wanted = UNARY[name](z)
    same_parts(compiled(getattr(rl, name), z), wanted, 4, signs=False)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_at_the_edges_is_that_of_numpy(name: str, dtype: type) -> None:
    z = grid(dtype)
    z = z[(np.abs(z.real) != dtype(1e30).real) & (np.abs(z.imag) != dtype(1e30).real)]
    a, b = (part.ravel() for part in np.meshgrid(z, z))  # without products that overflow
    numpy = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    with np.errstate(all="ignore"):
        wanted = numpy[name](a, b)
    same_parts(compiled(getattr(rl, name), a, b), wanted, 2 if name == "div" else 1)


TRUTH = {"log": mp.log, "sqrt": mp.sqrt, "exp": mp.exp, "sin": mp.sin, "tanh": mp.tanh}


def hard(name: str) -> np.ndarray:
    """Where formulas cancel, overflow on the way, or cross a branch cut."""
    angles = np.random.default_rng(3).uniform(-np.pi, np.pi, 60)
    if name == "log":
        return np.exp(1j * angles) * (1 + np.linspace(-1e-3, 1e-3, 60) ** 3)
    if name == "log1p":
        return 1e-4 * np.exp(1j * angles) - 5e-9 * np.linspace(0, 1, 60)
    if name == "sqrt":
        sizes = np.geomspace(1e-307, 1e308, 60) / np.sqrt(2)
        return sizes * np.exp(1j * angles)
    if name == "exp":
        return np.linspace(690, 709.5, 60) + 1j * angles
    return np.linspace(-3, 3, 60) + 1j * np.linspace(-40, 40, 60)


@pytest.mark.parametrize("name", ["log", "log1p", "sqrt", "exp", "tanh"])
def test_hard_numbers_against_mpmath(name: str) -> None:
    z = hard(name)
    found = compiled(getattr(rl, name), z)
    with mp.workdps(60):
        truth = [
            mp.log(1 + mp.mpc(complex(v))) if name == "log1p" else TRUTH[name](mp.mpc(complex(v)))
            for v in z
        ]
        for value, got, true in zip(z, found, truth):
            parts = ((got.real, true.real), (got.imag, true.imag))
            if name == "tanh":  # the size of the number is the measure there
                parts = ((complex(got), true),)
            for part, wanted in parts:
                assert abs(mp.mpmathify(part) - wanted) <= abs(wanted) * 6 * 2.0**-53, (value, got)


INVERSE = {"asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
           "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh}  # fmt: skip


@pytest.mark.parametrize("name", INVERSE)
def test_both_parts_of_inverse_functions_against_mpmath(name: str) -> None:
    """Near branch points, near and on the axes, far out, and close to 0."""
    rng = np.random.default_rng(5)
    angles = np.exp(1j * rng.uniform(-np.pi, np.pi, 24))
    spread = np.geomspace(1e-14, 1e14, 24) * angles
    z = np.concatenate(
        [spread, 1 + spread[:12], -1 - spread[:12], 1j + spread[:12], 1e200 * angles]
    )
    found = compiled(getattr(rl, name), z)
    with mp.workdps(300):
        for value, got in zip(z, found):
            true = INVERSE[name](mp.mpc(complex(value)))
            for part, wanted in ((got.real, true.real), (got.imag, true.imag)):
                assert abs(mp.mpf(part) - wanted) <= abs(wanted) * 8 * 2.0**-53, (value, got)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers(dtype: type) -> None:
    """Whole exponents are products, as in NumPy; the others err by the size of a logarithm."""
    base = np.concatenate([numbers(dtype, 90), np.array([0, 0, 0, 0, 2, -3, 1j], dtype)])
    whole = np.repeat(np.array([2, 3, -1, -2, 7, 0, 1, 13, -5], dtype), 5)
    exponent = np.concatenate(
        [numbers(dtype, 45, seed=5), whole, np.array([0, 1, -1, 1j, 10, 3, 2])]
    )
    exponent = exponent.astype(dtype)
    found = compiled(rl.pow, base, exponent)
    assert np.isnan(found[[92, 93]]).all()
    np.testing.assert_array_equal(found[[90, 91, 94, 95, 96]], [1, 0, 1024, -27, -1])
    with mp.workdps(40):
        for a, b, got in zip(base[:90], exponent, found):
            true = mp.mpc(complex(a)) ** mp.mpc(complex(b))
            size = 8 * (1 + abs(mp.mpc(complex(b)) * mp.log(mp.mpc(complex(a)))))
            error = abs(mp.mpc(complex(got)) - true)
            assert error <= abs(true) * size * float(np.finfo(dtype).eps), (a, b, got)
    assert set(calls_of(rl.pow, base, exponent)) == {KernelCall}


@pytest.mark.parametrize("dtype", TYPES)
def test_sizes_neither_overflow_nor_vanish(dtype: type) -> None:
    top, low = np.finfo(dtype).max / 2, np.finfo(dtype).tiny
    z = np.array([3 + 4j, top + 1j * top, low * (3 + 4j), 1j * np.inf, complex(np.nan, -np.inf)])
    found = compiled(rl.abs, z.astype(dtype))
    np.testing.assert_allclose(found, np.abs(z.astype(dtype)), rtol=2 * np.finfo(dtype).eps)


def test_branch_cuts_follow_the_sign_of_zero() -> None:
    above, below = complex(-4.0, 0.0), complex(-4.0, -0.0)
    z = np.array([above, below])
    np.testing.assert_allclose(compiled(rl.sqrt, z), [2j, -2j])
    np.testing.assert_allclose(compiled(rl.log, z).imag, [np.pi, -np.pi])
    np.testing.assert_allclose(compiled(rl.angle, z), [np.pi, -np.pi])


PROGRAMS: dict[str, Callable[..., Any]] = {
    "fused": lambda a, b: rl.exp(a * 1j) * a.conj() + a.abs(),
    "sum": lambda a, b: a.sum(1),
    "mean": lambda a, b: (a * a).mean(),
    "matmul": lambda a, b: a @ b,
    "adjoint": lambda a, b: (a.mH @ a).real,
    "einsum": lambda a, b: rl.einsum("ij,ik->jk", a, a.conj()),
    "permute": lambda a, b: a.T * 2j,
    "slices": lambda a, b: rl.cat([a[1:, ::2], a[:-1, ::2]], 0),
    "pad": lambda a, b: rl.nn.functional.pad(a, (1, 2)),
    "gather": lambda a, b: a[rl.tensor([0, 2, 1])],
    "scatter": lambda a, b: rl.zeros(4, 5, dtype=a.dtype).index_add(
        0, rl.tensor([0, 2, 2]), rl.stack([a[0], a[1], a[2]])
    ),
    "cumsum": lambda a, b: a.cumsum(0),
    "where": lambda a, b: rl.where(a.real > 0, a, a.conj()),
    "equal": lambda a, b: (a == a.conj()) | (a != a) | rl.isnan(a),
    "casts": lambda a, b: a.to(rl.complex128).to(rl.complex64) + rl.ones(3, 5),
    "truth": lambda a, b: a.bool(),
    "pairs": lambda a, b: rl.view_as_complex(rl.view_as_real(a) * 2),
    "polar": lambda a, b: rl.polar(a.abs(), a.angle()),
    "softmax": lambda a, b: a.abs().softmax(-1) * a,
    "repeated": lambda a, b: rl.jit(lambda z: z * z)(a),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_kernels_and_give_what_the_interpreter_gives(name: str) -> None:
    a, b = numbers(np.complex64, 3, 5), numbers(np.complex64, 5, 2, seed=1)
    with rl.config.override(tier="interpreter"):
        wanted = PROGRAMS[name](rl.tensor(a), rl.tensor(b)).numpy()
    found = compiled(PROGRAMS[name], a, b)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)
    assert set(calls_of(PROGRAMS[name], a, b)) == {KernelCall}


def test_library_calls_take_and_give_whole_numbers() -> None:
    a = numbers(np.complex64, 4, 8)
    program = lambda z: rl.fft.fft(z * 2) * z.conj()  # noqa: E731
    np.testing.assert_allclose(compiled(program, a), np.fft.fft(a * 2) * a.conj(), atol=1e-5)
    assert calls_of(program, a) == [KernelCall, HostCall, KernelCall]
    assert calls_of(lambda z: rl.fft.fft(z), a) == [HostCall]


def test_gradients_and_loops_over_complex_numbers() -> None:
    a = numbers(np.complex128, 6)

    def loss(z: rl.Tensor) -> rl.Tensor:
        return ((z * z).exp() / (1 + z.abs())).abs().sum()

    def run() -> np.ndarray:
        return rl.grad(loss)(rl.tensor(a)).numpy()

    with rl.config.override(tier="interpreter"):
        wanted = run()
    with rl.config.override(tier="compiled"):
        np.testing.assert_allclose(run(), wanted, rtol=1e-12)

    def walk(z: rl.Tensor) -> rl.Tensor:
        return rl.scan(lambda carry, x: (carry * x, carry + x), rl.ones((), dtype=z.dtype), z)[1]

    np.testing.assert_allclose(
        compiled(walk, a), np.concatenate([[1], np.cumprod(a)[:-1]]) + a, rtol=1e-12
    )
    assert HostCall not in calls_of(walk, a)


def test_the_pass_leaves_real_graphs_and_writes_out_products() -> None:
    real = leaf(TensorType((3,), dtypes.float32, "cpu"))
    assert split_complex(Graph([real], [real])).outputs == (real,)
    place = leaf(TensorType((3,), dtypes.complex64, "cpu"))
    (made,) = split_complex(Graph([mul(place, place)], [place])).outputs
    order = topological([made], lambda n: n is place)
    inside = [n for n in order if n.dtype.kind == "complex"]
    assert [n.op.name for n in inside] == ["leaf", "alias"]
    assert format_graph([made]).count("= mul") == 4


values = st.floats(-4, 4, width=32)
arrays = hnp.arrays(np.complex64, (2, 3), elements=st.builds(complex, values, values))
steps = st.lists(st.sampled_from(["mul", "add", "conj", "T", "exp", "sum", "abs"]), max_size=5)


@given(arrays, arrays, steps)
@settings(max_examples=25, deadline=None)
def test_random_programs_agree_with_numpy(a: np.ndarray, b: np.ndarray, names: list[str]) -> None:
    def program(lib: Any, x: Any, y: Any) -> Any:
        for name in names:
            if name == "mul":
                x = x * y
            elif name == "add":
                x = x + y
            elif name == "conj":
                x, y = lib.conj(x) * 0.5, y
            elif name == "T":
                x, y = x.T, y.T
            elif name == "exp":
                x = lib.exp(x * 0.05)
            elif name == "sum":
                x = x - x.sum()
            else:
                x = x / (1 + lib.abs(x))
        return x

    with np.errstate(all="ignore"):
        wanted = program(np, a.astype(np.complex128), b.astype(np.complex128))
    found = compiled(lambda x, y: program(rl, x, y), a, b)
    bound = 1e-4 * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, atol=bound)
