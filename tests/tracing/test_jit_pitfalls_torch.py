"""What went wrong under torch.compile: here each is right, or refused with a message.

`same` calls a jitted function and the plain one on equal arguments and compares.
"""

from __future__ import annotations

import functools
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.nn import functional as F
from tests.tracing.comparing import numbers, same

pytestmark = pytest.mark.usefixtures("both_tiers")


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.linear = nn.Linear(2, 2)

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        self.calls += 1
        return self.linear(x) * self.calls


def test_a_module_that_counts_its_calls() -> None:
    """torch.compile: attributes changed in forward recompile until the limit, then go stale."""
    model = Counted()
    f = rl.jit(model)
    x = rl.ones(2)
    first = f(x)
    for k in range(2, 12):
        np.testing.assert_allclose(f(x).detach().numpy(), first.detach().numpy() * k, rtol=1e-5)
    assert model.calls == 11


def test_train_and_eval() -> None:
    """torch.compile: guards on module.training were missing more than once."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    f = rl.jit(model)
    x = rl.tensor(numbers(8, 3))
    f(x)
    model.eval()
    same(f, model, x)
    model.train()
    assert not np.allclose(f(x).detach().numpy(), f(x).detach().numpy())


def test_requires_grad_that_is_switched() -> None:
    """torch.compile: freezing parameters after compilation."""
    layer = nn.Linear(2, 1)
    f = rl.jit(lambda x: layer(x).sum())
    f(rl.ones(2)).backward()
    layer.weight.requires_grad_(False)
    layer.zero_grad()
    f(rl.ones(2)).backward()
    assert layer.weight.grad is None and layer.bias.grad is not None


def test_no_grad_around_and_inside() -> None:
    """torch.compile: grad mode is global state that must be guarded."""
    w = rl.ones(2, requires_grad=True)
    f = rl.jit(lambda x: (x * w).sum())
    assert f(rl.ones(2)).requires_grad
    with rl.no_grad():
        assert not f(rl.ones(2)).requires_grad
    assert f(rl.ones(2)).requires_grad


def test_the_default_dtype() -> None:
    """torch.compile: set_default_dtype between calls."""
    f = rl.jit(lambda: rl.zeros(2) + 1.5)
    assert f().dtype is rl.float32
    rl.set_default_dtype(rl.float64)
    try:
        assert f().dtype is rl.float64
    finally:
        rl.set_default_dtype(rl.float32)


def test_hooks_added_later() -> None:
    """torch.compile: forward hooks registered after compilation are ignored."""
    layer = nn.Linear(2, 2)
    f = rl.jit(layer)
    before = f(rl.ones(2))
    handle = layer.register_forward_hook(lambda module, args, result: result * 0)
    assert f(rl.ones(2)).tolist() == [0, 0]
    handle.remove()
    np.testing.assert_allclose(f(rl.ones(2)).detach().numpy(), before.detach().numpy())


def test_a_learning_rate_schedule() -> None:
    """torch.compile: lr as a float recompiles each step, or is frozen."""
    w = rl.zeros(1, requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @rl.jit
    def step() -> None:
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    for _ in range(5):
        step()
        schedule.step()
    assert w.item() == pytest.approx(-(1 + 0.5 + 0.25 + 0.125 + 0.0625))
    assert step.traces <= 2


def test_two_views_of_one_tensor_as_arguments() -> None:
    """torch.compile: inputs that alias and are mutated."""

    def plain(a: rl.Tensor, b: rl.Tensor) -> rl.Tensor:
        a.add_(1)
        return b * 2

    f = rl.jit(plain)
    for make in (lambda t: (t[:2], t[1:]), lambda t: (t, t), lambda t: (t[:1], t[2:])):
        x, y = rl.zeros(3), rl.zeros(3)
        got, want = f(*make(x)), plain(*make(y))
        assert got.tolist() == want.tolist() and x.tolist() == y.tolist()


def test_an_argument_returned_is_that_argument() -> None:
    """torch.compile: outputs that alias inputs lose their identity."""
    f = rl.jit(lambda x, y: (x, y.T, x + y))
    for _ in range(2):
        x, y = rl.zeros(2, 2), rl.ones(2, 2)
        a, b, _ = f(x, y)
        assert a is x
        y.mul_(3)
        assert b[0, 0].item() == 3


def test_many_signatures_never_go_stale() -> None:
    """torch.compile: past the recompile limit a function silently runs uncompiled."""
    f = rl.jit(lambda x: x.sum())
    for n in range(1, 60):
        assert f(rl.ones(n)).item() == n
    assert len(f._traces) <= 32


def test_shapes_that_depend_on_values() -> None:
    """torch.compile: nonzero and boolean masks break the graph; here they are stages of a trace."""
    for body in (lambda x: x.nonzero(), lambda x: x[x > 0]):
        assert rl.jit(body)(rl.tensor([1.0, 0.0, 2.0])).flatten().tolist() in ([0, 2], [1.0, 2.0])
    for body in (lambda x: x.unique(), lambda x: x.long().bincount()):
        with pytest.raises(rl.RidgelineError, match=r"value"):
            rl.jit(body)(rl.tensor([1.0, 0.0, 2.0]))


@dataclass
class State:
    weight: rl.Tensor
    steps: int = 0
    extra: dict[str, rl.Tensor] = field(default_factory=dict)


Pair = namedtuple("Pair", "left right")


def test_dataclasses_and_named_tuples() -> None:
    """torch.compile: dataclass arguments break the graph or are guarded by identity."""

    def plain(state: State, pair: Any) -> State:
        return State(state.weight * pair.left, state.steps + 1, {"sum": pair.right.sum()})

    f = rl.jit(plain)
    for k in range(4):
        state = State(rl.full((2,), float(k)), 3, {"a": rl.ones(1)})
        got = f(state, Pair(rl.full((2,), 2.0), rl.ones(3) * k))
        assert isinstance(got, State) and got.steps == 4
        assert got.weight.tolist() == [2 * k] * 2 and got.extra["sum"].item() == 3 * k
    assert f.traces == 1
    assert f(State(rl.ones(2), 8), Pair(rl.ones(2), rl.ones(3))).steps == 9


def test_a_dataclass_argument_that_is_changed() -> None:
    """torch.compile: attribute mutation of inputs is replayed for some objects only."""

    def bump(state: State) -> rl.Tensor:
        state.weight = state.weight + 1
        return state.weight

    f = rl.jit(bump)
    for k in (1.0, 2.0, 3.0):
        state = State(rl.full((2,), k))
        assert f(state).tolist() == state.weight.tolist() == [k + 1, k + 1]


def test_a_patched_function() -> None:
    """torch.compile: functions replaced after compilation."""
    namespace: dict[str, Any] = {"helper": lambda x: x + 1}
    exec("def plain(x):\n    return helper(x) * 2", namespace)
    f = rl.jit(namespace["plain"])
    assert f(rl.ones(())).item() == 4
    namespace["helper"] = lambda x: x + 5
    assert f(rl.ones(())).item() == 12


class Doubling(nn.Module):
    def forward(self, x: rl.Tensor) -> rl.Tensor:
        return x * 2


class Tripling(nn.Module):
    def forward(self, x: rl.Tensor) -> rl.Tensor:
        return x * 3


class PlainDouble:
    def __init__(self) -> None:
        self.bias = 0.0

    def apply(self, x: rl.Tensor) -> rl.Tensor:
        return x * 2 + self.bias


class PlainTriple(PlainDouble):
    def apply(self, x: rl.Tensor) -> rl.Tensor:
        return x * 3 + self.bias


def test_another_class_for_an_object() -> None:
    """torch.compile: __class__ assignment passes all guards on attributes."""
    model, thing = Doubling(), PlainDouble()
    f = rl.jit(lambda x: model(x) + thing.apply(x))
    assert f(rl.ones(())).item() == 4
    model.__class__ = Tripling
    assert f(rl.ones(())).item() == 5
    thing.__class__ = PlainTriple
    assert f(rl.ones(())).item() == 6


def test_a_large_array_that_changes() -> None:
    """torch.compile: NumPy arrays of the closure become constants."""
    table = np.zeros(5000, np.float32)
    f = rl.jit(lambda x: rl.tensor(table).sum() + x)
    g = rl.jit(lambda x: rl.tensor(table[::2], dtype=rl.float64).sum() + x)
    h = rl.jit(lambda x: rl.as_tensor(table).sum() + x)
    for value in (0.0, 1.0, 2.0):
        table[:] = value
        assert f(rl.zeros(())).item() == h(rl.zeros(())).item() == 5000 * value
        assert g(rl.zeros(())).item() == 2500 * value


def test_a_parameter_that_is_replaced() -> None:
    """torch.compile: module.weight = Parameter(...) after compilation."""
    layer = nn.Linear(2, 1, bias=False)
    f = rl.jit(layer)
    f(rl.ones(2))
    layer.weight = nn.Parameter(rl.full((1, 2), 4.0))
    assert f(rl.ones(2)).item() == 8
    layer.load_state_dict({"weight": rl.full((1, 2), 1.0)})
    assert f(rl.ones(2)).item() == 2
    layer.weight.data = rl.full((1, 2), 3.0)
    assert f(rl.ones(2)).item() == 6


def test_tied_weights() -> None:
    """torch.compile: a parameter reached by two names is updated twice or not at all."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    optimizer = optim.SGD(first.parameters(), lr=0.1)

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = second(first(x)).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(rl.ones(3))
    np.testing.assert_array_equal(first.weight.detach().numpy(), second.weight.detach().numpy())


