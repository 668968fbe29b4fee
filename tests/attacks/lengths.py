"""Attack: undecorated work whose lengths change, which one program over unknown sizes computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

import ridgeline as rl
from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.execution import tiers
from ridgeline.tensors.tensor import Tensor
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

LENGTHS = (4, 5, 7, 3, 12, 2, 6)
Step = Callable[[Tensor, Tensor], Tensor]


def _halfway(x: Tensor, y: Tensor) -> Tensor:
    written = x.clone()
    written[len(x) // 2] = 1.0
    return written + y


STEPS: tuple[Step, ...] = (
    lambda x, y: x.softmax(0) + y,
    lambda x, y: y - x.mean(0, keepdim=True),
    lambda x, y: rl.cat([x, y[:1]])[: len(x)],
    lambda x, y: x.cumsum(0) / len(x),
    lambda x, y: x.flip(0) * 0.5 - y,
    lambda x, y: (x @ y.T).tanh() @ x,
    lambda x, y: x.reshape(-1).reshape(len(x), -1) * y,
    lambda x, y: x[rl.arange(len(x) - 1, -1, -1)] - y,
    lambda x, y: rl.nn.functional.pad(x, (0, 0, 1, 2))[1 : len(x) + 1],
    lambda x, y: x * rl.arange(float(len(x))).unsqueeze(1) / len(x),
    lambda x, y: rl.where(x > x.mean(), x, -y),
    lambda x, y: x.roll(1, 0) + 2 * y,
    lambda x, y: x.T.contiguous().view(x.shape[1], len(x)).T - y,
    lambda x, y: rl.nn.functional.layer_norm(x, (x.shape[1],)),
    lambda x, y: x.repeat(2, 1)[::2] + y,
    lambda x, y: x[: len(x) - 1].sum() - y,
    lambda x, y: rl.cat([x, x, y])[len(x) : 2 * len(x)],
    _halfway,
)


def _results(steps: list[Step], values: list[np.ndarray], swapped: bool) -> list[np.ndarray]:
    """What a program of some steps gives, and its gradients; `swapped` is one of the same form
    but for the order of its operands."""
    leaves = [rl.tensor(value, requires_grad=True) for value in values]
    x, y = (t * 1.0 for t in leaves)
    for step in steps:
        x, y = (y, step(y, x)) if swapped else (y, step(x, y))
    found = (y * y).sum()
    found.backward()
    gradients = [t.grad for t in leaves if t.grad is not None]
    return [t.detach().numpy().copy() for t in (y, found, *gradients)]


def trial(seed: int) -> None:
    """Raise where a program gives for some length what the interpreter does not."""
    drawn = random.Random(seed)
    steps = [drawn.choice(STEPS) for _ in range(drawn.randint(1, 4))]
    data = np.random.default_rng(seed)
    worthwhile = patch.object(tiers, "_WORTHWHILE", 0.0)  # the smallest piece is worth a program
    with worthwhile, config.override(tier="auto", background=True):
        for length in LENGTHS:
            for swapped in (False, True):
                values = [data.standard_normal((length, 3)).astype(np.float32) for _ in range(2)]
                found = _results(steps, values, swapped)
                background.wait()
                with config.override(tier="interpreter"):
                    expected = _results(steps, values, swapped)
                for got, wanted in zip(found, expected, strict=True):
                    scale = max(1.0, float(np.abs(wanted).max()))
                    np.testing.assert_allclose(
                        got, wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=f"length {length}"
                    )


ATTACK = Attack(
    "lengths",
    "work whose lengths change gives at every length what the interpreter gives",
    trial,
    short=10,
    faults=(
        Fault("a program over unknowns stands for any numbers", "execution.generalize",
              "General._stands_for", "tuple(expected) == numbers and ", ""),
        Fault("a form does not know which value an op reads", "execution.generalize", "form_of",
              "rows += [position[i] for i in current.inputs]", "rows += [len(current.inputs)]"),
        Fault("what was decided for one length holds for all", "execution.generalize",
              "General.holds_at", "self._program is None or self._facts.broken(values) is None",
              "True"),
    ),
)  # fmt: skip
