"""Values: against NumPy where it agrees with the standard, and by hand at the edges."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import array_api as xp

inf, nan = math.inf, math.nan
# function, operands, result; -0.0 and 0.0 differ
EDGES = [
    ("floor_divide", (inf, 2.0), inf),
    ("floor_divide", (-inf, 2.0), -inf),
    ("floor_divide", (3.0, -inf), -0.0),
    ("floor_divide", (-3.0, inf), -0.0),
    ("floor_divide", (inf, inf), nan),
    ("remainder", (-0.0, 2.0), 0.0),
    ("remainder", (-10.0, 5.0), 0.0),
    ("remainder", (10.0, -5.0), -0.0),
    ("remainder", (3.0, inf), 3.0),
    ("pow", (nan, 0.0), 1.0),
    ("pow", (-inf, -3.0), -0.0),
    ("pow", (1.0, nan), 1.0),
    ("atan2", (0.0, -0.0), math.pi),
    ("atan2", (-0.0, 1.0), -0.0),
    ("hypot", (inf, nan), inf),
    ("logaddexp", (-inf, -inf), -inf),
    ("maximum", (nan, 1.0), nan),
    ("copysign", (3.0, -0.0), -3.0),
    ("sign", (nan,), nan),
    ("round", (2.5,), 2.0),
    ("round", (-0.4,), -0.0),
    ("tan", (-0.0,), -0.0),
    ("sinh", (inf,), inf),
    ("cosh", (-inf,), inf),
    ("atanh", (1.0,), inf),
    ("acosh", (0.5,), nan),
    ("expm1", (-inf,), -1.0),
    ("log1p", (-1.0,), -inf),
    ("sqrt", (-0.0,), -0.0),
    ("expm1", (complex(inf, 0),), complex(inf, 0)),
    ("expm1", (complex(-inf, inf),), complex(-1, 0)),
    ("expm1", (complex(nan, 0),), complex(nan, 0)),
    ("expm1", (complex(-0.0, 0),), complex(0, 0)),
    ("tanh", (complex(inf, 2.0),), complex(1, 0)),
    ("sign", (complex(-0.0, 0),), complex(0, 0)),
    ("round", (complex(2.5, -1.5),), complex(2, -2)),
    ("tan", (complex(1, 90),), complex(0, 1)),
]


def same(found: complex, expected: complex) -> bool:
    """Equal to a few ulp, NaN like NaN, and zeros of one sign."""
    if isinstance(expected, complex):
        found = complex(found)
        return same(found.real, expected.real) and same(found.imag, expected.imag)
    if cmath.isnan(expected):
        return cmath.isnan(found)
    assert not isinstance(found, complex)
    close = found == expected or math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-30)
    return close and (expected != 0 or math.copysign(1, found) == math.copysign(1, expected))


@pytest.mark.parametrize(("name", "operands", "expected"), EDGES)
def test_edges(name: str, operands: tuple[complex, ...], expected: complex) -> None:
    wide = xp.complex128 if isinstance(operands[0], complex) else xp.float64
    arrays = [xp.asarray(value, dtype=wide) for value in operands]
    found = getattr(xp, name)(*arrays).item()
    if name == "tan" and isinstance(expected, complex):
        assert cmath.isclose(found, expected, abs_tol=1e-12)
    else:
        assert same(found, expected), found


def check(found: Any, expected: Any) -> None:
    """Equal shape, type and values."""
    want = np.asarray(expected)
    got = np.asarray(found)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)


RNG = np.random.default_rng(7)
MATRIX = RNG.standard_normal((3, 4))
CUBE = RNG.standard_normal((2, 3, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.concat([x, x], axis=None),
        lambda m, x: m.expand_dims(x, axis=(0, 2)),
        lambda m, x: m.flip(x, axis=1),
        lambda m, x: m.moveaxis(x, 0, -1),
        lambda m, x: m.roll(x, (1, 2), axis=(0, 1)),
        lambda m, x: m.repeat(x, 3, axis=1),
        lambda m, x: m.tile(x, (2, 1, 2)),
        lambda m, x: m.stack([x, x], axis=-1),
        lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True),
        lambda m, x: m.cumulative_prod(x, axis=0),
        lambda m, x: m.diff(x, axis=0, n=2),
        lambda m, x: m.std(x, axis=(0, 1), correction=1),
        lambda m, x: m.argsort(x, axis=0),
        lambda m, x: m.sort(x, axis=1),
        lambda m, x: m.take(x, m.asarray([2, 0, -1]), axis=1),
        lambda m, x: m.take_along_axis(x, m.argsort(x, axis=1), axis=1),
        lambda m, x: m.searchsorted(m.sort(x[0, :]), x[1, :], side="right"),
        lambda m, x: m.count_nonzero(x > 0, axis=0),
        lambda m, x: m.sum(x, axis=(), keepdims=True),
        lambda m, x: m.tensordot(x, x, axes=((0,), (0,))),
        lambda m, x: m.vecdot(x, x, axis=0),
        lambda m, x: m.meshgrid(x[0, :], x[:, 1])[1],
        lambda m, x: m.linspace(0.0, 1.0, 7, endpoint=False, dtype=m.float64),
        lambda m, x: m.eye(3, 4, k=-1, dtype=m.float64),
        lambda m, x: m.tril(x, k=1),
        lambda m, x: m.unstack(x, axis=1)[2],
        lambda m, x: m.linalg.svdvals(x),
        lambda m, x: m.linalg.cross(x[:, :3], x[:, 1:], axis=-1),
        lambda m, x: m.linalg.matrix_norm(x, ord="nuc"),
        lambda m, x: m.linalg.vector_norm(x, axis=0, ord=3),
        lambda m, x: m.linalg.pinv(x),
        lambda m, x: m.linalg.trace(x, offset=1),
        lambda m, x: m.fft.rfft(x, axis=0),
        lambda m, x: m.fft.fftshift(x, axes=1),
    ],
)
def test_agrees_with_numpy(call: Any) -> None:
    check(call(xp, xp.asarray(MATRIX)), call(np, MATRIX))


def test_indexing() -> None:
    x = xp.asarray(CUBE)
    rows, columns = [1, 0, 1], [0, 2, 1]
    for key in [
        (0,), (..., -1), (slice(None, None, -2), 1), (None, 1, ..., None), (slice(3, 0, -1),),
    ]:  # fmt: skip
        check(x[key], CUBE[key])
    check(x[xp.asarray(rows), xp.asarray(columns)], CUBE[rows, columns])
    check(x[x > 0], CUBE[CUBE > 0])
    x[0, 1:, ::-2] = xp.asarray(5.0, dtype=xp.float64)
    changed = CUBE.copy()
    changed[0, 1:, ::-2] = 5.0
    check(x, changed)
    x[x > 0] = -1.0
    check(x, np.where(changed > 0, -1.0, changed))
    assert x[xp.zeros((0,), dtype=xp.bool)].shape == (0, 3, 4)
    for bad in [(9,), (0, 0, 0, 0), (..., ...), xp.asarray([True, False, True])]:
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(TypeError):
        x[0, 0, 0] = 1j


def test_all_and_any_give_bool() -> None:
    for name in ("uint8", "int64", "float32", "complex64"):
        x = xp.zeros((2, 3), dtype=getattr(xp, name))
        assert xp.all(x).dtype is xp.bool and xp.any(x, axis=()).dtype is xp.bool


def test_sets_keep_every_nan() -> None:
    x = xp.asarray([3.0, nan, 1.0, 3.0, nan])
    found = xp.unique_all(x)
    assert found.counts.tolist() == [1, 2, 1, 1] and found.indices.tolist()[:2] == [2, 0]
    twos = xp.unique_inverse(xp.asarray([[2, 1], [2, 2]]))
    assert twos.inverse_indices.tolist() == [[1, 0], [1, 1]]
    assert xp.isin(xp.asarray([1, 2, 3]), xp.asarray([3, 1]), invert=True).tolist() == [
        False, True, False,
    ]  # fmt: skip
    assert [part.tolist() for part in xp.nonzero(xp.asarray([[0, 1], [1, 0]]))] == [[0, 1], [1, 0]]


def test_gradients_flow_through_the_namespace() -> None:
    x = rl.tensor([1.0, 2.0, 3.0], dtype=rl.float64, requires_grad=True)
    y = xp.sum(xp.take(xp.square(xp.asarray(x)), xp.asarray([0, 2])) * 0.5)
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0, 3.0]


def test_arrays_are_tensors_on_the_same_memory() -> None:
    x = rl.tensor([1.0, 2.0])
    a = xp.asarray(x)
    assert isinstance(a, rl.Tensor) and isinstance(x + a, type(a))
    a[0] = 7.0
    assert x.tolist() == [7.0, 2.0]
    assert xp.asarray(x, copy=True)._cell is not x._cell
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="memory"):
        xp.asarray([1, 2], copy=False)
