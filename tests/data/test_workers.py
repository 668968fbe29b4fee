"""Worker processes: the same batches as without, errors and deaths reported, nothing left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WorkerError,
    current_stream,
    get_worker_info,
    pool,
)
from ridgeline.data.dataset import as_array
from ridgeline.data.transforms import RandomAffine

ROWS = np.arange(40, dtype=np.float32).reshape(10, 2, 2, 1).transpose(0, 3, 1, 2)
PAIRS = TensorDataset(ROWS, np.arange(10))


class Noisy(Dataset[Any]):
    """Random samples, nested, of several kinds."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = current_stream().uniform(0, 1, 3)
        return {"noise": noise, "name": f"n{index}", "pair": (index, np.float16(index))}


class Failing(Dataset[int]):
    """Sample 7 is broken in the way `how` says."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 7:
            if self.how == "raise":
                raise KeyError("no sample seven")
            if self.how == "odd":
                raise Unpicklable(lambda: None)
            if self.how == "sleep":
                time.sleep(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Unpicklable(Exception):
    pass


class Shared(IterableDataset[int]):
    """Shares 0…12 out between the workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(number, 13, count))


def init(number: int) -> None:
    os.environ["RIDGELINE_TEST_WORKER"] = str(number)


def environment_of(samples: Sequence[Any]) -> tuple[Any, ...]:
    info = get_worker_info()
    assert info is not None and info.num_workers == 2 and len(info.dataset) == 10
    total = rl.tensor(np.stack([s[0] for s in samples])).sum()
    return os.environ["RIDGELINE_TEST_WORKER"], info.id, total, np.arange(3), os.getpid()


def plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [plain(value) for value in batch]
    return as_array(batch).tolist() if isinstance(batch, rl.Tensor) else batch


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_workers_give_what_no_workers_give(context: str) -> None:
    def loader(workers: int) -> DataLoader:
        return DataLoader(
            PAIRS, 3, shuffle=True, seed=4, num_workers=workers, transform=RandomAffine(30, 1),
            multiprocessing_context=context,
        )  # fmt: skip

    alone, helped = loader(0), loader(2)
    for _ in range(2):
        assert plain(list(helped)) == plain(list(alone))


def test_persistent_workers_early_breaks_and_resuming() -> None:
    def loader(workers: int) -> DataLoader:
        return DataLoader(
            Noisy(), 2, shuffle=True, seed=1, num_workers=workers, persistent_workers=True
        )

    alone, helped = loader(0), loader(3)
    wanted = [plain(list(alone)) for _ in range(4)]
    first = [plain(batch) for batch, _ in zip(helped, range(2))]
    assert first == wanted[0][:2]
    assert helped._pool is not None
    pids = [p.pid for p in helped._pool.processes]
    assert plain(list(helped)) == wanted[1], "an iteration left early disturbs the next"
    assert [p.pid for p in helped._pool.processes] == pids
    other = loader(2)
    other.load_state_dict({"seed": 1, "epoch": 2, "position": 4})
    assert plain(list(other)) == wanted[2][4:] and plain(list(other)) == wanted[3]
    two = [(plain(a), plain(b)) for a, b in zip(loader(1), loader(2))]
    assert [a for a, _ in two] == wanted[0]
    helped.epoch = 0
    both = [(plain(a), plain(b)) for a, b in zip(helped, iter(helped))]
    assert len(both) == 6, "two iterations of one loader at once"
    helped.close()
    other.close()
    assert not any(_running(pid) for pid in pids if pid is not None)


def test_streams_are_shared_out() -> None:
    loader = DataLoader(Shared(), 2, num_workers=2, seed=0)
    batches = plain(list(loader))
    assert batches == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12]]
    loader.load_state_dict({"seed": 0, "epoch": 0, "position": 3})
    assert plain(list(loader)) == batches[3:]
    assert plain(list(DataLoader(Shared(), 2))) == [[n, n + 1] for n in range(0, 12, 2)] + [[12]]


def test_custom_collate_init_and_no_batching() -> None:
    loader = DataLoader(
        PAIRS, 5, num_workers=2, collate_fn=environment_of, worker_init_fn=init
    )  # fmt: skip
    (a, i, total, row, pid), (b, j, *_) = loader
    assert (a, i, b, j) == ("0", 0, "1", 1) and pid != os.getpid()
    assert float(total) == ROWS[:5].sum() and row.tolist() == [0, 1, 2]
    row[0] = 5  # memory of its own, writeable
    single = [plain(s) for s in DataLoader(PAIRS, None, num_workers=1)]
    assert single == [plain(s) for s in DataLoader(PAIRS, None)] and len(single) == 10


def test_an_error_in_a_worker_keeps_its_type_and_shows_its_line() -> None:
    with pytest.raises(KeyError, match="no sample seven") as caught:
        list(DataLoader(Failing("raise"), 4, num_workers=2))
    assert "in worker 1" in str(caught.value.__cause__)
    assert 'raise KeyError("no sample seven")' in str(caught.value.__cause__)
    with pytest.raises(WorkerError, match="Unpicklable"):
        list(DataLoader(Failing("odd"), 4, num_workers=1))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_noticed(persistent: bool) -> None:
    loader = DataLoader(Failing("kill"), 4, num_workers=2, persistent_workers=persistent)
    with pytest.raises(WorkerError, match="worker 1 of the loader was killed by SIGKILL"):
        list(loader)
    assert plain(next(iter(loader))) == [0, 1, 2, 3], "the loader starts new workers"


