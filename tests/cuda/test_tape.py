"""Undecorated steps on a GPU are matched against tapes as those on the host are.

The GPU is pretended. Torch on the host says what the losses are.
"""

from __future__ import annotations

import numpy as np
import torch

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler.background import background
from ridgeline.config import config

from .fake_code import FakeCode

DATA = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
LABELS = (DATA.argmax(1) % 2).astype(np.int64)


def steps(framework, model, data, place) -> tuple[list[float], list[str]]:
    """Losses of some steps over moving batches, whose labels come from the host each time."""
    optimizer = framework.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, programs = [], []
    for number in range(6):
        rows = slice(number * 5, number * 5 + 5)
        with rl.record_flushes() as log:
            optimizer.zero_grad()
            labels = framework.tensor(LABELS[rows]).to(place)
            loss = framework.nn.functional.cross_entropy(model(data[rows]), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        programs += [flush.program for flush in log.flushes[:1]]
    return losses, programs


def network(framework):
    return framework.nn.Sequential(
        framework.nn.Linear(4, 8), framework.nn.ReLU(), framework.nn.Linear(8, 2)
    )


def test_steps_are_matched_and_their_losses_are_those_of_torch(fake_code: FakeCode) -> None:
    theirs, ours = network(torch), network(rl)
    ours.load_state_dict({k: rl.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    found, programs = steps(rl, ours.to("cuda"), rl.tensor(DATA).to("cuda"), "cuda")
    np.testing.assert_allclose(found, steps(torch, theirs, torch.tensor(DATA), "cpu")[0], rtol=1e-5)
    assert programs[-2:] == ["matched", "matched"]


def test_draws_of_matched_steps_are_those_of_recorded_ones(fake_code: FakeCode) -> None:
    def losses(tape: bool) -> tuple[list[float], list[str]]:
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).to("cuda")
        with config.override(tape=tape):
            return steps(rl, model, rl.tensor(DATA).to("cuda"), "cuda")

    recorded, _ = losses(False)
    matched, programs = losses(True)
    assert matched == recorded
    assert programs[-1] == "matched"


def test_a_tape_tells_one_gpu_from_another(fake_code: FakeCode) -> None:
    on = [rl.arange(4.0).to(f"cuda:{number}") for number in (0, 1)]
    for number in (0, 0, 0, 1, 0, 1, 1):
        made = (on[number] * 3 + 1).sum(0, keepdim=True)
        assert made.device == rl.device(f"cuda:{number}")
        assert made.tolist() == [22.0]


def test_what_another_call_wrote_is_read_by_a_matched_one(fake_code: FakeCode) -> None:
    state = rl.zeros(3).to("cuda")
    for number in range(6):
        total = (state + 1.0) * 2.0
        assert total.tolist() == [2.0 * (number + 1)] * 3
        state.add_(1.0)
        assert state.tolist() == [number + 1.0] * 3


def test_whole_numbers_that_change_are_no_new_code(fake_code: FakeCode) -> None:
    rows = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    x = rl.tensor(rows).to("cuda")
    found = []
    with config.override(tier="auto", background=True, tape=False):
        for number in (2, 3, 5, 7, 11, 13):
            with rl.record_flushes() as log:
                made = ((x * number).tanh() + number).sum(0)
                got = made.tolist()
            wanted = (np.tanh(rows.astype(np.float64) * number) + number).sum(0)
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
            found += [flush.program for flush in log.flushes]
            background.wait()
    assert set(found[3:]) == {"found"}, found


def test_lengths_that_change_are_computed_on_a_gpu_too(fake_code: FakeCode) -> None:
    with config.override(tier="auto", background=True):
        for length in (4, 5, 6, 7, 8, 9, 4, 5):
            rows = np.random.default_rng(length).standard_normal((length, 8)).astype(np.float32)
            got = (rl.tensor(rows).to("cuda").softmax(0) * length).sum(1).tolist()
            wide = np.exp(rows - rows.max(0))
            np.testing.assert_allclose(got, (wide / wide.sum(0) * length).sum(1), rtol=1e-5)
            background.wait()
