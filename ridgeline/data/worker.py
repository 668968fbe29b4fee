"""What a loader's worker process does: receive groups of indices, send batches back.

A worker ends when the loader closes its side, and at once when the loader's process dies.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from ridgeline.config import config
from ridgeline.data.making import BatchMaker
from ridgeline.data.transport import Channel
from ridgeline.random import manual_seed

MAKER, TASK = b"m", b"t"  # to a worker
READY, BATCH, END, ERROR = b"r", b"b", b"e", b"x"  # from a worker


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker a process is."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker, which one it is, so that a stream can be shared out; elsewhere None."""
    return _info


def main(end: socket.socket, number: int, count: int) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loader's to answer
    if hasattr(signal, "pthread_sigmask"):  # what a worker starts may be interrupted again
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_die_with_parent, daemon=True).start()
    config.threads = 1
    channel = Channel(end)
    with suppress(EOFError, ConnectionError):  # the loader needs no more
        _serve(channel, number, count)


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _serve(channel: Channel, number: int, count: int) -> None:
    global _info
    try:
        arrivals = channel.arrivals()
        _, _, (maker, init) = next(arrivals)
        seed = int(np.random.SeedSequence((maker.seed, number)).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        manual_seed(seed)
        _info = WorkerInfo(number, count, seed, maker.dataset)
        if init is not None:
            init(number)
    except EOFError:
        raise
    except Exception as error:
        _send_error(channel, -1, error)
        return
    channel.send(READY, 0, None)
    streams: dict[int, Iterator[Any]] = {}
    for _, ticket, (epoch, index, group, turn) in arrivals:
        try:
            if group is None:
                group = _next_of_stream(streams, turn, maker)
            if group is None:
                channel.send(END, ticket, None)
            else:
                channel.send(BATCH, ticket, maker.make(group, epoch, index))
        except ConnectionError:
            raise
        except Exception as error:
            _send_error(channel, ticket, error)


def _next_of_stream(streams: dict[int, Iterator[Any]], turn: int, maker: BatchMaker) -> Any:
    """The next samples of this turn's pass over an IterableDataset; None at its end."""
    if turn not in streams:
        streams.clear()
        streams[turn] = maker.stream_groups()
    return next(streams[turn], None)


def _send_error(channel: Channel, ticket: int, error: Exception) -> None:
    """The exception itself where it can travel, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        channel.send(ERROR, ticket, (None, f"{type(error).__name__}: {error}", text))
    else:
        channel.send(ERROR, ticket, (error, str(error), text))
