"""In-place methods, views and item assignment: the same program as in torch, step by step."""

from __future__ import annotations

import copy as copy_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from tests.functions.reference import numbers, same


def run_both(program, shape=(3, 4)):
    """Run a program that yields tensors; compare them all, after every step."""
    steps = zip(
        program(rl, rl.tensor(numbers(shape))), program(torch, torch.tensor(numbers(shape)))
    )
    for ours, theirs in steps:
        for got, want in zip(ours, theirs, strict=True):
            same(got, want)


def writes_through_views(lib, x):
    row, column, corner = x[0], x[:, 1], x[1:, 2:]
    row.add_(1)
    yield x, row, column, corner
    column.mul_(2)
    yield x, row, column, corner
    corner.zero_()
    yield x, row, column, corner
    x.fill_(3)
    yield x, row, column, corner
    x[1] = lib.tensor([1.0, 2.0, 3.0, 4.0], dtype=lib.float64)
    yield x, row, column, corner


def shapes_of_one_memory(lib, x):
    flat, turned, column = x.view(-1), x.t(), x.t()[1]
    flat[::2].sub_(1)
    yield x, flat, turned, column
    turned[2].fill_(7)
    yield x, flat, turned, column
    column.copy_(lib.ones(3, dtype=lib.float64))
    yield x, flat, turned, column
    turned.unsqueeze(0)[0, 1].div_(2)
    yield x, flat, turned, column
    pair = x.view(3, 2, 2)
    pair[:, 1].mul_(-1)
    yield x, flat, turned, pair


def reshape_copies_when_it_must(lib, x):
    dense, turned = x.reshape(2, 6), x.t().reshape(2, 6)
    x.add_(10)
    yield x, dense, turned
    turned.zero_()
    yield x, dense, turned


def detached_handles(lib, x):
    plain, data = x.detach(), x.data
    plain.add_(1)
    yield x, plain, data
    data[0] = 5
    yield x, plain, data
    copy = x.clone()
    copy.zero_()
    yield x, copy
    x.data = x.data * 2
    yield x, plain


def augmented_assignment(lib, x):
    y = x
    x += 1
    yield x, y
    x *= 2.5
    yield x, y
    x[0] += 3
    yield x, y
    x[:, ::2] -= x[:, 1::2]
    yield x, y
    x /= 4
    yield x, y
    x[1, 2] = -1.5
    yield x, y
    x **= 2
    yield x, y


def assignment(lib, x):
    x[0, 1:3] = 9
    yield (x,)
    x[..., -1] = lib.arange(3)
    yield (x,)
    x[:] = x.flip(0)
    yield (x,)
    x[2:0] = 1  # an empty range
    yield (x,)
    x[::2, ::3] = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    yield (x,)
    x[None, 1] = 0
    yield (x,)


def splits_are_views(lib, x):
    left, right = x.split(2, 1)
    first, *others = x.unbind(0)
    left.zero_()
    first.add_(1)
    yield x, left, right, first, *others
    x.chunk(2, 1)[1].mul_(3)
    yield x, left, right, first, *others


def inplace_functions(lib, x):
    for name in ("neg_", "abs_", "sqrt_", "exp_", "tanh_", "sigmoid_", "relu_", "square_"):
        getattr(x, name)()
        yield (x,)
    x.clamp_(0.6, 0.7)
    yield (x,)
    x.masked_fill_(x > 0.65, -2.0)
    yield (x,)
    x.tril_()
    yield (x,)
    x.add_(x, alpha=2).lerp_(lib.ones(3, 4, dtype=lib.float64), 0.5)
    yield (x,)


