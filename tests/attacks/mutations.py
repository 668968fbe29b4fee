"""Attack: Python state that changes between calls of a jitted function.

A scenario is a module of its own with a function that reads some state. It is loaded twice: the
function of one copy is called as it is, that of the other is jitted; both see the same calls and
the same changes between them. The jitted one is *right* where every call agrees, *refused* where
it raised an error that names the line, and *stale* otherwise. Profilers, debuggers and threads are
there in some of the trials and must change nothing.

`python -m tests.attacks.mutations --seeds 0:300` prints how each ended.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import random
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.config import config
from tests.attacks.attack import Attack
from tests.attacks.mutation.draw import scenarios
from tests.attacks.mutation.scenario import Case, source
from tests.fuzz.faults import Fault

ENVIRONMENTS = ("plain", "setprofile", "cProfile", "settrace", "threads")
CALLS = 3  # before, between and after the changes
_TOGETHER = 3  # threads that call at once


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario, what else goes on in the process, and whether its source can be found.

    Where it is audited, jit traces some calls again and compares, and so must find nothing.
    """

    case: Case
    environment: str
    has_source: bool
    audited: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a trial ended: "right", "refused", "unplaced" (without the line), or "stale"."""

    word: str
    said: str = ""


def drawn(seed: int) -> Trial:
    """The trial of a seed."""
    known = scenarios()
    rng = Random(seed)
    plain = rng.random() < 0.4
    environment = "plain" if plain else rng.choice(ENVIRONMENTS[1:])
    has_source, audited = rng.random() < 0.9, rng.random() < 0.3
    return Trial(known[seed % len(known)], environment, has_source, audited)


def judge(trial: Trial) -> Verdict:
    """Run a scenario plainly and jitted, and compare call by call."""
    expected = _history(trial, lambda function: function)
    got = _history(trial, rl.jit)
    if trial.case.differs:
        again = next((g for g in got if got.count(g) > 1 and isinstance(g, tuple)), None)
        expected = [g if g != again else "another value" for g in got]
    for number, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        if found == wanted:
            continue
        if isinstance(found, rl.RidgelineError):
            placed = any(name in str(found) for name in ("mutated.py:", "<mutated>:"))
            return Verdict("refused" if placed else "unplaced", str(found))
        return Verdict("stale", f"call {number}: {found!r:.300} instead of {wanted!r:.300}")
    return Verdict("right")


def is_live(case: Case) -> bool:
    """True where the changes show, so that a stale result would be noticed."""
    history = _history(Trial(case, "plain", True), lambda function: function)
    return any(result != history[0] for result in history)


def _history(trial: Trial, wrap: Callable[[Any], Any]) -> list[Any]:
    """What every call gives, or the error that it raises, in a fresh copy of the module."""
    case, found = trial.case, list[Any]()
    random.seed(1), np.random.seed(1), rl.manual_seed(1)
    with _loaded(trial) as module, config.override(tier="interpreter", audit=trial.audited):
        function = wrap(module.f)
        changes = (case.change, case.back or case.change, "")
        with _environment(trial.environment):
            for change in changes:
                found += _calls(trial, function, module)
                exec(compile(change, "<change>", "exec"), module.__dict__)
    return found


def _calls(trial: Trial, function: Callable[..., Any], module: types.ModuleType) -> list[Any]:
    def call() -> Any:
        names = [name.strip() for name in trial.case.arguments.split(",") if name]
        try:
            x = rl.arange(6.0) + 1
            return _plain(function(x, *(getattr(module, name) for name in names)))
        except Exception as error:
            return error if isinstance(error, rl.RidgelineError) else type(error).__name__

    found = [call() for _ in range(CALLS)]
    if trial.environment == "threads":
        others = _in_threads(call, 1 if trial.case.advances else _TOGETHER)
        return found + others
    return found


def _in_threads(call: Callable[[], Any], count: int) -> list[Any]:
    """What calls in threads of their own give, all begun at once."""
    found: list[Any] = [None] * count
    begin = threading.Barrier(count)

    def run(place: int) -> None:
        begin.wait()
        found[place] = call()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _plain(value: Any) -> Any:
    """A result as what can be compared: elements, signs of zero and NaN too, and their type."""
    if isinstance(value, rl.Tensor):
        elements = repr(value.detach().tolist())
        return value.dtype.name, tuple(value.shape), value.requires_grad, elements
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return repr(value)


@contextmanager
def _loaded(trial: Trial) -> Iterator[types.ModuleType]:
    """A module made of the scenario's text, gone afterwards with what it left in the process."""
    name = "tests_attacks_mutated"
    before, folder = dict(os.environ), os.getcwd()
    with TemporaryDirectory(prefix="ridgeline-mutations-") as home:
        path = Path(home) / "mutated.py"
        text = source(trial.case)
        path.write_text(text)
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update(NAME=name, FOLDER=home)
        try:
            file = str(path) if trial.has_source else "<mutated>"
            exec(compile(text, file, "exec"), vars(module))
            yield module
        finally:
            sys.modules.pop(name, None), sys.modules.pop(name + ".o", None)
            os.environ.clear(), os.environ.update(before)
            os.chdir(folder)


