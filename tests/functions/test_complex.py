"""Complex numbers: torch's values and gradient convention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.ops.derivatives import check_derivatives

Z = np.array([[1.2 - 0.7j, -0.3 + 1.1j, 0.8 + 0.4j], [-1.5 - 0.2j, 0.6 - 1.9j, 2.0 + 0.1j]])
UNARY = [
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "sqrt",
    "reciprocal",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "sinh",
    "cosh",
    "tan",
    "abs",
    "angle",
    "sgn",
    "real",
    "imag",
    "conj",
    "sigmoid",
    "square",
    "log1p",
    "expm1",
    "log2",
    "log10",
    "neg",
    "isfinite",
    "isnan",
    "isreal",
]


@pytest.mark.parametrize("name", UNARY)
def test_values_and_gradients_are_torchs(name: str) -> None:
    ours, theirs = rl.tensor(Z, requires_grad=True), torch.tensor(Z, requires_grad=True)
    got, want = getattr(rl, name)(ours), getattr(torch, name)(theirs)
    np.testing.assert_allclose(
        got.detach().numpy(), want.detach().resolve_conj().numpy(), rtol=1e-12, atol=1e-12
    )
    if not want.requires_grad:
        return
    seed = np.arange(1.0, 7.0).reshape(2, 3)
    seed = seed * (1 - 2j) if want.is_complex() else seed
    (g,) = rl.autograd.grad([got], [ours], [rl.tensor(seed)])
    (w,) = torch.autograd.grad([want], [theirs], [torch.tensor(seed)])
    np.testing.assert_allclose(g.numpy(), w.resolve_conj().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in UNARY if not n.startswith("is")])
def test_both_modes(name: str) -> None:
    check_derivatives(getattr(rl, name), Z)


BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda lib, a, b: lib.add(a, b),
    "mul": lambda lib, a, b: lib.mul(a, b),
    "div": lambda lib, a, b: lib.div(a, b),
    "pow": lambda lib, a, b: lib.pow(a, b),
    "matmul": lambda lib, a, b: lib.matmul(a, b.mT),
    "einsum": lambda lib, a, b: lib.einsum("ij,kj->ik", a, b),
    "where": lambda lib, a, b: lib.where(lib.real(a) > 0, a, b),
    "logaddexp": lambda lib, a, b: lib.logaddexp(a, b),
}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str) -> None:
    other = Z[::-1].copy() * (0.5 + 0.2j)
    got = BINARY[name](rl, rl.tensor(Z), rl.tensor(other)).numpy()
    want = BINARY[name](torch, torch.tensor(Z), torch.tensor(other)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12)
    check_derivatives(lambda a, b: BINARY[name](rl, a, b), Z, other)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "std"])
def test_reductions(name: str) -> None:
    got = getattr(rl, name)(rl.tensor(Z))
    want = getattr(torch, name)(torch.tensor(Z))
    assert got.dtype is (rl.float64 if name in ("var", "std") else rl.complex128)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    check_derivatives(getattr(rl, name), Z)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=3), st.booleans())
def test_parts_make_the_whole(shape: list[int], wide: bool) -> None:
    kind = np.complex128 if wide else np.complex64
    random = np.random.default_rng(len(shape))
    z = (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(kind)
    t = rl.tensor(z)
    for back in (
        rl.complex(rl.real(t), rl.imag(t)),
        rl.view_as_complex(rl.view_as_real(t)),
        rl.conj(rl.conj(t)),
    ):
        assert back.dtype is t.dtype
        np.testing.assert_array_equal(back.numpy(), z)
    np.testing.assert_allclose(rl.polar(rl.abs(t), rl.angle(t)).numpy(), z, rtol=1e-5, atol=1e-6)


def test_numbers_and_real_tensors_mix() -> None:
    x = rl.tensor([1.0, 2.0])
    assert (x + 1j).dtype is rl.complex64
    assert (x.double() * 1j).dtype is rl.complex128
    np.testing.assert_allclose((x * (2 - 1j)).numpy(), [2 - 1j, 4 - 2j])
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    rl.real((x * 1j) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-2.0, -4.0])


def test_magnitude_has_a_gradient_of_zero_at_zero() -> None:
    z = rl.tensor([0j, 3 + 4j], requires_grad=True)
    rl.abs(z).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), [0, 0.6 + 0.8j], rtol=1e-6)


def test_wrong_input() -> None:
    for wrong in (
        lambda: rl.imag(rl.tensor([1.0])),
        lambda: rl.complex(rl.tensor([1.0]), rl.tensor([1.0]).double()),
        lambda: rl.view_as_complex(rl.tensor([1.0, 2.0, 3.0])),
        lambda: rl.view_as_real(rl.tensor([1.0])),
        lambda: rl.tensor([1j]) < rl.tensor([2j]),
        lambda: rl.maximum(rl.tensor([1j]), rl.tensor([2j])),
    ):
        with pytest.raises(RidgelineError):
            wrong()
