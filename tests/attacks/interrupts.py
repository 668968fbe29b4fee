"""Interrupts at random moments: state is that of whole steps, and the process goes on.

A signal's handler raises at a moment that the seed draws, in every way to run. Afterwards the
parameters, the optimizer's state and the random stream are, to the bit, those after k or k + 1
steps that nobody disturbed; no interrupt was swallowed; and the next call works.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.config import config
from ridgeline.record.modes import modes
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

STEPS = 8  # whole steps that an undisturbed run makes
INTERRUPTS = 12  # of a trial


class Interrupt(BaseException):
    """What the handlers raise."""


class Training:
    """A small network, its optimizer and a random stream, trained on the batch of each step."""

    def __init__(self, make: Callable[[Training], Callable[[int], object]]) -> None:
        rl.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.25), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer = optim.Adam(self.model.parameters(), lr=1e-2)
        self.data = rl.tensor(np.random.default_rng(0).normal(size=(STEPS, 4, 6)).astype("f4"))
        self.batches = [self.data[k].clone() for k in range(STEPS)]
        self.step = make(self)

    def loss(self, x: Any) -> Any:
        """The loss of a batch; draws random numbers."""
        return (self.model(x) ** 2).mean()

    def train(self, x: Any) -> Any:
        """One whole step."""
        self.optimizer.zero_grad()
        loss = self.loss(x)
        loss.backward()
        self.optimizer.step()
        return loss

    def weights(self) -> bytes:
        """All parameters and the state of the optimizer."""
        parts = [p.detach().numpy().tobytes() for p in self.model.parameters()]
        for state in self.optimizer.state.values():
            parts += [np.asarray(value).tobytes() for value in state.values()]
        return b"".join(parts)

    def gradients(self) -> bytes:
        """All gradients."""
        found = [p.grad for p in self.model.parameters()]
        return b"".join(b"-" if g is None else g.detach().numpy().tobytes() for g in found)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a step, and what of its state changes at once."""

    name: str
    make: Callable[[Training], Callable[[int], object]]
    settings: dict[str, Any]
    whole: bool = False  # the random stream moves together with the weights
    state: Callable[[Training], bytes] = Training.weights


def _plain(world: Training) -> Callable[[int], object]:
    return lambda k: world.train(world.batches[k])


class OwnAdam(optim.Adam):
    """A rule of a user's own: a series of calls that are matched, and no program."""

    def _update(self, parameter: Any, gradient: Any, state: Any, group: Any) -> None:
        super()._update(parameter, gradient, state, group)


def _own_rule(world: Training) -> Callable[[int], object]:
    world.optimizer = OwnAdam(world.model.parameters(), lr=1e-2)
    return _plain(world)


def _eager(world: Training) -> Callable[[int], object]:
    def step(k: int) -> None:
        modes.eager = True
        try:
            world.train(world.batches[k])
        finally:
            modes.eager = False

    return step


def _jitted(world: Training) -> Callable[[int], object]:
    step = rl.jit(world.train)
    return lambda k: step(world.batches[k])


def _traced_anew(world: Training) -> Callable[[int], object]:
    return lambda k: rl.jit(world.train)(world.batches[k])


def _dynamic(world: Training) -> Callable[[int], object]:
    step = rl.jit(world.train, dynamic={"x": 0})
    return lambda k: step(world.batches[k][: 2 + k % 3].clone())


def _backward(world: Training) -> Callable[[int], object]:
    """Gradients that add up from step to step."""

    def step(k: int) -> None:
        world.loss(world.batches[k]).backward()

    return step


INTERPRETED, COMPILED = {"tier": "interpreter"}, {"tier": "compiled"}
WAYS = (
    Way("jit", _jitted, COMPILED, whole=True),
    Way("deferred", _plain, COMPILED),
    Way("jit, interpreted", _jitted, INTERPRETED, whole=True),
    Way("deferred, interpreted", _plain, INTERPRETED),
    Way("eager", _eager, INTERPRETED),
    Way("tracing", _traced_anew, INTERPRETED, whole=True),
    Way("dynamic", _dynamic, COMPILED, whole=True),
    Way("backward", _backward, {**INTERPRETED, "tape": False}, state=Training.gradients),
    Way("backward, matched", _backward, INTERPRETED, state=Training.gradients),
    Way("a rule of one's own", _own_rule, COMPILED),
    Way("compiling", _traced_anew, {**COMPILED, "cache_max_bytes": 0}, whole=True),
)


def _by_timer(delay: float) -> Callable[[], None]:
    signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0)


