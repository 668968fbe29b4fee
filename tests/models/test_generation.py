"""generate: no compilation per token, the right shares for drawing, streams, ends and errors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ridgeline import compiler
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.models import GPT2, Llama, generate, generation
from ridgeline.models.generation import shares
from ridgeline.random import manual_seed
from ridgeline.tensors.tensor import tensor

PROMPT = np.array([[5, 2, 9], [1, 1, 4]])


@pytest.fixture(scope="module")
def model() -> Llama:
    manual_seed(0)
    return Llama(Llama.configuration("tiny"), vocab_size=40, initializer_range=0.3).eval()


@pytest.fixture
def interpreted() -> Iterator[None]:
    with config.override(tier="interpreter"):
        yield


def test_no_token_compiles_anything(model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    original = compiler.compile_graph

    def counting(*args: Any) -> Any:
        compiled.append(args)
        return original(*args)

    monkeypatch.setattr(compiler, "compile_graph", counting)
    monkeypatch.setattr("ridgeline.tracing.trace.program_for", counting)
    with config.override(tier="auto"):
        tokens = [as_array(token) for token in generate(model, PROMPT, 12, stream=True)]
        assert len(tokens) == 12
        assert model.step.traces == 2 and len(compiled) == 2  # the prompt, and one token
        generate(model, PROMPT[:, :2], 5)  # another length, other positions
        assert model.step.traces == 2 and len(compiled) == 2
        model.step.clear()
    monkeypatch.undo()
    with config.override(tier="interpreter"):
        plain = as_array(generate(model, PROMPT, 12))
    assert np.array_equal(np.stack(tokens, 1), plain[:, 3:])


def test_steps_give_the_scores_of_the_whole_text(model: Llama, interpreted: None) -> None:
    text = as_array(generate(model, PROMPT, 8))
    whole = as_array(model(tensor(text)))
    cache = model.new_cache(2, 16)
    for place in range(text.shape[1]):
        column = tensor(text[:, place : place + 1])
        scores = model.step(column, tensor(place), tensor(0), cache)
        np.testing.assert_allclose(as_array(scores), whole[:, place], rtol=1e-4, atol=1e-4)
    assert np.array_equal(whole[:, 2:-1].argmax(-1), text[:, 3:])


def expected_shares(scores: Any, temperature: float, top_k: int | None, top_p: float | None) -> Any:
    """The definition, row by row: keep the likeliest, then share out what is left."""
    rows = []
    for row in np.asarray(scores, np.float64) / temperature:
        order = np.argsort(-row, kind="stable")
        kept = order[:top_k] if top_k else order
        likely = np.exp(row[kept] - row.max())
        likely /= likely.sum()
        if top_p:
            kept = kept[: int(np.searchsorted(np.cumsum(likely), top_p)) + 1]
        result = np.zeros_like(row)
        result[kept] = np.exp(row[kept] - row.max())
        rows.append(result / result.sum())
    return np.array(rows)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 1, 4, 100])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.6, 1.0])
def test_shares(temperature: float, top_k: int | None, top_p: float | None) -> None:
    scores = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    found = as_array(shares(tensor(scores), temperature, top_k, top_p))
    wanted = expected_shares(scores, temperature, top_k, top_p)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_draws_follow_the_shares(model: Llama, interpreted: None) -> None:
    many = np.repeat(PROMPT[:1], 2000, 0)
    drawn = as_array(generate(model, many, 1, temperature=1.0, seed=1))[:, -1]
    scores = as_array(model(tensor(PROMPT[:1])))[:, -1]
    wanted = expected_shares(scores, 1.0, None, None)[0]
    found = np.bincount(drawn, minlength=40) / 2000
    assert np.abs(found - wanted).max() < 4 * np.sqrt(0.25 / 2000)


def test_a_seed_repeats_and_seeds_differ(model: Llama, interpreted: None) -> None:
    runs = [as_array(generate(model, PROMPT, 20, temperature=2.0, seed=s)) for s in (7, 7, 8)]
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])


def test_an_end_token_ends_its_row(model: Llama, interpreted: None) -> None:
    free = as_array(generate(model, PROMPT, 10))
    eos = int(free[0, 5])
    ended = as_array(generate(model, PROMPT, 10, eos=eos))
    for row, wanted in zip(ended[:, 3:], free[:, 3:]):
        stop = list(wanted).index(eos) if eos in wanted else len(wanted)
        assert np.array_equal(row[:stop], wanted[:stop][: len(row)])
        assert (row[stop:] == eos).all()


def test_a_copied_model_steps_for_itself(model: Llama, interpreted: None) -> None:
    generate(model, PROMPT, 2)
    twin = copy.deepcopy(model)
    assert np.array_equal(as_array(generate(twin, PROMPT, 3)), as_array(generate(model, PROMPT, 3)))


def test_nothing_new_and_the_last_position(interpreted: None) -> None:
    model = GPT2(vocab_size=11, n_positions=20, n_embd=8, n_layer=1, n_head=2).eval()
    assert np.array_equal(as_array(generate(model, PROMPT, 0)), PROMPT)
    assert generate(model, PROMPT, 17).shape == (2, 20)
    with pytest.raises(ArgumentError, match="20 positions"):
        generate(model, PROMPT, 18)
    with pytest.raises(ShapeError, match="20 positions"):
        model(tensor(np.zeros((1, 21), np.int64)))


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}],
)
def test_impossible_settings(model: Llama, settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        generate(model, PROMPT, 1, **settings)


def test_prompts_that_are_none(model: Llama) -> None:
    for prompt in ([1, 2], np.zeros((2, 0), np.int64), np.zeros((2, 2), np.float32)):
        with pytest.raises(ShapeError, match="a prompt is"):
            generate(model, prompt, 1)


@pytest.mark.parametrize("kind", [Llama, GPT2])
def test_prompts_of_different_lengths_do_not_see_each_other(kind: Any, interpreted: None) -> None:
    manual_seed(0)
    if kind is Llama:
        made: Any = Llama(Llama.configuration("tiny"), vocab_size=40, initializer_range=0.3)
    else:
        made = GPT2(vocab_size=40, n_positions=64, n_embd=32, n_layer=2, n_head=2,
                    initializer_range=0.3)  # fmt: skip
    made.eval()
    prompts = [[5, 2, 9, 7], [3], [1, 4]]
    together = as_array(generate(made, prompts, 6, pad=39))
    assert together.shape == (3, 10) and together[1, :3].tolist() == [39] * 3
    for row, prompt in zip(together, prompts):
        alone = as_array(generate(made, [prompt], 6))[0]
        assert row[4 - len(prompt) :].tolist() == alone.tolist()
    with pytest.raises(ShapeError, match="prompt 1 of 2 is empty"):
        generate(made, [[1], []], 2)


def test_the_end_is_noticed_late_and_nothing_follows_it(
    model: Llama, interpreted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a device is asked now and then, rows are cut where all had come to their end."""
    tokens = np.array([[5, 3, 7, 9, 9], [4, 9, 9, 9, 9]])
    assert generation._ended(tokens, 9) == 4 and generation._ended(tokens, 8) == 5
    prompt = PROMPT[:1]
    eos = int(as_array(generate(model, prompt, 12))[0, 6])
    wanted = as_array(generate(model, prompt, 12, eos=eos))[:, 3:]
    chosen = generation._chosen
    monkeypatch.setattr(generation, "_chosen", lambda *given: chosen(*given[:-1], 7))
    columns = list(generate(model, prompt, 12, eos=eos, stream=True))
    found = np.stack([as_array(column) for column in columns], 1)
    assert found.shape[1] > wanted.shape[1]  # it was noticed late
    np.testing.assert_array_equal(found[:, : generation._ended(found, eos)], wanted)
