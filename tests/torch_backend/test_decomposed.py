"""Calls without a counterpart, written out in torch's own compositions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ridgeline import torch_backend
from ridgeline.torch_backend.names import UnmappedError, function_for
from tests.torch_backend.modules import assert_close

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


def both(function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """A function gives the same compiled and not, and torch makes no call of the compiled one."""
    compiled = torch.compile(function, backend="ridgeline", fullgraph=True, **options)
    assert_close(compiled(*args), function(*args))
    assert torch_backend.by_torch() == {}


def test_operators_for_gradients() -> None:
    def gradients(x: Tensor, g: Tensor) -> Any:
        return (
            aten.elu_backward(g, 1.5, 1.0, 1.0, False, x),
            aten.softplus_backward(g, x, 1.0, 20.0),
            aten.slice_backward(g, [3, 9], 1, 1, 5, 1),
            aten.native_layer_norm_backward(
                g, x, [4], x.mean(1, keepdim=True), x.std(1, keepdim=True), None, None,
                [True, False, False],
            )[0],
        )  # fmt: skip

    with pytest.raises(UnmappedError):
        function_for(aten.elu_backward.default)
    both(gradients, torch.randn(3, 4), torch.randn(3, 4))


def test_gradients_flow_through_what_was_written_out() -> None:
    def smooth(x: Tensor) -> Tensor:
        return aten._prelu_kernel(aten.hardswish(x), x[:1])

    with pytest.raises(UnmappedError):
        function_for(aten._prelu_kernel.default)
    x = torch.randn(5, requires_grad=True)
    own = x.detach().clone().requires_grad_()
    smooth(x).sum().backward()
    torch.compile(smooth, backend="ridgeline")(own).sum().backward()
    assert_close(own.grad, x.grad)
    assert torch_backend.by_torch() == {}


def test_a_result_of_several_values() -> None:
    def parts(x: Tensor) -> Any:
        found = aten.native_batch_norm_backward(
            x, x, None, None, None, x.mean((0, 2)), x.std((0, 2)), True, 1e-5, [True, True, True]
        )
        return found[0] * 2, found

    both(parts, torch.randn(3, 4, 5))


def test_sizes_that_change() -> None:
    def back(x: Tensor) -> Tensor:
        return aten.slice_backward(x, [x.shape[0], x.shape[1] + 3], 1, 2, x.shape[1] + 2, 1) * 2

    compiled = torch.compile(back, backend="ridgeline", dynamic=True, fullgraph=True)
    for length in (3, 5, 8):
        x = torch.randn(4, length)
        assert_close(compiled(x), back(x))
    assert torch_backend.by_torch() == {}


def test_a_counterpart_that_refuses_is_taken_apart() -> None:
    both(lambda x, m: torch.addmv(x, m, x[:0]), torch.ones(1), torch.ones(0, 0))


def test_integers_are_divided_as_torch_does() -> None:
    both(torch.ops.prims.div, torch.tensor([-7, 7]), torch.tensor([2, 2]))


def test_what_torch_cannot_compose_stays_its() -> None:
    x = torch.arange(6)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: torch.bincount(x) + 1, backend="ridgeline")
        assert_close(compiled(x), torch.bincount(x) + 1)
    assert [*torch_backend.by_torch()] == ["torch.bincount"]


def test_a_transform_inside_is_compiled_whole() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return F.softplus(x @ w)[1:].sum()

    def gradients(w: Tensor, x: Tensor) -> Tensor:
        return torch.vmap(torch.func.grad(loss), (None, 0))(w, x)

    w, x = torch.randn(4, requires_grad=True), torch.randn(2, 3, 4)
    own = w.detach().clone().requires_grad_()
    gradients(w, x).square().sum().backward()
    torch.compile(gradients, backend="ridgeline")(own, x).square().sum().backward()
    assert_close(own.grad, w.grad)
    assert torch_backend.by_torch() == {}
