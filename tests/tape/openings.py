"""Whole numbers and lengths that change: one tape for all of them, equal to recorded calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.errors import RidgelineError
from ridgeline.execution import generalize, tiers
from ridgeline.nn import functional as F
from ridgeline.tape import openings

Step = Callable[[int], Any]
Make = Callable[[], Step]


@pytest.fixture(autouse=True)
def beside(nothing_recorded: None) -> Iterator[None]:
    """Programs over unknowns are compiled beside, as in use; a test waits for them."""
    with config.override(background=True, tier="auto", tape=True):
        generalize._forms.clear()
        yield
        background.wait()


def data(*shape: int, seed: int = 0) -> rl.Tensor:
    source = np.random.default_rng((seed, *shape))
    # small whole numbers: sums of their products are exact, in whatever order they are made
    return rl.tensor(source.integers(-2, 3, shape).astype(np.float32))


def results(step: Step, numbers: Sequence[int]) -> tuple[list[Any], list[str]]:
    """What steps give, and how the last flush of each was computed."""
    found, programs = [], []
    for number in numbers:
        with rl.record_flushes() as log:
            found.append(step(number))
        programs.append(log.flushes[-1].program if log.flushes else "")
        background.wait()
    return found, programs


def agree(make: Make, numbers: Sequence[int]) -> list[str]:
    """Steps with tapes are, to the bit, those without; gives how they were computed."""
    rl.manual_seed(7)
    found, programs = results(make(), numbers)
    rl.manual_seed(7)
    with config.override(tape=False, tier="interpreter"):
        expected, _ = results(make(), numbers)
    for number, one, other in zip(numbers, found, expected):
        np.testing.assert_array_equal(one, other, err_msg=f"at {number}")
    return programs


def with_cache() -> Step:
    """Keys are written to a place that moves, and what is there so far is read."""
    w, cache = data(16, 16), rl.zeros(64, 16)

    def step(number: int) -> Any:
        x = data(1, 16, seed=number)
        key = x @ w
        cache[number : number + 1] = key
        keys = cache[: number + 1]
        best = (key @ keys.T).max(-1)
        return [*(key @ keys.T).sum(0)[:2].tolist(), best.values.item(), keys.shape[0]]

    return step


def test_a_place_that_moves() -> None:
    programs = agree(with_cache, [*range(2, 16), 40, 3, 62])
    assert programs[5:15] == ["matched"] * 10, programs


def test_every_place_from_the_first_to_the_last() -> None:
    """Also where a slice is empty, or all there is, which record otherwise than others."""
    programs = agree(with_cache, [*range(8), 63, 62, 63, 0, 1])
    assert "matched" in programs


def test_one_place_of_a_cache_that_moves() -> None:
    """A whole number is a subscript by itself, that of a last axis too."""

    def make() -> Step:
        w, cache = data(16, 16), rl.zeros(40, 16)

        def step(number: int) -> Any:
            row = ((data(16, seed=number) @ w) * 0.125).floor().clamp(-3.0, 3.0)
            cache[number] = row
            cache[0, number] = 7.0
            return (row * cache[number - 1] + (row + cache[0]).sum()).tolist()

        return step

    programs = agree(make, [*range(3, 14), 5, 15])
    assert programs[6:11] == ["matched"] * 5, programs


def test_a_sequence_that_grows() -> None:
    def make() -> Step:
        w = data(8, 8)
        state = {"x": data(1, 3, 8)}

        def step(number: int) -> Any:
            x = state["x"]
            if number % 12 == 0:
                x = data(1, 3, 8)
            for _ in range(2):
                y = ((x @ w) * 0.25).floor().clamp(-3.0, 3.0)
                x = rl.cat([x, y[:, -1:, :]], dim=1)
            state["x"] = x
            last = x[:, [-1], :]
            return [x.shape[1], *last.flatten().tolist(), x.sum().item()]

        return step

    programs = agree(make, range(24))
    assert programs[5:11] == ["matched"] * 6, programs


def test_batches_of_other_sizes_with_gradients() -> None:
    def make() -> Step:
        layer = nn.Linear(6, 4)
        with rl.no_grad():
            layer.weight.copy_(data(4, 6))
            layer.bias.copy_(data(4))
        optimizer = rl.optim.SGD(layer.parameters(), lr=2.0**-10)

        def step(number: int) -> Any:
            x = data(number, 6, seed=number)
            loss = layer(x).relu().sum()
            loss.backward()
            gradient = layer.weight.grad.clone()
            optimizer.step()
            optimizer.zero_grad()
            return [loss.item(), *gradient.flatten().tolist()[:4], *layer.bias.tolist()]

        return step

    agree(make, [5, 6, 9, 7, 12, 30, 6, 2, 1, 13])


def test_numbers_that_are_counted() -> None:
    """A step number in arithmetic, and a length made of it."""

    def make() -> Step:
        x = data(5)

        def step(number: int) -> Any:
            return [*(x * number + number).tolist(), rl.arange(number).sum().item()]

        return step

    agree(make, [*range(2, 10), 1500, 40, 0, 1, 70000])


def test_two_lengths_that_change_by_themselves() -> None:
    def make() -> Step:
        w = data(4, 4)

        def step(number: int) -> Any:
            rows, columns = 2 + number % 5, 2 + number // 3
            left, right = data(rows, 4, seed=1), data(columns, 4, seed=2)
            table = (left @ w) @ right.T
            return [table.shape[0], table.shape[1], table.sum().item(), *table[-1, -2:].tolist()]

        return step

    agree(make, [*range(14), 3, 40, 5])


def test_a_window_over_a_context_that_becomes_long_enough() -> None:
    """`x[-8:]` is all there is, and later a part: what was seen of short ones says nothing."""

    def make() -> Step:
        def step(number: int) -> Any:
            x = data(number, 4)
            window = x[-8:] * 2.0
            return [window.shape[0], *window.sum(0).tolist()]

        return step

    agree(make, [*range(2, 20), 3, 8, 9])


def test_a_length_that_broadcasts_when_it_is_one() -> None:
    def make() -> Step:
        y = data(7, 3)

        def step(number: int) -> Any:
            x = data(number, 3)
            try:
                return (x + y).sum(1).tolist()
            except RidgelineError as error:
                return [len(str(error)) > 0]

        return step

    agree(make, [7, 1, 7, 1, 3, 4, 7, 5, 1])


def test_draws_beside_lengths_that_change() -> None:
    def make() -> Step:
        weights = rl.tensor([1.0, 2.0, 3.0, 2.0])

        def step(number: int) -> Any:
            x = data(number, 4)
            picked = rl.multinomial(weights, 2)
            return [*picked.tolist(), (x.sum(0)[picked]).sum().item(), rl.rand(number).shape[0]]

        return step

    agree(make, [*range(2, 12), 30, 4])


def test_views_of_unknown_length_that_are_kept_and_written() -> None:
    def make() -> Step:
        def step(number: int) -> Any:
            x = data(2 * number, 3) * 2.0
            first, second = x[:number], x[number:]
            first += 1.0
            second.mul_(first)
            return [first.shape[0], *x.sum(0).tolist(), *second[-1].tolist()]

        return step

    programs = agree(make, [*range(2, 12), 30, 4])
    assert programs[5:10] == ["matched"] * 5, programs


def test_calls_that_go_on_otherwise() -> None:
    """The length decides what is called next: nothing learnt of one length is taken for another."""

    def make() -> Step:
        w = data(4, 4)

        def step(number: int) -> Any:
            x = data(number, 4) @ w
            if number % 4 == 1:
                x = x.abs()
            if number > 9:
                x = x - 1.0
            return x.sum(0).tolist()

        return step

    agree(make, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 5, 14, 17, 6])


def test_an_index_out_of_range_is_refused() -> None:
    table = data(6, 3)

    def step(number: int, index: int) -> list[float]:
        found: list[float] = (F.embedding(rl.tensor([index] * number), table) * 2.0).sum(0).tolist()
        return found

    for number in range(2, 9):
        assert step(number, 5) == (2.0 * number * table[5]).tolist()
        background.wait()
    with pytest.raises(RidgelineError):
        step(9, 6)
    assert step(10, 4) == (20.0 * table[4]).tolist()


def test_results_that_are_held_over_other_lengths() -> None:
    def make() -> Step:
        kept: list[rl.Tensor] = []
        w = data(4, 4)

        def step(number: int) -> Any:
            kept.append(data(number, 4) @ w)
            del kept[:-3]
            total = kept[-1].sum().item()
            return [total, *[k.shape[0] for k in kept], *[k.sum().item() for k in kept]]

        return step

    agree(make, [*range(2, 14), 5, 20])


def test_one_program_is_compiled_for_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is coming, and when it is there, none is made of what was recorded."""
    jobs: list[str] = []
    submit = background.submit

    def submitted(job: Callable[[], None], next: bool = False) -> bool:
        jobs.append(job.__qualname__)
        return submit(job, next)

    monkeypatch.setattr(background, "submit", submitted)
    step = with_layers()
    for number in [5, 6, 7, 8, 5, 6, 7, 5, 6, 7, 8]:
        step(number)
    background.wait()
    with rl.record_flushes() as log:
        step(5)  # one of the lengths that it was made of
    assert log.flushes[-1].program == "matched"
    assert [job.partition(".")[0] for job in jobs] == ["OpenProgram"], jobs


