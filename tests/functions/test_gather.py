"""gather, scatter and the index_* functions against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ridgeline as rl
from tests.functions.reference import agree, numbers


def places(shape: tuple[int, ...], size: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, size, shape)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(dim: int) -> None:
    agree(
        lambda lib, x, i: lib.gather(x, dim, i),
        [numbers((4, 5, 3)), places((3, 4, 2), 3)],
        second=True,
    )


def test_gather_of_scalars_and_of_nothing() -> None:
    agree(lambda lib, x, i: x.gather(0, i), [numbers(()), places((1,), 1)])
    agree(lambda lib, x, i: x.gather(0, i), [numbers((5,)), places((2, 0), 1)])


@pytest.mark.parametrize("dim", [0, 1, None])
def test_take_along_dim_broadcasts(dim: int | None) -> None:
    agree(
        lambda lib, x, i: lib.take_along_dim(x, i, dim),
        [numbers((4, 5)), places((4, 1) if dim == 1 else (1, 5), 4)],
    )


def test_index_select_take_and_embedding() -> None:
    x, i = numbers((4, 5, 2)), places((6,), 4)
    agree(lambda lib, x, i: lib.index_select(x, 0, i), [x, i], second=True)
    agree(lambda lib, x, i: x.take(i - 5), [x, i])
    table = numbers((4, 3))
    agree(lambda lib, w, i: lib.nn.functional.embedding(i, w, padding_idx=1), [table, i])
    agree(lambda lib, w, i: lib.nn.functional.embedding(i, w, scale_grad_by_freq=True), [table, i])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    def program(lib, w, i, o):
        return lib.nn.functional.embedding_bag(i, w, o, mode=mode, padding_idx=2)

    agree(program, [numbers((5, 3)), places((7,), 5), np.array([0, 2, 2, 6])])


@pytest.mark.parametrize("reduce", [None, "add", "multiply"])
def test_scatter(reduce: str | None) -> None:
    x, src = numbers((4, 5)), numbers((3, 5), 1)
    index = np.stack([np.random.default_rng(0).permutation(4)[:3] for _ in range(5)], 1)
    options = {} if reduce is None else {"reduce": reduce}
    # torch has no gradient of scatter with reduce
    agree(
        lambda lib, x, i, s: lib.scatter(x, 0, i, s, **options), [x, index, src],
        gradients=reduce is None, second=True,
    )  # fmt: skip
    agree(lambda lib, x, i: x.scatter(0, i, 2.5, **options), [x, index], gradients=reduce is None)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce: str, include_self: bool) -> None:
    agree(
        lambda lib, x, i, s: lib.scatter_reduce(x, 1, i, s, reduce, include_self=include_self),
        [numbers((4, 3)), places((4, 6), 3), numbers((4, 6), 1)],
    )


@pytest.mark.parametrize("zeros", [1, 2])
def test_product_of_factors_that_are_zero(zeros: int) -> None:
    src = numbers((6,), 1)
    src[:zeros] = 0
    index = np.zeros(6, np.int64)
    agree(lambda lib, x, i, s: lib.scatter_reduce(x, 0, i, s, "prod"), [numbers((2,)), index, src])


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str) -> None:
    agree(
        lambda lib, x, i, s: lib.index_reduce(x, 0, i, s, reduce, include_self=False),
        [numbers((4, 3)), places((6,), 4), numbers((6, 3), 1)],
    )


def test_index_functions() -> None:
    x, i, src = numbers((4, 3)), np.array([2, 0]), numbers((2, 3), 1)
    agree(lambda lib, x, i, s: lib.index_add(x, 0, i, s, alpha=3), [x, i, src], second=True)
    agree(lambda lib, x, i, s: lib.index_copy(x, 0, i, s), [x, i, src])
    agree(lambda lib, x, i, v: lib.index_fill(x, 1, i, v), [x, i, numbers(())])
    agree(lambda lib, x, i, s: lib.index_put(x, (i,), s, accumulate=True), [x, i, src])
    agree(lambda lib, x, i, s: x.put(i, s, accumulate=True), [x, np.array([1, -1]), numbers((2,))])


def test_masked_functions() -> None:
    x, mask, src = numbers((4, 3)), numbers((4, 3), 2, "bool"), numbers((12,), 1)
    agree(lambda lib, x, m: lib.masked_select(x, m), [x, mask])
    agree(lambda lib, x, m, s: lib.masked_scatter(x, m, s), [x, mask, src])
    agree(lambda lib, x, m: lib.masked_fill(x, m, -1.0), [x, mask])
    agree(lambda lib, x, m: x.where(m, 0.0), [x, mask])
    agree(lambda lib, m: lib.where(m), [mask], gradients=False)


def test_in_place_forms() -> None:
    for lib in (rl, torch):
        x = lib.zeros(3, 3)
        x.scatter_(0, lib.tensor([[0, 1, 2]]), 1.0).index_add_(
            0, lib.tensor([0]), lib.ones(1, 3)
        ).index_fill_(1, lib.tensor([2]), 7.0).masked_fill_(x == 0, -1.0)
        x.index_put_((lib.tensor([1, 1]),), lib.tensor(1.0), accumulate=True)
        x.scatter_add_(1, lib.tensor([[0], [0], [0]]), lib.ones(3, 1)).cumsum_(0)
        if lib is rl:
            ours = x.tolist()
    assert ours == x.tolist()


def test_scattered_views() -> None:
    x = numbers((4, 5))
    agree(lambda lib, x, s: lib.diagonal_scatter(x, s, 1), [x, numbers((4,))])
    agree(lambda lib, x, s: lib.select_scatter(x, s, 1, -2), [x, numbers((4,))], second=True)
    agree(lambda lib, x, s: lib.slice_scatter(x, s, 1, 1, 5, 2), [x, numbers((4, 2))])


@pytest.mark.parametrize("call", [
    lambda x, i: x.gather(0, i), lambda x, i: x[i], lambda x, i: x.index_select(0, i),
    lambda x, i: x.take(i), lambda x, i: x.scatter(0, i, 1.0),
    lambda x, i: rl.nn.functional.embedding(i, x.reshape(5, 1)),
])  # fmt: skip
def test_an_index_outside_is_named(call) -> None:
    with pytest.raises(IndexError, match="RL0104: index 5 is outside axis 0 of size 5"):
        call(rl.zeros(5), rl.tensor([0, 5]))


def test_a_computed_index_is_checked_when_it_runs() -> None:
    index = rl.tensor([1, 2]) * 3
    late = rl.zeros(5).index_select(0, index)
    with pytest.raises(rl.RidgelineError, match="index 6 is outside axis 0 of size 5") as caught:
        late.tolist()
    assert "test_gather.py" in str(caught.value)


def test_negative_indices_are_for_subscripts_only() -> None:
    x = rl.arange(5)
    assert x[rl.tensor([-1])].tolist() == [4]
    with pytest.raises(IndexError, match="index -1"):
        x.gather(0, rl.tensor([-1]))


@pytest.mark.parametrize("call, message", [
    (lambda: rl.zeros(2, 2).gather(0, rl.zeros(2, dtype=rl.int64)), "axes"),
    (lambda: rl.zeros(2, 2).gather(1, rl.zeros(3, 2, dtype=rl.int64)), "longer than the input"),
    (lambda: rl.zeros(2).gather(0, rl.zeros(2)), "integer index"),
    (lambda: rl.zeros(2).scatter(0, rl.tensor([0]), rl.tensor([1])), "src is int64"),
    (lambda: rl.zeros(2, 2).index_add(0, rl.tensor([0]), rl.zeros(2, 2)), "source of shape"),
    (lambda: rl.zeros(2).scatter_reduce(0, rl.tensor([0]), rl.ones(1), "max"), "reduce is"),
])  # fmt: skip
def test_wrong_input_is_explained(call, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call()


def test_forward_mode() -> None:
    index, mask = rl.tensor([2, 0, 0]), rl.tensor([True, False, True])

    def f(x: rl.Tensor) -> rl.Tensor:
        picked = x[index] * x.scatter_reduce(0, index, x * x, "prod")
        return picked.index_add(0, index, x.exp()) + rl.where(mask, x, x * x)

    x, v = rl.tensor(numbers((3,))), rl.tensor(numbers((3,), 1))
    tangent = rl.jvp(f, (x,), (v,))[1]
    pulled = rl.vjp(f, x)[1](rl.tensor(numbers((3,), 2)))
    gradient = pulled[0] if isinstance(pulled, tuple) else pulled
    left = (tangent * rl.tensor(numbers((3,), 2))).sum().item()
    assert left == pytest.approx((gradient * v).sum().item(), rel=1e-12)
