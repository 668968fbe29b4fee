"""Ranks that are processes under MPI give what simulated ranks give, and end together."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.distributed.launcher import mpiexec
from tests.distributed import mpi_cases, mpi_meshes

ROOT = Path(__file__).parents[2]
has_mpi = importlib.util.find_spec("mpi4py") is not None
pytestmark = pytest.mark.skipif(not has_mpi, reason="needs ridgeline[distributed]")


def launch(ranks: int, *command: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ridgeline", "launch", "-n", str(ranks), *map(str, command)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def test_processes_give_what_simulated_ranks_give(tmp_path: Path) -> None:
    ran = launch(3, "-m", "tests.distributed.mpi_cases", tmp_path)
    assert ran.returncode == 0, ran.stderr
    for rank, want in enumerate(dist.run(mpi_cases.everything, ranks=3)):
        got = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        for kind in range(2):
            assert len(got[kind]) == len(want[kind])
            for ours, theirs in zip(got[kind], want[kind], strict=True):
                assert ours.dtype == theirs.dtype
                exact = ours.dtype.kind != "f" or kind == 0
                np.testing.assert_allclose(
                    ours.astype(complex), theirs.astype(complex), rtol=0 if exact else 1e-12
                )
        assert got[2] == want[2]  # calls and bytes, by axis


def test_meshes_of_processes_come_to_what_simulated_ones_do(tmp_path: Path) -> None:
    ran = launch(mpi_meshes.RANKS, "-m", "tests.distributed.mpi_meshes", tmp_path, timeout=180)
    assert ran.returncode == 0, ran.stderr
    with rl.config.override(tier="interpreter"):
        simulated = dist.run(mpi_meshes.everything, ranks=mpi_meshes.RANKS)
    for rank, want in enumerate(simulated):
        got = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        for (ours, sent), (theirs, counted) in zip(got, want, strict=True):
            assert sent == counted  # calls and bytes, by axis
            for name, value in theirs.items():
                if "key.bias" not in name:  # of which the gradient is rounding alone
                    largest = np.abs(value).max()
                    np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-9 * largest)


PROGRAM = """
import os, signal, sys, time
import numpy as np
from pathlib import Path
from ridgeline import distributed as dist
from ridgeline.communicators import status
def waiting():
    records = status.read_records(Path(os.environ[status.FOLDER]))
    return [each for each in records if each.state == status.WAITING]
world = dist.world()
world.barrier()
if sys.argv[1] == "differ":
    world.all_gather(np.zeros(3)) if world.rank == 1 else world.all_reduce(np.zeros(3))
if sys.argv[1] == "die" and world.rank == 1:
    while not any("all_reduce" in each.text for each in waiting()):
        time.sleep(0.01)  # the other rank may still be on its way
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "silent" and world.rank == 1:
    time.sleep(600)
if sys.argv[1] == "leave" and world.rank == 1:
    sys.exit(0)
if sys.argv[1] == "again":
    os.write(1, f"restart {os.environ['RIDGELINE_RESTART']}\\n".encode())  # one write, one line
    if os.environ["RIDGELINE_RESTART"] == "0":
        raise ValueError("at first")
world.all_reduce(np.zeros(5))
"""


@pytest.mark.parametrize(
    "fault, words",
    [
        ("differ", ["rank 1 all_gather(float64[3]) along world at", "program.py:13", "code 1"]),
        ("die", ["rank 1 died", "waits in all_reduce(float64[5], sum) along world", "code 9"]),
        ("leave", ["all that are left wait", "rank 1 has ended", "waits in all_reduce"]),
        (
            "silent",
            [
                "rank 1 is silent: rank 0 has waited for it for more than 4 s",
                "rank 0 waits in all_reduce(float64[5], sum) along world at",
                "program.py:26",
                "rank 1 computes, after barrier() along world at",
                "program.py:11",
            ],
        ),
    ],
)
def test_faults_end_the_job_on_all_ranks(fault: str, words: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = launch(2, "--timeout", "4" if fault == "silent" else "60", program, fault)
    assert ran.returncode != 0
    for word in words:
        assert word in ran.stderr


def test_a_silent_rank_under_mpiexec_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [*mpiexec(2), sys.executable, str(program), "silent"], cwd=ROOT, capture_output=True,
        text=True, timeout=60, env={**os.environ, "RIDGELINE_TIMEOUT": "4"},
    )  # fmt: skip
    assert ran.returncode != 0
    assert "rank 0 waited 4 s in all_reduce(float64[5], sum) along world at" in ran.stderr
    assert "program.py:26" in ran.stderr


def test_a_job_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = launch(2, "--restarts", "2", program, "again")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("restart 1") == 2 and "start 2 of 3" in ran.stderr
    assert "rank" in ran.stderr and "ValueError: at first" in ran.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-n", "0", "x.py"], "there is no file x.py"),
        (["-n", "2"], "nothing to launch"),
        (["-n", "0", __file__], "at least one rank"),
        (["-n", "2", "--timeout", "0", __file__], "a timeout is more than nothing"),
    ],
)
def test_wrong_launches(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from ridgeline.cli.main import main

    assert main(["launch", *arguments]) == 2
    assert words in capsys.readouterr().err
