"""The contract of jit: a compiled call gives what the plain one gives, or raises, or re-traces."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
import types
from typing import NamedTuple

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.tensors.execute import CaptureError, LeakError
from ridgeline.tracing.checking import CheckError

SCALE = 2.0
SETTINGS = {"shift": 1.0, "flags": [True, False]}


def close(a, b, tolerance=1e-6):
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def test_traced_once_and_replayed_without_python():
    @rl.jit
    def f(x, y):
        return (x * y + 1.5).relu().sum(0), x - y

    for seed in range(3):
        rl.manual_seed(seed)
        x, y = rl.randn(3, 4), rl.randn(3, 4)
        total, difference = f(x, y)
        close(total, (x * y + 1.5).relu().sum(0))
        close(difference, x - y)
    assert f.traces == 1


def test_results_are_fresh():
    f = rl.jit(lambda x: x + 1)
    x = rl.zeros(3)
    first, second = f(x), f(x)
    first.add_(5)
    assert second.tolist() == [1, 1, 1] and f(x).tolist() == [1, 1, 1]
    same = rl.jit(lambda x: x.clone())
    copy = same(x)
    copy.add_(1)
    assert x.tolist() == [0, 0, 0]


def test_batch_size_dtype_and_static_values():
    @rl.jit
    def f(x, power, *, flip=False):
        return x.flip(0) if flip else x**power

    assert f(rl.ones(2), 2).shape == (2,)
    assert f(rl.ones(3), 2).shape == (3,)
    assert f(rl.ones(3, dtype=rl.float64), 2).dtype is rl.float64
    assert f(rl.tensor([1.0, 2.0]), 3).tolist() == [1, 8]
    assert f(rl.tensor([1.0, 2.0]), 3, flip=True).tolist() == [2, 1]
    assert f.traces == 5
    assert f(rl.tensor([3.0, 4.0]), 3, flip=True).tolist() == [4, 3]
    assert f.traces == 5
    assert "first call" in f.history[0] and "argument 1 was float32[2]" in f.history[1]


class Point(NamedTuple):
    x: rl.Tensor
    y: rl.Tensor


def test_nested_structures():
    @rl.jit
    def f(tree):
        point = tree["points"][0]
        return {"sum": point.x + point.y, "rest": [tree["k"] * point.x, 7, "text"]}

    one, two = rl.ones(2), rl.full((2,), 2.0)
    for _ in range(2):
        result = f({"points": [Point(one, two)], "k": 3})
        assert result["sum"].tolist() == [3, 3] and result["rest"][1:] == [7, "text"]
        assert result["rest"][0].tolist() == [3, 3]
    assert f.traces == 1


def test_in_place_on_an_argument_and_on_a_view():
    @rl.jit
    def f(x):
        x[0].add_(10)
        x.mul_(2)
        return x.sum()

    x = rl.ones(2, 2)
    seen = x.t()
    assert f(x).item() == 48 and x.tolist() == [[22, 22], [2, 2]]
    assert f(x).item() == 136 and seen.tolist() == [[64, 4], [64, 4]]
    base = rl.zeros(3, 2, 2)
    f(base[1])
    assert base.sum().item() == 40 and base[0].sum().item() == 0


def test_aliasing_arguments():
    @rl.jit
    def f(x, y):
        x.add_(1)
        return y * 2

    x, y = rl.zeros(2), rl.zeros(2)
    assert f(x, y).tolist() == [0, 0]
    assert f(x, x).tolist() == [4, 4] and x.tolist() == [2, 2]
    assert f(x, x[:]).tolist() == [6, 6]
    assert f.traces == 2
    assert f(y, x).tolist() == [6, 6] and f.traces == 2


def test_returning_an_argument_or_a_view_of_one():
    @rl.jit
    def f(x):
        x.add_(1)
        return x, x[0], x.detach()

    x = rl.zeros(2)
    for expected in (1, 2):
        same, view, plain = f(x)
        assert same is x
        view.add_(10)
        assert x.tolist() == [expected + 10, expected] and plain.tolist() == x.tolist()
        x[0] = expected


def test_globals_and_closures():
    global SCALE
    shift = 1.0

    @rl.jit
    def f(x):
        return helper(x) + shift

    SCALE = 2.0
    assert f(rl.ones(1)).item() == 3.0
    SCALE = 5.0
    assert f(rl.ones(1)).item() == 6.0 and f.traces == 2
    shift = 10.0
    assert f(rl.ones(1)).item() == 15.0 and f.traces == 3
    assert "SCALE" in f.history[1] and "shift" in f.history[2]
    SCALE = 2.0


def helper(x):
    return x * SCALE


def test_containers_and_attributes_are_guarded_by_value():
    class Options:
        factor = 3.0

    options = Options()
    options.factor = 2.0

    @rl.jit
    def f(x):
        return x * options.factor + SETTINGS["shift"]

    SETTINGS["shift"] = 1.0
    assert f(rl.ones(1)).item() == 3.0
    SETTINGS["shift"] = 4.0
    assert f(rl.ones(1)).item() == 6.0
    options.factor = 7.0
    assert f(rl.ones(1)).item() == 11.0
    assert f.traces == 3


def test_methods():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @rl.jit
        def run(self, x):
            return x * self.factor

    two, three = Scaler(2.0), Scaler(3.0)
    assert two.run(rl.ones(1)).item() == 2 and three.run(rl.ones(1)).item() == 3
    two.factor = 5.0
    assert two.run(rl.ones(1)).item() == 5
    bound = rl.jit(Scaler(4.0).run.function)
    assert bound(rl.ones(1)).item() == 4


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


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * x.max().item(),
        lambda x: x * float(x[0]),
        lambda x: x.tolist(),
        lambda x: x.detach().numpy(),
    ],
)
def test_values_cannot_be_read_while_tracing(branch):
    with pytest.raises(CaptureError, match="RL0401") as caught:
        rl.jit(branch)(rl.ones(2))
    assert "test_jit.py" in str(caught.value) and "help" in str(caught.value)


def test_values_that_do_not_depend_on_inputs_can_be_read():
    @rl.jit
    def f(x):
        table = rl.tensor([1.0, 2.0])
        return x * table.sum().item()

    assert f(rl.ones(1)).item() == 3


def test_an_exception_leaves_everything_as_it_was():
    w = rl.ones(2, requires_grad=True)
    state = rl.zeros(2)
    rl.manual_seed(5)
    before = rl.default_generator.get_state()

    @rl.jit
    def broken(x):
        state.add_(1)
        x.mul_(3)
        (w * x).sum().backward()
        rl.rand(3)
        raise ValueError("on purpose")

    x = rl.ones(2)
    with pytest.raises(ValueError, match="on purpose"):
        broken(x)
    assert state.tolist() == [0, 0] and x.tolist() == [1, 1] and w.grad is None
    assert rl.default_generator.get_state() == before
    assert (x + 1).tolist() == [2, 2] and broken.traces == 0


def test_tensors_that_leave_the_trace():
    kept = []

    @rl.jit
    def f(x):
        kept.append(x * 2)
        return x + 1

    assert f(rl.ones(2)).tolist() == [2, 2]
    assert kept[0].tolist() == [2, 2], "what is kept gets its value"
    f(rl.full((2,), 3.0))
    assert [t.tolist() for t in kept] == [[2, 2], [6, 6]], "a changed list is traced again"

    escaped = []

    @rl.jit
    def fails(x):
        escaped.append(x * 2)
        raise KeyError

    with pytest.raises(KeyError):
        fails(rl.ones(2))
    with pytest.raises(LeakError):
        escaped[0] + 1


def test_state_made_on_the_first_call():
    _, _, step = build(momentum=0.9, dampening=0.5)
    _, _, plain = build(momentum=0.9, dampening=0.5)
    jitted = rl.jit(step)
    for x, y in batches(5):
        close(jitted(x, y), plain(x, y), 1e-5)
    assert jitted.traces <= 3


def test_nested_jit_and_eager():
    inner = rl.jit(lambda x: x * 2)
    outer = rl.jit(lambda x: inner(x) + inner(x + 1))
    assert outer(rl.ones(1)).item() == 6
    with rl.eager():
        assert outer(rl.ones(1)).item() == 6
    assert outer.traces == 1


def test_check_finds_what_guards_cannot_see():
    hidden = iter([1.0, 1.0, 5.0, 5.0, 9.0, 9.0])
    reader = type("Reader", (), {"read": lambda self: next(hidden)})()

    @rl.jit(check=True)
    def f(x):
        return x * reader.read()

    assert f(rl.ones(1)).item() == 1
    with pytest.raises(CheckError, match="disagree"):
        f(rl.ones(1))


def test_check_passes_a_training_step():
    _, _, step = build(dropout=0.3)
    checked = rl.jit(step, check=True)
    for x, y in batches(3):
        checked(x, y)


def test_two_threads():
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    f = rl.jit(lambda x: model(x))
    inputs = [rl.randn(size, 4) for size in (2, 3, 2, 3)]
    expected = [model(x).detach().numpy().copy() for x in inputs]
    failures = []

    def work(place):
        try:
            for _ in range(20):
                np.testing.assert_allclose(
                    f(inputs[place]).detach().numpy(), expected[place], rtol=1e-5, atol=1e-6
                )
                np.testing.assert_allclose(
                    model(inputs[place]).detach().numpy(), expected[place], rtol=1e-5, atol=1e-6
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and f.traces == 2


def test_traces_are_bounded():
    f = rl.jit(lambda x: x + 1)
    for size in range(40):
        f(rl.ones(size % 36))
    assert len(f._traces) <= 32


def test_backward_cannot_leave_the_jitted_function():
    w = rl.ones(2, requires_grad=True)

    @rl.jit
    def f(y):
        y.sum().backward()

    with pytest.raises(CaptureError, match="computed outside"):
        f(w * 2)


def test_shared_memory():
    array = np.zeros(3)
    x = rl.from_numpy(array)

    @rl.jit
    def f(x):
        x.add_(1)
        return x * 2

    assert f(x).tolist() == [2, 2, 2] and array.tolist() == [1, 1, 1]
    array[:] = 5
    assert f(x).tolist() == [12, 12, 12] and array.tolist() == [6, 6, 6]


def test_parameters_of_modules_that_are_not_called():
    layer = nn.Linear(2, 2)

    @rl.jit
    def f(x):
        return x @ layer.weight

    x = rl.eye(2)
    close(f(x), layer.weight)
    layer.weight = nn.Parameter(rl.full((2, 2), 3.0))
    close(f(x), layer.weight)
    assert f.traces == 2


def test_nested_objects_and_arrays():
    class Options:
        pass

    options = Options()
    options.inner = Options()
    options.inner.factor = 2.0
    table = np.array([1.0, 2.0])

    @rl.jit
    def f(x):
        return x * options.inner.factor + rl.tensor(table)

    assert f(rl.zeros(2, dtype=rl.float64)).tolist() == [1, 2]
    options.inner.factor = 3.0
    table[0] = 5.0
    assert f(rl.ones(2, dtype=rl.float64)).tolist() == [8, 5]


def test_settings_inside_the_function():
    @rl.jit
    def f(x):
        with rl.config.override(threads=1):
            return x + 1

    for _ in range(3):
        f(rl.ones(2))
    assert f.traces == 1


def test_an_argument_that_is_also_read_directly():
    w = rl.tensor([1.0, 2.0])

    @rl.jit
    def f(x):
        return x * w

    other = rl.tensor([5.0, 5.0])
    assert f(w).tolist() == [1, 4]
    assert f(other).tolist() == [5, 10]
    assert f(w).tolist() == [1, 4]


def test_a_float_argument_that_changes_is_traced_twice_at_most():
    @rl.jit
    def f(x, rate, *, options):
        y = x * rate + (1 - options["decay"]) ** 2
        return y * 2 if rate > 0.5 else y

    x = rl.ones(2, dtype=rl.float64)
    for number in range(6):
        rate, decay = 0.1 + 0.05 * number, 0.3 * number
        want = rate + (1 - decay) ** 2
        assert f(x, rate, options={"decay": decay}).tolist() == pytest.approx([want, want])
    assert f.traces == 2
    assert f(x, 0.7, options={"decay": 1.0}).tolist() == pytest.approx([1.4, 1.4])
    assert f.traces == 3, "the comparison has another answer"
    assert f(x, 0.9, options={"decay": 1.0}).tolist() == pytest.approx([1.8, 1.8])
    assert f.traces == 3

    @rl.jit
    def g(x, rate):
        return x * float(rate)  # needs the plain number, so every value is a trace of its own

    assert [g(x, r)[0].item() for r in (1.5, 2.5, 3.5, 2.5)] == [1.5, 2.5, 3.5, 2.5]


def test_class_attributes():
    class Scaled:
        factor = 2.0

        def run(self, x):
            return x * self.factor

    f = rl.jit(Scaled().run)
    assert f(rl.ones(1)).item() == 2
    Scaled.factor = 3.0
    assert f(rl.ones(1)).item() == 3 and f.traces == 2


class Plan:
    def __init__(self):
        self.scale, self.steps = 1.0, [Step()]


class Step:
    shift = 0.0


class Configured(nn.Module):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.numbers, self.table, self.plan = [1.0, 2.0], {"a": {"b": 1.0}}, Plan()
        self.array = np.ones(2, np.float32)

    def forward(self, x):
        x = x * self.numbers[0] * self.table["a"]["b"] * rl.tensor(self.array) * self.factor
        for step in self.plan.steps:
            x = x + step.shift
        return scaled(x, self.plan)


def scaled(x, plan):
    return x * plan.scale


def test_what_lies_inside_the_attributes_of_a_module():
    model = Configured()
    f = rl.jit(lambda x: model(x))
    x = rl.ones(2)

    def change(where, key, value):
        where[key] = value

    changes = [
        lambda: change(model.numbers, 0, 2.0),
        lambda: change(model.table["a"], "b", 3.0),
        lambda: change(model.array, 1, 5.0),
        lambda: setattr(model.plan, "scale", 7.0),
        lambda: setattr(model.plan.steps[0], "shift", 11.0),
        lambda: model.plan.steps.append(Step()),
        lambda: setattr(Configured, "factor", 13.0),
    ]
    close(f(x), model(x))
    for number, apply in enumerate(changes, 2):
        apply()
        close(f(x), model(x))
        close(f(x), model(x))
        assert f.traces == number
    Configured.factor = 1.0


def test_an_array_changed_in_place():
    array = np.ones(2, np.float32)
    f = rl.jit(lambda x: x + rl.tensor(array))
    assert f(rl.zeros(2)).tolist() == [1, 1]
    array[0] = 5
    assert f(rl.zeros(2)).tolist() == [5, 1]


@dataclasses.dataclass(slots=True)
class Slotted:
    factor: float = 1.0
    plan: Plan = dataclasses.field(default_factory=Plan)


def defaulted(x, factor=1.0, *, table={"a": 1.0}):  # noqa: B006
    return x * factor * table["a"]


def test_slots_strings_defaults_partial_arguments_and_patched_methods():
    slotted, table, plan = Slotted(), {"a": 1.0}, Plan()
    made = types.ModuleType("made_by_hand")
    made.value = 1.0

    def run(given, x):
        x = x * slotted.factor * slotted.plan.scale * getattr(plan, "scale") * made.value  # noqa: B009
        return model(defaulted(x) * given["a"])

    class Times(nn.Module):
        def forward(self, x):
            return self.part(x)

        def part(self, x):
            return x

    model = Times()
    f = rl.jit(functools.partial(run, table))
    changes = [
        lambda: setattr(slotted, "factor", 2.0),
        lambda: setattr(slotted.plan, "scale", 3.0),
        lambda: setattr(plan, "scale", 5.0),
        lambda: setattr(made, "value", 7.0),
        lambda: table.update(a=11.0),
        lambda: setattr(defaulted, "__defaults__", (13.0,)),
        lambda: defaulted.__kwdefaults__["table"].update(a=17.0),
        lambda: setattr(Times, "part", lambda self, x: x * 19),
        lambda: setattr(Times, "forward", lambda self, x: x * 23),
    ]
    assert f(rl.ones(1)).item() == 1
    for number, apply in enumerate(changes, 2):
        apply()
        close(f(rl.ones(1)), run(table, rl.ones(1)))
        close(f(rl.ones(1)), run(table, rl.ones(1)))
        assert f.traces == number
    defaulted.__defaults__ = (1.0,)
    defaulted.__kwdefaults__["table"]["a"] = 1.0


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


def test_explain_shows_signatures_graph_and_program(capsys):
    f = rl.jit(lambda x: (x * 2).sum())
    f.explain()
    assert "not called yet" in capsys.readouterr().out
    with rl.config.override(tier="interpreter"):
        f(rl.ones(3))
        f.explain()
    text = capsys.readouterr().out
    assert "1 trace\n" in text and "reduce" in text and "float32[3]" in text


def test_explain_before_a_call_and_down_to_the_code(capsys):
    layer = nn.Linear(3, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    @rl.jit
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    before = layer.weight.detach().clone()
    step.explain(rl.ones(4, 3), detail="code")
    text = capsys.readouterr().out
    assert "contract" in text and "for " in text and "define " in text
    assert rl.equal(layer.weight, before) and layer.weight.grad is None
    step(rl.ones(4, 3))
    step.explain(detail="kernels")
    text = capsys.readouterr().out
    assert "1 trace\n" in text and "FLOP" in text and "schedule:" not in text
    with pytest.raises(CaptureError, match="kernels, loops, code"):
        step.explain(detail="assembly")


def test_a_view_of_a_whole_argument_follows_the_argument() -> None:
    function = rl.jit(lambda a: (a[0:2], a[:], a.expand(2)))
    for start in (1.0, 5.0, 9.0):
        given = rl.tensor([start, start + 1])
        for result in function(given):
            assert result.tolist() == given.tolist()
            result.add_(1)
            assert given.tolist() == result.tolist()


def test_notebooks_show_tables() -> None:
    f = rl.jit(lambda x: (x * 2).sum())
    assert "not called yet" in f._repr_html_()
    f(rl.ones(2))
    f(rl.ones(3))
    page = f.explanation("kernels")._repr_html_()
    assert page.count("<tr>") >= 4 and "argument 1 was float32[2] and is float32[3]" in page
    assert "<th>why it was traced</th>" in page and "<details><summary>graph" in page
    assert "&lt;lambda&gt;" in page and "<lambda>" not in page
    assert f.explanation("kernels").startswith(f.function.__qualname__)


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