def test_gradients_accumulate_over_calls() -> None:
    """torch.compile: .grad being None or set is a different program."""
    w = rl.ones(2, requires_grad=True)
    f = rl.jit(lambda x: (w * x).sum().backward())
    for k in range(1, 5):
        f(rl.ones(2))
        assert w.grad.tolist() == [k, k]
    w.grad = None
    f(rl.ones(2))
    assert w.grad.tolist() == [1, 1]


def test_partials_lambdas_and_modules_as_arguments() -> None:
    """torch.compile: callables as arguments are guarded by id and recompile for each lambda."""
    f = rl.jit(lambda g, x: g(x))
    assert f(functools.partial(rl.add, rl.ones(2)), rl.ones(2)).tolist() == [2, 2]
    model = nn.Linear(2, 2, bias=False)
    same(f, f.function, model, rl.ones(2))
    with rl.no_grad():
        model.weight.mul_(2)
    same(f, f.function, model, rl.ones(2))


def test_one_function_from_many_threads() -> None:
    """torch.compile: concurrent first calls race."""
    w = rl.full((4,), 3.0)
    f = rl.jit(lambda x, k: (x * w).sum() + k)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(30):
            n = 4 if step % 2 else 1
            want = number * 12 + step
            got = f(rl.full((n,), float(number)).expand(4), float(step)).item()
            if got != pytest.approx(want):
                wrong.append((got, want))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_mixed_precision_inside() -> None:
    """torch.compile: casts inside are dropped where the result type looks the same."""
    narrow = float(np.float16(0.1))
    f = rl.jit(lambda x: x.to(rl.float16).to(rl.float32))
    assert f(rl.tensor([0.1])).item() == narrow
    f = rl.jit(lambda x: (x.to(rl.float16) * 3).to(rl.float32))
    # a fused kernel rounds what it gives, and not what is on the way
    steps = {"interpreter": float(np.float16(narrow * 3)), "compiled": narrow * 3}
    assert f(rl.tensor([0.1])).item() == steps[rl.config.tier]


def test_a_print_inside(capsys: pytest.CaptureFixture[str]) -> None:
    """torch.compile: print breaks the graph. Here it prints while tracing, and shows no values."""

    def plain(x: rl.Tensor) -> rl.Tensor:
        print("tracing", x.shape)
        return x + 1

    f = rl.jit(plain)
    f(rl.ones(2))
    f(rl.ones(2))
    assert capsys.readouterr().out.count("tracing") == 1


def test_cross_entropy_with_ignored_targets() -> None:
    """torch.compile: ignore_index of -100 gathered out of range."""
    f = rl.jit(lambda x, y: F.cross_entropy(x, y))
    x, y = rl.tensor(numbers(4, 5)), rl.tensor([1, -100, 3, -100])
    same(f, f.function, x, y)