def with_layers() -> Step:
    """Enough work to be worth a program."""
    w = data(16, 16)

    def step(number: int) -> Any:
        x = data(number, 16, seed=number)
        for _ in range(30):
            x = ((x @ w) * 0.125).floor().clamp(-3.0, 3.0)
        return x.sum().item()

    return step


def test_lengths_that_recur_are_matched_on_and_on() -> None:
    step = with_layers()
    lengths = [5, 6, 7, 8]
    for number in lengths * 3:
        step(number)
        background.wait()
    for _ in range(tiers._OFTEN + 5):
        with rl.record_flushes() as log:
            for number in lengths:
                step(number)
        assert {flush.program for flush in log.flushes} == {"matched"}


def test_outputs_that_are_held_over_the_update() -> None:
    """The way to the last bias is left of the graph of what a layer gave."""

    def make() -> Step:
        layer, table = nn.Linear(3, 2), data(9, 3)
        with rl.no_grad():
            for p in layer.parameters():
                p.copy_(data(*p.shape))

        def step(number: int) -> Any:
            places = (rl.arange(4) * 3 + number) % 9
            out = layer(table[places])
            layer.zero_grad()
            (out * out.detach()).sum().backward()
            with rl.no_grad():
                for p in layer.parameters():
                    assert p.grad is not None
                    p.sub_(p.grad.sign())
            return [*layer.bias.tolist(), *out.detach()[0].tolist()]

        return step

    assert agree(make, range(2, 14))[-3:] == ["matched"] * 3


