"""Every row of the scalar table, tried for nothing: value, compiled code, derivatives, sizes.

A new row in `ridgeline/scalars.py` and its entry in `_DERIVATIVES` are picked up here by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes, scalars
from ridgeline.functions.registry import Entry
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import ROWS, apply
from ridgeline.tensors.dispatch import make_function

KINDS = {
    "bool": dtypes.bool_, "uint": dtypes.uint8, "int": dtypes.int32, "float": dtypes.float32,
    "complex": dtypes.complex64,
}  # fmt: skip
OF_ONE_TYPE = {"mulhi": dtypes.uint32, "philox": dtypes.uint64}
SHAPES = [(), (0,), (1,), (7,), (2, 3)]
CASES = [(name, kind) for name in ROWS for kind in scalars.TABLE[name].kinds]
LOWERED = {"fma", "libm_sin", "libm_cos", "libm_pow"}  # rows that only lowering makes
SMOOTH = [n for n in ROWS if "float" in scalars.TABLE[n].kinds and n not in LOWERED]


def function(name: str) -> Callable[..., rl.Tensor]:
    """The row as a function of tensors."""

    def body(*operands: Node) -> Node:
        return apply(name, *operands)

    return make_function(Entry(name, body, True, False, False, False, False, ()))


def operands(name: str, dtype: dtypes.DType, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Values from 0.25 to 0.75 for floats, where most rows are defined; small whole ones else."""
    low = 1.25 if name == "acosh" else 0.25
    draw = np.random.default_rng(len(name))
    made = []
    for place in range(scalars.TABLE[name].arity):
        if name == "select" and place == 0:
            made.append(draw.random(shape) < 0.5)
        elif dtype.is_differentiable:
            made.append((low + draw.random(shape) / 2).astype(dtype.numpy))
        else:
            made.append(draw.integers(0, 2 if dtype is dtypes.bool_ else 5, shape, dtype.numpy))
    return made


@pytest.mark.parametrize("name, kind", CASES)
def test_values_in_both_tiers(name: str, kind: str) -> None:
    row = scalars.TABLE[name]
    dtype = OF_ONE_TYPE.get(name, KINDS[kind])
    for shape in SHAPES:
        arrays = operands(name, dtype, shape)
        wanted = row.numpy(*arrays)
        for tier in ("interpreter", "compiled"):
            with rl.config.override(tier=tier):
                result = function(name)(*[rl.tensor(a) for a in arrays])
                assert result.shape == shape
                assert result.dtype is (dtypes.bool_ if row.result == "bool" else dtype)
                np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-6)


def variables(name: str, shape: tuple[int, ...]) -> list[Any]:
    arrays = operands(name, dtypes.float64, shape)
    return [rl.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_against_differences(name: str) -> None:
    call = function(name)
    result = call(*variables(name, (3,)))
    if not result.requires_grad:
        assert scalars.TABLE[name].result == "bool"
        return
    assert ROWS[name].vjp is not None and ROWS[name].jvp is not None
    for shape in SHAPES:
        assert rl.autograd.gradcheck(call, variables(name, shape))


@pytest.mark.parametrize("name", SMOOTH)
def test_rows_are_batched(name: str) -> None:
    arrays = [rl.tensor(a) for a in operands(name, dtypes.float32, (4, 3))]
    call = function(name)
    mapped, whole = rl.vmap(call)(*arrays), call(*arrays)
    assert mapped.tolist() == whole.tolist()


def test_every_row_has_a_cost_and_takes_something() -> None:
    for name, row in scalars.TABLE.items():
        assert row.name == name and row.arity >= 1 and row.kinds and row.cost


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_powers_wrap_and_round_towards_zero(dtype: str) -> None:
    bases = np.array([0, 1, 2, 3, 5, 7, 11] + [-1, -2, -3] * (dtype[0] == "i"), dtype)
    exponents = np.array([0, 1, 2, 3, 5, 9, 60] + [-1, -2, -3] * (dtype[0] == "i"), dtype)
    a, b = (g.ravel() for g in np.meshgrid(bases, exponents))
    wanted = scalars.evaluate("pow", a, b)
    for tier in ("interpreter", "compiled"):
        with rl.config.override(tier=tier):
            assert (rl.tensor(a) ** rl.tensor(b)).tolist() == wanted.tolist()
            if dtype[0] == "i":
                assert (rl.tensor(a) ** 3).tolist() == scalars.evaluate(
                    "pow", a, np.full_like(a, 3)
                ).tolist()


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_of_two_zeros_the_negative_one_is_smaller(tier: str) -> None:
    left, right = np.array([0.0, -0.0, 0.0, -0.0] * 5), np.array([-0.0, 0.0, 0.0, -0.0] * 5)
    pairs = np.stack([left, right])
    with rl.config.override(tier=tier):
        largest = [rl.maximum(rl.tensor(left), rl.tensor(right)), rl.tensor(pairs).amax(0)]
        smallest = [rl.minimum(rl.tensor(left), rl.tensor(right)), rl.tensor(pairs).amin(0)]
        for found in largest:
            assert np.signbit(found.numpy()).tolist() == [False, False, False, True] * 5
        for found in smallest:
            assert np.signbit(found.numpy()).tolist() == [True, True, False, True] * 5
