"""The programs of `benchmarks/programs` compute what torch computes, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("einops")

from benchmarks.programs import NAMES
from benchmarks.programs.check import check, excess
from benchmarks.programs.draws import same_draws
from benchmarks.programs.memory import measure

# jit compiles whole steps; these few stand for the rest, which the slow test has
JITTED = ("vae", "maml")


@pytest.fixture(autouse=True)
def one_thread_of_torch() -> Iterator[None]:
    """Tests run side by side, and torch's threads spin while they wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("program", NAMES)
def test_losses_of_undecorated_programs_follow_torch(program: str) -> None:
    assert check(program, small=True, steps=4, ways=["undecorated"])["undecorated"] <= 1


@pytest.mark.parametrize("program", JITTED)
def test_losses_of_jitted_programs_follow_torch(program: str) -> None:
    assert check(program, small=True, steps=4, ways=["jit"])["jit"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("program", NAMES)
def test_fifty_steps_follow_torch_in_both_ways_to_run(program: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that something is traced again
        found = check(program, small=True, steps=50)
    assert max(found.values()) <= 1, found


def test_draws_are_the_same_numbers_in_both_frameworks() -> None:
    import torch

    import ridgeline as rl

    drawn = []
    for lib in (torch, rl):
        with same_draws(lib):
            weights = lib.tensor([[0.1, 0.2, 0.7]] * 50)
            found = [
                lib.rand(3, 5), lib.randn((4,)), lib.randn_like(lib.zeros(2, 2)),
                lib.randint(3, 9, (20,)), lib.multinomial(weights, 2),
                lib.nn.functional.dropout(lib.ones(40), 0.25), lib.nn.Dropout(0.5)(lib.ones(9)),
            ]  # fmt: skip
            drawn.append([f.numpy() for f in found])
    for theirs, ours in zip(*drawn):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    whole = drawn[0][3]
    assert whole.min() >= 3 and whole.max() < 9
    assert np.mean(drawn[0][4] == 2) > 0.5


def test_excess_compares_with_twice_the_error_of_torch_or_a_part_of_the_loss() -> None:
    double = np.array([1.0, 1.0, 1.0])
    single = double + np.array([0.0, 1e-3, 0.0])
    assert excess(double + 1e-6, single, double) == pytest.approx(0.1)
    assert excess(double + np.array([0, 0, 4e-3]), single, double) == pytest.approx(2.0)


def test_memory_is_measured_in_processes_of_their_own() -> None:
    found = measure("gcn", "torch", small=True, steps=20)
    assert found.peak > 10 and abs(found.growth) < found.peak
