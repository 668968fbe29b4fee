"""cond, while_loop and scan: against Python's own control flow and torch, in every way to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.compiler import HostCall
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.control_flow import LoopCall
from ridgeline.tracing.control_flow import ControlFlowError

WAYS = ["interpreter", "compiled", "eager", "jit"]


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Calls a function in one of the ways to run."""
    way, before = request.param, rl.config.tier
    rl.config.tier = "interpreter" if way == "interpreter" else "compiled"

    def call(function: Callable[..., Any], *args: Any) -> Any:
        with rl.eager() if way == "eager" else nullcontext():
            return (rl.jit(function) if way == "jit" else function)(*args)

    yield call
    rl.config.tier = before


def python_scan(f: Callable[..., Any], carry: Any, xs: Any, reverse: bool = False) -> Any:
    """What scan means, as a loop over steps."""
    ys = []
    for x in list(xs)[::-1] if reverse else xs:
        carry, y = f(carry, x)
        ys.append(y)
    stack = torch.stack if isinstance(ys[0], torch.Tensor) else rl.stack
    return carry, stack(ys[::-1] if reverse else ys)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.5


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(got.detach()), np.asarray(want.detach()), rtol=2e-5, atol=1e-5
    )


# ---- values --------------------------------------------------------------------------------------


def test_cond_computes_one_side(run: Callable[..., Any]) -> None:
    def clip(g: rl.Tensor) -> rl.Tensor:
        return rl.cond(g.norm() > 1, lambda g: g / g.norm(), lambda g: g, g)

    assert run(clip, rl.tensor([3.0, 4.0])).tolist() == pytest.approx([0.6, 0.8])
    assert run(clip, rl.tensor([0.3, 0.4])).tolist() == pytest.approx([0.3, 0.4])


def test_cond_takes_structures_and_captures_from_outside(run: Callable[..., Any]) -> None:
    weights = {"a": rl.tensor([1.0, 2.0]), "b": rl.tensor([10.0, 20.0])}

    def choose(x: rl.Tensor) -> dict[str, Any]:
        return rl.cond(
            x.sum() > 0,
            lambda: {"value": weights["a"] * x, "rest": (x, 1)},
            lambda: {"value": weights["b"] - x, "rest": (weights["a"], 2)},
        )

    up = run(choose, rl.tensor([1.0, 1.0]))
    assert up["value"].tolist() == [1, 2] and up["rest"][1].item() == 1
    down = run(choose, rl.tensor([-1.0, 0.0]))
    assert down["value"].tolist() == [11, 20] and down["rest"][0].tolist() == [1, 2]


def test_while_loop_stops_when_the_test_fails(run: Callable[..., Any]) -> None:
    def collatz(n: rl.Tensor) -> Any:
        def step(state: Any) -> Any:
            n, count = state
            return rl.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return rl.while_loop(lambda state: state[0] != 1, step, (n, 0))

    n, count = run(collatz, rl.tensor(27))
    assert (n.item(), count.item()) == (1, 111)
    assert run(collatz, rl.tensor(1))[1].item() == 0  # not even once


