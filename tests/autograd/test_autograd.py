"""backward, grad, hooks, Function and the functional transforms."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import ridgeline as rl
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node
from ridgeline.record.values import read
from tests.functions.reference import agree, numbers, same


def test_gradients_accumulate_until_they_are_cleared():
    for lib in (rl, torch):
        w = lib.tensor([1.0, 2.0], requires_grad=True)
        (w * w).sum().backward()
        first = w.grad
        (w * 3).sum().backward()
        assert w.grad is first, "accumulated in place"
        assert w.grad.tolist() == [5.0, 7.0]
        w.grad = None
        (w * 3).sum().backward()
        assert w.grad.tolist() == [3.0, 3.0] and first.tolist() == [5.0, 7.0]


def test_issue_example():
    x = rl.tensor([2.0], requires_grad=True)
    y = rl.tensor([3.0], requires_grad=True)
    z = rl.log(3 * x**2 + 5 * x * y)
    z.backward()
    assert z.item() == pytest.approx(3.7377, abs=1e-4)
    assert x.grad.item() == pytest.approx(0.6429, abs=1e-4)
    assert y.grad.item() == pytest.approx(0.2381, abs=1e-4)


def test_equal_expressions_have_separate_gradients():
    for lib in (rl, torch):
        w = lib.tensor(2.0, requires_grad=True)
        first, second = w * 3, w * 3
        loss = first + 5 * second
        gradients = lib.autograd.grad(loss, [first, second, w])
        assert [g.item() for g in gradients] == [1.0, 5.0, 18.0]


def test_retain_grad_after_use():
    for lib in (rl, torch):
        w = lib.tensor(2.0, requires_grad=True)
        y = w * 3
        z = y * y
        y.retain_grad()
        z.backward()
        assert y.grad.item() == 12.0 and w.grad.item() == 36.0


def test_clone_detach_and_no_grad():
    for lib in (rl, torch):
        w = lib.tensor(2.0, requires_grad=True)
        copy = w.clone()
        loss = w * copy
        assert [g.item() for g in lib.autograd.grad(loss, [w, copy])] == [4.0, 2.0]
        with lib.no_grad():
            frozen = w * 3
        loss = w * frozen + w.detach() * w
        loss.backward()
        assert w.grad.item() == 8.0
        assert not frozen.requires_grad and loss.requires_grad
        other = w.detach().requires_grad_()
        (other * w).backward()
        assert other.grad.item() == 2.0 and w.grad.item() == 10.0


@rl.no_grad()
def _decorated(x):
    return x * 2


def test_gradient_modes():
    w = rl.ones(1, requires_grad=True)
    assert not _decorated(w).requires_grad
    with rl.no_grad():
        assert not rl.is_grad_enabled()
        with rl.enable_grad():
            assert (w * 2).requires_grad
    with rl.set_grad_enabled(False):
        assert not (w * 2).requires_grad
    assert rl.is_grad_enabled()
    with rl.inference_mode():
        assert not (w * 2).requires_grad


def test_leaf_written_between_uses():
    for lib in (rl, torch):
        w = lib.tensor(2.0, requires_grad=True)
        first = w * 3
        with lib.no_grad():
            w.add_(1)
        (first + w * 5).backward()
        assert w.grad.item() == 8.0


def test_hooks_stay_when_the_tensor_they_were_put_on_goes():
    def hooked(lib, x):
        y = x * 1
        y.register_hook(lambda g: g * y.shape[0])  # refers to the tensor it is on
        return y

    for lib in (rl, torch):
        x = lib.ones(3, requires_grad=True)
        losses = []
        for count in (1, 2):  # the same expression again: hooks of the last pass are gone
            losses.append((hooked(lib, x) * 2).sum())
            losses[-1].backward()
            assert x.grad.tolist() == [6.0 * count] * 3


def test_graphs_with_hooks_that_refer_to_them_are_let_go():
    def run() -> weakref.ref[Node]:
        y = rl.ones(3, requires_grad=True) * 2
        y.register_hook(lambda g: g * y.shape[0])
        y.sum().backward()
        return weakref.ref(read(y))

    node = run()
    gc.collect()
    assert node() is None


def test_hooks():
    seen = []
    for lib in (rl, torch):
        w = lib.tensor([1.0, 2.0], requires_grad=True)
        y = w * 2
        handle = w.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(g.tolist()))
        (y * y).sum().backward()
        assert w.grad.tolist() == [80.0, 160.0]
        handle.remove()
        w.grad = None
        (w * 1).sum().backward()
        assert w.grad.tolist() == [1.0, 1.0]
    assert seen[0] == seen[1] == [4.0, 8.0]


def test_higher_orders():
    for lib in (rl, torch):
        x = lib.tensor(1.5, dtype=lib.float64, requires_grad=True)
        value = lib.sin(x) * x**3
        found = []
        for _ in range(4):
            (value,) = lib.autograd.grad(value, x, create_graph=True)
            found.append(value.item())
        if lib is rl:
            ours = found
    assert ours == pytest.approx(found)


def test_create_graph_through_backward():
    for lib in (rl, torch):
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        (x**3).sum().backward(create_graph=True)
        gradient = x.grad
        x.grad = None
        gradient.sum().backward()
        assert x.grad.tolist() == [6.0, 12.0]


def test_retain_graph_and_second_backward():
    x = rl.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(GradientError, match="ran through this tensor before"):
        y.backward()
    y.item()
    with pytest.raises(GradientError, match="let go"):
        (y * 2).backward()


def test_errors():
    x = rl.ones(3, requires_grad=True)
    with pytest.raises(GradientError, match="3 elements needs a gradient"):
        (x * 2).backward()
    with pytest.raises(GradientError, match="does not depend"):
        rl.ones(1).backward()
    with pytest.raises(GradientError, match="int64"):
        rl.ones(1, dtype=rl.int64).requires_grad_()
    with pytest.raises(GradientError, match="shape"):
        (x * 2).backward(rl.ones(2))
    with pytest.raises(GradientError, match="does not depend on one of the inputs"):
        rl.autograd.grad(x.sum(), rl.ones(1, requires_grad=True))
    assert rl.autograd.grad(x.sum(), rl.ones(1, requires_grad=True), allow_unused=True) == (None,)
    with pytest.raises(GradientError, match="leaf"):
        (x * 2).requires_grad_(False)


def test_gradient_argument_and_inputs():
    for lib in (rl, torch):
        x = lib.ones(2, requires_grad=True)
        w = lib.ones(2, requires_grad=True)
        (x * w * 3).backward(lib.tensor([1.0, 2.0]), inputs=[w])
        assert w.grad.tolist() == [3.0, 6.0] and x.grad is None


class Multiply(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return y * g, x * g


class Rounded(rl.autograd.Function):
    """Round, with a gradient as if it did nothing; and a second output."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return (x * scale).round() / scale, x.sign()

    @staticmethod
    def backward(ctx, g, g_sign):
        return g + 0 * g_sign, None


