"""torch.multiprocessing: Python's own module, with `spawn`; tensors travel between processes by
their values.
"""

from __future__ import annotations

import multiprocessing as _python
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.process import BaseProcess
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.module_paths import unknown as _unknown


class ProcessRaisedException(RidgelineError):
    """A process of `spawn` that ended with an error."""


class SpawnContext:
    """The processes that `spawn` started."""

    def __init__(self, processes: list[BaseProcess]) -> None:
        self.processes = processes

    def pids(self) -> list[int | None]:
        """Their numbers."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all; True when they have ended, an error when one of them failed."""
        for process in self.processes:
            process.join(timeout)
        failed = [n for n, process in enumerate(self.processes) if process.exitcode]
        if failed:
            for process in self.processes:
                process.terminate()
            code = self.processes[failed[0]].exitcode
            raise ProcessRaisedException(f"process {failed[0]} ended with exit code {code}")
        return all(process.exitcode == 0 for process in self.processes)


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:
    """Run `fn(number, *args)` in some processes; wait for them, or give what waits for them."""
    chosen: Any = _python.get_context(start_method)
    processes = [
        chosen.Process(target=fn, args=(number, *args), daemon=daemon) for number in range(nprocs)
    ]
    for process in processes:
        process.start()
    context = SpawnContext(processes)
    if not join:
        return context
    context.join()
    return None


start_processes = spawn


def get_sharing_strategy() -> str:
    """How memory would be shared: values are copied."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing: values are copied."""


_find = _unknown(__name__)


def __getattr__(name: str) -> Any:
    return getattr(_python, name) if hasattr(_python, name) else _find(name)
