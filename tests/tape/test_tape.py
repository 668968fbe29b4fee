"""Tapes: a known sequence of public calls is matched, and gives what recording it gives."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.record import graph_recorder
from ridgeline.tape.earnest import Earnest

STEPS = 5


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Any:
    """Programs are there at once, so that the second step finds one."""
    with config.override(tier="compiled", tape=True):
        yield


def run(step: Callable[[int], Any], steps: int = STEPS) -> tuple[list[Any], list[list[str]]]:
    """What some steps give, and how the flushes of each were computed, with why not matched."""
    results, programs = list[Any](), list[list[str]]()
    for number in range(steps):
        results.append(followed(step, number, programs))
    return results, programs


def followed(step: Callable[[int], Any], number: int, programs: list[list[str]]) -> Any:
    """One step; how its flushes were computed joins `programs`."""
    with rl.record_flushes() as log:
        result = step(number)
    flushes = [flush for flush in log.flushes if flush.reason != "the update"]
    programs.append([f"{each.program} {each.unmatched}".strip() for each in flushes])
    return result


def is_matched(programs: list[list[str]], last: int = 1) -> bool:
    """Are the last steps matched, all of their flushes."""
    return all(set(step) == {"matched"} for step in programs[-last:])


def run_until_matched(
    step: Callable[[int], Any], steps: int, last: int = 1
) -> tuple[list[Any], list[list[str]]]:
    """Some steps, and more where they are not matched by then.

    Tapes are learnt anew when a setting of the process changes, whichever thread does that.
    """
    results, programs = run(step, steps)
    while not is_matched(programs, last) and len(results) < 3 * steps:
        results.append(followed(step, len(results), programs))
    return results, programs


def agree(make: Callable[[], Callable[[int], Any]], matched: bool = True) -> None:
    """Steps with tapes are, to the bit, those without; they come to be matched, or do not."""
    rl.manual_seed(3)
    found, programs = run_until_matched(make(), STEPS) if matched else run(make())
    rl.manual_seed(3)
    with config.override(tape=False):
        expected, _ = run(make(), len(found))
    np.testing.assert_array_equal(np.array(found), np.array(expected))
    assert is_matched(programs) is matched, programs


def data(*shape: int) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def test_functions_operators_and_views() -> None:
    def make() -> Callable[[int], Any]:
        x, w = data(4, 6), data(6, 3)

        def step(number: int) -> Any:
            rows = (x @ w).relu().view(2, 6).transpose(0, 1)
            first, second = rows.chunk(2, dim=0)
            joined = rl.cat([first, second * 2.0], dim=1) + x[:3, :4]
            return (joined[1:, None] - joined.mean(0, keepdim=True)).tolist()

        return step

    agree(make)


def test_data_of_matched_steps_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came in since the last flush is counted from there, matched or not."""
    monkeypatch.setattr(graph_recorder, "MOST_HELD", 1000)

    def make() -> Callable[[int], Any]:
        w = data(10, 3)

        def step(number: int) -> Any:
            scaled = w * 3.0
            x = rl.tensor(np.full((4, 10), number, np.float32))  # 160 bytes, while a call waits
            return (x @ scaled).relu().tolist()

        return step

    _, programs = run(make(), 20)
    assert programs[-12:] == [["matched"]] * 12


def test_new_data_at_every_step() -> None:
    def make() -> Callable[[int], Any]:
        table = data(40, 3)

        def step(number: int) -> Any:
            batch = table[number * 4 : number * 4 + 4]
            fresh = rl.tensor(np.full((4, 2), number, np.float32))
            return (F.softmax(batch[:, 1:], -1) * fresh + batch[:, :-1]).sum(0).tolist()

        return step

    agree(make)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_training_with_dropout_and_batch_norm(kind: str) -> None:
    def make() -> Callable[[int], Any]:
        model = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        )
        optimizer = getattr(rl.optim, kind)(model.parameters(), lr=0.05)
        x, y = data(10, 6), rl.tensor(np.arange(10) % 3)

        def step(number: int) -> Any:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return [loss.item(), *model[1].running_var.tolist(), *model[0].weight[0].tolist()]

        return step

    agree(make)