def test_function():
    x = rl.tensor([2.0, 3.0], requires_grad=True)
    y = rl.tensor([4.0, 5.0], requires_grad=True)
    z = Multiply.apply(x, y)
    assert z.requires_grad
    (z * z).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), (2 * x * y * y).detach().numpy())
    (first,) = rl.autograd.grad(Multiply.apply(x, y).sum() * x.sum(), x, create_graph=True)
    (second,) = rl.autograd.grad(first.sum(), y)
    assert second.tolist() == [9.0, 11.0]
    value, _ = Rounded.apply(x * 1.234, 10)
    value.sum().backward()
    assert not Multiply.apply(x.detach(), y.detach()).requires_grad


def test_function_differentiates_twice_and_under_jit():
    def loss(x, y):
        return (Multiply.apply(x, y) ** 2).sum()

    x = rl.tensor([2.0, 3.0], dtype=rl.float64)
    y = rl.tensor([4.0, 5.0], dtype=rl.float64)
    plain = rl.grad(lambda x: rl.grad(loss)(x, y).sum())(x)
    expected = rl.grad(lambda x: rl.grad(lambda a, b: ((a * b) ** 2).sum())(x, y).sum())(x)
    np.testing.assert_allclose(plain.numpy(), expected.numpy())
    jitted = rl.jit(rl.grad(loss))
    np.testing.assert_allclose(jitted(x, y).numpy(), rl.grad(loss)(x, y).numpy())