def test_a_worker_that_hangs() -> None:
    with pytest.raises(WorkerError, match="did not answer within 1 s"):
        list(DataLoader(Failing("sleep"), 12, num_workers=1, timeout=1))


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(WorkerError, match="cannot be sent"):
        list(DataLoader(PAIRS, 2, num_workers=1, collate_fn=lambda samples: samples))
    with pytest.raises(rl.RidgelineError, match="fork would copy"):
        DataLoader(PAIRS, 2, multiprocessing_context="fork")
    with pytest.raises(rl.RidgelineError, match="prefetch_factor"):
        DataLoader(PAIRS, 2, prefetch_factor=0)


def _running(pid: int) -> bool:
    """True while a process exists, as a zombie too."""
    return Path(f"/proc/{pid}").exists()


def _shared_memory() -> set[str]:
    """Names of shared memory, but for those of MPI programs that others run beside."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("mpich")}


PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    from ridgeline.data import DataLoader, TensorDataset

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" lets it be ignored
        data = TensorDataset(np.zeros((64, 100_000), np.float32))
        loader = DataLoader(data, 4, num_workers=2, persistent_workers=True)
        batches = iter(loader)
        next(batches)
        print(*[p.pid for p in __import__("multiprocessing").active_children()], flush=True)
        {ending}
"""


@pytest.mark.parametrize(
    ("ending", "sent", "code"),
    [
        ("pass", None, 0),  # the end of the program, with a half-used iterator
        ("time.sleep(60)", signal.SIGINT, -signal.SIGINT),
        ("time.sleep(60)", signal.SIGKILL, -signal.SIGKILL),
        ("os._exit(3)", None, 3),
    ],
)
def test_nothing_is_left_over(ending: str, sent: int | None, code: int, tmp_path: Path) -> None:
    before = _shared_memory()
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(ending=ending))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(text) for text in process.stdout.readline().split()]
    assert len(pids) == 2, process.communicate(timeout=60)[1]
    if sent is not None:
        process.send_signal(sent)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    deadline = time.monotonic() + 20
    while any(map(_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_running, pids))
    assert _shared_memory() <= before


_INTERRUPTED_SERVER = """
import os, signal
from multiprocessing import forkserver
from ridgeline.data import DataLoader, pool
from tests.data.test_workers import Noisy

if __name__ == "__main__":
    pool.start_server()
    server = forkserver._forkserver
    first = server._forkserver_pid
    os.kill(first, signal.SIGINT)  # while it imports, as a terminal would
    batches = list(DataLoader(Noisy(), batch_size=4, num_workers=2))
    assert len(batches) and server._forkserver_pid == first
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked from a server on Linux")
def test_an_interrupt_does_not_end_the_server_of_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_INTERRUPTED_SERVER)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, program], env={**os.environ, "PYTHONPATH": root}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_shutdown_that_an_interrupt_ended_goes_on_later() -> None:
    """Processes that were closed by then are done with, and the next loader works."""
    loader = DataLoader(PAIRS, batch_size=4, num_workers=2, persistent_workers=True)
    expected = [batch[1].tolist() for batch in loader]
    pool_ = loader._pool
    assert pool_ is not None
    first = pool_.processes[-1]
    first.kill()
    first.join()
    first.close()  # as far as an interrupted `close` came
    pool.abandoned.append(pool_.processes)
    loader._pool = None
    again = DataLoader(PAIRS, batch_size=4, num_workers=2)
    assert [batch[1].tolist() for batch in again] == expected
    assert not pool_.processes


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="a system without masks")
def test_an_interrupt_at_the_start_of_workers_leaves_no_signal_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal that came just before it is blocked raises out of the call that blocks it."""
    real = signal.pthread_sigmask

    def raises(how: int, mask: Any) -> Any:
        found = real(how, mask)
        if how == signal.SIG_BLOCK and mask:
            raise KeyboardInterrupt
        return found

    before = real(signal.SIG_BLOCK, ())
    monkeypatch.setattr(signal, "pthread_sigmask", raises)
    with pytest.raises(KeyboardInterrupt):
        pool.start_server()
    assert real(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize(("error", "patience"), [(KeyboardInterrupt, 0.0), (WorkerError, 1000.0)])
def test_who_interrupts_the_start_of_workers_does_not_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], patience: float
) -> None:
    real, waited, held = pool._end, list[float](), list[Any]()

    def ends(process: Any, seconds: float) -> None:
        waited.append(round(seconds, -1))
        held.append(process)
        real(process, seconds)

    def stops(self: Any, number: int, seconds: float | None) -> Any:
        raise error("while they start")

    monkeypatch.setattr(pool, "GRACE", 1000.0)
    monkeypatch.setattr(pool, "_end", ends)
    monkeypatch.setattr(pool.WorkerPool, "_expect", stops)
    with pytest.raises(error, match="while they start"):
        list(DataLoader(PAIRS, batch_size=4, num_workers=2))
    assert waited == [patience, patience]
    for process in held:  # they are gone, and let go of
        with pytest.raises(ValueError, match="closed"):
            process.is_alive()