def test_results_that_are_held_otherwise_from_some_step_on() -> None:
    """The calls of before, and another flush: it is learnt how that comes, at any length."""

    def make() -> Step:
        w, kept = data(6, 6), list[rl.Tensor]()

        def step(number: int) -> Any:
            found = []
            for last in (False, True):  # two tapes that begin alike
                hidden = (data(number, 6, seed=number) @ w).relu()
                if last:
                    hidden = hidden * 2.0
                    kept[:] = [hidden] if number > 11 else []
                    hidden = hidden - 1.0
                found += hidden.sum(0)[:3].tolist()
            return found

        return step

    programs = agree(make, [*range(2, 60)])
    assert programs[6:9] == ["matched"] * 3, programs
    assert programs[-8:] == ["matched"] * 8, programs


def test_a_family_that_comes_again_after_many_others() -> None:
    """Calls that begin as those of a family and go on otherwise for long are no end of it."""

    def make() -> Step:
        w = data(6, 6)

        def step(number: int) -> Any:
            found = []
            for turn in range(2):
                y = (data(number % 50, 6, seed=number) @ w).relu()
                if turn:
                    y = y * 2.0
                    if number > 50:
                        y = y.clamp(max=number + 0.5)  # a call that comes once
                found += y.sum(0)[:3].tolist()
            return found

        return step

    programs = agree(make, [*range(3, 12), *range(53, 90), *range(3, 49)])
    assert programs[-8:] == ["matched"] * 8, programs


def test_a_family_is_traced_once_while_its_program_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where its runs begin as those of another, whose program is there."""
    w, traced = data(6, 6), list[int]()

    def step(number: int, more: bool) -> Any:
        y = (data(number, 6, seed=number) @ w).relu()
        if more:
            y = y * 2.0 + 1.0
        return y.sum(0).tolist()

    for number in range(3, 9):
        step(number, False)
        background.wait()
    opened = openings._open
    monkeypatch.setattr(openings, "_open", lambda *a: traced.append(0) or opened(*a))
    monkeypatch.setattr(background, "submit", lambda job, next=False: True)  # is never done
    for number in range(3, 15):
        step(number, True)
    assert len(traced) == 1


def test_numbers_that_are_computed_with_beside_loops() -> None:
    """A loop is compiled for each size; the number of a step is none."""

    def make() -> Step:
        start, table = data(2, 3), data(7, 3)
        w = data(3, 3).requires_grad_()

        def step(number: int) -> Any:
            w.grad = None
            rows = table[(rl.arange(4) * 2 + number) % 7]
            last, _ = rl.scan(lambda c, x: ((c @ w + x).clamp(-3.0, 3.0), c), start, rows)
            (last * number).sum().backward()
            assert w.grad is not None
            return [*last.flatten().tolist(), *w.grad.flatten().tolist()]

        return step

    programs = agree(make, range(2, 14))
    assert set(programs[-3:]) <= {"found", "matched"}, programs  # nothing is interpreted or new


def test_lengths_of_loops_that_change() -> None:
    def make() -> Step:
        start, table = data(2, 3), data(30, 2, 3)

        def step(number: int) -> Any:
            last, _ = rl.scan(lambda c, x: ((c * 2 + x).clamp(-3.0, 3.0), c), start, table[:number])
            return (last * number).flatten().tolist()

        return step

    agree(make, [4, 5, 7, 6, 9, 4, 5, 12, 7, 7, 4])