def test_while_loop_over_memory_and_captured_values(run: Callable[..., Any]) -> None:
    a = rl.tensor(numbers(6, 6) / 8)

    def power(x: rl.Tensor) -> Any:
        limit = x.sum() * 0 + 5  # computed outside the loop, captured
        return rl.while_loop(
            lambda s: s[1] < limit, lambda s: (s[0] @ a + x, s[1] + 1), (x, rl.tensor(0.0))
        )

    x = numbers(6, seed=1)
    want = x.copy()
    for _ in range(5):
        want = want @ (numbers(6, 6) / 8) + x
    np.testing.assert_allclose(run(power, rl.tensor(x))[0].numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_loop(run: Callable[..., Any], reverse: bool) -> None:
    u = numbers(4, 4)

    def f(mod: Any, u: Any) -> Callable[..., Any]:
        return lambda c, x: (mod.tanh(c @ u + x), c * x.sum())

    args = numbers(3, 4), numbers(9, 3, 4, seed=1)
    carry, ys = run(
        lambda c, xs: rl.scan(f(rl, rl.tensor(u)), c, xs, reverse=reverse), *map(rl.tensor, args)
    )
    want = python_scan(f(torch, torch.tensor(u)), *map(torch.tensor, args), reverse)
    close(carry, want[0])
    close(ys, want[1])


def test_scan_hands_values_through_and_twice(run: Callable[..., Any]) -> None:
    def f(c: Any, x: Any) -> Any:
        a, b = c
        return (b, a + b), (a, x, a, {"constant": 7.0})

    (a, b), (first, xs, again, rest) = run(
        lambda x: rl.scan(f, (rl.tensor(0.0), rl.tensor(1.0)), x), rl.tensor([1.0, 2.0, 3.0, 4.0])
    )
    assert (a.item(), b.item()) == (3, 5)
    assert first.tolist() == again.tolist() == [0, 1, 1, 2]
    assert xs.tolist() == [1, 2, 3, 4] and rest["constant"].tolist() == [7] * 4


def test_scan_without_xs_without_carry_and_of_no_length(run: Callable[..., Any]) -> None:
    assert run(lambda: rl.scan(lambda c, _: (c * 2, None), 1.0, length=10))[0].item() == 1024
    assert run(lambda x: rl.scan(lambda c, x: (c, x + 1), (), x)[1], rl.arange(3)).tolist() == [
        1, 2, 3,
    ]  # fmt: skip
    carry, ys = run(lambda x: rl.scan(lambda c, x: (c + x, c), 5.0, x), rl.zeros(0))
    assert carry.item() == 5 and ys.shape == (0,)


def test_nested_control_flow(run: Callable[..., Any]) -> None:
    def nested(x: rl.Tensor) -> rl.Tensor:
        def row(total: rl.Tensor, row: rl.Tensor) -> Any:
            inner, _ = rl.scan(
                lambda c, v: (rl.cond(v > 0, lambda: c + v, lambda: c - total), None), 0.0, row
            )
            grown = rl.while_loop(lambda s: (s < 10) & (s > 0), lambda s: s * 2, inner)
            return total + grown, grown

        return rl.scan(row, 0.0, x)[1]

    x = numbers(4, 5)
    want, total = [], np.float32(0)
    for line in x:
        c = np.float32(0)
        for v in line:
            c = c + v if v > 0 else c - total
        while 0 < c < 10:
            c = c * 2
        total = total + c
        want.append(c)
    np.testing.assert_allclose(run(nested, rl.tensor(x)).numpy(), want, rtol=1e-5)


def test_library_calls_inside_a_body(run: Callable[..., Any]) -> None:
    x = numbers(4, 3, 3)
    got = run(lambda x: rl.scan(lambda c, m: (c + rl.linalg.det(m), c), 0.0, x)[0], rl.tensor(x))
    assert got.item() == pytest.approx(np.linalg.det(x).sum(), rel=1e-4)


def test_indices_inside_a_body_are_checked(run: Callable[..., Any]) -> None:
    table = rl.arange(10)
    take = lambda places: rl.scan(lambda c, i: (c + table[i], table[i]), 0, places)  # noqa: E731
    assert run(take, rl.tensor([1, 2, 3]))[0].item() == 6
    with pytest.raises(IndexError):
        run(take, rl.tensor([1, 99, 3]))[0].item()
    pick = lambda i: rl.cond(i > 5, lambda: table[i], lambda: table[0])  # noqa: E731
    with pytest.raises(IndexError):
        run(pick, rl.tensor(42)).item()


def test_random_numbers_differ_from_step_to_step(run: Callable[..., Any]) -> None:
    rl.manual_seed(3)
    draws = run(lambda: rl.scan(lambda c, _: (c, rl.rand(2)), 0, length=50)[1]).numpy()
    assert len({float(v) for v in draws.ravel()}) == 100
    assert 0.3 < draws.mean() < 0.7
    rl.manual_seed(3)
    again = run(lambda: rl.scan(lambda c, _: (c, rl.rand(2)), 0, length=50)[1]).numpy()
    np.testing.assert_array_equal(draws, again)


@settings(max_examples=15, deadline=None)
@given(
    length=st.integers(0, 7), width=st.integers(1, 70), batch=st.integers(1, 3),
    reverse=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_compiled_and_interpreted_scans_agree(
    length: int, width: int, batch: int, reverse: bool, seed: int
) -> None:
    def f(c: Any, x: Any) -> Any:
        h, total = c
        h = rl.sin(h) + x[::2] if width % 2 == 0 else h * x
        return (h, total + h.sum()), (h.max(), x.flip(0))

    shape = (batch, (width + 1) // 2) if width % 2 else (width // 2,)
    xs = numbers(length, *(shape if width % 2 else (width,)), seed=seed)
    start = numbers(*shape, seed=seed + 1)
    results = []
    for tier in ("interpreter", "compiled"):
        before, rl.config.tier = rl.config.tier, tier
        try:
            out = rl.scan(f, (rl.tensor(start), 0.0), rl.tensor(xs), reverse=reverse)
            results.append([np.array(p) for p in (*out[0], *out[1])])
        finally:
            rl.config.tier = before
    for got, want in zip(*results):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- derivatives and batches ---------------------------------------------------------------------


def rnn(mod: Any, scan: Callable[..., Any]) -> Callable[..., Any]:
    def loss(w: Any, u: Any, b: Any, xs: Any, h: Any) -> Any:
        def f(state: Any, x: Any) -> Any:
            h, k = state
            new = mod.tanh(x @ w + h @ u + b + (h @ u.T) * 0.1)
            return (new, k + 1), new * h

        (h, _), ys = scan(f, (h, mod.zeros((), dtype=mod.int64)), xs)
        return (ys**2).sum() + h.sum()

    return loss


SHAPES = ((5, 7), (7, 7), (7,), (6, 3, 5), (3, 7))


def test_gradients_of_a_scan_are_torchs(run: Callable[..., Any]) -> None:
    arrays = [numbers(*s, seed=i) for i, s in enumerate(SHAPES)]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    rnn(torch, python_scan)(*theirs).backward()
    ours = [rl.tensor(a, requires_grad=True) for a in arrays]

    def step(*given: rl.Tensor) -> rl.Tensor:
        loss = rnn(rl, rl.scan)(*given)
        loss.backward()
        return loss

    run(step, *ours)
    for a, b in zip(ours, theirs):
        assert a.grad is not None
        close(a.grad, b.grad)


def _scanned_inside(lib: Any, scan: Callable[..., Any]) -> Callable[..., Any]:
    def step(c: Any, x: Any) -> Any:
        last, passed = scan(lambda d, s: (lib.tanh(d + s), d * s), c, lib.stack([x, x * 2]))
        return last, passed.sum()

    return step


def _sorted_inside(lib: Any, scan: Callable[..., Any]) -> Callable[..., Any]:
    return lambda c, x: (lib.sort(c * x)[0], lib.max(c + x, 0)[0])


@pytest.mark.parametrize("inside", [_scanned_inside, _sorted_inside])
def test_gradients_read_what_the_steps_left_unused(
    run: Callable[..., Any], inside: Callable[..., Any]
) -> None:
    """Inner stacks and places of sorted values, which only the gradient of a step looks at."""
    xs = numbers(3, 5)

    def ours(x: rl.Tensor) -> rl.Tensor:
        last, rows = rl.scan(inside(rl, rl.scan), x[0], x)
        return (last * x[1]).sum() + (rows * rows).sum()

    mine = run(rl.grad(ours), rl.tensor(xs))
    other = torch.tensor(xs, requires_grad=True)
    last, rows = python_scan(inside(torch, python_scan), other[0], other)
    ((last * other[1]).sum() + (rows * rows).sum()).backward()
    assert other.grad is not None
    close(mine, other.grad)


def test_a_large_batch_sums_weight_gradients_in_the_loop(run: Callable[..., Any]) -> None:
    """Where operands are larger than the result, they are not kept for a contraction at the end."""
    w, xs = numbers(3, 3), numbers(4, 200, 3, seed=1)
    theirs = torch.tensor(w, requires_grad=True)
    python_scan(lambda c, x: (torch.tanh(c + x @ theirs),) * 2, torch.zeros(200, 3),
                torch.tensor(xs))[1].sum().backward()  # fmt: skip

    def loss(w: rl.Tensor) -> rl.Tensor:
        f = lambda c, x: (rl.tanh(c + x @ w),) * 2  # noqa: E731
        return rl.scan(f, rl.zeros(200, 3), rl.tensor(xs))[1].sum()

    close(run(rl.grad(loss), rl.tensor(w)), theirs.grad)


def test_gradients_by_tensors_that_are_literals(run: Callable[..., Any]) -> None:
    """A tensor made of constants and not computed yet is a variable all the same."""
    w = rl.ones(3, requires_grad=True)

    def step() -> None:
        carry, _ = rl.scan(lambda c, x: (c * w + x, None), rl.zeros(3), rl.ones(4, 3))
        carry.sum().backward()

    run(step)
    assert w.grad is not None and w.grad.tolist() == [6, 6, 6]
    total = lambda w: rl.scan(lambda c, x: (c * w + x, None), 0.0, rl.ones(4))[0]  # noqa: E731
    by_argument = run(rl.grad(total), rl.ones(()))
    assert by_argument.item() == 6
    chosen = rl.grad(lambda w: rl.cond(w > 0, lambda: w * 3, lambda: w))
    assert run(chosen, rl.ones(())).item() == 3


def test_second_derivatives_and_forward_mode() -> None:
    def f(h: rl.Tensor, xs: rl.Tensor) -> rl.Tensor:
        return rl.scan(lambda c, x: (rl.sin(c * x) + c, c * c * x), h, xs)[1]

    h = rl.tensor(numbers(3).astype(np.float64), requires_grad=True)
    xs = rl.tensor(numbers(4, 3, seed=1).astype(np.float64), requires_grad=True)
    assert rl.autograd.gradcheck(f, (h, xs)) and rl.autograd.gradgradcheck(f, (h, xs))
    backward = rl.jacrev(f, argnums=(0, 1))(h.detach(), xs.detach())
    forward = rl.jacfwd(f, argnums=(0, 1))(h.detach(), xs.detach())
    for a, b in zip(backward, forward):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def test_cond_differentiates_both_ways_and_twice() -> None:
    w = rl.tensor(2.0, dtype=rl.float64)

    def f(x: rl.Tensor) -> rl.Tensor:
        return rl.cond(x.sum() > 0, lambda: rl.sin(x) * w, lambda: x**3)

    for values in ([0.5, 1.0], [-0.5, -1.0]):
        x = rl.tensor(values, dtype=rl.float64, requires_grad=True)
        assert rl.autograd.gradcheck(f, (x,)) and rl.autograd.gradgradcheck(f, (x,))
        np.testing.assert_allclose(
            rl.jacfwd(f)(x.detach()).numpy(), rl.jacrev(f)(x.detach()).numpy(), rtol=1e-9
        )


def test_while_loop_pushes_tangents_and_refuses_gradients() -> None:
    def halve(x: rl.Tensor) -> rl.Tensor:
        return rl.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)

    value, tangent = rl.jvp(halve, (rl.tensor([3.0, 4.0]),), (rl.tensor([1.0, 2.0]),))
    assert value.tolist() == [0.375, 0.5] and tangent.tolist() == [0.125, 0.25]
    x = rl.tensor([3.0, 4.0], requires_grad=True)
    y = halve(x)
    assert y.tolist() == [0.375, 0.5]  # reading is fine, and keeps nothing for a gradient
    with pytest.raises(rl.RidgelineError, match=r"use scan\(\)"):
        y.sum().backward()


def test_detach_inside_a_scan_cuts_the_gradient(run: Callable[..., Any]) -> None:
    xs = numbers(5)

    def loss(mod: Any, scan: Any) -> Callable[..., Any]:
        return lambda w: scan(lambda c, x: ((c * w + x).detach(), c * w), w * 1, mod.tensor(xs))[
            1
        ].sum()

    w = torch.tensor(0.7, requires_grad=True)
    loss(torch, python_scan)(w).backward()
    assert run(rl.grad(loss(rl, rl.scan)), rl.tensor(0.7)).item() == pytest.approx(
        w.grad.item(), rel=1e-5
    )


def test_vmap_over_control_flow(run: Callable[..., Any]) -> None:
    table = rl.tensor(numbers(3, seed=5))

    def scanned(h: rl.Tensor, xs: rl.Tensor) -> rl.Tensor:
        return rl.scan(lambda c, x: (rl.sin(c + x) * table, c * x), h, xs)[1]

    def halved(x: rl.Tensor) -> rl.Tensor:
        return rl.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)

    def chosen(x: rl.Tensor) -> rl.Tensor:
        return rl.cond(x.sum() > 0, lambda: rl.sin(x), lambda: x * 3)

    h, xs = rl.tensor(numbers(4, 3)), rl.tensor(numbers(4, 6, 3, seed=1))
    got = run(rl.vmap(scanned), h, xs)
    close(got, rl.stack([scanned(h[i], xs[i]) for i in range(4)]))
    close(run(rl.vmap(scanned, (None, 0)), h[0], xs),
          rl.stack([scanned(h[0], xs[i]) for i in range(4)]))  # fmt: skip
    many = rl.tensor([[3.0, 4.0], [0.1, 0.2], [-5.0, 1.0], [90.0, 3.0]])
    for f in (halved, chosen):
        close(run(rl.vmap(f), many), rl.stack([f(row) for row in many]))
    close(run(rl.vmap(rl.grad(lambda x: chosen(x).sum())), many),
          rl.stack([rl.grad(lambda x: chosen(x).sum())(row) for row in many]))  # fmt: skip


# ---- what compiled code does ---------------------------------------------------------------------


def test_a_jitted_loop_is_one_native_call() -> None:
    f = rl.jit(lambda x: rl.scan(lambda c, x: (rl.tanh(c + x), c), rl.zeros(8), x)[1])
    x = rl.tensor(numbers(1000, 8))
    f(x)
    assert [type(c) for c in f.program.layout.calls].count(LoopCall) == 1
    before = executor.calls()
    f(x).numpy()
    assert executor.calls() - before == 1


def test_compiling_does_not_grow_with_the_length() -> None:
    def kernels(length: int) -> int:
        f = rl.jit(lambda x: rl.scan(lambda c, x: (rl.tanh(c + x), c), rl.zeros(3), x)[1].sum())
        f(rl.tensor(numbers(length, 3)))
        return sum(1 for _ in f.program.layout.symbols())

    assert kernels(2) == kernels(500)


def test_unread_results_are_not_computed() -> None:
    f = rl.jit(lambda x: rl.scan(lambda c, x: (c + x, rl.exp(x)), 0.0, x)[0])
    f(rl.tensor([1.0, 2.0]))
    assert "exp" not in f.explanation("kernels").split("graph")[1]


def test_explain_says_why_a_loop_is_not_native() -> None:
    f = rl.jit(lambda x: rl.scan(lambda c, m: (c + rl.linalg.det(m), None), 0.0, x)[0])
    f(rl.tensor(numbers(2, 3, 3)))
    assert "in Python: determinant in it is a library call" in f.explanation("kernels")
    assert any(isinstance(call, HostCall) for call in f.program.layout.calls)


# ---- mistakes ------------------------------------------------------------------------------------


def test_what_is_carried_must_stay_as_it_is() -> None:
    x = rl.ones(3)
    with pytest.raises(ControlFlowError, match="element type of what is carried changes"):
        rl.scan(lambda c, x: (c + x, None), 0, x)
    with pytest.raises(ControlFlowError, match="shape of carried value 2 changes"):
        rl.scan(lambda c, x: ((c[0], c[1] + rl.ones(2)), None), (x, 0.0), x)
    with pytest.raises(ControlFlowError, match="nested differently"):
        rl.scan(lambda c, x: ((c, c), None), 0.0, x)
    with pytest.raises(ControlFlowError, match=r"returns \(carry, y\)"):
        rl.scan(lambda c, x: c + x, 0.0, x)
    with pytest.raises(ControlFlowError, match="changes"):
        rl.while_loop(lambda c: c.sum() < 3, lambda c: rl.cat([c, c]), x)
    with pytest.raises(rl.RidgelineError, match="different sizes"):
        rl.scan(lambda c, x: (c, None), 0.0, x, length=5)


def test_sides_must_agree_and_predicates_are_truth_values() -> None:
    x = rl.ones(3)
    with pytest.raises(ControlFlowError, match=r"float32\[3\] from true_fn and float32\[\]"):
        rl.cond(x.sum() > 0, lambda: x, lambda: x.sum())
    with pytest.raises(ControlFlowError, match="differently nested"):
        rl.cond(x.sum() > 0, lambda: x, lambda: (x, x))
    with pytest.raises(rl.RidgelineError, match="one truth value"):
        rl.cond(x > 0, lambda: x, lambda: x)
    with pytest.raises(rl.RidgelineError, match="one truth value"):
        rl.while_loop(lambda c: c, lambda c: c, x)


def test_effects_inside_bodies_are_refused() -> None:
    total, x = rl.zeros(3), rl.ones(4, 3)
    with pytest.raises(ControlFlowError, match="carry it"):
        rl.scan(lambda c, x: (c, total.add_(x)), 0.0, x)
    assert total.tolist() == [0, 0, 0]
    with pytest.raises(ControlFlowError, match="random"):
        rl.while_loop(lambda c: c < 1, lambda c: c + rl.rand(()), 0.0)
    with pytest.raises(rl.RidgelineError, match="scan does not have"):
        rl.scan(lambda c, x: (c + (1.0 if x.sum() > 0 else 2.0), None), 0.0, x)
    kept: list[rl.Tensor] = []
    rl.scan(lambda c, x: (kept.append(x) or c, None), 0.0, x)
    with pytest.raises(rl.RidgelineError, match="scan traced"):
        kept[0] + 1
