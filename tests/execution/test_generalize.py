"""Undecorated code whose lengths, offsets and counts change: one program serves them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.execution import generalize, tiers
from ridgeline.execution.generalize import sizes_of
from ridgeline.graph.graph import Graph
from ridgeline.graph.sizes import evaluate

Floats = NDArray[np.floating]


@pytest.fixture(autouse=True)
def beside(nothing_recorded: None) -> Iterator[None]:
    # tapes have programs over unknown sizes of their own, see tests/tape/openings.py
    with config.override(background=True, tier="auto", tape=False):
        generalize._forms.clear()
        yield
        background.wait()


def _programs(run: Callable[[int], object], numbers: Sequence[int]) -> list[str]:
    """How the last flush of each run was computed; what is compiled beside is waited for."""
    found = []
    for number in numbers:
        with rl.record_flushes() as log:
            run(number)
        found.append(log.flushes[-1].program)
        background.wait()
    return found


def _close(got: rl.Tensor, wanted: Floats) -> None:
    np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-5, atol=1e-5)


def test_new_lengths_are_the_same_program() -> None:
    source = np.random.default_rng(0)
    w = source.standard_normal((16, 16)).astype(np.float32)
    weight = rl.tensor(w)

    def run(length: int) -> None:
        given = source.standard_normal((length, 16)).astype(np.float32)
        x, truth = rl.tensor(given), given.astype(np.float64)
        for _ in range(6):
            x = (x @ weight).tanh() + x.mean(0)
            truth = np.tanh(truth @ w) + truth.mean(0)
        wide = np.exp(truth - truth.max(0))
        _close(x.softmax(0), wide / wide.sum(0))

    found = _programs(run, [5, 6, 7, 50, 13, 2])
    assert found[:2] == ["interpreted", "interpreted"]
    assert set(found[2:5]) == {"found"}  # 2 may lie under a fact that was decided for 6


def test_a_cache_that_is_written_at_moving_places_and_read_further_each_time() -> None:
    source = np.random.default_rng(1)
    keys = rl.zeros(1, 32, 2, 8)
    kept = np.zeros((1, 32, 2, 8))

    def run(position: int) -> None:
        new = source.standard_normal((1, 1, 2, 8)).astype(np.float32)
        query = source.standard_normal((1, 1, 2, 8)).astype(np.float32)
        keys[:, position : position + 1] = rl.tensor(new)
        kept[:, position : position + 1] = new
        seen = keys[:, : position + 1].transpose(1, 2)
        scores = rl.tensor(query).transpose(1, 2) @ seen.transpose(2, 3)
        out = (scores.softmax(-1) @ seen).tanh().sin().exp().cos().sinh()
        truth = kept[:, : position + 1].transpose(0, 2, 1, 3)
        weights = query.astype(np.float64).transpose(0, 2, 1, 3) @ truth.transpose(0, 1, 3, 2)
        wide = np.exp(weights - weights.max(-1, keepdims=True))
        mixed = (wide / wide.sum(-1, keepdims=True)) @ truth
        _close(out, np.sinh(np.cos(np.exp(np.sin(np.tanh(mixed))))))

    found = _programs(run, [3, 4, 5, 6, 7, 20, 31])
    assert set(found[3:-1]) == {"found"}  # at the last place nothing lies behind the new key


def test_counts_that_follow_the_data() -> None:
    source = np.random.default_rng(2)
    w = source.standard_normal((8, 8)).astype(np.float32)
    weight = rl.tensor(w)

    def run(number: int) -> None:
        given = source.standard_normal((40, 8)).astype(np.float32)
        x, out = rl.tensor(given), rl.zeros(40, 8)
        truth = np.zeros((40, 8))
        for part in range(3):
            mine = np.floor(given[:, 0] * 7).astype(int) % 3 == part
            (rows,) = rl.where(rl.tensor(mine))
            out[rows] += (x[rows] @ weight).relu().sin().exp() * (part + 1)
            truth[mine] += np.exp(np.sin(np.maximum(given[mine].astype(float) @ w, 0))) * (part + 1)
        _close(out, truth)

    found = _programs(run, range(12))
    assert "found" in found[4:]


def test_gradients_of_batches_of_many_sizes() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.LayerNorm(12), nn.Linear(12, 3))
    source = np.random.default_rng(3)

    def gradients(x: rl.Tensor, y: rl.Tensor) -> list[Floats]:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        return [p.grad.numpy().copy() for p in model.parameters()]

    def run(batch: int) -> None:
        x = rl.tensor(source.standard_normal((batch, 6)).astype(np.float32))
        y = rl.tensor(source.integers(0, 3, batch))
        got = gradients(x, y)
        with config.override(tier="interpreter"):
            wanted = gradients(x, y)
        for mine, theirs in zip(got, wanted):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)

    for batch in (4, 5, 6, 7, 31, 8):
        run(batch)
        background.wait()


def test_two_lengths_that_were_equal_by_chance_are_told_apart_later() -> None:
    def run(first: int, second: int) -> None:
        a, b = rl.arange(float(first)), rl.arange(float(second))
        x = (a.sin() * a).exp().cos().sum() + (b.cos() + b).sin().exp().sum()
        x = (x + 1).sin().exp().tanh().sqrt() * (x * x + 1).log().sin().exp()
        one, two = np.arange(first, dtype=float), np.arange(second, dtype=float)
        total = np.cos(np.exp(np.sin(one) * one)).sum() + np.exp(np.sin(np.cos(two) + two)).sum()
        truth = np.sqrt(np.tanh(np.exp(np.sin(total + 1)))) * np.exp(
            np.sin(np.log(total * total + 1))
        )
        np.testing.assert_allclose(x.item(), truth, rtol=1e-3)
        background.wait()

    for pair in ((3, 3), (4, 4), (5, 5), (3, 5), (6, 4), (2, 9), (7, 7)):
        run(*pair)


def test_numbers_become_unknowns_multiples_sums_and_squares() -> None:
    samples = [(5, 4, 20, 6, 27, 50, 9, 1), (7, 4, 28, 8, 25, 98, 2, 1)]
    found = sizes_of(samples)
    assert found is not None
    sizes, places = found
    assert places == {"N0": 0, "N1": 6}
    for sample in samples:
        values = {name: sample[place] for name, place in places.items()}
        assert tuple(evaluate(size, values) for size in sizes) == sample
    at_ten = [evaluate(size, {"N0": 10, "N1": 3}) for size in sizes]
    assert at_ten == [10, 4, 40, 11, 22, 200, 3, 1]


def test_what_is_no_size_stays_a_number() -> None:
    assert sizes_of([(-1, 3), (4, 3)]) is None
    assert sizes_of([(2, 3), (1 << 40, 3)]) is None


def test_a_defect_of_the_compiler_is_said_and_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*given: object) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(generalize.General, "__init__", broken)
    weight = rl.tensor(np.eye(16, dtype=np.float32))
    with pytest.warns(RuntimeWarning, match="defect of the compiler.*planted"):
        for length in (5, 6, 7, 8):
            x = rl.tensor(np.full((length, 16), 0.5, np.float32))
            for _ in range(6):
                x = (x @ weight) + x.mean(0)
            _close(x, np.full((length, 16), 32.0))
            background.wait()


def test_a_piece_that_comes_very_often_gets_a_program_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where many come in turns they go on sharing one, and nobody derives anything again."""
    monkeypatch.setattr(tiers, "_OFTEN", 8)
    weight = rl.tensor(np.eye(16, dtype=np.float32))
    own: list[int] = []
    compile_beside = tiers._compile_beside

    def noted(piece: tiers._Piece, settings: Any, graph: Graph) -> None:
        own.append(int(graph.outputs[0].shape[0]))
        compile_beside(piece, settings, graph)

    monkeypatch.setattr(tiers, "_compile_beside", noted)

    def run(length: int) -> None:
        x = rl.tensor(np.full((length, 16), 0.5, np.float32))
        for _ in range(12):
            x = (x @ weight).tanh() + x.mean(0)
        x.numpy()

    with config.override(tape=True):
        _programs(run, [5, 6, 7, 8, 9, 10, 11, 12] * 12)
        assert not own
        assert _programs(run, [7] * 60)[-1] in ("matched", "found")
    assert set(own) <= {7}


