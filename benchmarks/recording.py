"""What a public call costs on a hit: `python -m benchmarks.recording`.

Undecorated calls that come in a known order are matched against a tape and build no nodes. Each row
makes some calls of one kind between two flushes, until these are matched, and prints the
nanoseconds of a call: the quickest of many rounds, so that a busy machine counts less.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F

CALLS = 50  # between two flushes
ROUNDS = 300
Work = Callable[[], object]  # makes that many calls, and gives what is to be computed


def _elementwise() -> Work:
    x, y = rl.ones(4, 4), rl.ones(4, 4)

    def work() -> object:
        total = x
        for _ in range(CALLS):
            total = total * y
        return total

    return work


def _activations() -> Work:
    x = rl.ones(4, 4)

    def work() -> object:
        total = x
        for _ in range(CALLS):
            total = F.relu(total)
        return total

    return work


def _linear() -> Work:
    layer, x = nn.Linear(4, 4), rl.ones(4, 4)

    def work() -> object:
        total = x
        for _ in range(CALLS):
            total = F.linear(total, layer.weight, layer.bias)
        return total.sum()

    return work


def _layer_norm() -> Work:
    x = rl.ones(4, 4)

    def work() -> object:
        total = x
        for _ in range(CALLS):
            total = F.layer_norm(total, (4,))
        return total

    return work


def _slices() -> Work:
    x = rl.ones(CALLS + 1, 4)

    def work() -> object:
        return [(x * 2.0)[row : row + 1] for row in range(CALLS)][-1]

    return work


def _losses() -> Work:
    x, y = rl.ones(4, 3), rl.tensor([0, 1, 2, 0])

    def work() -> object:
        return [F.cross_entropy(x, y) for _ in range(CALLS)][-1]

    return work


KINDS: dict[str, Callable[[], Work]] = {
    "elementwise": _elementwise, "activation": _activations, "linear": _linear,
    "layer_norm": _layer_norm, "product and slice": _slices, "loss": _losses,
}  # fmt: skip


def nanoseconds(make: Callable[[], Work]) -> float:
    """The time of a matched call of one kind."""
    work, times = make(), list[int]()
    with rl.no_grad(), config.override(tier="compiled"):
        for _ in range(ROUNDS):
            began = perf_counter_ns()
            made = work()
            times.append(perf_counter_ns() - began)
            with rl.record_flushes() as log:
                assert isinstance(made, rl.Tensor)
                made.sum().item()
            del made
    assert all(flush.program == "matched" for flush in log.flushes), str(log)
    return min(times) / CALLS


if __name__ == "__main__":
    for kind, make in KINDS.items():
        print(f"{kind:20} {nanoseconds(make):6.0f} ns a call")
