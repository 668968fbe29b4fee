"""Programs on a GPU, undecorated: matched steps have the losses of recorded ones."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from benchmarks.programs import NAMES
from benchmarks.programs.switch import Framework, start
from ridgeline.config import config

pytestmark = pytest.mark.gpu
STEPS = 12


def losses(program: str, tape: bool) -> list[float]:
    rl.manual_seed(0)
    with config.override(tape=tape):
        step = start(program, Framework("ridgeline", device="cuda"), small=True)
        return [step(number).item() for number in range(STEPS)]


@pytest.mark.parametrize("program", NAMES)
def test_matched_steps_have_the_losses_of_recorded_ones(program: str) -> None:
    np.testing.assert_allclose(losses(program, True), losses(program, False), rtol=1e-4)
