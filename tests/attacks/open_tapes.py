"""Attack: loops whose lengths, places and counts change, matched on one tape for all of them.

Each step makes the same calls over another length, some with gradients, some writing to a place
that moves, and now and then one goes on otherwise or keeps a result. What the steps give is held
against the interpreter, and so are the lengths that tensors say they have.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.tensors.tensor import Tensor
from tests.attacks.attack import Attack
from tests.attacks.lengths import STEPS as PLAIN
from tests.fuzz.faults import Fault

Step = Callable[[Tensor, Tensor, int], Tensor]


def _written(x: Tensor, y: Tensor, place: int) -> Tensor:
    made = x.clone()
    made[place : place + 2] = y[:1]
    return made


def _grown(x: Tensor, y: Tensor, place: int) -> Tensor:
    return rl.cat([x, y[-1:]])[1:]


MOVING: tuple[Step, ...] = (
    _written,
    _grown,
    lambda x, y, place: x[: place + 1].sum(0) + y,
    lambda x, y, place: x * place - y,
    lambda x, y, place: rl.cat([x[:place], y[place:]]),
    lambda x, y, place: x[-4:].mean(0) + y,
    lambda x, y, place: x.narrow(0, place, 1) * y,
    lambda x, y, place: x[place] + y,
    lambda x, y, place: (x.unsqueeze(1) - y.unsqueeze(0)).abs().sum(1),
)  # fmt: skip


def _placeless(plain: Callable[[Tensor, Tensor], Tensor]) -> Step:
    return lambda x, y, place: plain(x, y)


def _loop(seed: int) -> list[Any]:
    """What the steps of a loop give, one after the other."""
    drawn, data = random.Random(seed), np.random.default_rng(seed)
    steps: list[Step] = []
    for _ in range(drawn.randint(1, 4)):
        steps.append(drawn.choice((_placeless(drawn.choice(PLAIN)), drawn.choice(MOVING))))
    gradients, held, odd = drawn.random() < 0.4, drawn.random() < 0.3, drawn.random() < 0.4
    lengths = [4, 5, 6, 7, 8, drawn.randint(1, 40), 9, 3, 2, 1, drawn.randint(2, 40), 5]
    weight = rl.tensor(data.standard_normal((3, 3)).astype(np.float32), requires_grad=gradients)
    found: list[Any] = []
    kept: list[Tensor] = []
    for number, length in enumerate(lengths):
        place = drawn.randrange(length)
        x, y = (rl.tensor(data.standard_normal((length, 3)).astype(np.float32)) for _ in range(2))
        try:
            x = x @ weight
            for step in steps:
                x, y = y, step(x, y, place)
            if odd and number % 3 == 2:
                y = y.abs()
            found.append((tuple(x.shape), tuple(y.shape)))
            total = (y * y).sum() + x.sum()
            if gradients and total.requires_grad:
                total.backward()
                found.append(weight.grad.numpy().copy())
                weight.grad = None
            if held:
                kept = [*kept[-1:], y]
            found += [total.detach().numpy().copy(), y.detach().numpy().copy()]
            found += [k.detach().numpy().copy() for k in kept]
        except rl.errors.RidgelineError as error:
            found.append(type(error).__name__)
        background.wait()
    return found


def trial(seed: int) -> None:
    """Raise where a loop gives something else than when it is interpreted call by call."""
    with config.override(tier="auto", background=True, tape=True):
        found = _loop(seed)
    with config.override(tier="interpreter", tape=False):
        expected = _loop(seed)
    assert len(found) == len(expected), (len(found), len(expected))
    for index, (got, wanted) in enumerate(zip(found, expected)):
        if not isinstance(wanted, np.ndarray):
            assert got == wanted, f"result {index}: {got}, and interpreted {wanted}"
            continue
        scale = max(1.0, float(np.abs(wanted).max()) if wanted.size else 1.0)
        np.testing.assert_allclose(
            got, wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=f"result {index}"
        )


ATTACK = Attack(
    name="open_tapes",
    promise="a loop whose sizes change gives the same whether one tape stands for all or none",
    trial=trial,
    short=6,
    faults=(
        Fault("what a call decided for one length holds for all", "tape.openings",
              "OpenTape.stands_for", "self._facts.broken(values) is None and ", ""),
        Fault("results have the lengths of the call that was traced", "tape.openings",
              "Opening._filled", "self._result(table)", "entry.result"),
    ),
)  # fmt: skip