def test_gradients_add_up_and_are_read() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3, 3).requires_grad_(), data(5, 3)

        def step(number: int) -> Any:
            w.grad = None
            for part in (x[:2], x[2:]):
                F.mse_loss(part @ w, part).backward()
            assert w.grad is not None
            with rl.no_grad():
                w.sub_(w.grad * 0.1)
            return w.tolist()

        return step

    agree(make)


def test_gradients_of_gradients() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3, 3).requires_grad_(), data(5, 3)

        def step(number: int) -> Any:
            loss = ((x @ w).tanh() ** 2).sum()
            (first,) = rl.autograd.grad(loss, w, create_graph=True)
            penalty = (first * first).sum()
            (second,) = rl.autograd.grad(penalty, w)
            return second.tolist()

        return step

    agree(make)


def test_views_of_variables() -> None:
    def make() -> Callable[[int], Any]:
        token, x = data(1, 3).requires_grad_(), data(4, 3)

        def step(number: int) -> Any:
            token.grad = None
            rows = token.reshape([1, 3]).expand(4, 3) * x
            rows.square().sum().backward()
            assert token.grad is not None
            return token.grad.tolist()

        return step

    agree(make)


def test_two_loops_side_by_side() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(4, 4).requires_grad_(), data(2, 4)

        def step(number: int) -> Any:
            (x @ w).square().mean().backward()
            with rl.no_grad():
                w.sub_(w.grad * 0.1)
                w.grad = None
                return [w.sum().item(), (x @ w).exp().sum().item()]

        return step

    agree(make)


def test_another_branch_is_recorded() -> None:
    def make() -> Callable[[int], Any]:
        x = data(7)

        def step(number: int) -> Any:
            y = x * 2.0
            y = y.sin() if number % 2 else y.cos() + 1.0
            return (y + number).sum().item()

        return step

    agree(make, matched=False)


def test_a_result_that_is_kept_once_is_right() -> None:
    kept = []

    def make() -> Callable[[int], Any]:
        x = data(6)
        kept.clear()

        def step(number: int) -> Any:
            y = x * float(2)
            z = y + 1.0
            if number == 3:
                kept.append(y)
            return z.sum().item()

        return step

    agree(make)
    np.testing.assert_array_equal(kept[0].numpy(), data(6).numpy() * 2)


def test_whoever_reads_a_node_makes_the_calls_in_earnest() -> None:
    x = data(5)
    for number in range(STEPS):
        y = (x + 1.0).exp()
        if number == STEPS - 1:
            assert y._cell.types is not None
            assert y._cell.node.op.name == "exp"  # recorded after all
        np.testing.assert_allclose(y.numpy(), np.exp(data(5).numpy() + 1), rtol=1e-6)


def test_shapes_need_no_nodes() -> None:
    x = data(4, 6)
    for _ in range(STEPS):
        y = (x * 3.0).view(3, 8)[1:]
        assert (tuple(y.shape), y.dim(), y.dtype, str(y.device)) == ((2, 8), 2, rl.float32, "cpu")
        assert y.stride() == (8, 1)
        z = y.sum()
        waits = z._cell.types is not None
        z.item()
    assert waits


def test_draws_advance_as_when_recorded() -> None:
    x = data(50)

    def drawn(tape: bool) -> tuple[list[float], Any]:
        rl.manual_seed(11)
        with config.override(tape=tape):
            found = [(F.dropout(x, 0.5) + rl.randn(50)).sum().item() for _ in range(STEPS)]
        return found, rl.get_rng_state()

    assert drawn(True) == drawn(False)


def test_a_draw_that_is_recorded_after_all_is_the_one_that_was_matched() -> None:
    def make() -> Callable[[int], Any]:
        def step(number: int) -> Any:
            x = rl.randn(3)
            y = x * 2.0
            if number == STEPS - 1:
                y = y.flip(0)  # not the known call
            return y.tolist()

        return step

    agree(make, matched=False)


