"""Ranks are killed at any moment, and the run that goes on gives the losses of an unbroken one."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
has_mpi = importlib.util.find_spec("mpi4py") is not None
pytestmark = pytest.mark.skipif(not has_mpi, reason="needs ridgeline[distributed]")


def losses(folder: Path, steps: int, *kills: object) -> tuple[dict[int, str], str]:
    """The loss of every step, once or several times the same, and what the launcher said."""
    folder.mkdir()
    words = [
        *(sys.executable, "-m", "ridgeline", "launch", "-n", "2", "--restarts", "3"),
        *("-m", "tests.distributed.killed_training", str(folder), str(steps), *map(str, kills)),
    ]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert ran.returncode == 0, ran.stderr
    found: dict[int, str] = {}
    for line in (folder / "losses").read_text().splitlines():
        step, value = line.split()
        assert found.setdefault(int(step), value) == value, f"step {step} came out differently"
    assert sorted(found) == list(range(1, steps + 1))
    return found, ran.stderr


def test_a_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    expected, _ = losses(tmp_path / "whole", 12)
    found, said = losses(tmp_path / "killed", 12, 1, "checkpoint", 0, "checkpoint")
    assert found == expected
    assert "rank 1 died" in said and "start 3 of 4" in said


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    steps, killed = 30, 0
    expected, _ = losses(tmp_path / "whole", steps)
    moments = random.Random(7)
    for run in range(7):
        kills: list[object] = []
        for _ in range(3):
            moment = f"{moments.randrange(9)}+{moments.uniform(0, 0.05):.4f}"
            moment = "checkpoint" if moments.random() < 0.3 else moment
            kills += [moments.randrange(2), moment]
        found, said = losses(tmp_path / f"killed {run}", steps, *kills)
        assert found == expected
        killed += said.count("died (the job")
    assert killed >= 20
