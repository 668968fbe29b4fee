"""Lazy layers, backward hooks, and weights computed from other parameters, as in torch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError
from ridgeline.tensors.tensor import tensor
from ridgeline.tracing.jit import jit
from tests.nn.oracle import load

LAZY: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("LazyLinear", (5,), (4, 3)),
    *((f"LazyConv{n}d", (5, 3), (2, 4, *(6,) * n)) for n in (1, 2, 3)),
    *((f"LazyConvTranspose{n}d", (5, 3), (2, 4, *(6,) * n)) for n in (1, 2, 3)),
    *((f"LazyBatchNorm{n}d", (), (2, 4, *(6,) * n)) for n in (1, 2, 3)),
    *((f"LazyInstanceNorm{n}d", (), (2, 4, *(6,) * n)) for n in (1, 2, 3)),
]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("name", "args", "shape"), LAZY, ids=[entry[0] for entry in LAZY])
def test_lazy_layers_become_torchs(name: str, args: Any, shape: tuple[int, ...]) -> None:
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    called: list[Any] = []
    ours.register_forward_hook(lambda module, inputs, output: called.append(output))
    model = nn.Sequential(ours)
    data = normal(*shape)
    model(tensor(data))
    theirs(torch.tensor(data))
    assert type(model[0]).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")
    assert repr(ours).split("(")[0] == name.removeprefix("Lazy") and len(called) == 1
    load(ours, theirs)
    ours.train(), theirs.train()
    np.testing.assert_allclose(
        as_array(ours(tensor(data))), theirs(torch.tensor(data)).detach().numpy(), atol=2e-5
    )


def test_lazy_layers_need_a_call_before_jit() -> None:
    model = nn.Sequential(nn.LazyLinear(3, bias=False), nn.ReLU())
    assert "LazyLinear(?, 3, bias=False)" in repr(model)
    with pytest.raises(RidgelineError, match="once outside of jit"):
        jit(model)(tensor(normal(2, 4)))
    model.train(False)
    model(tensor(normal(2, 4)))
    assert not model[0].training and model[0].in_features == 4


def hooked(lib: Any, make: Any) -> list[Any]:
    """The order in which forward hooks run, and what they make of a call."""

    class Scaled(lib.Module):  # type: ignore[misc]
        def forward(self, x: Any, factor: float = 1.0) -> Any:
            return x * factor

    layer, order = Scaled(), []

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        order.append("before")
        return (args[0] + 1,), {"factor": kwargs["factor"] * 2}

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        order.append(f"after {kwargs['factor']}")
        return output - 1

    layer.register_forward_pre_hook(lambda module, args: order.append("second"))
    layer.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
    layer.register_forward_hook(lambda module, args, output: order.append("last"))
    layer.register_forward_hook(after, with_kwargs=True, prepend=True)
    return [*layer(make([1.0, 2.0]), factor=3.0).tolist(), *order]


def test_forward_hooks_with_keyword_arguments() -> None:
    assert hooked(nn, tensor) == hooked(torch.nn, torch.tensor)


def seen_gradients(lib: Any, make: Any, replace: bool) -> list[Any]:
    """What backward hooks are given, and the gradients that result."""
    layer = lib.Linear(3, 2)
    weights = {"weight": normal(2, 3), "bias": normal(2)}
    layer.load_state_dict({k: make(v) for k, v in weights.items()})
    seen: list[Any] = []

    def hook(module: Any, grad_input: Any, grad_output: Any) -> Any:
        seen.extend([grad_input[0], grad_output[0]])
        return (grad_input[0] * 3,) if replace else None

    def pre(module: Any, grad_output: Any) -> Any:
        return (grad_output[0] * 2,) if replace else None

    handles = [
        layer.register_full_backward_hook(hook),
        layer.register_full_backward_pre_hook(pre),
    ]
    data = make(normal(4, 3)).requires_grad_()
    (layer(data) ** 2).sum().backward()
    for handle in handles:
        handle.remove()
    count = len(seen)
    (layer(data) ** 2).sum().backward()
    assert len(seen) == count
    return [*seen, data.grad, layer.weight.grad]


@pytest.mark.parametrize("replace", [False, True])
def test_backward_hooks_see_what_torchs_see(replace: bool) -> None:
    mine = seen_gradients(nn, tensor, replace)
    theirs = seen_gradients(torch.nn, torch.tensor, replace)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(as_array(a), b.numpy(), rtol=1e-4, atol=1e-5)


def test_backward_hooks_without_gradients_of_inputs() -> None:
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda module, into, out: seen.append((into, out)))
    layer(tensor(normal(4, 3))).sum().backward()
    assert len(seen) == 1 and seen[0][0] == (None,) and tuple(seen[0][1][0].shape) == (4, 2)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: int | None) -> None:
    mine = nn.utils.weight_norm(nn.Linear(3, 4), dim=dim)
    theirs = torch.nn.utils.weight_norm(torch.nn.Linear(3, 4), dim=dim)
    own = {name: as_array(value) for name, value in mine.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in theirs.state_dict().items()}
    assert {name: value.shape for name, value in own.items()} == shapes
    theirs.load_state_dict({name: torch.tensor(value) for name, value in own.items()})
    data = normal(5, 3)
    (mine(tensor(data)) ** 2).sum().backward()
    (theirs(torch.tensor(data)) ** 2).sum().backward()
    for name in ("weight_g", "weight_v"):
        a, b = (getattr(layer, name).grad for layer in (mine, theirs))
        np.testing.assert_allclose(as_array(a), b.numpy(), rtol=1e-4, atol=1e-4)
    before = as_array(mine(tensor(data)))
    plain = nn.utils.remove_weight_norm(copy.deepcopy(mine))
    assert type(plain) is nn.Linear and set(plain.state_dict()) == {"weight", "bias"}
    np.testing.assert_allclose(as_array(plain(tensor(data))), before, rtol=1e-5, atol=1e-6)
    with pytest.raises(RidgelineError, match="ordinary parameter"):
        nn.utils.remove_weight_norm(plain)
    with pytest.raises(RidgelineError, match="no parameter 'wait'"):
        nn.utils.weight_norm(plain, "wait")


def test_a_weight_with_a_norm_works_under_jit() -> None:
    layer = nn.utils.weight_norm(nn.Linear(3, 4))
    data, step = tensor(normal(5, 3)), jit(lambda x: layer(x))
    first = as_array(step(data))
    layer.weight_g.data.mul_(2)
    bias = as_array(layer.bias)
    np.testing.assert_allclose(
        as_array(step(data)) - bias, 2 * (first - bias), rtol=1e-4, atol=1e-5
    )
    assert step.traces == 1


@pytest.mark.parametrize("make", [lambda lib: lib.Linear(3, 4), lambda lib: lib.Conv2d(3, 4, 2)])
def test_spectral_norm(make: Any) -> None:
    mine, theirs = nn.utils.spectral_norm(make(nn)), torch.nn.utils.spectral_norm(make(torch.nn))
    state = {name: torch.tensor(as_array(value)) for name, value in mine.state_dict().items()}
    assert set(state) == set(theirs.state_dict())
    theirs.load_state_dict(state)
    data = normal(5, 3) if isinstance(mine, nn.Linear) else normal(2, 3, 5, 5)
    for _ in range(3):
        found, wanted = mine(tensor(data)), theirs(torch.tensor(data))
        np.testing.assert_allclose(as_array(found), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    (found**2).sum().backward()
    (wanted**2).sum().backward()
    np.testing.assert_allclose(
        as_array(mine.weight_orig.grad), theirs.weight_orig.grad.numpy(), rtol=1e-3, atol=1e-4
    )
    for _ in range(60):
        mine(tensor(data))
    flat = as_array(mine.weight).reshape(4, -1)
    assert np.isclose(np.linalg.svd(flat, compute_uv=False)[0], 1.0, rtol=1e-3)
    plain = nn.utils.remove_spectral_norm(mine)
    assert set(plain.state_dict()) == {"weight", "bias"} and not plain._forward_pre_hooks


def test_special_starts() -> None:
    wide = nn.Parameter(tensor(np.zeros((3, 4, 2), np.float32)))
    flat = as_array(nn.init.orthogonal_(wide, 2.0)).reshape(3, 8)
    np.testing.assert_allclose(flat @ flat.T, 4 * np.eye(3), atol=1e-5)
    tall = as_array(nn.init.orthogonal_(tensor(np.zeros((6, 2), np.float32))))
    np.testing.assert_allclose(tall.T @ tall, np.eye(2), atol=1e-5)
    many = as_array(nn.init.trunc_normal_(tensor(np.zeros(20_000, np.float32)), 1.0, 2.0, -1, 2))
    reference = torch.nn.init.trunc_normal_(torch.zeros(20_000), 1.0, 2.0, -1, 2)
    assert many.min() >= -1 and many.max() <= 2
    assert abs(many.mean() - float(reference.mean())) < 0.03
    assert abs(many.std() - float(reference.std())) < 0.03
    for shape, groups in (((4, 2, 3), 2), ((3, 5, 3, 3), 1)):
        found = nn.init.dirac_(tensor(np.ones(shape, np.float32)), groups)
        assert (as_array(found) == torch.nn.init.dirac_(torch.ones(shape), groups).numpy()).all()
    eye = nn.init.eye_(tensor(np.ones((3, 5), np.float32)))
    assert (as_array(eye) == np.eye(3, 5)).all()
    holes = as_array(nn.init.sparse_(tensor(np.ones((10, 4), np.float32)), 0.25))
    assert ((holes == 0).sum(0) == 3).all()
