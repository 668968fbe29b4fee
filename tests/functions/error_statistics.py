"""Errors of sums and moments over many seeds, ours next to torch's, against double precision.

`python -m tests.functions.error_statistics [SEEDS]` prints, for every form, kind of numbers, shape
and tier, the root mean square of our errors over that of torch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

import ridgeline as rl
from ridgeline.scalars import Array

MOST = 1.5  # times torch's root mean square
TIERS = ("interpreter", "compiled")
Numbers = Callable[[np.random.Generator, tuple[int, ...]], Array]

DATA: dict[str, Numbers] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "far from zero": lambda rng, shape: 1000 + rng.random(shape),
    "very far from zero": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: np.exp(3 * rng.standard_normal(shape)),
}


@dataclass(frozen=True, slots=True)
class Form:
    """Some statistics along an axis: of a library, a matrix and the axis.

    Errors are relative to the results, or to what these would be without signs where they cancel.
    """

    name: str
    compute: Callable[[Any, Any, int], Any]
    cancels: bool = False


def _batch_norm(lib: Any, x: Any, axis: int) -> Any:
    """What a layer normalises with, seen in its running statistics, and what it returns."""
    if axis == 1:
        x = x.T
    layer = lib.nn.BatchNorm1d(x.shape[1], momentum=1.0, affine=False, dtype=x.dtype)
    return layer(x), layer.running_mean, layer.running_var


def _layer_norm(lib: Any, x: Any, axis: int) -> Any:
    rows = x if axis == 1 else x.T
    return lib.nn.functional.layer_norm(rows, (rows.shape[1],))


FORMS = (
    Form("sum", lambda lib, x, axis: x.sum(axis), cancels=True),
    Form("mean", lambda lib, x, axis: x.mean(axis), cancels=True),
    Form("norm", lambda lib, x, axis: lib.linalg.vector_norm(x, dim=axis)),
    Form("logsumexp", lambda lib, x, axis: lib.logsumexp(x, axis)),
    Form("var", lambda lib, x, axis: x.var(axis)),
    Form("std", lambda lib, x, axis: x.std(axis)),
    Form("var_mean", lambda lib, x, axis: lib.var_mean(x, axis)),
    Form("BatchNorm", _batch_norm),
    Form("LayerNorm", _layer_norm),
)


def _arrays(results: Any) -> list[Array]:
    parts = results if isinstance(results, tuple) else (results,)
    return [np.asarray(part.detach().numpy(), np.float64) for part in parts]


def ratios(
    form: Form, data: Numbers, shape: tuple[int, int], axis: int, tier: str, seeds: int
) -> list[float]:
    """For each result: the root mean square of our errors over torch's, in units of the results."""
    squares: list[list[float]] = []
    with rl.config.override(tier=tier):
        for seed in range(seeds):
            array = data(np.random.default_rng(seed), shape).astype(np.float32)
            exact = torch.tensor(array).double()
            truth = _arrays(form.compute(torch, exact, axis))
            units = _arrays(form.compute(torch, exact.abs(), axis)) if form.cancels else truth
            found = _arrays(form.compute(rl, rl.tensor(array), axis))
            theirs = _arrays(form.compute(torch, torch.tensor(array), axis))
            squares = squares or [[0.0, 0.0] for _ in truth]
            for number, (right, mine, other) in enumerate(zip(truth, found, theirs, strict=True)):
                unit = np.abs(units[number]) + np.finfo(np.float32).tiny
                squares[number][0] += float(np.mean(((mine - right) / unit) ** 2))
                squares[number][1] += float(np.mean(((other - right) / unit) ** 2))
    return [float(np.sqrt(a / b)) if b else float(a > 0) for a, b in squares]


SHAPES = ((10, 64), (33, 64), (64, 10), (64, 33), (500, 40), (40, 500), (3000, 7), (7, 3000))


def main() -> int:
    """Print all ratios, with a mark at those that are too large."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for form, kind, shape, axis, tier in product(FORMS, DATA, SHAPES, (0, 1), TIERS):
        found = ratios(form, DATA[kind], shape, axis, tier, seeds)
        mark = "<<<" if max(found) > MOST else ""
        print(form.name, kind, shape, axis, tier, *(f"{r:.2f}" for r in found), mark, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