PROGRAMS = [
    writes_through_views, shapes_of_one_memory, reshape_copies_when_it_must, detached_handles,
    augmented_assignment, assignment, splits_are_views, inplace_functions,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("mode", ["deferred", "eager", "compiled"])
def test_programs(program, mode):
    if mode == "eager":
        with rl.eager():
            run_both(program)
    elif mode == "compiled" and program is writes_through_views:
        with rl.config.override(tier="compiled"):
            run_both(program)
    else:
        run_both(program)


def test_gradients_through_in_place_writes():
    def program(lib, w):
        x = lib.zeros(3, 4, dtype=lib.float64)
        x[0] = w[0] * 2
        x[:, 1] += w[:, 2] ** 2
        y = w * 3
        y[1].mul_(w[2])
        z = y.t()
        z[2].add_(x[:, 1])
        return (x * x).sum() + (y * y).sum() + z.sum()

    grads = []
    for lib, make in ((rl, rl.tensor), (torch, torch.tensor)):
        w = make(numbers((3, 4)))
        w.requires_grad_()
        program(lib, w).backward()
        grads.append(w.grad)
    same(*grads)


def test_requires_grad_spreads_through_views():
    w = rl.ones(2, requires_grad=True)
    x = rl.zeros(2, 2)
    x[0] = w
    assert x.requires_grad and not x.is_leaf and x.grad_fn is not None
    assert not x.detach().requires_grad
    with rl.no_grad():
        assert not w[0].requires_grad
    assert w[0].requires_grad and not w[0].is_leaf


def test_refusals():
    w = rl.ones(2, 2, requires_grad=True)
    with pytest.raises(rl.RidgelineError, match="leaf tensor"):
        w.add_(1)
    with pytest.raises(rl.RidgelineError, match="leaf tensor"):
        w[0] = 1
    with rl.no_grad():
        w.add_(1)
    assert w.tolist() == [[2.0, 2.0], [2.0, 2.0]] and w.requires_grad and w.is_leaf
    with pytest.raises(rl.RidgelineError, match="expanded"):
        rl.ones(1, 3).expand(2, 3).add_(1)
    with pytest.raises(rl.RidgelineError, match="cannot be written"):
        rl.ones(2, dtype=rl.int64).add_(0.5)
    with pytest.raises(rl.RidgelineError, match="does not fit"):
        rl.ones(2).add_(rl.ones(3, 2))
    with pytest.raises(rl.RidgelineError, match="without a copy"):
        rl.ones(2, 3).t().view(6)


def test_version_counts_writes():
    x = rl.zeros(3)
    before = x._version
    x[0] = 1
    x.add_(1)
    assert x._version == before + 2 and x[1]._version == x._version


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(0, 2)),
        st.tuples(st.just("slice"), st.integers(0, 3), st.integers(0, 4), st.integers(1, 3)),
        st.just(("t",)),
        st.just(("unsqueeze",)),
        st.just(("reshape",)),
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from(["add_", "zero_", "mul_", "copy_"]))
def test_any_chain_of_views(steps, write):
    results = []
    for lib in (rl, torch):
        base = lib.arange(12).reshape(3, 4)
        seen = base
        for step in steps:
            seen = _step(seen, step)
        {
            "add_": lambda v: v.add_(100),
            "zero_": lambda v: v.zero_(),
            "mul_": lambda v: v.mul_(3),
            "copy_": lambda v, lib=lib: v.copy_(lib.arange(v.numel()).reshape(v.shape)),
        }[write](seen)
        results.append((base, seen))
    for ours, theirs in zip(*results):
        same(ours, theirs)


def _step(view, step):
    if step[0] == "row" and view.dim() and view.shape[0]:
        return view[step[1] % view.shape[0]]
    if step[0] == "slice" and view.dim():
        return view[..., step[1] : step[2] : step[3]]
    if step[0] == "t" and view.dim() >= 2:
        return view.transpose(0, 1)
    if step[0] == "unsqueeze":
        return view.unsqueeze(0)
    if step[0] == "reshape":
        return view.reshape(-1)
    return view


def test_memory_shared_with_numpy():
    array = np.arange(6.0).reshape(2, 3)
    x = rl.from_numpy(array)
    y = x * 2
    array[0, 0] = 50
    assert x[0, 0].item() == 50 and y[0, 0].item() == 0, "ops on borrowed memory run at once"
    x[1] = -1
    assert array[1].tolist() == [-1, -1, -1]
    x.add_(1)
    assert array[0, 0] == 51

    z = rl.ones(2, 2)
    seen = z.numpy()
    seen[0, 0] = 7
    assert z[0, 0].item() == 7
    z.mul_(2)
    assert seen.tolist() == [[14, 2], [2, 2]]
    doubled = z + z
    seen[:] = 0
    assert doubled[0, 0].item() == 28
    del seen
    assert (z + 1).tolist() == [[1, 1], [1, 1]]

    turned = np.arange(6.0).reshape(2, 3).T
    w = rl.from_numpy(turned)
    w[0] = 9
    assert turned[0].tolist() == [9, 9] and w.tolist() == turned.tolist()


@pytest.mark.parametrize("copy", ["clone", "copy_", "cat", "deepcopy", "to"])
def test_copies_have_memory_of_their_own(copy: str) -> None:
    array = np.arange(4, dtype=np.float32)
    source = rl.from_numpy(array)
    made = {
        "clone": lambda: source.clone(),
        "copy_": lambda: rl.zeros(4).copy_(source),
        "cat": lambda: rl.cat([source]),
        "deepcopy": lambda: copy_module.deepcopy(source),
        "to": lambda: source.to(rl.float32, copy=True),
    }[copy]()
    array[:] = 99
    assert made.tolist() == [0, 1, 2, 3]


def test_a_clone_does_not_see_an_export_of_its_source() -> None:
    source = rl.arange(4.0)
    made = source.clone()
    source.numpy()[0] = 50
    assert made.tolist() == [0, 1, 2, 3]
    assert source.tolist() == [50, 1, 2, 3]


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("viewed", [False, True])
def test_gradients_read_what_exported_memory_was(computed: bool, viewed: bool) -> None:
    p = rl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    seen = p.detach().numpy()
    used = p[1:] if viewed else p
    y = (used * used).sum()
    if computed:
        y.item()
    with rl.no_grad():
        p.add_(10)
    np.testing.assert_array_equal(seen, [11, 12, 13])
    y.backward()
    np.testing.assert_array_equal(p.grad.numpy(), [0, 4, 6] if viewed else [2, 4, 6])


def test_gradients_read_what_an_array_of_somebody_elses_was() -> None:
    theirs = np.array([1.0, 2.0], np.float32)
    p = rl.from_numpy(theirs).requires_grad_()
    y = (p * p).sum()
    with rl.no_grad():
        p.mul_(5)
    y.backward()
    np.testing.assert_array_equal(theirs, [5, 10])
    np.testing.assert_array_equal(p.grad.numpy(), [2, 4])