def _by_thread(number: int) -> Callable[[float], Callable[[], None]]:
    def start(delay: float) -> Callable[[], None]:
        sender = threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), number)))
        sender.start()
        return sender.join

    return start


SIGNALS: tuple[tuple[int, Callable[[float], Callable[[], None]]], ...] = (
    (signal.SIGALRM, _by_timer),
    (signal.SIGINT, _by_thread(signal.SIGINT)),
    (signal.SIGTERM, _by_thread(signal.SIGTERM)),
)


@contextmanager
def _handled(number: int) -> Iterator[tuple[list[str], list[Any]]]:
    """The handler raises; the lines where it ran, and what was raised where nobody could see it."""
    ran: list[str] = []
    lost: list[Any] = []

    def handler(number: int, frame: Any) -> None:
        ran.append("".join(traceback.format_stack(frame, 8)))
        raise Interrupt

    before, hook = signal.signal(number, handler), sys.unraisablehook
    sys.unraisablehook = lost.append
    try:
        yield ran, lost
    finally:
        signal.signal(number, before)
        sys.unraisablehook = hook


def _undisturbed(way: Way) -> tuple[list[bytes], list[int], float]:
    """The state and the place in the random stream after each step; the seconds of a late one."""
    world = Training(way.make)
    states, places = [way.state(world)], [rl.get_rng_state()[1]]
    seconds = 0.0
    for k in range(STEPS):
        begin = time.perf_counter()
        world.step(k)
        seconds = time.perf_counter() - begin
        states.append(way.state(world))
        places.append(rl.get_rng_state()[1])
    return states, places, seconds


def trial(seed: int) -> None:
    """Interrupt the steps of one way to run, time and again."""
    chosen = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    number, arm = SIGNALS[(seed + seed // len(WAYS)) % len(SIGNALS)]
    kept = {name: getattr(config, name) for name in way.settings}
    for name, value in way.settings.items():
        setattr(config, name, value)
    try:
        with _handled(number) as (ran, lost):
            _attack(chosen, way, arm, ran)
        assert not lost, f"an interrupt was swallowed: {lost[0]}"
    finally:
        for name, value in kept.items():
            setattr(config, name, value)


def _attack(
    chosen: random.Random, way: Way, arm: Callable[[float], Callable[[], None]], ran: list[str]
) -> None:
    states, places, seconds = _undisturbed(way)
    world = Training(way.make)
    k = 0
    for _ in range(INTERRUPTS):
        if k == STEPS:
            world, k = Training(way.make), 0
        ran.clear()
        raised = False
        try:
            disarm = arm(chosen.uniform(0.0, 1.2 * seconds))
            world.step(k)
            disarm()
        except Interrupt:
            raised = True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert raised == bool(ran), f"{way.name}: the handler raised, and no caller saw it:\n{ran}"
        _check_usable(way)
        reached = _whole_steps(way.state(world), states, k, way.name)
        place = rl.get_rng_state()[1]
        if way.whole:
            assert place == places[reached], f"{way.name}: the random stream stands elsewhere"
        else:
            assert place in (places[k], places[k + 1]), f"{way.name}: half of the numbers are drawn"
        k = reached
        rl.set_rng_state((3, places[k]))


def _whole_steps(found: bytes, states: list[bytes], k: int, name: str) -> int:
    """How many whole steps lead to a state, which was that after k of them before."""
    for reached in (k, k + 1):
        if found == states[reached]:
            return reached
    raise AssertionError(f"{name}: the state is that of neither {k} nor {k + 1} whole steps")


def _check_usable(way: Way) -> None:
    """Nothing that the interrupted call had changed for a while is left as it was inside."""
    left = {
        "gradients are off": not modes.gradients,
        "a capture is open": modes.capture is not None,
        "the collector is off": not gc.isenabled(),
        "a profiler is on": sys.getprofile() is not None,
        "eager mode is on": modes.eager,
    }
    assert not any(left.values()), f"{way.name}: {[what for what, is_so in left.items() if is_so]}"
    assert rl.jit(lambda x: x + 1)(rl.ones(2)).tolist() == [2.0, 2.0]


ATTACK = Attack(
    name="interrupts",
    promise="an interrupted step is a whole step or none, is told of it, and the process goes on",
    trial=trial,
    short=2 * len(WAYS),
    faults=(
        Fault("an interrupted update stays half made", "optim.optimizer", "Optimizer._whole",
              "apply(back)", "pass"),
        Fault("an interrupted pass leaves half of the gradients", "autograd.engine", "_whole",
              "apply(back)", "pass"),
        Fault("deferred calls write although their step was taken back", "tape.run",
              "Outside.is_written", "and self.cell.run is run", ""),
    ),
)  # fmt: skip
