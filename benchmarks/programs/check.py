"""Are the losses right? `python -m benchmarks.programs [NAMES…] [--default] [--steps 50]`.

Every program runs over torch in float64 and float32, and over ridgeline with and without jit, from
the same weights, with the same batches and draws. Ours may be twice as far from float64 as torch's
float32 is, or 1e-5 of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.programs.draws import same_draws
from benchmarks.programs.switch import Framework, start

TORCH = Framework("torch")
OURS = {"undecorated": Framework("ridgeline"), "jit": Framework("ridgeline", jit=True)}
RELATIVE = 1e-5
Losses = NDArray[np.float64]


def losses(program: str, on: Framework, small: bool, steps: int) -> Losses:
    """The loss of each of the first steps."""
    with same_draws(on.module()):
        step = start(program, on, small)
        return np.array([step(number).item() for number in range(steps)])


def torch_losses(program: str, dtype: str, small: bool, steps: int) -> Losses:
    """The same over torch, in one precision."""
    torch = TORCH.module()
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        return losses(program, TORCH, small, steps)
    finally:
        torch.set_default_dtype(before)


def excess(ours: Losses, single: Losses, double: Losses) -> float:
    """Our greatest error over what is allowed; up to 1 all is well.

    Torch's own error at a step is the greatest so far: it may pass through zero.
    """
    allowed = np.maximum(
        2 * np.maximum.accumulate(np.abs(single - double)), RELATIVE * np.abs(double)
    )
    return float(np.max(np.abs(ours - double) / allowed))


def check(
    program: str, small: bool, steps: int, ways: Sequence[str] = tuple(OURS)
) -> dict[str, float]:
    """The excess of each of our ways to run a program."""
    double = torch_losses(program, "float64", small, steps)
    single = torch_losses(program, "float32", small, steps)
    return {way: excess(losses(program, OURS[way], small, steps), single, double) for way in ways}


def report(names: Sequence[str], small: bool, steps: int) -> int:
    """Print how far the losses of programs are from float64, as a share of what is allowed."""
    wrong = False
    for name in names:
        found = check(name, small, steps)
        print(f"{name:24}" + "  ".join(f"{way} {share:.2g}" for way, share in found.items()))
        wrong |= max(found.values()) > 1
    return int(wrong)
