"""Are the losses right? `python -m benchmarks.programs.check [NAMES…] [--default] [--steps 50]`.

Every program runs over torch in float64 and float32, and over ridgeline with and without jit, from
the same weights, with the same batches and draws. Ours may be twice as far from float64 as torch's
float32 is, or 1e-5 of the loss.

Where rounding errors grow with every step, as in L-BFGS without a line search, how far one run of
torch's in float32 is led is chance: with the points of the PINN in another order, torch is up to
four times as far from float64 as with them in this one. So torch runs in float32 a few times, from
weights that differ in their last bit, and the farthest of these counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.programs import NAMES
from benchmarks.programs.draws import same_draws
from benchmarks.programs.switch import Framework, start

TORCH = Framework("torch")
OURS = {"undecorated": Framework("ridgeline"), "jit": Framework("ridgeline", jit=True)}
RELATIVE = 1e-5
RUNS = 4  # of torch in float32
Losses = NDArray[np.float64]


def losses(program: str, on: Framework, small: bool, steps: int) -> Losses:
    """The loss of each of the first steps."""
    with same_draws(on.module()):
        step = start(program, on, small)
        return np.array([step(number).item() for number in range(steps)])


def torch_losses(program: str, dtype: str, small: bool, steps: int, nudge: int = 0) -> Losses:
    """The same over torch, in one precision."""
    torch = TORCH.module()
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        return losses(program, replace(TORCH, nudge=nudge), small, steps)
    finally:
        torch.set_default_dtype(before)


def excess(ours: Losses, singles: Sequence[Losses], double: Losses) -> float:
    """Our greatest error over what is allowed; up to 1 all is well.

    Torch's own error at a step is the greatest of its runs so far: it may pass through zero.
    """
    errors = np.max([np.abs(single - double) for single in singles], 0)
    allowed = np.maximum(2 * np.maximum.accumulate(errors), RELATIVE * np.abs(double))
    return float(np.max(np.abs(ours - double) / allowed))


def check(
    program: str, small: bool, steps: int, ways: Sequence[str] = tuple(OURS)
) -> dict[str, float]:
    """The excess of each of our ways to run a program."""
    double = torch_losses(program, "float64", small, steps)
    singles = [torch_losses(program, "float32", small, steps, nudge) for nudge in range(RUNS)]
    return {way: excess(losses(program, OURS[way], small, steps), singles, double) for way in ways}


def main() -> int:
    """Print how far the losses of each program are from float64, as a share of what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--default", action="store_true", help="the authors' sizes, not small ones")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    wrong = False
    for name in arguments.names or NAMES:
        found = check(name, not arguments.default, arguments.steps)
        print(f"{name:24}" + "  ".join(f"{way} {share:.2g}" for way, share in found.items()))
        wrong |= max(found.values()) > 1
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
