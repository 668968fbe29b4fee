"""jit around training: gradients, modules, optimizers, random numbers and other state."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.record.captures import CaptureError
from ridgeline.tracing.checking import CheckError
from tests.functions.comparing import close


def build(momentum=0.9, dropout=0.0, **options):
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=momentum, **options)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def batches(count, size=5):
    rl.manual_seed(1)
    return [(rl.randn(size, 4), rl.randint(0, 3, (size,))) for _ in range(count)]


def test_training_step_equals_the_plain_one():
    plain_model, plain_optimizer, plain = build()
    model, optimizer, step = build()
    jitted = rl.jit(step)
    for number, (x, y) in enumerate(batches(6)):
        if number == 3:  # a new learning rate never re-traces
            traces = jitted.traces
            for group in (*optimizer.param_groups, *plain_optimizer.param_groups):
                group["lr"] = 0.01
        close(jitted(x, y), plain(x, y), 1e-5)
    assert jitted.traces == traces <= 2
    for ours, theirs in zip(model.parameters(), plain_model.parameters()):
        close(ours, theirs, 1e-5)
        close(ours.grad, theirs.grad, 1e-5)


def test_changes_that_must_be_noticed():
    changes = {
        "batch": lambda m, o: None,
        "eval": lambda m, o: m.eval(),
        "train": lambda m, o: m.train(),
        "momentum": lambda m, o: o.param_groups[0].update(momentum=0.5),
        "no_momentum": lambda m, o: o.param_groups[0].update(momentum=0.0),
        "nesterov": lambda m, o: o.param_groups[0].update(momentum=0.9, nesterov=True),
        "weight_decay": lambda m, o: o.param_groups[0].update(weight_decay=0.1),
        "layer": lambda m, o: setattr(m, "1", nn.Tanh()),
        "frozen": lambda m, o: m[0].requires_grad_(False),
    }
    plain_model, plain_optimizer, plain = build()
    model, optimizer, step = build()
    jitted = rl.jit(step)
    for number, (name, change) in enumerate(changes.items()):
        change(plain_model, plain_optimizer)
        change(model, optimizer)
        for x, y in batches(2, 5 + number % 2):
            close(jitted(x, y), plain(x, y), 2e-5)
        for ours, theirs in zip(model.parameters(), plain_model.parameters()):
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-5, err_msg=name
            )


def test_gradients_that_are_kept_between_calls():
    w = rl.ones(2, requires_grad=True)

    @rl.jit
    def accumulate(x):
        (w * x).sum().backward()

    for _ in range(3):
        accumulate(rl.full((2,), 2.0))
    assert w.grad.tolist() == [6, 6]
    held = w.grad
    accumulate(rl.full((2,), 1.0))
    assert held is w.grad and held.tolist() == [7, 7]
    w.grad = None
    accumulate(rl.full((2,), 1.0))
    assert w.grad.tolist() == [1, 1] and held.tolist() == [7, 7]


def test_gradients_flow_through_a_jitted_function():
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    forward = rl.jit(lambda x: model(x))
    x = rl.randn(5, 3, requires_grad=True)
    for _ in range(2):
        found = {}
        for name, run in (("jit", forward), ("plain", model)):
            for p in (*model.parameters(), x):
                p.grad = None
            (run(x * 2) ** 2).sum().backward()
            found[name] = [p.grad for p in (*model.parameters(), x)]
        for ours, theirs in zip(found["jit"], found["plain"]):
            close(ours, theirs, 1e-5)
    assert forward.traces == 1
    first = rl.autograd.grad(forward(x).sum(), x, create_graph=True)[0]
    second = rl.autograd.grad((first * first).sum(), x)[0]
    want = rl.autograd.grad(model(x).sum(), x, create_graph=True)[0]
    close(second, rl.autograd.grad((want * want).sum(), x)[0], 1e-5)


def test_no_grad_outside():
    w = rl.ones(2, requires_grad=True)
    f = rl.jit(lambda x: x * w)
    assert f(rl.ones(2)).requires_grad
    with rl.no_grad():
        assert not f(rl.ones(2)).requires_grad
    assert f.traces == 2


def test_random_numbers_go_on_where_they_stood():
    def draw(x):
        return x + rl.rand(3), rl.randn(2)

    jitted = rl.jit(draw)
    x = rl.zeros(3)
    rl.manual_seed(3)
    plain = [t.tolist() for _ in range(3) for t in draw(x)]
    rl.manual_seed(3)
    found = [t.tolist() for _ in range(3) for t in jitted(x)]
    assert np.allclose(np.concatenate(plain), np.concatenate(found), atol=1e-6)
    assert found[0] != found[2] and jitted.traces == 1
    with pytest.raises(rl.RidgelineError, match="seeded inside jit"):
        rl.jit(lambda x: rl.manual_seed(0))(x)


def test_dropout_differs_between_calls():
    model, _, _ = build(dropout=0.5)
    f = rl.jit(lambda x: model(x))
    x = rl.ones(5, 4)
    assert f(x).tolist() != f(x).tolist()
    model.eval()
    assert f(x).tolist() == f(x).tolist()


def test_state_made_on_the_first_call():
    _, _, step = build(momentum=0.9, dampening=0.5)
    _, _, plain = build(momentum=0.9, dampening=0.5)
    jitted = rl.jit(step)
    for x, y in batches(5):
        close(jitted(x, y), plain(x, y), 1e-5)
    assert jitted.traces <= 3


def test_check_finds_what_guards_cannot_see():
    library = {"__name__": "numpy.made", "hidden": iter([1.0, 1.0, 5.0, 5.0, 9.0, 9.0])}
    exec("def read():\n    return next(hidden)", library)  # with a state that it keeps for itself
    read = library["read"]

    @rl.jit(check=True)
    def f(x):
        return x * read()

    assert f(rl.ones(1)).item() == 1
    with pytest.raises(CheckError, match="disagree"):
        f(rl.ones(1))


def test_check_passes_a_training_step():
    _, _, step = build(dropout=0.3)
    checked = rl.jit(step, check=True)
    for x, y in batches(3):
        checked(x, y)


def test_backward_cannot_leave_the_jitted_function():
    w = rl.ones(2, requires_grad=True)

    @rl.jit
    def f(y):
        y.sum().backward()

    with pytest.raises(CaptureError, match="computed outside"):
        f(w * 2)


def test_a_removed_hook():
    layer = nn.Identity()
    f = rl.jit(lambda x: layer(x))
    for register, hook in (
        (layer.register_forward_hook, lambda module, args, out: out * 2),
        (layer.register_forward_pre_hook, lambda module, args: (args[0] * 2,)),
    ):
        with register(hook):
            assert f(rl.ones(1)).item() == 2
        assert f(rl.ones(1)).item() == 1


def test_other_memory_for_a_tensor():
    layer, loose = nn.Linear(1, 1, bias=False), rl.zeros(1)
    f = rl.jit(lambda x: layer(x) + loose)
    for value in (2.0, 3.0, 4.0):
        layer.weight.data = rl.full((1, 1), value)
        assert f(rl.ones(1, 1)).item() == value
    loose.data = rl.full((1,), 10.0)
    assert f(rl.ones(1, 1)).item() == 14
    before = f.traces
    f(rl.ones(1, 1)).backward()
    assert layer.weight.grad.item() == 1 and f.traces == before


def test_a_loose_tensor_that_begins_and_stops_to_require_gradients():
    w = rl.ones(2)
    f = rl.jit(lambda x: x * w)
    x = rl.full((2,), 3.0)
    assert not f(x).requires_grad
    w.requires_grad_()
    f(x).sum().backward()
    assert w.grad.tolist() == [3, 3]
    w.requires_grad_(False)
    assert not f(x).requires_grad
    w.requires_grad_()
    assert f(x).requires_grad and f.traces == 2


def test_state_that_becomes_part_of_a_graph():
    def total(compile):
        w, h = rl.ones(1, requires_grad=True), rl.zeros(1)

        def f(x):
            h.add_(w * x)
            return h * 1

        g = rl.jit(f) if compile else f
        for x in (1.0, 2.0, 3.0):
            out = g(rl.tensor([x]))
        out.backward()
        return out.item(), w.grad.item()

    assert total(True) == total(False)


def test_a_jitted_module():
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    compiled = rl.jit(model)
    x = rl.ones(2, 3)
    model.eval()
    close(compiled(x), model(x))
    assert len(list(compiled.parameters())) == 4
    compiled.train()
    compiled(x)
    assert compiled.traces == 2 and model.training


def test_detached_handles_that_stay():
    kept = {}
    w = rl.ones(2, requires_grad=True)

    @rl.jit
    def f(x):
        kept.setdefault("w", w.detach())
        with rl.no_grad():
            w.add_(x)

    f(rl.ones(2))
    assert kept["w"].tolist() == [2, 2]
    f(rl.ones(2))
    assert kept["w"].tolist() == [3, 3] and not kept["w"].requires_grad


@pytest.mark.parametrize("dynamic", [False, {"x": 0}])
def test_an_argument_may_be_detached_into_a_variable(dynamic: object) -> None:
    def cubes(x):
        y = x.detach().requires_grad_()
        total = (y**3).sum()
        total.backward()
        return y, total, x.detach()

    compiled = rl.jit(cubes, dynamic=dynamic)
    for number, given in enumerate((False, False, True, True)):
        x = rl.tensor([1.0, 2.0, 3.0 + number], requires_grad=given)
        for y, total, other in (cubes(x), compiled(x)):
            assert total.item() == 9.0 + (3 + number) ** 3
            assert y.requires_grad and y.is_leaf and y._cell is x._cell
            assert y.grad.tolist() == [3.0, 12.0, 3.0 * (3 + number) ** 2]
            assert not other.requires_grad and other._cell is x._cell
            assert x.requires_grad is given and x.grad is None
    assert compiled.traces == 2, "one for each kind of argument"


def test_a_handle_detached_twice_is_two_handles() -> None:
    whole = rl.ones(4)
    view = copy.deepcopy(whole[1:])
    variable = view.detach().requires_grad_()
    assert variable.requires_grad and not view.requires_grad


@pytest.mark.parametrize("change", [
    lambda t: t.t_(), lambda t: t.resize_(3, 3), lambda t: t.unsqueeze_(0),
    lambda t: setattr(t, "data", rl.full((4, 2), 3.0)),
    lambda t: setattr(t, "data", t.data.double()),
])  # fmt: skip
@pytest.mark.parametrize("use", [
    lambda x, t: t.sum(0) * 2, lambda x, t: x * t.shape[-1], lambda x, t: x * t.element_size(),
    lambda x, t: x * t.stride()[0], lambda x, t: x * len(t), lambda x, t: t + t.dim(),
])  # fmt: skip
def test_another_form_of_a_tensor_outside(change: Any, use: Any) -> None:
    def run(decorate: Any) -> list[Any]:
        outer = rl.arange(6.0).reshape(2, 3).clone()
        f = decorate(lambda x: use(x, outer))
        before = f(rl.ones(2)).tolist()
        change(outer)
        after = f(rl.ones(2))
        return [before, after.tolist(), after.dtype]

    assert run(rl.jit) == run(lambda f: f)