@contextmanager
def _environment(name: str) -> Iterator[None]:
    """A profiler or a debugger at work, as others' tools install them."""
    if name == "cProfile":
        with cProfile.Profile():
            yield
        return

    def ignore(*_: Any) -> Any:
        return ignore

    setters = {"setprofile": sys.setprofile, "settrace": sys.settrace}
    getters = {"setprofile": sys.getprofile, "settrace": sys.gettrace}
    if name not in setters:
        yield
        return
    before = getters[name]()
    setters[name](ignore)
    try:
        yield
    finally:
        setters[name](before)


def trial(seed: int) -> None:
    """Raise where a jitted function was stale, or refused without saying where."""
    chosen = drawn(seed)
    verdict = judge(chosen)
    if verdict.word in ("stale", "unplaced"):
        where = f"{chosen.case.name} ({chosen.environment}, source: {chosen.has_source})"
        raise AssertionError(
            f"{verdict.word}: {where}\n{verdict.said}\n{chosen.case.text}\n# then: "
            f"{chosen.case.change}\n# then: {chosen.case.back or chosen.case.change}"
        )


ATTACK = Attack(
    "mutations",
    "a jitted function notices whatever Python state changed that it read, or says why it cannot",
    trial,
    short=330,  # every place, kind of value and case once
    faults=(
        Fault("what was read is not compared", "tracing.reads.holds", "Guards.broken",
              "self.holds()", "True"),
        Fault("keys of a changed dictionary are not compared", "tracing.reads.holds",
              "Guards.__init__", "if ({keys})", "if True or ({keys})"),
        Fault("what cannot be guarded is replayed", "tracing.reads.recorder", "ReadRecorder.opens",
              "if not self.open:", "if False:"),
        Fault("a refusal that was caught is forgotten", "tracing.capture", "Capture.refuse",
              "if self.refusal is None:", "if False:"),
        Fault("hooks of variables come and go unseen", "autograd.engine", "_Hooks._guard_state",
              "for variable in self._variables", "for variable in ()"),
    ),
)  # fmt: skip


def main() -> int:
    """Say how the trials of some seeds end, the failures in full."""
    parser = argparse.ArgumentParser(prog="tests.attacks.mutations", description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="first:end")
    parser.add_argument("--show", default="stale,unplaced", help="verdicts to list")
    given = parser.parse_args()
    first, end = map(int, given.seeds.split(":"))
    counts: Counter[str] = Counter()
    for seed in range(first, end):
        chosen = drawn(seed)
        verdict = judge(chosen)
        counts[verdict.word] += 1
        if verdict.word in given.show.split(","):
            print(f"{seed}: {verdict.word} ({chosen.environment}): {chosen.case.name}", flush=True)
            print(f"    {verdict.said.splitlines()[0] if verdict.said else ''}", flush=True)
    print(f"{dict(counts)} of {end - first}; {len(scenarios())} scenarios are known")
    return 1 if counts["stale"] or counts["unplaced"] else 0


if __name__ == "__main__":
    sys.exit(main())
