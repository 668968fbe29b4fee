"""Ranks found from launchers' variables, and faults found from the records of ranks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.communicators import status
from ridgeline.communicators.status import Status, StatusRecord, read_records
from ridgeline.distributed.discovery import JobStartError, Launched, find_world, launched
from ridgeline.distributed.launcher import Deaths, death, fault

VARIABLES = {
    "torchrun": {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"},
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    },
    "MPICH": {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"},
    "Slurm": {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"},
}


@pytest.mark.parametrize("launcher", VARIABLES)
def test_ranks_are_found_from_variables(launcher: str) -> None:
    assert launched(VARIABLES[launcher]) == Launched(launcher, 3, 8, 1)


def test_the_nearest_launcher_counts() -> None:
    assert launched({**VARIABLES["torchrun"], **VARIABLES["MPICH"]}) == Launched("MPICH", 3, 8, 1)
    inside = {**VARIABLES["torchrun"], "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    assert launched(inside) == Launched("torchrun", 3, 8, 1)


def test_no_launcher_is_no_job() -> None:
    assert launched({}) is None
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None  # a batch script itself


@pytest.mark.parametrize("rank", ["9", "-1", "x"])
def test_variables_that_cannot_be_are_refused(rank: str) -> None:
    with pytest.raises(JobStartError, match="MPICH"):
        launched({"PMI_RANK": rank, "PMI_SIZE": "8"})


def test_torchrun_on_cpus_says_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES["torchrun"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(JobStartError, match="ridgeline launch -n 4"):
        find_world()


def record(rank: int, state: int, since: float, text: str = "barrier() along dp") -> Status:
    return Status(rank, state, 1, 1, since, text)


def test_what_stops_a_job() -> None:
    waits, runs = status.WAITING, status.RUNNING
    stuck = [record(0, waits, 90), record(1, waits, 95)]
    assert "no rank can go on" in fault(stuck, 2, 300, 100)
    assert "rank 1 waits in barrier() along dp" in fault(stuck, 2, 300, 100)
    assert fault(stuck, 2, 300, 96) == ""  # one has only just come
    assert fault(stuck, 3, 300, 100) == ""  # another has not begun
    left = [record(0, waits, 90), record(1, status.ENDED, 80)]
    assert "rank 1 has ended" in fault(left, 2, 300, 100)
    silent = [record(0, waits, 10), record(1, runs, 5)]
    told = fault(silent, 2, 60, 100)
    assert "rank 1 is silent: rank 0 has waited for it for more than 60 s" in told
    assert fault(silent, 2, 300, 100) == ""
    compiling = [record(0, waits, 10), record(1, status.COMPILING, 5)]
    assert fault(compiling, 2, 60, 100) == ""


def test_a_death_is_told() -> None:
    records = [record(0, status.WAITING, 1), record(1, status.RUNNING, 1, "all_reduce() along tp")]
    told = death(records, [1, 0], -9)
    assert told.startswith("rank 1 died (the job ended with signal SIGKILL)")
    assert "rank 1 computes, after all_reduce() along tp" in told
    assert death(records, [0], -9).startswith("rank 0 died")
    failed = [*records, record(2, status.FAILED, 1, "ValueError: mine")]
    assert death(failed, [1], 1).endswith("rank 2 failed: ValueError: mine")


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_death_is_known_though_all_are_gone(first: int) -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) for _ in range(3)]
    with contextlib.closing(Deaths()) as deaths:
        records = [Status(n, status.RUNNING, each.pid, 1, 0.0, "") for n, each in enumerate(ranks)]
        assert deaths.watch(records) == () and deaths.next(0.0) == ()
        for each in (ranks[first], *ranks):  # a rank that has ended is asked once more: no harm
            each.kill()
            each.communicate()
        assert deaths.next(0.0) == (first,)


def test_ranks_that_were_gone_before_are_said() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with contextlib.closing(Deaths()) as deaths:
        assert deaths.watch([Status(4, status.RUNNING, gone.pid, 1, 0.0, "")]) == (4,)


def test_records_are_read_while_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(status.FOLDER, str(tmp_path))
    kept = StatusRecord(4)
    kept.came_to("all_reduce(float32[3], sum) along tp at train.py:7")
    kept.become(status.WAITING)
    (found,) = read_records(tmp_path)
    assert (found.rank, found.calls, found.state) == (4, 1, status.WAITING)
    assert str(found).startswith("rank 4 waits in all_reduce(float32[3], sum) along tp at train")
    kept.become(status.FAILED, "é" * 5000)
    kept.become(status.ENDED)
    assert read_records(tmp_path)[0].state == status.FAILED
