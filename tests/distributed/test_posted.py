"""Collectives that compiled code posts to the thread which talks to the other ranks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.current import current_rank
from ridgeline.distributed import functional
from ridgeline.distributed.launcher import mpiexec
from tests.distributed.test_mpi import ROOT, launch

has_mpi = importlib.util.find_spec("mpi4py") is not None
over_mpi = pytest.mark.skipif(not has_mpi, reason="needs ridgeline[distributed]")
CASES = "tests.distributed.posted_cases"


@over_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_processes(ranks: int) -> None:
    cases = ["large_sums", "programs", "messages_before_sums", "splits_between", "together"]
    cases += ["differ"] if ranks == 2 else []
    ran = launch(ranks, "-m", CASES, *cases, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("done:") == len(cases)


@over_mpi
def test_an_interrupted_rank_ends_the_job() -> None:
    ran = launch(2, "-m", CASES, "interrupted", timeout=120)
    assert ran.returncode != 0
    assert "all_reduce(float64[3], sum) along world at" in ran.stderr
    assert "a program ended early on this rank in the middle of its collectives" in ran.stderr


@over_mpi
def test_a_silent_rank() -> None:
    ran = launch(2, "--timeout", "4", "-m", CASES, "silent", timeout=120)
    assert ran.returncode != 0
    assert "rank 1 is silent: rank 0 has waited for it for more than 4 s" in ran.stderr
    assert "rank 0 waits in all_reduce(float64[8192, 5], mean) along world at" in ran.stderr
    assert "posted_cases.py:" in ran.stderr


@over_mpi
def test_a_silent_rank_under_mpiexec_alone() -> None:
    ran = subprocess.run(
        [*mpiexec(2), sys.executable, "-m", CASES, "silent"], cwd=ROOT, capture_output=True,
        text=True, timeout=120, env={**os.environ, "RIDGELINE_TIMEOUT": "4"},
    )  # fmt: skip
    assert ran.returncode != 0
    assert "rank 0 waited 4 s in all_reduce(float64[8192, 5], mean) along world at" in ran.stderr


@pytest.fixture(autouse=True)
def compiled() -> Any:
    with rl.config.override(tier="compiled"):
        yield


def step(x: Any) -> Any:
    y = functional.all_reduce(x * 2, "mean")
    return functional.all_reduce(y @ y) + functional.all_gather(x[:1]).sum()


@pytest.mark.parametrize("jitted", [True, False])
def test_simulated_ranks_post_what_they_call_else(jitted: bool) -> None:
    def work() -> tuple[list[np.ndarray], int, bool]:
        run = rl.jit(step) if jitted else step
        rank = dist.world().rank
        x = [rl.tensor(np.random.default_rng([rank, n]).normal(size=(6, 6))) for n in range(4)]
        found = [run(each).numpy() for each in x]
        return found, dist.world().counters.calls(), current_rank().mailbox is not None

    made = dist.run(work, ranks=3)
    x = np.array([[np.random.default_rng([r, n]).normal(size=(6, 6)) for n in range(4)]
                  for r in range(3)])  # fmt: skip
    for found, calls, posted in made:
        assert calls == 12 and posted
        for number, ours in enumerate(found):
            mean = 2 * x[:, number].mean(0)
            want = 3 * mean @ mean + x[:, number, 0].sum()
            np.testing.assert_allclose(ours, want, rtol=1e-12)


def test_sizes_that_change() -> None:
    def work() -> list[float]:
        run = rl.jit(step, dynamic=True)
        return [run(rl.ones(n, n, dtype=rl.float64)).sum().item() for n in (3, 5, 4, 9, 3)]

    for found in dist.run(work, ranks=2):
        assert found == [n**2 * (2 * 4 * n + 2 * n) for n in (3, 5, 4, 9, 3)]


def test_a_rank_that_calls_nothing_ends_the_others() -> None:
    def work() -> None:
        run = rl.jit(step)
        run(rl.ones(2, 2))
        if dist.world().rank != 1:
            run(rl.ones(2, 2)).numpy()

    with pytest.raises(CommunicationError, match="which rank 1 never calls: it has returned"):
        dist.run(work, ranks=3)


def test_ranks_that_wait_for_each_other() -> None:
    """One rank waits in machine code for a program, the other for another call."""

    def work() -> None:
        group = dist.world().split(0, dist.world().rank, "other")
        if dist.world().rank:
            group.all_reduce(np.ones(2))
        rl.jit(step)(rl.ones(2, 2)).numpy()

    with pytest.raises(CommunicationError, match="no rank can go on"):
        dist.run(work, ranks=2)


def test_wrong_indices_are_reported_once_all_ranks_have_called() -> None:
    """The rank with the wrong index raises; the others have their results."""

    def work() -> str:
        weight = rl.zeros(4, 2)

        @rl.jit
        def look_up(x: Any, indices: Any) -> Any:
            total = functional.all_reduce(x)
            weight.add_(functional.all_reduce(rl.nn.functional.embedding(indices, x).sum()))
            return total

        bad = dist.world().rank == 1
        try:
            look_up(rl.ones(4, 2), rl.tensor([0, 7 if bad else 1])).numpy()
        except IndexError:
            return "raised"
        return "returned" if bad else "fine"

    assert dist.run(work, ranks=2) == ["fine", "raised"]


def test_profile_counts_the_waits(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        jitted = rl.jit(step)
        x = rl.ones(4, 4)
        jitted(x).numpy()
        report = str(jitted.profile(x))
        if dist.world().rank == 0:
            print(report)

    dist.run(work, ranks=2)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("wait ") for line in lines) == 3