def test_recurrences_over_ever_new_lengths_are_interpreted_until_one_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have no program for all lengths, and compiling each would take longer than its run."""
    layer, width = nn.LSTM(32, 96, num_layers=2, bidirectional=True), 32
    compiled: list[int] = []

    def noted(piece: tiers._Piece, settings: Any, graph: Graph) -> None:
        compiled.append(length)

    monkeypatch.setattr(tiers, "_compile_beside", noted)

    def run(length: int) -> None:
        layer.zero_grad()
        layer(rl.ones(length, 20, width))[0].square().mean().backward()
        layer.weight_hh_l0.grad.numpy()

    for length in (40, 41, 42):  # parameters are drawn, gradients are new, and then all is known
        _programs(run, [length])
    for length in (43, 44, 45, 46):
        assert _programs(run, [length]) == ["interpreted"]
    assert not {43, 44, 45, 46} & set(compiled)
    length = 44
    assert "new" in _programs(run, [44] * 2) or 44 in compiled


def test_texts_packed_by_other_lengths_are_one_structure() -> None:
    """Packing is one selection, not a slice for each step: lengths are numbers in its form."""
    source = np.random.default_rng(1)

    def run(longest: int) -> None:
        lengths = [longest, longest - 1, longest // 2, 2]
        x = source.standard_normal((4, longest, 300)).astype(np.float32)
        packed = nn.utils.rnn.pack_padded_sequence(rl.tensor(x), lengths, batch_first=True)
        data = packed.data.tanh() + packed.data.exp().mean(0)
        real = np.concatenate([x[: sum(n > t for n in lengths), t] for t in range(longest)])
        _close(data, np.tanh(real) + np.exp(real.astype(np.float64)).mean(0))

    found = _programs(run, [30, 41, 52, 63, 37])
    assert "interpreted" not in found[3:]
