"""Numbers among the arguments of graphs, and sizes that follow from values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ridgeline import torch_backend

assert_close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="ridgeline", dynamic=dynamic)
    return made


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_float_may_change_between_calls(dynamic: bool | None) -> None:
    def scaled(x: Tensor, by: float) -> Tensor:
        return x * by + 1

    function, x = compiled(scaled, dynamic), torch.arange(3.0)
    for by in (0.5, 2.5, 3.5, -0.0, 0.0):
        assert_close(function(x, by), scaled(x, by), rtol=0, atol=0)
    assert not torch_backend.by_torch()


def test_one_program_serves_all_floats_of_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    import ridgeline.torch_backend.program as program

    made, inner = [], program.compiled
    monkeypatch.setattr(program, "compiled", lambda *a: made.append(a) or inner(*a))
    function, x = compiled(lambda x, by: (x * by).sin(), dynamic=True), torch.arange(3.0)
    for by in (0.5, 2.5, 3.5):
        assert_close(function(x, by), (x * by).sin())
    assert len(made) == 1


def test_a_float_that_a_call_needs_as_a_number_is_one() -> None:
    def mixed(x: Tensor, by: float, eps: float) -> tuple[Any, ...]:
        y = F.layer_norm(x, (4,), eps=eps) * by
        whole = (x * 10).int() * by
        return F.leaky_relu(y, by), torch.full((4,), by), x.half() * by, whole, by * 2

    function = compiled(mixed, dynamic=True)
    for by in (0.1, 0.3, -0.0):
        x = torch.randn(3, 4)
        for one, other in zip(function(x, by, 1e-5), mixed(x, by, 1e-5), strict=True):
            assert type(one) is type(other)
            assert_close(one, other)
    assert not torch_backend.by_torch()


def test_gradients_flow_past_a_float_that_changes() -> None:
    function = compiled(lambda x, by: (x * by).square().sum(), dynamic=True)
    for by in (0.5, 2.0):
        x = torch.ones(3, requires_grad=True)
        function(x, by).backward()
        assert_close(x.grad, torch.full((3,), 2 * by * by))


def test_a_number_that_is_read_of_data_is_that_of_each_call() -> None:
    def scaled(x: Tensor, y: Tensor) -> Any:
        total = y.sum().item()
        return x * total, total

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        function, x = compiled(scaled), torch.arange(3.0)
        for value in (1.0, 2.0, 3.0):
            made, total = function(x, torch.full((2,), value))
            assert total == 2 * value
            assert_close(made, x * total)


def test_sizes_that_follow_from_values_are_those_of_each_call() -> None:
    def filled(x: Tensor, count: Tensor) -> Tensor:
        return torch.zeros(count.max().item()) + x.sum()

    def picked(x: Tensor) -> Tensor:
        return x[x > 0] * 2

    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(**options):
        function, x = compiled(filled), torch.arange(3.0)
        for count in (1, 4, 2):
            assert_close(function(x, torch.tensor([count])), torch.full((count,), 3.0))
        chosen = compiled(picked)
        for shift in (1, 3, -3):
            x = torch.arange(-3.0, 3.0) + shift
            assert_close(chosen(x), picked(x))


@torch.library.custom_op("ridgeline_tests::unusual", mutates_args=())
def unusual(x: Tensor) -> Tensor:
    """An operator of a user's, of which nothing is known here."""
    return x.roll(1, 0).cos()


unusual.register_fake(torch.empty_like)


def test_a_branch_with_a_call_that_is_missing_here_is_torchs() -> None:
    def chosen(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: unusual(x) + 1, lambda x: x - 1, (x,)) * 2

    function = compiled(chosen)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_close(function(x), chosen(x))
    assert list(torch_backend.by_torch()) == ["torch.ops.higher_order.cond"]
    assert "ridgeline_tests::unusual is not here" in torch_backend.explain()


def test_sizes_in_turn_share_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    import ridgeline.torch_backend.program as program

    made, inner = [], program.compiled
    monkeypatch.setattr(program, "compiled", lambda *a: made.append(a) or inner(*a))
    function = compiled(lambda x: x * 2, dynamic=True)
    for _ in range(2):
        for size in range(2, 22):
            assert_close(function(torch.ones(size)), torch.full((size,), 2.0))
    assert len(made) == 1
