"""What a compiled function does besides computing: writes, views, modes, random numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ridgeline import torch_backend
from tests.torch_backend.modules import assert_close


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


def both(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """What a function gives compiled and plain, each on tensors of its own."""
    compiled = torch.compile(function, backend="ridgeline")
    return compiled(*_own(args)), function(*_own(args))


def _own(args: Any) -> list[Any]:
    return [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]


def test_inputs_are_written() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        x[0] = 7
        return x.sum() * y

    given = [torch.randn(3, 4), torch.randn(3, 4)]
    own, plain = given[0].clone(), given[0].clone()
    version = own._version
    got = torch.compile(write, backend="ridgeline")(own, given[1])
    assert_close(got, write(plain, given[1]))
    assert_close(own, plain)
    assert own._version > version


def test_what_is_not_dense_is_written() -> None:
    def write(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.t() + 1

    base, other = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    got = torch.compile(write, backend="ridgeline")(base[:, ::2])
    assert_close(got, write(other[:, ::2]))
    assert_close(base, other)


def test_an_input_comes_back_itself() -> None:
    x = torch.randn(3)
    assert torch.compile(lambda t: t.add_(1), backend="ridgeline")(x) is x


def test_views_of_inputs_are_views() -> None:
    x = torch.randn(3, 4)
    views = torch.compile(lambda t: (t.t(), t[1:, ::2], t.view(-1)), backend="ridgeline")(x)
    x.fill_(5)
    assert all(torch.all(view == 5) for view in views)
    assert [view.stride() for view in views] == [(1, 4), (4, 2), (1,)]


def test_results_share_memory_as_torchs_do() -> None:
    def share(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y.view(-1)[2:], y.t()

    first, second, third = torch.compile(share, backend="ridgeline")(torch.zeros(2, 3))
    first.fill_(9)
    assert torch.all(second == 9) and torch.all(third == 9)
    assert second.shape == (4,) and third.shape == (3, 2)


def test_a_result_given_twice_is_one() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y

    first, second = torch.compile(twice, backend="ridgeline")(torch.ones(2))
    assert first is second


def test_written_values_carry_gradients() -> None:
    def write(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.mul_(x)
        return (buffer * x).sum()

    found = []
    for function in (torch.compile(write, backend="ridgeline"), write):
        x, buffer = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0])
        loss = function(x, buffer)
        (loss + buffer.sum()).backward()
        found.append((loss.detach(), buffer.detach(), x.grad))
    for one, two in zip(*found):
        assert_close(one, two)


def test_gradients_stop_where_torch_stops_them() -> None:
    def partly(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale + x.detach(), scale

    found = []
    for function in (torch.compile(partly, backend="ridgeline"), partly):
        x = torch.tensor([2.0, -3.0], requires_grad=True)
        value, scale = function(x)
        assert not scale.requires_grad
        value.sum().backward()
        found.append(x.grad)
    assert_close(*found)


def test_a_value_changed_between_the_passes_is_refused() -> None:
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    y = torch.compile(lambda a, b: (a * b).sum(), backend="ridgeline")(weight, x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_modes_of_torch_hold() -> None:
    layer = nn.Linear(3, 2)
    compiled = torch.compile(layer, backend="ridgeline")
    with torch.inference_mode():
        assert_close(compiled(torch.ones(1, 3)), layer(torch.ones(1, 3)))
    assert compiled(torch.ones(1, 3)).requires_grad


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_is_torchs(inside: bool) -> None:
    layer, x = nn.Linear(8, 4), torch.randn(2, 8)

    def narrow(t: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=inside):
            return layer(t)

    compiled = torch.compile(narrow, backend="ridgeline")
    with torch.autocast("cpu", enabled=True), torch.no_grad():
        got, want = compiled(x), narrow(x)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_random_numbers_follow_torchs_seed() -> None:
    drop = torch.compile(nn.Dropout(0.5), backend="ridgeline")
    x, found = torch.ones(64), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append((drop(x), drop(x)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][0], found[0][1])
    assert not torch.equal(found[0][0], found[2][0])
    assert set(found[0][0].tolist()) == {0.0, 2.0}


def test_dropout_drops_the_same_in_the_backward_pass() -> None:
    x = torch.ones(64, requires_grad=True)
    y = torch.compile(lambda t: nn.functional.dropout(t * 3, 0.5), backend="ridgeline")(x)
    y.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, y.detach() / x.detach())


def test_sizes_may_change() -> None:
    function = torch.compile(lambda x: (x.sum(0), x.shape[0] * 2, x[1:]), backend="ridgeline",
                             dynamic=True)  # fmt: skip
    for length in (3, 5, 3, 8):
        x = torch.randn(length, 2)
        total, twice, rest = function(x)
        assert_close(total, x.sum(0))
        assert twice == 2 * length and rest.data_ptr() == x[1:].data_ptr()
    assert len(torch_backend.reports()) == 1


def strange(x: Tensor) -> Tensor:
    """A function of a user's that Dynamo takes for one of torch's."""
    return x.roll(1, 0).cos()


torch._dynamo.allow_in_graph(strange)


def test_what_is_missing_here_runs_in_torch_and_is_counted() -> None:
    def partly(x: Tensor, y: Tensor) -> Tensor:
        hidden = torch.relu(x @ y)
        return strange(hidden).relu() + y.sum()

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    found = []
    for function in (torch.compile(partly, backend="ridgeline"), partly):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        value = function(a, b)
        value.sum().backward()
        found.append((value.detach(), a.grad, b.grad))
    for one, two in zip(*found):
        assert_close(one, two)
    assert list(torch_backend.by_torch()) == [f"{__name__}.strange"]
    assert f"{__name__}.strange is not here" in torch_backend.explain()


def test_what_cannot_be_compiled_falls_back_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no code today")

    monkeypatch.setattr("ridgeline.torch_backend.program.program_for", broken)
    compiled = torch.compile(lambda x: x.sin() + 1, backend="ridgeline")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_close(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert [str(w.message).endswith("no code today") for w in said] == [True]
    assert "no code today" in torch_backend.explain()


def test_sparse_tensors_are_torchs() -> None:
    def product(a: Tensor, x: Tensor) -> Tensor:
        return (a @ x).relu()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = torch.eye(3).to_sparse()
        got, want = torch.compile(product, backend="ridgeline")(sparse, torch.ones(3, 2)), 1.0
    assert torch.all(got == want)


def test_programs_use_as_many_threads_as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline.config import config

    seen = []
    import ridgeline.torch_backend.program as program

    inner = program.program_for
    monkeypatch.setattr(
        program, "program_for", lambda graph: seen.append(config.threads) or inner(graph)
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.compile(lambda x: x * 2, backend="ridgeline")(torch.ones(2))
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_inputs_that_overlap_see_what_is_written_to_others() -> None:
    def write(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x.add_(1)
        y.mul_(2)
        return (x + y + z).sum()

    compiled = torch.compile(write, backend="ridgeline")

    def parts(base: Tensor, apart: bool) -> list[Tensor]:
        other = base.clone() if apart else base
        return [base[:4], other[2:6], other[::2][:4]]

    for apart in (False, True, False):
        own, plain = torch.arange(9.0), torch.arange(9.0)
        got, want = compiled(*parts(own, apart)), write(*parts(plain, apart))
        assert_close(got, want)
        assert_close(own, plain)
    assert torch_backend.by_torch() == {}


def test_a_tensor_given_twice_is_one_memory() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    x = torch.ones(3)
    assert_close(torch.compile(write, backend="ridgeline")(x, x), torch.full((3,), 4.0))
    x = torch.ones(3)
    assert_close(torch.compile(write, backend="ridgeline")(x, x.view(3)), torch.full((3,), 4.0))


def test_checkpoints_are_computed_again() -> None:
    from torch.utils.checkpoint import checkpoint

    def again(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda t: (t @ w).tanh() @ w, x, use_reentrant=False).sum()

    found = []
    for function in (torch.compile(again, backend="ridgeline"), again):
        x, w = torch.ones(2, 3, requires_grad=True), torch.eye(3).mul(0.5).requires_grad_()
        value = function(x, w)
        value.backward()
        found.append((value.detach(), x.grad, w.grad))
    for one, two in zip(*found):
        assert_close(one, two)
    assert torch_backend.by_torch() == {}


def test_a_branch_on_a_value_is_compiled() -> None:
    def branch(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t - 1, (x,))

    compiled = torch.compile(branch, backend="ridgeline")
    for sign in (1.0, -1.0):
        x = torch.ones(3) * sign
        assert_close(compiled(x), branch(x))
    assert torch_backend.by_torch() == {}