def test_function_errors():
    class Short(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    x = rl.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match="1 gradients for 2 inputs"):
        Short.apply(x, x).sum().backward()


def test_transforms():
    def loss(w, x):
        return ((w @ x) ** 2).sum()

    w, x = numbers((2, 3), 1), numbers((3, 4), 2)
    ours = rl.grad(loss)(rl.tensor(w), rl.tensor(x))
    theirs = torch.func.grad(loss)(torch.tensor(w), torch.tensor(x))
    same(ours, theirs)
    value, both = rl.value_and_grad(loss, argnums=(0, 1))(rl.tensor(w), rl.tensor(x))
    same(value, loss(torch.tensor(w), torch.tensor(x)))
    for got, want in zip(both, torch.func.grad(loss, (0, 1))(torch.tensor(w), torch.tensor(x))):
        same(got, want)
    assert not both[0].requires_grad
    tree = {"w": rl.tensor(w), "x": [rl.tensor(x)]}
    nested = rl.grad(lambda p: loss(p["w"], p["x"][0]))(tree)
    same(nested["x"][0], torch.func.grad(loss, 1)(torch.tensor(w), torch.tensor(x)))


def test_vjp_and_jvp_against_torch():
    def function(lib):
        return lambda x, y: (lib.sin(x) * y, lib.softmax(x, -1) @ y.mT)

    x, y, v, u = (numbers((2, 3), seed) for seed in range(4))
    arrays = (x, y, v, u)
    ours, pull = rl.vjp(function(rl), rl.tensor(x), rl.tensor(y))
    theirs, tpull = torch.func.vjp(function(torch), torch.tensor(x), torch.tensor(y))
    for got, want in zip(ours, theirs):
        same(got, want)
    weights = [numbers(t.shape, 9) for t in theirs]
    for got, want in zip(
        pull(tuple(map(rl.tensor, weights))), tpull(tuple(map(torch.tensor, weights)))
    ):
        same(got, want)
    tx, ty, tv, tu = map(torch.tensor, arrays)
    rx, ry, rv, ru = map(rl.tensor, arrays)
    for mine, other in zip(
        rl.jvp(function(rl), (rx, ry), (rv, ru)),
        torch.func.jvp(function(torch), (tx, ty), (tv, tu)),
    ):
        for got, want in zip(mine, other):
            same(got, want)


def test_transforms_nest_in_every_order():
    def f(x):
        return (x**3).sum() + (x.sin() * x).sum()

    x = rl.tensor(numbers((3,)))
    v = rl.tensor(numbers((3,), 1))
    reverse_reverse = rl.grad(lambda x: (rl.grad(f)(x) * v).sum())(x)
    _, forward_reverse = rl.jvp(rl.grad(f), (x,), (v,))
    reverse_forward = rl.grad(lambda x: rl.jvp(f, (x,), (v,))[1])(x)
    np.testing.assert_allclose(reverse_reverse.numpy(), forward_reverse.numpy())
    np.testing.assert_allclose(reverse_reverse.numpy(), reverse_forward.numpy())


def test_transforms_and_backward_together():
    w = rl.tensor([1.0, 2.0], requires_grad=True)
    (rl.grad(lambda x: (x**3).sum())(w)).sum().backward()
    assert w.grad.tolist() == [6.0, 12.0]


