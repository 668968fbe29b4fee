"""How the backend is called: options, modes, a list for the arguments, by AOTAutograd."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import BackendCompilerFailed

import ridgeline.torch_backend as torch_backend
from tests.torch_backend.modules import assert_close


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


def double(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_any_mode_of_torchs(mode: str) -> None:
    compiled = torch.compile(double, backend="ridgeline", mode=mode)
    assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))


def test_a_mode_that_torch_has_not() -> None:
    with pytest.raises(BackendCompilerFailed, match="no mode 'fastest'"):
        torch.compile(double, backend="ridgeline", mode="fastest")(torch.ones(3))


def test_options_are_refused_by_name() -> None:
    with pytest.raises(BackendCompilerFailed, match="no option 'max_autotune'"):
        torch.compile(double, backend="ridgeline", options={"max_autotune": True})(torch.ones(3))


def test_a_list_of_arguments_is_emptied() -> None:
    held: list[Any] = []
    torch.compile(double, backend=lambda m, x: held.append(torch_backend.ridgeline(m, x)) or m)(
        torch.ones(3)
    )
    x = torch.ones(3)
    gone, given = weakref.ref(x), [x]
    del x
    (found,) = held[0](given)
    assert given == [] and gone() is None
    assert_close(found, torch.full((3,), 2.0))


def test_aot_autograd_compiles_with_it() -> None:
    backend = aot_autograd(fw_compiler=torch_backend.ridgeline)
    layer = torch.nn.Linear(3, 4)
    x = torch.randn(2, 3, requires_grad=True)
    own = x.detach().clone().requires_grad_()
    layer(x).relu().square().sum().backward()
    wanted = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    torch.compile(lambda x: layer(x).relu().square().sum(), backend=backend)(own).backward()
    for one, other in zip([own.grad, *(p.grad for p in layer.parameters())], [x.grad, *wanted]):
        assert_close(one, other)
    assert torch_backend.by_torch() == {} and len(torch_backend.reports()) == 2
