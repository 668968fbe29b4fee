"""Attack: interrupts that leave something of the process changed which is nobody's in particular.

Work of one kind is interrupted at a random moment, of all those at which CPython looks for signals.
Afterwards the collector, warnings, handlers and masks of signals, contexts of NumPy and `decimal`,
the environment, the working folder, paths of imports, streams of random numbers, open files,
processes and threads are what they were, and the same work gives what it gave before.
"""

from __future__ import annotations

import contextvars
import copy
import decimal
import dis
import gc
import io
import locale
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.data import DataLoader, TensorDataset
from ridgeline.distributed.functional import all_reduce
from ridgeline.interop.safetensors import read_tensors, write_tensors
from ridgeline.record.modes import modes
from ridgeline.train.interrupt import Interrupt as Stopping
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

MOMENTS = 4  # of a trial
PACKAGE = os.path.dirname(rl.__file__)
_SEEN = ("call", "c_return")


class Interrupted(BaseException):
    """What a handler raises."""


# ---- what stays as it is -------------------------------------------------------------------------


def _open_files() -> Any:
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return ()
    return sorted(filter(None, map(_target, names)))


def _target(name: str) -> str:
    try:
        found = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""
    # pipes are the standard library's; a thread that compiles beside may import something
    theirs = found.startswith(("/proc/", "anon_inode:", "pipe:")) or found.endswith(".py")
    return "" if theirs else found


def _collector() -> Any:
    """Whether garbage is collected, once nothing is compiled beside the program."""
    for _ in range(200):
        if gc.isenabled():
            break
        time.sleep(0.02)
    return gc.isenabled(), gc.get_threshold()


SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "the collector": _collector,
    "warnings": lambda: (list(warnings.filters), warnings.showwarning),
    "handlers of signals": lambda: [signal.getsignal(n) for n in (2, 10, 14, 15)],
    "the mask of signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "NumPy's settings": lambda: (np.geterr(), str(np.get_printoptions())),
    "contexts": lambda: [*contextvars.copy_context().items()],
    "decimal's context": lambda: repr(decimal.getcontext()),
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "the working folder": os.getcwd,
    "the environment": lambda: dict(os.environ),
    "paths of imports": lambda: (list(sys.path), list(sys.meta_path), list(sys.path_hooks)),
    "streams": lambda: (sys.stdout, sys.stderr, sys.stdin, sys.excepthook, sys.displayhook),
    "limits of Python": lambda: (sys.getrecursionlimit(), sys.getswitchinterval()),
    "random numbers of others": lambda: (random.getstate(), str(np.random.get_state())),
    "modes": lambda: (modes.gradients, modes.eager, modes.capture, modes.autocast, modes.anomaly),
    "configuration": lambda: {k: v for k, v in vars(rl.config).items() if k != "epoch"},
    "open files": _open_files,
    "processes": lambda: len(multiprocessing.active_children()),
    "threads that others wait for": lambda: sum(not t.daemon for t in threading.enumerate()),
}


_KEPT = ("open files", "processes")  # of which work may leave some for the next time


def _changed(before: dict[str, Any], where: str) -> list[str]:
    """What is not as it was; the standard library leaves pipes and processes open itself."""
    theirs = "/multiprocessing/" in where or "/subprocess.py" in where
    return [
        f"{name}: {SURROUNDINGS[name]()!r:.400} and not {known!r:.400}"
        for name, known in before.items()
        if SURROUNDINGS[name]() != known and not (theirs and name in _KEPT)
    ]


# ---- what is interrupted -------------------------------------------------------------------------


def _network() -> nn.Module:
    rl.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


def _step(jitted: bool) -> Callable[[str], Any]:
    def work(_: str) -> Any:
        model = _network()
        optimizer = optim.Adam(model.parameters(), lr=1e-2)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        made = rl.jit(step) if jitted else step
        return [made(rl.ones(3, 4) * k).item() for k in range(3)]

    return work


def _checked(_: str) -> Any:
    model = _network()
    return rl.jit(model, check=True)(rl.ones(3, 4)).tolist()


def _saved(folder: str) -> Any:
    path = os.path.join(folder, "weights")
    rl.save(_network().state_dict(), path)
    return rl.load(path)["0.weight"].tolist()


def _tensors(folder: str) -> Any:
    path = os.path.join(folder, "w.safetensors")
    arrays = {name: t.detach().numpy() for name, t in _network().state_dict().items()}
    write_tensors(Path(path), arrays, {})
    return read_tensors(Path(path))[0]["0.weight"].tolist()


def _loaded(workers: int) -> Callable[[str], Any]:
    def work(_: str) -> Any:
        data = TensorDataset(rl.arange(12).reshape(6, 2))
        rows = DataLoader(data, batch_size=2, num_workers=workers)
        return [batch[0].tolist() for batch in rows]

    return work


def _exported(folder: str) -> Any:
    path, x = os.path.join(folder, "network.rlx"), rl.ones(3, 4)
    rl.jit(_network()).export(path, x)
    return rl.load_program(path)(x).tolist()