def test_memory_that_something_else_writes_to() -> None:
    @rl.jit
    def scaled(w: rl.Tensor) -> None:
        w.mul_(2.0)

    def make() -> Callable[[int], Any]:
        w, x = data(3), data(3)

        def step(number: int) -> Any:
            y = x * w
            if number >= 3:
                scaled(w)
            return (y + x * w).tolist()

        return step

    agree(make, matched=False)


def test_backward_twice_is_an_error_on_a_tape_too() -> None:
    w = data(3).requires_grad_()
    for _ in range(STEPS):
        w.grad = None
        loss = (w * w).sum()
        loss.backward()
        with pytest.raises(rl.RidgelineError, match="let go"):
            loss.backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), 2 * data(3).numpy(), rtol=1e-6)


def test_hooks_are_called_at_every_step() -> None:
    seen = []
    w = data(3).requires_grad_()
    for number in range(2 * STEPS):
        if number == STEPS:
            w.register_hook(lambda g: seen.append(1) or g * 2.0)
        w.grad = None
        (w * w).sum().backward()
        factor = 2 if number < STEPS else 4
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), factor * data(3).numpy(), rtol=1e-6)
    assert len(seen) == STEPS


def test_an_error_leaves_what_was_matched() -> None:
    x = data(4)
    for number in range(STEPS):
        y = x + 1.0
        if number == STEPS - 1:
            with pytest.raises(rl.RidgelineError):
                y @ data(5, 5)
        assert y.sum().item() == pytest.approx(float(data(4).numpy().sum()) + 4, rel=1e-5)


def test_tapes_keep_nothing_alive() -> None:
    import weakref

    x = data(1 << 12)
    for _ in range(STEPS):
        y = x * 2.0
        y.sum().item()
    cell = weakref.ref(x._cell)
    del x, y
    gc.collect()
    assert cell() is None


def test_a_mode_is_part_of_a_match() -> None:
    w = data(3).requires_grad_()

    def product(tracked: bool) -> rl.Tensor:
        with rl.set_grad_enabled(tracked):
            return w * 2.0

    for number in range(2 * STEPS):
        y = product(number % 2 == 0)
        assert y.requires_grad is (number % 2 == 0)
        y.sum().item()


def test_a_part_of_memory_from_outside_is_read_anew() -> None:
    """A block that a call takes of a tensor's memory is no constant of the calls."""
    for turn in range(3 * STEPS):
        values = np.arange(12, dtype=np.float32).reshape(4, 3) + turn
        x = rl.tensor(values)
        np.testing.assert_array_equal(x[2:3][[0, 0]].numpy(), values[2:3][[0, 0]])
        np.testing.assert_array_equal((x[1:][:, [2, 0]] + 1).numpy(), values[1:][:, [2, 0]] + 1)


def test_a_write_through_a_view_of_memory_from_outside() -> None:
    def make() -> Callable[[int], Any]:
        state, x = data(4), data(4)

        def step(number: int) -> Any:
            before = state * 2.0
            state[2:] += 1.0
            after = before + state
            if number == STEPS - 1:
                after = after.flip(0)  # not the known call: all are made in earnest
            return [after.tolist(), (state * x).tolist()]

        return step

    agree(make, matched=False)


def test_a_variable_that_is_gone_when_its_calls_are_made() -> None:
    def make() -> Callable[[int], Any]:
        x = data(4)

        def gradient() -> rl.Tensor:
            variable = x.detach().clone().requires_grad_()
            (variable * variable * 3.0).sum().backward()
            assert variable.grad is not None
            return variable.grad.clone()

        def step(number: int) -> Any:
            found = gradient()
            return (found.cos() if number == STEPS - 1 else found.sin()).tolist()

        return step

    agree(make, matched=False)


def test_calls_that_go_by_values() -> None:
    table = data(6)
    for number in range(3 * STEPS):
        count = 1 + number // STEPS
        repeated = rl.repeat_interleave(table[:3], rl.tensor([count, 1, 2])) * 2.0
        assert repeated.tolist() == (np.repeat(data(6).numpy()[:3], [count, 1, 2]) * 2).tolist()
        counted = rl.bincount(rl.tensor([1, count])) * 2
        assert counted.tolist() == (np.bincount([1, count]) * 2).tolist()
        picked = table[rl.tensor(count)] * 2.0
        assert picked.item() == data(6).numpy()[count] * 2


