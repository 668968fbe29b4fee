"""What a compiled function does besides computing: writes, views, modes, random numbers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


def test_what_is_expanded_takes_the_memory_of_one() -> None:
    def rows(x: Tensor) -> Tensor:
        return (x + 1).expand(5, 4)

    found, wanted = both(rows, torch.randn(4))
    assert_close(found, wanted)
    assert found.stride() == wanted.stride() == (0, 1)
    x = torch.randn(4, requires_grad=True)
    torch.compile(rows, backend="ridgeline")(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5.0] * 4


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


@torch.library.custom_op("ridgeline_tests::strange", mutates_args=())
def strange(x: Tensor) -> Tensor:
    """An operator of a user's."""
    return x.roll(1, 0).cos()


strange.register_fake(torch.empty_like)
strange.register_autograd(
    lambda ctx, gradient: (gradient * -ctx.saved_tensors[0].roll(1, 0).sin()).roll(-1, 0),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def composed(x: Tensor) -> Tensor:
    """A function of a user's that Dynamo takes for one of torch's."""
    return x.roll(1, 0).cos()


torch._dynamo.allow_in_graph(composed)


def test_what_is_made_of_torchs_calls_is_written_out_in_them() -> None:
    found, wanted = both(lambda x: composed(x.relu()) + 1, torch.randn(4))
    assert_close(found, wanted)
    assert torch_backend.by_torch() == {}


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
    assert list(torch_backend.by_torch()) == ["ridgeline_tests.strange.default"]
    assert "ridgeline_tests::strange is not here" in torch_backend.explain()


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


def test_places_in_memory_are_those_of_torchs_layout() -> None:
    """What torch would have laid out with channels last is seen through strides as it would be."""

    def places(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x + 1, (2, 3, 4), (48, 1, 3), 0) * 2

    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    torch.testing.assert_close(*both(places, x))
    y = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(*both(places, y))


def test_sizes_among_arguments_of_calls() -> None:
    """A size is a number of Python's in calls that give no tensor of it."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x.div(x.shape[0]).view(dtype=torch.int32)

    run = torch.compile(scaled, backend="ridgeline", dynamic=True)
    for length in (3, 5):
        x = torch.randn(length, 4)
        torch.testing.assert_close(run(x), scaled(x))
    assert not torch_backend.by_torch()


def test_views_of_variables_without_gradients_are_torchs() -> None:
    """Torch says of a view of a variable that it requires a gradient, also under no_grad."""

    def rows(w: Tensor) -> tuple[Tensor, Tensor]:
        return w[0], w.detach()[1]

    w = nn.Parameter(torch.randn(2, 3))
    with torch.no_grad():
        got, want = torch.compile(rows, backend="ridgeline")(w), rows(w)
    assert [v.requires_grad for v in got] == [v.requires_grad for v in want]


def test_norms_of_weights_are_compiled_and_power_iterations_have_no_gradient() -> None:
    normed = nn.utils.parametrizations
    plain = nn.Sequential(
        normed.weight_norm(nn.Linear(6, 5)),
        normed.weight_norm(nn.Linear(5, 5), dim=None),
        normed.spectral_norm(nn.Linear(5, 4)),
    )
    other = copy.deepcopy(plain)
    model, x = torch.compile(other, backend="ridgeline"), torch.randn(3, 6)
    plain(x).square().mean().backward()
    model(x).square().mean().backward()
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        assert_close(one.grad, two.grad)
    assert not torch_backend.by_torch()


class Clipped(torch.autograd.Function):  # type: ignore[misc]  # torch is seen without types
    """Values and which of them are large; gradients of large ones are none of these."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        large = x.abs() > bound
        ctx.save_for_backward(large)
        ctx.mark_non_differentiable(large)
        return x.clamp(-bound, bound), large

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None]:
        (large,) = ctx.saved_tensors
        return gradient.masked_fill(large, 7.0), None


def test_a_backward_pass_of_the_users_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        clipped, large = Clipped.apply(x * 2, 1.0)
        return (clipped.sin() * ~large).sum()

    found = []
    for run in (function, torch.compile(function, backend="ridgeline")):
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        run(x).backward()
        found.append(x.grad)
    assert_close(found[0], found[1])
    assert not torch_backend.by_torch()


class Unusual(torch.autograd.Function):  # type: ignore[misc]  # torch is seen without types
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return strange(ctx.saved_tensors[0]) * gradient


def test_a_backward_pass_with_a_call_that_is_missing_here_is_torchs() -> None:
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    torch.compile(lambda x: Unusual.apply(x).sum(), backend="ridgeline")(x).backward()
    assert_close(x.grad, strange(x.detach()))
    assert "ridgeline_tests::strange is not here" in torch_backend.explain()


