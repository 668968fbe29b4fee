"""Ranks with a GPU each and no MPI: found by torchrun's variables, over a library that pretends."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest

from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.current import Rank, acting_as
from ridgeline.communicators.rendezvous import MeetingPlace, fetch, hand_out
from ridgeline.distributed import discovery, nccl_groups, simulation
from ridgeline.distributed.discovery import JobStartError, find_world
from ridgeline.runtime.cuda import driver, nccl
from tests.cuda.fake_driver import FakeDriver
from tests.cuda.fake_nccl import FakeNccl
from tests.distributed import mpi_cases


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def place(port: int, job: str = "a") -> MeetingPlace:
    return MeetingPlace("127.0.0.1", port, job)


def on_threads(count: int, work: Any) -> list[Any]:
    """What a function gives for each number, all at once."""
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            found[number] = work(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    return found


def test_the_first_rank_hands_out_what_it_has() -> None:
    meeting = place(free_port())

    def work(rank: int) -> bytes | None:
        if rank:
            return fetch(meeting, rank, 20)
        hand_out(meeting, b"the id", 3, 20)
        return None

    assert on_threads(4, work) == [None, b"the id", b"the id", b"the id"]


def test_other_listeners_and_other_jobs_are_passed_by() -> None:
    with socket.socket() as other:  # something else has the first port, and says nothing of ours
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1] - 1
        other.listen()
        threading.Thread(target=lambda: other.accept()[0].sendall(b"x" * 99), daemon=True).start()

        def work(number: int) -> bytes | None:
            job = "ab"[number // 2]
            if number % 2:
                return fetch(place(port, job), 1, 20)
            hand_out(place(port, job), job.encode(), 1, 20)
            return None

        assert on_threads(4, work) == [None, b"a", None, b"b"]


def test_who_never_comes_is_said() -> None:
    with pytest.raises(CommunicationError, match="0 of 2 ranks came to"):
        hand_out(place(free_port()), b"x", 2, 0.2)
    with pytest.raises(CommunicationError, match="rank 3 found the first rank nowhere"):
        fetch(place(free_port()), 3, 0.1)
    with pytest.raises(CommunicationError, match="MASTER_PORT='x'"):
        MeetingPlace.of({"MASTER_ADDR": "here", "MASTER_PORT": "x"})


@pytest.fixture
def library(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeNccl:
    made = FakeNccl(fake)
    monkeypatch.setattr(nccl, "library", lambda: made)
    return made


def over_nccl(ranks: int, work: Any) -> list[Any]:
    """What a function gives on ranks whose world is that of NCCL."""
    port = free_port()

    def run(rank: int) -> Any:
        def share(name: bytes) -> bytes:
            if rank:
                return fetch(place(port), rank, 20)
            hand_out(place(port), name, ranks - 1, 20)
            return name

        with acting_as(Rank(nccl_groups.nccl_world(rank, ranks, rank, share))):
            return work()

    return on_threads(ranks, run)


def test_it_gives_what_simulated_ranks_give(library: FakeNccl) -> None:
    found = over_nccl(2, lambda: (mpi_cases.arrays(True), mpi_cases.counted()))
    expected = simulation.run(lambda: (mpi_cases.arrays(True), mpi_cases.counted()), ranks=2)
    for got, want in zip(found, expected, strict=True):
        assert not isinstance(got, Exception), got
        assert got[1] == want[1]  # calls and bytes, by axis
        for ours, theirs in zip(got[0], want[0], strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours.astype(complex), theirs.astype(complex))
    assert {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclSend"} <= set(library.calls)


def test_messages_out_of_order_are_refused(library: FakeNccl) -> None:
    def work() -> None:
        world = discovery_world()
        sent = [world.send(np.zeros(2), 1 - world.rank, tag) for tag in (3, 4)]
        world.recv(np.zeros(2), 1 - world.rank, 4).wait()
        sent[0].wait()

    for error in over_nccl(2, work):
        assert "comes with tag 3: NCCL delivers messages in the order" in str(error)


def test_ranks_that_call_different_collectives_are_told(library: FakeNccl) -> None:
    def work() -> None:
        world = discovery_world()
        x = np.zeros(3)
        world.all_gather(x) if world.rank else world.all_reduce(x)

    for error in over_nccl(2, work):
        assert isinstance(error, CommunicationError)
        assert "call different collectives: rank 0 all_reduce(float64[3], sum)" in str(error)
        assert "rank 1 all_gather(float64[3]) along world at" in str(error)


def discovery_world() -> Any:
    from ridgeline.distributed import world

    return world()


def test_an_old_library_cannot_split(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeNccl(fake, version=21700)
    monkeypatch.setattr(nccl, "library", lambda: made)
    for error in over_nccl(2, lambda: discovery_world().split(0)):
        assert "version 2.18" in str(error)


def under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    given = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**given, "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)


def test_a_missing_library_is_said(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    under_torchrun(monkeypatch)
    monkeypatch.setattr(driver, "missing", lambda: "")
    monkeypatch.setattr(nccl, "library", lambda: None)
    with pytest.raises(JobStartError, match="no libnccl for their GPUs"):
        find_world()


def test_torchrun_brings_ranks_together(library: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    under_torchrun(monkeypatch)
    monkeypatch.setattr(driver, "missing", lambda: "")
    port = free_port()
    monkeypatch.setenv("MASTER_PORT", str(port))
    first = discovery.Launched("torchrun", 0, 2, 0)
    second = discovery.Launched("torchrun", 1, 2, 1)
    worlds = on_threads(2, lambda rank: discovery._over_nccl((first, second)[rank]))
    assert [(world.kind, world.rank, world.size) for world in worlds] == [
        ("nccl", 0, 2),
        ("nccl", 1, 2),
    ]
    assert [world.device.name for world in worlds] == ["cuda:0", "cuda:1"]