SMOOTH = [
    "sin", "cos", "tanh", "exp", "sigmoid", "expm1", "square", "erf", "sinh", "cosh",
]  # fmt: skip
SHAPE = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SMOOTH), SHAPE, st.integers(0, 100))
def test_forward_mode_is_the_transpose_of_reverse_mode(name, shape, seed):
    x, v, u = (rl.tensor(numbers(shape, seed + i)) for i in range(3))
    function = lambda x: getattr(x, name)() * x  # noqa: E731
    _, moved = rl.jvp(function, (x,), (v,))
    _, pull = rl.vjp(function, x)
    left, right = (moved * u).sum().item(), (pull(u)[0] * v).sum().item()
    assert left == pytest.approx(right, rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["add", "sub", "mul", "div", "maximum", "minimum"]),
    hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3),
)
def test_broadcasting_everywhere(name, shapes):
    left, right = shapes.input_shapes
    agree(lambda lib, x, y: getattr(lib, name)(x, y), [numbers(left, 1), numbers(right, 2)])


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["sum", "mean", "var", "logsumexp", "softmax", "amax", "prod"]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3),
    st.data(),
)
def test_reductions_everywhere(name, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    agree(
        lambda lib, x: getattr(lib, name)(x, axis), [numbers(shape)], gradients=name != "var",
        second=name not in ("amax", "var"), tolerance=1e-8,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["conv", "matmul", "layer_norm", "cross_entropy", "pool"])
def test_finite_differences(name):
    weight = rl.tensor(numbers((3, 2, 3, 3), 1))
    labels = rl.tensor([0, 1])
    programs = {
        "conv": lambda x: rl.conv2d(x.reshape(1, 2, 6, 6), weight, stride=2, padding=1),
        "matmul": lambda x: x.reshape(6, 12) @ x.reshape(12, 6),
        "layer_norm": lambda x: rl.layer_norm(x.reshape(6, 12), (12,)),
        "cross_entropy": lambda x: rl.cross_entropy(x.reshape(2, 36), labels, reduction="none"),
        "pool": lambda x: rl.avg_pool2d(x.reshape(1, 2, 6, 6), 3, 2, 1),
    }
    x = numbers((72,), 3)
    direction = numbers((72,), 4)

    def loss(values):
        result = programs[name](values).flatten()
        return (result**2 * rl.arange(1, result.numel() + 1)).sum()

    step = 1e-5
    up, down = loss(rl.tensor(x + step * direction)), loss(rl.tensor(x - step * direction))
    slope = (up.item() - down.item()) / (2 * step)
    gradient = rl.grad(loss)(rl.tensor(x)).numpy()
    assert float(gradient @ direction) == pytest.approx(slope, rel=1e-5)


def test_graphs_die_with_their_tensors():
    w = rl.ones(3, requires_grad=True)
    y = (w * 2).exp()
    node = weakref.ref(y._cell.node)
    loss = y.sum()
    loss.backward()
    loss.item()
    del y
    gc.collect()
    assert node() is None, "a spent loss holds no graph"
    assert loss.requires_grad and w.grad is not None


@pytest.mark.parametrize("same", ["x[:]", "x[...]", "x.view(3, 2)", "x.expand(3, 2)", "x.T.T"])
def test_a_view_of_a_whole_variable_is_not_the_variable(same):
    def gradients(module):
        x = module.ones(3, 2, requires_grad=True)
        view = eval(same, {"x": x})
        by_x, by_view = module.autograd.grad((x * 2).sum(), [x, view], allow_unused=True)
        (through,) = module.autograd.grad((view * 3).sum(), [x])
        return view.is_leaf, by_x.tolist(), by_view, through.tolist()

    assert gradients(rl) == gradients(torch)


def test_no_gradient_flows_through_a_deviation_that_is_zero() -> None:
    rows = [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]
    wanted = torch.tensor(rows, requires_grad=True)
    wanted.std(1).sum().backward()
    assert wanted.grad is not None
    found = rl.tensor(rows, requires_grad=True)
    found.std(1).sum().backward()
    assert found.grad is not None
    assert found.grad.tolist() == wanted.grad.tolist() == [[0, 0, 0], [-0.5, 0, 0.5]]
