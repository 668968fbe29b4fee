"""jit with dynamic axes: one program for many lengths, equal to the plain call for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.sizes import evaluate, maximum, minimum, never_shrinks, symbol
from ridgeline.runtime.cpu import symbolic
from ridgeline.tracing.report import RetraceWarning

F = nn.functional
LENGTHS = (1, 2, 3, 5, 8, 16, 31, 64, 100)
RNG = np.random.default_rng(0)
W1 = rl.tensor(RNG.standard_normal((8, 16)).astype(np.float32))
W2 = rl.tensor(RNG.standard_normal((16, 8)).astype(np.float32))


def draw(*shape):
    return rl.tensor(RNG.standard_normal(shape).astype(np.float32))


def causal(x):
    places = rl.arange(x.shape[0])
    scores = rl.where(places[:, None] >= places[None], x @ x.T, -1e9)
    return rl.softmax(scores, -1) @ x


FUNCTIONS = {
    "pointwise": lambda x: rl.exp(-x * x) + 1,
    "softmax": lambda x: rl.softmax(x, 0),
    "mlp": lambda x: rl.relu(x @ W1) @ W2,
    "attention": causal,
    "fused attention": lambda x: F.scaled_dot_product_attention(
        *[x.reshape(1, x.shape[0], 2, 4).transpose(1, 2)] * 3, is_causal=True
    ),
    "mean": lambda x: x.mean(),
    "variance": lambda x: x.var(0, unbiased=False),
    "layer norm": lambda x: F.layer_norm(x, (8,)),
    "cumsum": lambda x: rl.cumsum(x, 0),
    "embedding": lambda x: F.embedding((x[:, 0] * 3).abs().long() % 8, W1),
    "sort": lambda x: rl.sort(x, 0)[0],
    "argmax": lambda x: x.argmax(0),
    "slices": lambda x: x[1:] * 2 - x[:-1],
    "half": lambda x: x[: x.shape[0] // 2],
    "last": lambda x: x[-1] + x[0],
    "flip": lambda x: x.flip(0),
    "concat": lambda x: rl.cat([x, x * 2, x[:1]], 0),
    "flat": lambda x: (x.reshape(-1) * 2).reshape(x.shape[0] * 2, 4),
    "outer": lambda x: (x[:, None] * x[None]).sum(2),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "size as number": lambda x: x.sum(0) / x.shape[0] + x.shape[0],
    "identity matrix": lambda x: rl.eye(x.shape[0]) + x @ x.T,
    "library call": lambda x: rl.linalg.det(x.T @ x + rl.eye(8)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_programs_serve_every_length(name):
    function = FUNCTIONS[name]
    compiled = rl.jit(function, dynamic=True)
    for n in LENGTHS:
        x = draw(n, 8)
        got, want = compiled(x), function(x)
        assert got.shape == want.shape
        assert all(type(size) is int for size in got.shape)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=2e-4)
    # lengths 1 and 2 by themselves, then one program
    assert compiled.compilations <= 3, compiled.history


SMOOTH = {
    "softmax": lambda x: rl.softmax(x, 0) ** 2,
    "attention": lambda x: causal(x) ** 2,
    "mlp": lambda x: rl.gelu(x @ W1) @ W2,
    "cumsum": lambda x: rl.cumsum(x, 0) ** 2,
    "slices": lambda x: x[1:] * x[:-1],
    "concat": lambda x: rl.cat([x, x * 2]) ** 2,
    "variance": lambda x: x.var(0),
    "gather": lambda x: x[rl.arange(x.shape[0]) // 2] ** 2,
    "max": lambda x: x.max(0)[0],
    "prod": lambda x: rl.prod(x, 0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_inside(name):
    gradient = rl.grad(lambda x: SMOOTH[name](x).sum())
    compiled = rl.jit(gradient, dynamic={0: 0})
    for n in (2, 3, 7, 16, 40):
        x = draw(n, 8)
        got, want = compiled(x), gradient(x)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-3, atol=5e-4)
    assert compiled.compilations == 1, compiled.history


def test_gradients_flow_on_outside():
    def function(x):
        return rl.softmax(x @ W1, 1) * 2

    compiled = rl.jit(function, dynamic={0: 0})
    for n in (3, 9, 5):
        x, y = (t.requires_grad_(True) for t in [draw(n, 8)] * 2 for t in [t.clone().detach()])
        (compiled(x) ** 2).sum().backward()
        (function(y) ** 2).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.traces == 1


def trained(jitted: bool):
    """Losses and weights of a small model with dropout, trained on batches of varying size."""
    rl.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 4)
    )
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    call = rl.jit(step, dynamic=True) if jitted else step
    data = np.random.default_rng(5)
    losses = []
    for n in (7, 12, 5, 16, 8, 33, 4, 100):
        x = rl.tensor(data.standard_normal((n, 8)).astype(np.float32))
        losses.append(call(x, rl.tensor(data.integers(0, 4, n))).item())
    return losses, [p.detach().numpy() for p in model.parameters()], call


def test_a_training_step_takes_any_batch():
    losses, weights, call = trained(True)
    plain, expected, _ = trained(False)
    np.testing.assert_allclose(losses, plain, rtol=2e-4)
    for got, want in zip(weights, expected):
        np.testing.assert_allclose(got, want, atol=1e-4)
    # the optimizer's state is new in the first call; then 12 promotes the axis
    assert call.compilations <= 4, call.history


def test_a_branch_on_a_size_is_a_guard():
    compiled = rl.jit(lambda x: x * 2 if x.shape[0] > 10 else x * 3, dynamic={0: 0})
    for n in (4, 9, 10, 11, 30, 7, 12):
        x = draw(n)
        np.testing.assert_allclose(compiled(x).numpy(), x.numpy() * (2 if n > 10 else 3))
    assert compiled.traces == 2
    assert "it is not true that N0 <= 10" in compiled.history[1]


def test_a_size_used_as_a_number_is_traced_for_each_length():
    def function(x):
        total = x[0]
        for place in range(1, x.shape[0]):
            total = total * 0.5 + x[place]
        return total

    compiled = rl.jit(function, dynamic=True)
    for n in (2, 3, 4, 5):
        x = draw(n, 3)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-5)
    assert compiled.traces == 4
    assert "used as a number" in compiled.history[1]


def test_a_loop_is_traced_once_and_compiled_for_each_length():
    compiled = rl.jit(lambda x: rl.scan(lambda c, v: (c + v, c), x[0], x)[0], dynamic={0: 0})
    for n in (3, 5, 9):
        x = draw(n, 4)
        np.testing.assert_allclose(compiled(x).numpy(), x.numpy()[0] + x.numpy().sum(0), rtol=1e-4)
    assert compiled.traces == 1 and compiled.compilations == 3
    assert "compiled for each size" in compiled.history[0]


def test_equal_lengths_are_one_unknown_and_stay_equal():
    compiled = rl.jit(lambda x, y: x + y, dynamic=[("x", 0), ("y", 0)])
    for n in (4, 6):
        compiled(draw(n), draw(n))
    assert compiled.traces == 1
    with pytest.raises(ShapeError):
        compiled(draw(4), draw(6))
    np.testing.assert_allclose(compiled(rl.ones(5), rl.ones(1)).numpy(), np.full(5, 2.0))
    compiled(draw(9), draw(9))  # a wrong call has changed nothing
    assert compiled.traces == 2


def test_a_float_and_a_length_may_both_change():
    compiled = rl.jit(lambda parts, scale: sum(p.sum() for p in parts) * scale, dynamic=True)
    for n, scale in ((3, 1.0), (4, 2.0), (5, 3.0), (6, 0.5)):
        parts = [rl.ones(n), rl.ones(n, 2)]
        assert compiled(parts, scale).item() == 3 * n * scale
    assert compiled.traces == 2, compiled.history


def test_arguments_of_a_module_go_by_their_names():
    layer = nn.Linear(8, 4)
    compiled = rl.jit(layer, dynamic={"input": 0})
    for n in (3, 5):
        assert compiled(draw(n, 8)).shape == (n, 4)
    assert compiled.traces == 1


def test_a_length_that_is_also_a_fixed_size():
    compiled = rl.jit(lambda x: (x @ W1) @ W2 + x, dynamic={0: 0})
    for n in (8, 5, 16, 9, 8):
        x = draw(n, 8)
        want = x.numpy() @ W1.numpy() @ W2.numpy() + x.numpy()
        np.testing.assert_allclose(compiled(x).numpy(), want, rtol=1e-4, atol=1e-4)
    assert compiled.traces <= 3, compiled.history


def test_sizes_and_views_in_results():
    def function(x):
        return {"rows": x.shape[0] * 2, "view": x[1:], "given": x}

    compiled = rl.jit(function, dynamic={0: 0})
    for n in (3, 6):
        x = draw(n, 2)
        got = compiled(x)
        assert got["rows"] == 2 * n and type(got["rows"]) is int
        assert got["given"] is x
        x[1] = 7.0
        np.testing.assert_array_equal(got["view"].numpy(), x.numpy()[1:])
    assert compiled.traces == 1


def test_writes_into_an_argument():
    def double(x):
        x[1:] *= 2

    compiled = rl.jit(double, dynamic={0: 0})
    for n in (4, 7):
        x = draw(n, 2)
        want = x.numpy().copy()
        want[1:] *= 2
        compiled(x)
        np.testing.assert_array_equal(x.numpy(), want)
    assert compiled.traces == 1


def test_an_index_out_of_range_names_the_call():
    compiled = rl.jit(lambda i, x: x[i], dynamic={1: 0})
    index = rl.tensor([0, 5])
    assert compiled(index, draw(6)).shape == (2,)
    with pytest.raises(IndexError):
        compiled(index, draw(5))
    assert compiled.traces == 1


def test_every_call_is_checked_if_asked():
    compiled = rl.jit(FUNCTIONS["layer norm"], check=True, dynamic={0: 0})
    for n in (3, 4, 50):
        compiled(draw(n, 8))


def test_explain_counts_the_sizes_of_the_call():
    compiled = rl.jit(lambda x: x + 1, dynamic={0: 0})
    compiled(draw(10, 4))
    compiled(draw(1000, 4))
    text = compiled.explanation("kernels")
    assert "float32[N0, 4]" in text and "4 kFLOP" in text


@pytest.mark.parametrize("dynamic", [{"z": 0}, {"x": 3}, {"x": "rows"}, 5])
def test_wrong_axes_are_named(dynamic):
    with pytest.raises(ArgumentError, match="dynamic"):
        rl.jit(lambda x: x, dynamic=dynamic)(draw(3))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60), m=st.integers(1, 60), a=st.integers(-3, 3), b=st.integers(1, 7),
    data=st.data(),
)  # fmt: skip
def test_decisions_are_those_of_the_values(n, m, a, b, data):
    values = {"n": n, "m": m}
    x, y = symbol("n", 1, 60), symbol("m", 1, 60)
    pool = [x, y, x * a + y, x * y - 3, (x + a) // b, x % b, minimum(x, y), maximum(x * 2, y), a, b]
    left, right = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
    here, there = evaluate(left, values), evaluate(right, values)
    facts = SizeFacts(values)
    with facts.deciding():
        assert (left == right) is (here == there)
        assert (left < right) is (here < there)
        assert (left >= right) is (here >= there)
        assert bool(left) is bool(here)
    assert facts.broken(values) is None
    other = {"n": data.draw(st.integers(1, 60)), "m": data.draw(st.integers(1, 60))}
    if facts.broken(other) is None:
        here, there = evaluate(left, other), evaluate(right, other)
        with facts.deciding():
            assert (left < right) is (here < there) and (left == right) is (here == there)


def test_an_exception_of_the_users_own_ends_the_only_trace() -> None:
    class Odd(Exception):
        pass

    calls = []

    @rl.jit(dynamic={"x": 0})
    def raising(x: rl.Tensor) -> rl.Tensor:
        calls.append(x.shape)
        raise Odd

    with pytest.raises(Odd):
        raising(rl.ones(3))
    assert len(calls) == 1


def test_new_lengths_share_a_layout_and_results_are_as_long_as_they_are():
    """Lengths below one power of two lay out memory once; no result is longer than it is."""
    program = rl.jit(lambda x: (x.exp().cumsum(0), x[2:] * x[:-2]), dynamic={"x": 0})
    laid_out = []
    lay_out = symbolic.lay_out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbolic, "lay_out", lambda *a: laid_out.append(a[2]) or lay_out(*a))
        for length in (40, 33, 64, 63, 50, 34):
            value = np.linspace(-1, 1, length)
            sums, products = program(rl.tensor(value))
            np.testing.assert_allclose(sums.numpy(), np.exp(value).cumsum(), rtol=1e-12)
            np.testing.assert_allclose(products.numpy(), value[2:] * value[:-2], rtol=1e-12)
    assert program.compilations == 1 and len(laid_out) <= 2


def test_sizes_that_shrink_where_a_number_grows_are_laid_out_by_themselves():
    """What is left of a slice is shorter the later it begins: rounding up would take too little."""
    program = rl.jit(lambda x, start: (x[start:].exp() * 2).cumsum(0).sum(), dynamic=True)
    value = np.linspace(-1, 1, 100)
    for start in (0, 3, 70, 33, 64, 65, 2, 5):
        expected = (2 * np.exp(value[start:])).cumsum().sum()
        assert program(rl.tensor(value), start).item() == pytest.approx(expected, rel=1e-12)
    assert program.traces <= 3


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2), st.integers(0, 5), st.integers(0, 8))
@settings(deadline=None, max_examples=60)
def test_what_never_shrinks_is_no_smaller_at_larger_values(base, more, form):
    n, m = symbol("N", 0, 50), symbol("M", 0, 50)
    sizes = [n * 3 + m, n - m + 50, (n + 7) // 4, n % 5, minimum(n, m), maximum(n * m, 4),
             (n * 2 + m) // 3 + 1, 100 // (n + 1), n * n]  # fmt: skip
    size = sizes[form]
    low = dict(zip("NM", base))
    for name in "NM":
        high = low | {name: low[name] + more}
        if never_shrinks(size):
            assert evaluate(size, high) >= evaluate(size, low)
    assert [never_shrinks(s) for s in sizes] == [
        True, False, True, False, True, True, True, False, True
    ]  # fmt: skip


def _sizes(function: rl.JitFunction, lengths: range) -> None:
    for length in lengths:
        x = np.arange(3 * length, dtype=np.float32).reshape(length, 3)
        found = function(rl.tensor(x))
        np.testing.assert_allclose(found.numpy(), x.sum(0) * 2 / length, rtol=1e-6)


def test_lengths_of_which_several_came_are_left_open(recwarn: pytest.WarningsRecorder) -> None:
    function = rl.jit(lambda x: (x * 2).sum(0) / x.shape[0])
    _sizes(function, range(2, 5))
    assert function.traces == 3  # one program for each is faster, as long as there are few
    _sizes(function, range(5, 60))
    assert function.traces == 4 and function.compilations <= 4
    _sizes(function, range(2, 5))
    assert function.traces == 4 and not recwarn.list
    exact = rl.jit(lambda x: (x * 2).sum(0) / x.shape[0], dynamic=False)
    with pytest.warns(RetraceWarning, match="dynamic=True"):
        _sizes(exact, range(2, 9))
    assert exact.traces == 7


def test_lengths_that_cannot_be_left_open_are_traced_one_by_one() -> None:
    @rl.jit
    def by_name(x: rl.Tensor) -> rl.Tensor:
        return (x * {n: float(n) for n in range(99)}[x.shape[0]]).sum(0) * 2 / x.shape[0] ** 2

    with pytest.warns(RetraceWarning, match="Pad it to a few sizes"):
        _sizes(by_name, range(2, 12))


def test_floats_and_lengths_that_come_in_many_values_are_left_open() -> None:
    function = rl.jit(lambda x, scale: (x * scale).sum())
    for length in range(2, 30):
        found = function(rl.ones(length), 0.5 + length)
        assert found.item() == length * (0.5 + length)
    assert function.traces <= 5
