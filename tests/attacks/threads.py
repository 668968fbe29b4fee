"""Threads in schedules that a seed draws: results are right, no update is lost, nobody is stuck.

Threads start together, switch after microseconds, and sleep at drawn moments inside the calls that
matter. All numbers are small integers, on which arithmetic is exact: lost updates and torn values
show, whatever the order.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.config import config
from ridgeline.execution import tiers
from ridgeline.record.upcalls import upcalls
from ridgeline.tracing.executable import Executable
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

THREADS = 8
Work = Callable[[int], None]  # what the thread of a number does
Check = Callable[[], None]


@contextmanager
def _restless(chosen: random.Random) -> Iterator[None]:
    """Threads that switch often, and sleep for a moment where it may hurt."""
    places = [
        (Executable, "live_buffers"),
        (Executable, "_step"),
        (tiers, "evaluate"),
        (upcalls, "match"),
    ]
    before = sys.getswitchinterval()
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]
    sys.setswitchinterval(chosen.choice((1e-6, 1e-5, 1e-4, 5e-3)))
    odds = chosen.choice((0.0, 0.1, 0.5))
    try:
        for owner, name, function in kept:
            setattr(owner, name, _sleepy(function, odds, random.Random(chosen.random())))
        yield
    finally:
        sys.setswitchinterval(before)
        for owner, name, function in kept:
            setattr(owner, name, function)


def _sleepy(function: Callable[..., Any], odds: float, drawn: random.Random) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if drawn.random() < odds:
            time.sleep(drawn.random() * 1e-3)
        return function(*args, **kwargs)

    return run


def _together(work: Work) -> None:
    """Run the work of all threads from one moment on; raise the first error."""
    start, errors = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not any(thread.is_alive() for thread in threads), "threads wait for one another"
    if errors:
        raise errors[0]


def _numbers(size: int = 6) -> Any:
    return rl.tensor(np.zeros(size, np.float32))


# ---- what is attacked: each gives the work of a thread, and what must hold in the end -----------


def inference(chosen: random.Random) -> tuple[Work, Check]:
    weight = rl.tensor(np.arange(6, dtype=np.float32))
    double = rl.jit(lambda x: (x * weight).sum() + x.sum())
    traced_before = chosen.random() < 0.5
    if traced_before:
        double(_numbers())

    def work(number: int) -> None:
        x = rl.tensor(np.full(6, number, np.float32))
        for _ in range(6):
            assert double(x if chosen.random() < 0.5 else x + 0).item() == number * 21

    return work, lambda: None


def steps(chosen: random.Random) -> tuple[Work, Check]:
    """A training step with a gradient that is always the same."""
    models = [nn.Linear(4, 2) for _ in range(2)]
    for model in models:
        for parameter in model.parameters():
            parameter.data = rl.ones(tuple(parameter.shape))
    chosen_kind = chosen.choice((optim.Adam, optim.SGD))
    optimizers = [chosen_kind(model.parameters(), lr=0.5) for model in models]
    x = rl.ones(3, 4)

    def make(place: int) -> Callable[[], Any]:
        def step() -> Any:
            optimizers[place].zero_grad()
            loss = models[place](x).sum()
            loss.backward()
            optimizers[place].step()
            return loss

        return rl.jit(step)

    threaded, alone = make(0), make(1)

    def check() -> None:
        for _ in range(THREADS * 4):
            alone()
        for one, other in zip(*(model.parameters() for model in models)):
            np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
        for one, other in zip(*(list(o.state.values()) for o in optimizers)):
            for name in one:
                np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(other[name]))

    return lambda number: [threaded() for _ in range(4)] and None, check


def overlapping(chosen: random.Random) -> tuple[Work, Check]:
    """Steps that share some state, in whatever order they name it."""
    state = [_numbers() for _ in range(4)]
    sets = [chosen.sample(range(4), chosen.randint(1, 3)) for _ in range(THREADS)]

    def make(names: list[int]) -> Callable[[], Any]:
        def step() -> None:
            for name in names:
                state[name].add_(1)

        return rl.jit(step)

    calls = [make(names) for names in sets]

    def check() -> None:
        for name, tensor in enumerate(state):
            expected = 5 * sum(name in names for names in sets)
            np.testing.assert_array_equal(tensor.numpy(), np.full(6, expected, np.float32))

    return lambda number: [calls[number]() for _ in range(5)] and None, check


def readers(chosen: random.Random) -> tuple[Work, Check]:
    """Tensors are read while a step overwrites them: each read is one of the values they had."""
    x, y = rl.tensor(np.zeros(20_000, np.float32)), _numbers()
    view = x.reshape(100, 200)[10:20]

    @rl.jit
    def step() -> None:
        x.add_(1)
        y.copy_(x[:6] * 2)

    read = rl.jit(lambda: x * 1)

    def work(number: int) -> None:
        if number < 2:
            for _ in range(10):
                step()
            return
        last = 0.0
        for _ in range(10):
            found = (x.clone, view.clone, read, lambda: x + 0)[number % 4]().numpy()
            assert (found == found.flat[0]).all(), "a value between two steps"
            assert found.flat[0] >= last, "a value went back"
            last = found.flat[0]

    def check() -> None:
        assert x.numpy()[0] == 20 and y.numpy()[0] == 40

    return work, check


def exported(chosen: random.Random) -> tuple[Work, Check]:
    """Arrays of NumPy over memory that steps write to come and go."""
    x = _numbers(2000)

    @rl.jit
    def step() -> None:
        x.add_(1)

    def work(number: int) -> None:
        for _ in range(6):
            if number < 4:
                step()
            else:
                assert x.numpy().max() <= 24 and (x * 2).sum().item() <= 96_000

    def check() -> None:
        np.testing.assert_array_equal(x.numpy(), np.full(2000, 24.0, np.float32))

    return work, check


def recording(chosen: random.Random) -> tuple[Work, Check]:
    """Undecorated work over shared and own tensors, constants among them."""
    shared = rl.tensor(np.arange(6, dtype=np.float32))
    common = shared * 2 + 1  # recorded by one thread, computed by any
    eager = chosen.random() < 0.4

    def work(number: int) -> None:
        for turn in range(4):
            with rl.eager() if eager else rl.set_grad_enabled(True):
                zeros = rl.zeros(6)
                own = zeros + number
                own[2:4] = 7.0
                total = (own * common + rl.ones(6) * shared).sum() + zeros.sum()
            wanted = np.full(6, number, np.float64)
            wanted[2:4] = 7
            places = np.arange(6)
            assert total.item() == (wanted * (places * 2 + 1) + places).sum(), turn
            assert zeros.clone().numpy().sum() == 0

    return work, lambda: None


def updates(chosen: random.Random) -> tuple[Work, Check]:
    """Undecorated steps of one optimizer, and jitted ones over the same parameters."""
    parameter = nn.Parameter(_numbers())
    parameter.grad = rl.ones(6)
    optimizer = optim.SGD([parameter], lr=1.0)
    jitted = rl.jit(optimizer.step)
    mixed = chosen.random() < 0.5

    def work(number: int) -> None:
        for _ in range(3):
            jitted() if mixed and number % 2 else optimizer.step()

    def check() -> None:
        np.testing.assert_array_equal(parameter.detach().numpy(), np.full(6, -3.0 * THREADS))

    return work, check


def draws(chosen: random.Random) -> tuple[Work, Check]:
    """One generator for all: no two threads get the same numbers."""
    rl.manual_seed(5)
    draw = rl.jit(lambda: rl.rand(8))
    found: list[bytes] = []

    def work(number: int) -> None:
        for _ in range(4):
            found.append((draw() if number % 2 else rl.rand(8)).numpy().tobytes())

    def check() -> None:
        assert len(set(found)) == len(found), "the same numbers were drawn twice"
        rl.manual_seed(5)
        assert set(found) == {rl.rand(8).numpy().tobytes() for _ in found}

    return work, check


def tracing(chosen: random.Random) -> tuple[Work, Check]:
    """Functions that are traced by several threads at once, of many lengths, with donated ones."""
    dynamic = rl.jit(lambda x: x * 2 + 1, dynamic=chosen.choice((True, {"x": 0}, False)))
    donating = rl.jit(lambda x: x + 1, donate="x")

    def work(number: int) -> None:
        for turn in range(3):
            length = 2 + (number + turn) % 5
            x = rl.tensor(np.full(length, number, np.float32))
            assert (dynamic(x).numpy() == 2 * number + 1).all()
            assert (donating(x * 3).numpy() == 3 * number + 1).all()
            other = rl.jit(lambda x, by=number: x * by)
            assert (other(x).numpy() == number * number).all()

    return work, lambda: None


SCENES = (steps, inference, overlapping, readers, exported, recording, updates, draws, tracing)


def trial(seed: int) -> None:
    """One scene in one schedule."""
    chosen = random.Random(seed)
    scene = SCENES[seed % len(SCENES)]
    with config.override(tier=chosen.choice(("auto", "compiled", "interpreter"))):
        work, check = scene(chosen)
        with _restless(chosen):
            _together(work)
        check()


ATTACK = Attack(
    name="threads",
    promise="threads get right results, lose no update, and never wait for one another for good",
    trial=trial,
    short=3 * len(SCENES),
    faults=(
        Fault("steps do not wait for their turn", "record.turns", "claimed",
              "return in_order(turn for turn in found if turn is not None)", "return ()"),
    ),
)  # fmt: skip