def test_indices_are_looked_at_in_every_call() -> None:
    table = data(5)
    for number in range(4 * STEPS):
        places = [0, 1, -1, -2][number // STEPS], 2
        found = table[rl.tensor(places)] * 2.0
        assert found.tolist() == (data(5).numpy()[list(places)] * 2).tolist()
    for _ in range(STEPS):
        (table[rl.tensor([1, 2])] * 2.0).tolist()
    with pytest.raises(IndexError):  # where the call is, and not where its value is read
        table[rl.tensor([1, 7])]


def test_labels_are_looked_at_in_every_step() -> None:
    w, x = data(3, 4).requires_grad_(), data(2, 3)

    def step(labels: list[int]) -> None:
        loss = F.cross_entropy(x @ w, rl.tensor(labels))
        w.grad = None
        loss.backward()
        loss.item()

    for number in range(STEPS):
        step([number % 4, 1])
    with pytest.raises(rl.RidgelineError, match="label 9"):
        step([9, 1])


def test_a_variable_whose_memory_numpy_saw() -> None:
    """Its node in older graphs has other memory than it has by now, with the same values."""

    def make() -> Callable[[int], Any]:
        model = nn.Linear(3, 3)
        optimizer = rl.optim.AdamW(model.parameters(), lr=0.05)
        x, kept = data(2, 3), []

        def step(number: int) -> Any:
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
            kept[:] = [model(x).tanh()]  # its graph is alive in the next step
            return [np.array(p.detach().numpy()).sum() for p in model.parameters()]

        return step

    rl.manual_seed(0)
    found, _ = run(make())
    rl.manual_seed(0)
    with config.override(tape=False):
        expected, _ = run(make())
    np.testing.assert_array_equal(np.array(found), np.array(expected))


def test_another_thread_reads_what_is_deferred() -> None:
    x, found = data(4), []
    for number in range(2 * STEPS):
        y = (x + 1.0) * float(3)
        if number >= STEPS:
            reader = threading.Thread(target=lambda y=y: found.append(y.tolist()))
            reader.start()
            reader.join()
        z = y * 2.0
        np.testing.assert_allclose(z.numpy(), (data(4).numpy() + 1) * 6, rtol=1e-6)
    np.testing.assert_allclose(found, [(data(4).numpy() + 1) * 3] * STEPS, rtol=1e-6)


def test_an_interrupt_while_calls_are_made_in_earnest(monkeypatch: pytest.MonkeyPatch) -> None:
    w, state = data(3).requires_grad_(), data(3)

    def begun() -> rl.Tensor:
        w.grad = None
        state.mul_(2.0).clamp_(-1.0, 1.0)
        loss = (w * state).sum()
        loss.backward()
        return loss

    for _ in range(STEPS):
        begun().item()
    values = state.numpy().copy()
    loss = begun()
    assert loss._cell.types is not None
    make, calls = Earnest._make, []

    def interrupted(self: Earnest, *given: Any) -> None:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        make(self, *given)

    monkeypatch.setattr(Earnest, "_make", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ = loss._cell.node
    assert loss._cell.types is not None  # as if nobody had looked
    wanted = np.clip(values * 2, -1, 1)
    assert w.grad is not None
    np.testing.assert_array_equal((w.grad * 1.0).numpy(), wanted)
    np.testing.assert_array_equal(state.numpy(), wanted)


def test_defaults_are_those_of_the_calls() -> None:
    for number in range(2 * STEPS):
        y = rl.ones(3) * 2.0
        before = rl.get_default_dtype()
        if number >= STEPS:
            rl.set_default_dtype(rl.float64)
        try:
            z = y.sin()
            assert (y.dtype, z.dtype) == (rl.float32, rl.float32)
            np.testing.assert_allclose(z.tolist(), np.sin(np.full(3, 2.0)), rtol=1e-6)
        finally:
            rl.set_default_dtype(before)