def test_a_second_derivative_is_refused_and_never_wrong() -> None:
    layer = nn.Linear(3, 3)
    compiled = torch.compile(nn.Sequential(layer, nn.Tanh()), backend="ridgeline")
    x = torch.randn(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    (want,) = torch.autograd.grad(layer(x).tanh().sum(), x)
    assert_close(gradient.detach(), want)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        gradient.square().sum().backward()


def test_a_whole_step_is_compiled_around_its_backward_pass() -> None:
    models = [nn.Sequential(nn.Linear(4, 3), nn.ReLU())]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]

    def step(model: nn.Module, optimizer: Any, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(step, backend="ridgeline")
    for _ in range(3):
        x = torch.randn(5, 4)
        assert_close(compiled(models[0], optimizers[0], x), step(models[1], optimizers[1], x))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert_close(one, other)


def test_places_in_memory_are_those_of_what_a_view_shows() -> None:
    def windows(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        z = torch.as_strided(y, (2, 2), (1, 2))
        first = y[:1].as_strided((2, 3), (3, 1)), torch.as_strided(y.t(), (2, 2), (1, 3))
        return *first, y[1:].as_strided((2, 2), (1, 1)), torch.as_strided(z, (3,), (2,)) + 1

    got, want = both(windows, torch.randn(3, 3))
    for one, other in zip(got, want, strict=True):
        assert_close(one, other)
    assert not torch_backend.by_torch()


def test_a_tensor_seen_in_another_shape_from_then_on() -> None:
    def turned(x: Tensor) -> tuple[Tensor, ...]:
        y, z = x.sin(), x + 1
        y.transpose_(0, 1)
        z.unsqueeze_(1)
        return y, y.sum(0), z

    got, want = both(turned, torch.randn(2, 3))
    for one, other in zip(got, want, strict=True):
        assert_close(one, other)
        assert one.stride() == other.stride()
    assert not torch_backend.by_torch()


def test_a_check_that_does_not_hold_is_an_error() -> None:
    def checked(x: Tensor) -> Tensor:
        places = x.nonzero()
        torch._check(places.size(0) == 4)
        return places + 3

    compiled = torch.compile(checked, backend="ridgeline")
    x = torch.tensor([0, 1, 3, 4, 2, 0])
    assert_close(compiled(x), checked(x))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([0, 0, 1]))


def test_places_in_memory_with_gradients_are_torchs_to_count() -> None:
    layer = nn.Conv2d(3, 4, 1, bias=False)

    def windows(x: Tensor) -> Tensor:
        padded = F.pad(layer(x), (1, 1, 1, 1))
        once = torch.as_strided(padded, (2, 4, 3, 3), (144, 36, 12, 2))
        return torch.as_strided(once, (2, 4, 2, 2), (144, 36, 12, 4)).clone()

    x = torch.randn(2, 3, 4, 4)
    assert_close(torch.compile(windows, backend="ridgeline")(x), windows(x))


def test_a_factor_of_zero_leaves_out_what_it_multiplies() -> None:
    compiled = torch.compile(
        lambda a, b, c, by: torch.addmm(a, b, c, beta=by), backend="ridgeline", dynamic=True
    )
    a, b, c = torch.full((2, 2), torch.nan), torch.randn(2, 3), torch.randn(3, 2)
    assert_close(compiled(a, b, c, 0.0), b @ c)
    assert torch.isnan(compiled(a, b, c, 1.0)).all()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_result_with_gaps_lies_as_torchs_does(requires_grad: bool, dynamic: bool | None) -> None:
    def spread(x: Tensor) -> Tensor:
        found = torch.empty_strided(x.shape, x.stride())
        found[:] = x + x
        return found

    compiled = torch.compile(spread, backend="ridgeline", dynamic=dynamic)
    for side in (16, 20):
        x = torch.randn(side, side)[:, : side // 2].detach().requires_grad_(requires_grad)
        found = compiled(x)
        assert_close(found, spread(x))
        assert found.stride() == (side, 1)
        if requires_grad:
            found.sum().backward()
            assert_close(x.grad, torch.full_like(x, 2))


def test_what_has_no_derivative_in_torch_has_none() -> None:
    def smooth(x: Tensor) -> Tensor:
        return torch.special.modified_bessel_i0(x)

    x = torch.randn(5, requires_grad=True)
    found = torch.compile(smooth, backend="ridgeline")(x)
    assert not smooth(x).requires_grad and not found.requires_grad
    mixed = torch.compile(lambda x: smooth(x) * x, backend="ridgeline")(x)
    mixed.sum().backward()
    assert_close(x.grad, smooth(x))
