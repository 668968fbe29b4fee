"""Recurrent layers on a GPU, `python -m benchmarks.gpu.recurrent [NAMES…]`: a training step.

Forward, backward and the gradients of all weights, ours under jit and torch's (cuDNN), on the same
weights and inputs; gradients are compared first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ridgeline as rl
from benchmarks.gpu.command import parsed

LIMIT = 2e-3  # relative, in the Euclidean norm, of float32 gradients


@dataclass(frozen=True, slots=True)
class Case:
    """A layer and the sizes of its input [length, batch, width]."""

    kind: str
    batch: int
    length: int
    width: int
    hidden: int
    layers: int = 1
    both_ways: bool = False
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """As it is printed."""
        more = f" x{self.layers}" * (self.layers > 1) + " both ways" * self.both_ways
        return f"{self.kind} {self.batch}x{self.length}x{self.width} {self.hidden}{more}"


CASES = (
    Case("LSTM", 128, 64, 64, 256),
    Case("LSTM", 32, 128, 512, 512),
    Case("GRU", 64, 100, 128, 64),
    Case("RNN", 64, 100, 256, 1024),
    Case("GRU", 32, 50, 256, 512, 2, True),
)


def _step(lib: Any, layer: Any) -> Callable[[Any], Any]:
    weights = list(layer.parameters())

    def step(x: Any) -> Any:
        total = (layer(x)[0] ** 2).mean()
        return [total.detach(), *lib.autograd.grad(total, weights)]

    return step


def _seconds(run: Callable[[], Any], wait: Callable[[], None], limit: float = 0.2) -> float:
    run(), run(), wait()
    rounds = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < limit or len(rounds) < 3:
        begin = time.perf_counter()
        run()
        wait()
        rounds.append(time.perf_counter() - begin)
    return float(np.median(rounds))


def _error(mine: Any, other: Any) -> float:
    found, wanted = mine.cpu().numpy(), other.cpu().numpy()
    return float(np.linalg.norm(found - wanted) / max(np.linalg.norm(wanted), 1e-30))


def measure(case: Case) -> str:
    """One line: milliseconds of both, their ratio, the largest error of a gradient."""
    settings = {"num_layers": case.layers, "bidirectional": case.both_ways}
    theirs = getattr(torch.nn, case.kind)(case.width, case.hidden, **settings).cuda()
    ours = getattr(rl.nn, case.kind)(case.width, case.hidden, **settings)
    ours.load_state_dict({k: rl.tensor(v.cpu().numpy()) for k, v in theirs.state_dict().items()})
    ours = ours.to("cuda")
    values = np.random.default_rng(0).standard_normal((case.length, case.batch, case.width))
    x, y = rl.tensor(values.astype(np.float32), device="cuda"), torch.tensor(values).float().cuda()
    step, peer = rl.jit(_step(rl, ours)), _step(torch, theirs)
    error = max(_error(a, b) for a, b in zip(step(x), peer(y), strict=True))
    mine = _seconds(lambda: step(x), rl.cuda.synchronize)
    other = _seconds(lambda: peer(y), torch.cuda.synchronize)
    wrong = "" if error <= LIMIT else "  WRONG"
    return (
        f"{case.name:<34} {mine * 1e3:>9.3f} {other * 1e3:>9.3f} {mine / other:>7.2f}"
        f"  error {error:.1e}{wrong}"
    )


def main() -> int:
    """Measure the chosen cases and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.recurrent", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parsed(parser, "names", [case.name for case in CASES])
    torch.backends.cudnn.allow_tf32 = False
    print(f"{'':<34} {'ours, ms':>9} {'torch':>9} {'ratio':>7}")
    for case in CASES:
        if not given.names or case.name in given.names:
            print(measure(case), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