def _ranks(_: str) -> Any:
    return rl.distributed.run(lambda: all_reduce(rl.ones(2)).tolist(), ranks=2)


def _explained(_: str) -> Any:
    made = rl.jit(_network())
    made(rl.ones(3, 4))
    return str(made.explanation("code")) != ""


def _profiled(_: str) -> Any:
    made = rl.jit(_network())
    return made.profile(rl.ones(3, 4)) is not None


def _searched(_: str) -> Any:
    return rl.jit(_network()).bisect(rl.ones(3, 4)) is not None


def _stopping(_: str) -> Any:
    with Stopping() as stopping:
        return stopping.requested


def _interpreted(_: str) -> Any:
    with rl.config.override(tier="interpreter"):
        x = rl.arange(5.0) / 0
        return [x.nan_to_num().tolist(), rl.linalg.inv(rl.eye(3) * 2).sum().item()]


def _copied(_: str) -> Any:
    copied = copy.deepcopy(_network())
    buffer = io.BytesIO()
    rl.save(copied.state_dict(), buffer)
    return copied(rl.ones(4)).tolist()


def _printed(_: str) -> Any:
    return [str(rl.arange(2000.0)), repr(_network()), str(rl.rand(3, dtype=rl.float64) * 0)]


WORK: dict[str, Callable[[str], Any]] = {
    "a jitted step": _step(True), "a step": _step(False), "a checked call": _checked,
    "torch's file": _saved, "a safetensors file": _tensors, "a loader": _loaded(0),
    "a loader with workers": _loaded(2), "a program file": _exported, "ranks": _ranks,
    "an explanation": _explained, "a profile": _profiled, "a search of a pass": _searched,
    "stopping between steps": _stopping, "the interpreter": _interpreted, "copies": _copied,
    "texts": _printed,
}  # fmt: skip


_COMPILED = ("an explanation", "a profile", "a search of a pass", "a program file")


# ---- interrupts ----------------------------------------------------------------------------------


def _begins_sealed(frame: Any, event: str) -> bool:
    begin = (i for i in dis.get_instructions(frame.f_code) if i.opname == "RESUME")
    return event == "call" and next(begin).arg == 2


def _interrupted(action: Callable[[], Any], moment: int) -> tuple[int, str]:
    """How many moments an action had until it was interrupted; and where that was."""
    seen, where = 0, ""

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen, where
        if event not in _SEEN or argument is sys.setprofile:
            return
        seen += 1
        if seen > moment >= 0 and not where and not _begins_sealed(frame, event):
            where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({event} {argument!r:.60})"
            raise Interrupted

    try:
        sys.setprofile(profile)
        action()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
    return seen, where


@contextmanager
def _handled() -> Iterator[list[str]]:
    """SIGINT as where no tool has changed it; what was raised where nobody could see it."""
    lost: list[str] = []

    def note(seen: Any) -> None:
        frames = traceback.extract_tb(seen.exc_traceback)
        ours = any(frame.filename.startswith(PACKAGE) for frame in frames)
        if ours or seen.exc_type is not Interrupted:  # callbacks of the standard library swallow it
            lost.append(f"{seen.exc_type.__name__} in {seen.object!r}: {frames[-2:]}")

    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
    sys.unraisablehook = note
    try:
        yield lost
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def trial(seed: int) -> None:
    """Interrupt one kind of work a few times, and look around."""
    draw = random.Random(seed)
    name = [*WORK][seed % len(WORK)]
    settings = {"tier": "compiled" if name in _COMPILED else draw.choice(("auto", "interpreter"))}
    changes = rl.config.override(**settings)
    with (
        TemporaryDirectory(prefix="ridgeline-surroundings-") as folder,
        _handled() as lost,
        changes,
    ):
        before = {what: look() for what, look in SURROUNDINGS.items()}
        wanted = WORK[name](folder)
        count, _ = _interrupted(lambda: WORK[name](folder), -1)
        gc.collect()
        before |= {what: SURROUNDINGS[what]() for what in _KEPT}
        for _ in range(MOMENTS):
            moment = int(count * draw.random() ** draw.choice((1, 3)))
            _, where = _interrupted(lambda: WORK[name](folder), moment)
            gc.collect()
            changed = _changed(before, where)
            assert not changed, f"{name}, interrupted at {where}: {changed}"
            again = WORK[name](folder)
            assert again == wanted, f"{name}, after an interrupt at {where}: {again}"
            assert not lost, f"{name}, interrupted at {where}: {lost}"


ATTACK = Attack(
    "surroundings",
    "an interrupt leaves the process around as it was: collector, warnings, signals, files",
    trial,
    short=len(WORK),
    faults=(
        Fault("NumPy's reports stay off", "float_errors", "float_errors_ignored",
              "map(_STATE.reset, map(list.pop, repeat(tokens)))", "iter(list, None)"),
        Fault("handlers of signals are not put back", "train.interrupt", "Interrupt._give_back",
              "apply(starmap(_signal.signal, self._before))", "pass"),
    ),
    limit=120.0,
)  # fmt: skip
