"""Every op and every public function, compiled, against the interpreter: values and gradients.

On a GPU, and in the long form on the CPU too. The operands are those of the tests of batching (the
op table), of gradients (public functions) and of the scalar table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import scalars
from ridgeline.functions.registry import Entry
from ridgeline.tensors.dispatch import make_function
from ridgeline.tensors.pytree import flatten
from tests.autograd import gradient_cases as public
from tests.ops.batching_examples import all_rows, examples
from tests.ops.test_scalar_rows import (
    CASES as SCALARS,
    KINDS,
    OF_ONE_TYPE,
    SHAPES,
    function,
    operands,
)

PLACES = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
pytestmark = pytest.mark.parametrize("place", PLACES)
TOLERANCE = {4: 1e-4, 8: 1e-9}  # relative to the largest element, by the size of a real number
SINGLE = {"f": "float32", "c": "complex64", "i": "int64"}
ROWS = {name: row for name, row in all_rows().items() if name != "extent"}  # of unknown sizes
Arrays = list[np.ndarray[Any, Any]]


def results(function: Callable[..., Any], arrays: Arrays, place: str, smooth: bool) -> list[Any]:
    """What a function gives, and if it is smooth its gradients by all floating operands."""
    leaves = [
        rl.tensor(a, device=place, requires_grad=smooth and a.dtype.kind in "fc") for a in arrays
    ]
    found: list[Any] = []
    flatten(function(*leaves), found)
    made = [t for t in found if isinstance(t, rl.Tensor)]
    tracked = [t for t in made if t.requires_grad]
    inputs = [t for t in leaves if t.requires_grad]
    seeds = [rl.tensor(seed_for(t), device=place) for t in tracked]
    grads = rl.autograd.grad(tracked, inputs, seeds, allow_unused=True) if tracked else []
    everything = [*made, *grads]
    assert all(t is None or t.device.type == place for t in everything)
    return [None if t is None else t.detach().cpu().numpy() for t in everything]


def seed_for(result: rl.Tensor) -> np.ndarray[Any, Any]:
    """A cotangent without symmetries."""
    count = int(np.prod(result.shape))
    return np.cos(np.arange(count)).reshape(result.shape).astype(result.dtype.numpy)


def compare(function: Callable[..., Any], arrays: Arrays, place: str, smooth: bool = True) -> None:
    with rl.config.override(tier="interpreter"):
        wanted = results(function, arrays, "cpu", smooth)
    with rl.config.override(tier="compiled"), public.operands_on(place):
        got = results(function, arrays, place, smooth)
    assert len(got) == len(wanted)
    for mine, other in zip(got, wanted):
        close(mine, other)


def close(got: Any, wanted: Any) -> None:
    assert (got is None) == (wanted is None)
    if wanted is None:
        return
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, wanted)
        return
    finite = np.abs(wanted[np.isfinite(wanted)])
    tolerance = TOLERANCE[wanted.real.dtype.itemsize]
    scale = float(finite.max(initial=1.0))
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_op_table(name: str, place: str) -> None:
    for example in examples(ROWS[name]):
        entry = Entry(name, example.build, True, False, False, False, False, ())
        arrays = [np.asarray(a) for a in example.arrays]
        compare(make_function(entry), arrays, place, smooth=False)


@pytest.mark.parametrize("name, kind", SCALARS)
def test_scalar_rows(name: str, kind: str, place: str) -> None:
    dtype = OF_ONE_TYPE.get(name, KINDS[kind])
    for shape in SHAPES:
        compare(function(name), operands(name, dtype, shape), place, smooth=False)


EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 1e10, -1e10, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name, kind in SCALARS if kind == "float"])
def test_scalar_rows_at_the_edges(name: str, dtype: str, place: str) -> None:
    arity = scalars.TABLE[name].arity
    arrays = [a.ravel() for a in np.meshgrid(*[np.array(EDGES, dtype)] * arity, indexing="ij")]
    if name == "select":
        arrays[0] = arrays[0] > 0
    wanted = scalars.evaluate(name, *arrays)
    got = function(name)(*[rl.tensor(a, device=place) for a in arrays]).cpu().numpy()
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[np.dtype(dtype).itemsize], atol=1e-30)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


def _joined(carried: Any, row: Any) -> tuple[Any, Any]:
    return rl.tanh(carried + row), carried * row


CONTROL: dict[str, Callable[..., Any]] = {
    "cond, taken": lambda a: rl.cond(a.sum() > 0, lambda r: r * r, lambda r: -r, a),
    "cond, not taken": lambda a: rl.cond(a.sum() < 0, lambda r: r * r, lambda r: rl.exp(r), a),
    "scan": lambda a: rl.scan(_joined, a[0] * 0, a),
    "scan, reversed": lambda a: rl.scan(_joined, a[0], a, reverse=True),
    "scan of scans": lambda a: rl.scan(
        lambda c, r: (rl.scan(_joined, c, rl.stack([r, r * 2]))[0], c.sum()), a[0], a
    ),
    "while_loop": lambda a: rl.while_loop(
        lambda s: s[0].sum() < 100, lambda s: (s[0] * 1.5, s[1] + 1), (a.detach(), a.detach() * 0)
    ),
}


def functions() -> dict[str, tuple[Any, ...]]:
    """Every public function that has a derivative, and control flow, with operands."""
    matrix, other = public.draw(3, 4), public.draw(3, 4, seed=1)
    found: dict[str, tuple[Any, ...]] = {}
    for name in public.UNARY:
        found[name] = (public.body_of(name), matrix + (name == "acosh"))
    for name in public.BINARY:
        found[name] = (public.body_of(name), matrix, other + 1)
    for name in public.REDUCING:
        found[name] = (partial(public.body_of(name), dim=1), matrix)
    flow = {name: (body, matrix) for name, body in CONTROL.items()}
    return {**found, **public.CASES, **flow}


FUNCTIONS = functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions(name: str, place: str) -> None:
    body, *arrays = FUNCTIONS[name]
    compare(body, [np.asarray(a) for a in arrays], place)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_in_single_precision(name: str, place: str) -> None:
    body, *arrays = FUNCTIONS[name]
    compare(body, [a.astype(SINGLE[a.dtype.kind]) for a in map(np.asarray, arrays)], place)
