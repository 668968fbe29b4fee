"""vmap: every batching rule against a loop, and the transform's own behaviour."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.functions.concrete import given as filled
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, has_value, leaf
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.vectorize import Batching
from ridgeline.ops.movement import spread
from tests.ops.batching_examples import Example, all_rows, examples

ROWS = all_rows()


def as_node(array: Any) -> Node:
    kind = dtypes.from_numpy(array.dtype)
    assert kind is not None
    return filled(array, TensorType(array.shape, kind))


def variants(array: Any, count: int) -> Any:
    """Some operands like one: numbers moved a little, indices turned round."""
    if array.dtype.kind == "f" or array.dtype.kind == "c":
        return np.stack([array * (1 + 0.01 * k) for k in range(count)])
    if array.ndim:
        return np.stack([np.roll(array, k, -1) for k in range(count)])
    return np.stack([(array + k).astype(array.dtype) for k in range(count)])


def value(node: Node) -> Any:
    return evaluate(Settled({"n": 5}).nodes([node], has_value))[0]


def check_rule(example: Example, has_axis: tuple[bool, ...], count: int) -> None:
    arrays = [variants(a, max(count, 1))[:count] if has else a
              for a, has in zip(example.arrays, has_axis)]  # fmt: skip
    places: list[Node] = []
    inputs: dict[Node, Node] = {}
    for array, has in zip(arrays, has_axis):
        whole = as_node(array)
        if has:
            whole, place = whole, leaf(TensorType(array.shape[1:], whole.dtype))
            inputs[place] = whole
            places.append(place)
        else:
            places.append(whole)
    ((made, batched),) = Batching(count, inputs).run([example.build(*places)])
    found = value(made if batched else spread(made, count))
    assert found.shape[0] == count
    for k in range(count):
        one = [as_node(a[k] if has else a) for a, has in zip(arrays, has_axis)]
        np.testing.assert_allclose(found[k], value(example.build(*one)), rtol=1e-10)


@pytest.mark.parametrize("name", ROWS)
def test_rule_of_every_row(name: str) -> None:
    assert ROWS[name].batch is not None, f"{name} needs a batching rule"
    chosen = examples(ROWS[name])
    assert chosen, f"{name} needs an example in batching_examples.py"
    for example in chosen:
        for has_axis in product((True, False), repeat=len(example.arrays)):
            if any(has_axis):
                check_rule(example, has_axis, 3)
        check_rule(example, (True,) * len(example.arrays), 1)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def loop(function: Any, *arrays: Any) -> Any:
    rows = [function(*(rl.tensor(a[k]) for a in arrays)).numpy() for k in range(len(arrays[0]))]
    return np.stack(rows)


FUNCTIONS = {
    "pointwise": lambda x: (x * 2 + 1).sin() / (x * x + 1),
    "softmax": lambda x: rl.softmax(x, -1),
    "matmul": lambda x: x @ x.mT,
    "einsum": lambda x: rl.einsum("ij,kj->ik", x, x.exp()),
    "sort": lambda x: x.sort(0).values,
    "cumsum": lambda x: x.cumsum(1),
    "max": lambda x: x.max(),
    "index": lambda x: x[:, [0, -1]] if x.shape[1] else x,
    "flip": lambda x: x.flip(0).T.reshape(-1),
    "where": lambda x: rl.where(x > 0, x, x.abs().sqrt()),
    "norm": lambda x: rl.nn.functional.layer_norm(x, x.shape[-1:]),
    "svd": lambda x: rl.linalg.svdvals(x),
    "pad": lambda x: rl.nn.functional.pad(x, (1, 2), value=3.0),
    "cat": lambda x: rl.cat([x, rl.ones(1, x.shape[1], dtype=rl.float64)], 0),
    "diag": lambda x: rl.tril(x) + rl.triu(x, 1),
    "gather": lambda x: x.gather(1, (x > 0).long() * 0) if x.shape[1] else x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_functions_agree_with_a_loop(name: str, batch: int, rows: int, columns: int) -> None:
    x = draw(batch, rows, columns)
    found = rl.vmap(FUNCTIONS[name])(rl.tensor(x)).numpy()
    np.testing.assert_allclose(found, loop(FUNCTIONS[name], x), rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=3))
def test_empty_batches_and_elements(batch: int, shape: list[int]) -> None:
    x = draw(batch, *shape)
    found = rl.vmap(lambda a: (a * 2).sum() + a)(rl.tensor(x))
    assert found.shape == x.shape
    axes = tuple(range(1, x.ndim))
    np.testing.assert_allclose(found.numpy(), x + (x * 2).sum(axes, keepdims=True))


def test_axes_of_arguments_and_results() -> None:
    x, y = draw(2, 3, 4), draw(4, 3)
    outer = rl.vmap(lambda a, b: (a @ b[:, None], b.sum()), in_dims=(2, 0), out_dims=(-1, 0))
    product_, total = outer(rl.tensor(x), rl.tensor(y))
    np.testing.assert_allclose(product_.numpy(), np.einsum("ijk,kj->ik", x, y)[:, None])
    np.testing.assert_allclose(total.numpy(), y.sum(1))
    fixed, moving = rl.vmap(lambda a, s: (s * 2, a + s), in_dims=(1, None), out_dims=(None, 1))(
        rl.tensor(y), rl.tensor(3.0)
    )
    assert fixed.item() == 6.0
    np.testing.assert_allclose(moving.numpy(), y + 3)


def test_nested_structures() -> None:
    tree = {"w": rl.tensor(draw(3, 2)), "more": [rl.tensor(draw(3)), rl.tensor(draw(2, 3))]}

    def function(t: Any, *, scale: Any) -> Any:
        return {"sum": t["w"].sum() * scale, "both": (t["more"][0], t["more"][1] + 1)}

    found = rl.vmap(function, in_dims=({"w": 0, "more": [0, 1]},))(
        tree, scale=rl.tensor([1.0, 2.0, 3.0])
    )
    scaled = tree["w"].numpy().sum(1) * np.array([1, 2, 3])  # type: ignore[attr-defined]
    np.testing.assert_allclose(found["sum"].numpy(), scaled)
    assert found["both"][1].shape == (3, 2)


def test_nested_calls_mean_an_outer_product() -> None:
    a, b = draw(3), draw(4)
    outer = rl.vmap(lambda x: rl.vmap(lambda y: x * y + x)(rl.tensor(b)))(rl.tensor(a))
    np.testing.assert_allclose(outer.numpy(), a[:, None] * b + a[:, None])
    three = rl.vmap(rl.vmap(rl.vmap(rl.sin)))(rl.tensor(draw(2, 2, 2)))
    np.testing.assert_allclose(three.numpy(), np.sin(draw(2, 2, 2)))


def network(lib: Any, parameters: Any, x: Any, y: Any) -> Any:
    hidden = lib.tanh(parameters[0] @ x + parameters[1])
    logits = parameters[2] @ hidden
    return (lib.logsumexp(logits, 0) - (logits * y).sum()) ** 2


def test_per_sample_gradients() -> None:
    parameters = [draw(5, 3), draw(5), draw(4, 5)]
    x, y = draw(6, 3, seed=1), np.eye(4)[[0, 1, 2, 3, 0, 1]]
    ours = rl.vmap(rl.grad(lambda p, a, b: network(rl, p, a, b)), in_dims=(None, 0, 0))(
        tuple(map(rl.tensor, parameters)), rl.tensor(x), rl.tensor(y)
    )
    theirs = torch.func.vmap(
        torch.func.grad(lambda p, a, b: network(torch, p, a, b)), in_dims=(None, 0, 0)
    )(tuple(map(torch.tensor, parameters)), torch.tensor(x), torch.tensor(y))
    for own, expected in zip(ours, theirs):
        np.testing.assert_allclose(own.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
    one = rl.grad(lambda p: network(rl, p, rl.tensor(x[2]), rl.tensor(y[2])))
    for own, expected in zip(ours, one(tuple(map(rl.tensor, parameters)))):
        np.testing.assert_allclose(own[2].numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


def test_per_sample_gradients_of_a_convolution() -> None:
    weight, x = draw(4, 2, 3, 3), draw(5, 2, 6, 6)

    def loss(lib: Any, w: Any, a: Any) -> Any:
        out = lib.nn.functional.conv2d(a[None], w, stride=2, padding=1)
        return lib.nn.functional.max_pool2d(out.relu(), 2).square().sum()

    ours = rl.vmap(rl.grad(lambda w, a: loss(rl, w, a)), in_dims=(None, 0))(
        rl.tensor(weight), rl.tensor(x)
    )
    theirs = torch.func.vmap(torch.func.grad(lambda w, a: loss(torch, w, a)), in_dims=(None, 0))(
        torch.tensor(weight), torch.tensor(x)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_under_and_around_jit() -> None:
    x = rl.tensor(draw(4, 3))
    plain = rl.vmap(lambda a: (a.exp() * a).sum())
    expected = plain(x).numpy()
    np.testing.assert_allclose(rl.jit(plain)(x).numpy(), expected)
    np.testing.assert_allclose(rl.vmap(rl.jit(lambda a: (a.exp() * a).sum()))(x).numpy(), expected)


def test_gradients_flow_through_to_closures_and_arguments() -> None:
    x, w = rl.tensor(draw(4, 3)).requires_grad_(), rl.tensor(draw(3, seed=1)).requires_grad_()
    rl.vmap(lambda a: (a * w).sum() ** 2)(x).sum().backward()
    scores = 2 * (x.detach().numpy() @ w.detach().numpy())
    np.testing.assert_allclose(w.grad.numpy(), scores @ x.detach().numpy())  # type: ignore[union-attr]
    expected = scores[:, None] * w.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), expected)  # type: ignore[union-attr]


def test_user_functions_are_batched_in_both_orders() -> None:
    class Tenfold(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a.sin()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (a,) = ctx.saved_tensors
            return 10 * gradient * a.cos()

    x = rl.tensor(draw(4, 3))
    expected = 10 * np.cos(draw(4, 3))
    inside = rl.vmap(rl.grad(lambda a: Tenfold.apply(a).sum()))(x)
    outside = rl.grad(lambda v: rl.vmap(lambda a: Tenfold.apply(a).sum())(v).sum())(x)
    np.testing.assert_allclose(inside.numpy(), expected)
    np.testing.assert_allclose(outside.numpy(), expected)


def test_views_and_writes_inside() -> None:
    def function(a: Any) -> Any:
        made = rl.zeros(3, dtype=rl.float64)
        made[1:] = a[:2]
        made.view(3, 1)[0] += a[2]
        return made.mul_(2)

    x = draw(4, 3)
    found = rl.vmap(function)(rl.tensor(x)).numpy()
    np.testing.assert_allclose(found, 2 * x[:, [2, 0, 1]])


def test_writes_to_an_element_reach_the_argument() -> None:
    x = rl.tensor(np.zeros((3, 2)))
    rl.vmap(lambda a, b: a.add_(b), in_dims=(1, 0))(x, rl.tensor([[1.0] * 3, [2.0] * 3]).double())
    np.testing.assert_allclose(x.numpy(), [[1, 2]] * 3)


def test_a_write_to_a_tensor_from_outside() -> None:
    seen = rl.zeros(3)
    with pytest.raises(rl.RidgelineError, match="written to a tensor from outside"):
        rl.vmap(lambda a: seen.add_(a))(rl.ones(2, 3))
    np.testing.assert_allclose(seen.numpy(), 0)
    calls = rl.zeros(1)

    def counted(a: Any) -> Any:
        calls.add_(1)
        return a

    rl.vmap(counted)(rl.ones(2, 3))
    assert calls.item() == 1.0


def test_random_numbers() -> None:
    x = rl.ones(3, 2)
    with pytest.raises(rl.RidgelineError, match="test_vmap"):
        rl.vmap(lambda a: a + rl.rand(2))(x)
    same = rl.vmap(lambda a: a * rl.rand(2), randomness="same")(x).numpy()
    assert (same == same[0]).all()
    rl.manual_seed(3)
    different = rl.vmap(lambda a: a * rl.rand(2), randomness="different")(x).numpy()
    rl.manual_seed(3)
    np.testing.assert_array_equal(different, [rl.rand(2).numpy() for _ in range(3)])
    rl.manual_seed(4)
    nested = rl.vmap(
        lambda a: rl.vmap(lambda b: b * rl.rand(2), randomness="different")(a),
        randomness="different",
    )(rl.ones(2, 3, 1)).numpy()
    assert len(np.unique(nested)) == nested.size
    kept = rl.vmap(lambda a: rl.nn.functional.dropout(a, 0.5), randomness="different")(
        rl.ones(8, 64)
    ).numpy()
    assert len({row.tobytes() for row in kept}) == 8
    outside = rl.rand(2)  # drawn before, and not computed yet
    assert rl.vmap(lambda a: a + outside)(x).shape == (3, 2)


def test_chunks_give_the_same() -> None:
    x = rl.tensor(draw(5, 3))
    whole = rl.vmap(lambda a: (a.sin(), a.sum()), out_dims=(1, 0))(x)
    parts = rl.vmap(lambda a: (a.sin(), a.sum()), out_dims=(1, 0), chunk_size=2)(x)
    for own, expected in zip(parts, whole):
        np.testing.assert_array_equal(own.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: a.sum().item(), "item"),
        (lambda a: a if a.sum() > 0 else -a, "bool"),
        (lambda a: a[a > 0], "depends on values"),
        (lambda a: a.nonzero(), "depends on values"),
        (lambda a: 3, "returns tensors"),
    ],
)
def test_what_needs_values_names_the_line(function: Any, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message) as caught:
        rl.vmap(function)(rl.ones(2, 3))
    if message != "returns tensors":
        assert "test_vmap.py" in str(caught.value) and "vmap" in str(caught.value)


def test_wrong_arguments() -> None:
    x = rl.ones(2, 3)
    for call, message in [
        (lambda: rl.vmap(rl.add)(x, rl.ones(3)), "different sizes"),
        (lambda: rl.vmap(rl.add)(x, 3), "maps over tensors"),
        (lambda: rl.vmap(rl.sin, in_dims=None)(x), "at least one"),
        (lambda: rl.vmap(rl.sin, in_dims=2)(x), "outside"),
        (lambda: rl.vmap(rl.sin, in_dims=(0, 0))(x), "does not fit"),
        (lambda: rl.vmap(rl.sin, out_dims=None)(x), "differs"),
        (lambda: rl.vmap(rl.sin, randomness="some"), "randomness"),
    ]:
        with pytest.raises(rl.RidgelineError, match=message):
            call()  # type: ignore[no-untyped-call]


def test_a_tensor_kept_from_inside() -> None:
    kept: list[Any] = []

    def function(a: Any) -> Any:
        kept.extend((a * 2, rl.ones(2) + 1))
        return a

    rl.vmap(function)(rl.ones(2, 3))
    with pytest.raises(rl.RidgelineError, match="vmap traced"):
        kept[0].sum()
    assert kept[1].tolist() == [2.0, 2.0]


def test_long_graphs_do_not_recurse() -> None:
    def function(a: Any) -> Any:
        for _ in range(5000):
            a = a + 1
        return a

    assert rl.vmap(function)(rl.zeros(2)).tolist() == [5000.0, 5000.0]
