"""Jacobians and Hessians against torch, in both modes, over nested inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


def model(lib: Any, x: Any, w: Any) -> Any:
    return lib.softmax(lib.tanh(x @ w) * 2, -1)


@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_against_torch(mode: str, argnums: Any) -> None:
    x, w = draw(2, 3), draw(3, 4, seed=1)
    found = getattr(rl, mode)(lambda *a: model(rl, *a), argnums)(rl.tensor(x), rl.tensor(w))
    expected = getattr(torch.func, mode)(lambda *a: model(torch, *a), argnums)(
        torch.tensor(x), torch.tensor(w)
    )
    if isinstance(argnums, int):
        close(found, expected)
    else:
        for own, other in zip(found, expected):
            close(own, other)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=3))
def test_shapes_down_to_nothing(shape: list[int]) -> None:
    x = rl.tensor(draw(*shape))
    for build in (rl.jacrev, rl.jacfwd, rl.jacobian):
        found = build(lambda a: a.sin())(x)
        assert found.shape == (*shape, *shape)
        size = x.numel()
        expected = np.diag(np.cos(x.numpy().reshape(-1))).reshape(size, size)
        np.testing.assert_allclose(found.numpy().reshape(size, size), expected, atol=1e-15)


def test_hessian_against_torch() -> None:
    x, w = draw(3), draw(3, 2, seed=1)

    def loss(lib: Any, a: Any, b: Any) -> Any:
        return (lib.tanh(a @ b) ** 2).sum() + (a**3).sum()

    found = rl.hessian(lambda *a: loss(rl, *a), (0, 1))(rl.tensor(x), rl.tensor(w))
    expected = torch.func.hessian(lambda *a: loss(torch, *a), (0, 1))(
        torch.tensor(x), torch.tensor(w)
    )
    for own, other in zip(found, expected):
        for own_part, other_part in zip(own, other):
            close(own_part, other_part)


@pytest.mark.parametrize("build", [rl.jacrev, rl.jacfwd])
def test_nested_inputs_results_and_aux(build: Any) -> None:
    tree: Any = {"p": rl.tensor(draw(2)), "q": [rl.tensor(draw(3))]}

    def function(t: Any, scale: float) -> Any:
        return {"a": t["p"].sum() * t["q"][0] * scale, "b": (t["p"] ** 2,)}, "kept"

    found, aux = build(function, has_aux=True)(tree, 2.0)
    assert aux == "kept"
    q = tree["q"][0].numpy()
    np.testing.assert_allclose(found["a"]["p"].numpy(), np.stack([2 * q] * 2, 1))
    assert found["a"]["q"][0].shape == (3, 3)
    np.testing.assert_allclose(found["b"][0]["q"][0].numpy(), np.zeros((2, 3)))


def test_complex_functions() -> None:
    z = draw(3) + 1j * draw(3, seed=1)
    for build in (rl.jacrev, rl.jacfwd):
        found = build(lambda a: a * a * 1j)(rl.tensor(z))
        np.testing.assert_allclose(found.numpy(), np.diag(2j * z), atol=1e-15)
    with pytest.raises(rl.RidgelineError, match="jacfwd"):
        rl.jacrev(lambda a: rl.complex(a, a))(rl.tensor(draw(2)))
    with pytest.raises(rl.RidgelineError, match="jacrev"):
        rl.jacfwd(lambda a: a.abs())(rl.tensor(z))


def test_nested_and_under_jit_and_vmap() -> None:
    x = rl.tensor(draw(4, 3))

    def loss(a: Any) -> Any:
        return (a.exp() * a).sum()

    each = np.stack([rl.hessian(loss)(row).numpy() for row in x])
    np.testing.assert_allclose(rl.vmap(rl.hessian(loss))(x).numpy(), each, rtol=1e-9)
    np.testing.assert_allclose(rl.jit(rl.vmap(rl.hessian(loss)))(x).numpy(), each, rtol=1e-9)
    third = rl.jacfwd(rl.jacrev(rl.jacfwd(lambda a: (a**4).sum())))(x[0])
    assert third.shape == (3, 3, 3)
    diagonal = third.numpy()[range(3), range(3), range(3)]
    np.testing.assert_allclose(diagonal, 24 * x[0].numpy())


def test_chunks() -> None:
    x = rl.tensor(draw(5))
    whole = rl.jacobian(lambda a: a.cumsum(0).sin())(x).numpy()
    for build in (rl.jacobian, rl.jacfwd):
        parts = build(lambda a: a.cumsum(0).sin(), chunk_size=2)(x)
        np.testing.assert_allclose(parts.numpy(), whole, atol=1e-15)


def test_argnums_out_of_range() -> None:
    with pytest.raises(rl.RidgelineError, match="argument 2"):
        rl.jacobian(rl.sin, argnums=2)(rl.ones(3))


def test_gradients_flow_through_a_jacobian() -> None:
    x = rl.tensor(draw(3)).requires_grad_()
    rl.jacobian(lambda a: a**3)(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 6 * x.detach().numpy())


# ---- torch's call forms --------------------------------------------------------------------------


def pair(a: Any, b: Any) -> Any:
    return (a * b.sum()).sin(), a.cumsum(0)


def scalar(a: Any, b: Any) -> Any:
    return (a**3).sum() * (b**2).sum()


ARRAYS = (draw(3), draw(2, seed=1))


def both(module: Any, lib: Any, name: str, function: Any, *more: Any, **options: Any) -> Any:
    inputs = tuple(map(lib.tensor, ARRAYS))
    return getattr(module, name)(function, inputs, *more, **options)


def flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "hvp", "vhp"])
@pytest.mark.parametrize("options", [{}, {"create_graph": True}, {"strict": True}])
def test_functional_forms_are_torchs(name: str, options: Any) -> None:
    function = pair if name in ("jacobian", "vjp", "jvp") else scalar
    if options.get("strict") and function is pair:
        function = scalar
    ours, theirs = rl.autograd.functional, torch.autograd.functional
    seeds: Any = ()
    if name in ("jvp", "hvp", "vhp"):
        seeds = (ARRAYS,)
    elif name == "vjp" and function is pair:
        seeds = ((ARRAYS[0], ARRAYS[0]),)
    found = both(ours, rl, name, function, *[tuple(map(rl.tensor, s)) for s in seeds], **options)
    expected = both(
        theirs, torch, name, function, *[tuple(map(torch.tensor, s)) for s in seeds], **options
    )
    assert len(flat(found)) == len(flat(expected))
    for own, other in zip(flat(found), flat(expected)):
        np.testing.assert_allclose(own.detach().numpy(), other.detach().numpy(), rtol=1e-9)


def test_functional_options() -> None:
    functional, x = rl.autograd.functional, rl.tensor(draw(3))
    expected = np.diag(np.cos(x.numpy()))
    for strategy in ("reverse-mode", "forward-mode"):
        for vectorize in (True, False):
            found = functional.jacobian(rl.sin, x, strategy=strategy, vectorize=vectorize)
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-15)
    with pytest.raises(rl.RidgelineError, match="strategy"):
        functional.jacobian(rl.sin, x, strategy="sideways")
    with pytest.raises(rl.RidgelineError, match="output 0 does not depend on input 1"):
        functional.jacobian(lambda a, b: a, (x, x), strict=True)
    with pytest.raises(rl.RidgelineError, match="scalar"):
        functional.hessian(rl.sin, x)


def test_linearize() -> None:
    x = rl.tensor(draw(3))
    y, push = rl.linearize(rl.sin, x)
    np.testing.assert_allclose(y.numpy(), np.sin(draw(3)))
    for seed in range(2):
        t = draw(3, seed=seed)
        np.testing.assert_allclose(push(rl.tensor(t)).numpy(), np.cos(draw(3)) * t)
