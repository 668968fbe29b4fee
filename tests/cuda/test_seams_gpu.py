"""Every seam between devices on a GPU, of which a second context stands for a second GPU."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl

from .seams import MOVES, SEAMS, check

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("two_contexts")]
LARGE = 2_500_000  # rows of four: a piece that is compiled when it is first seen


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", SEAMS)
def test_a_value_is_the_same_on_the_other_side(name: str, move: str) -> None:
    check(SEAMS[name], *MOVES[move], 5)


@pytest.mark.parametrize("move", ["to the host", "between GPUs"])
@pytest.mark.parametrize("name", SEAMS)
def test_so_is_a_large_one(name: str, move: str) -> None:
    with rl.config.override(tier="auto"):
        check(SEAMS[name], *MOVES[move], LARGE)


def test_the_host_computes_with_a_large_result_of_jit() -> None:
    values = np.random.default_rng(0).integers(-9, 10, (4000, 4400)).astype(np.float32)
    a = rl.tensor(values, device="cuda")
    double = rl.jit(lambda: a * 2)
    with rl.config.override(tier="auto"):
        for _ in range(3):
            np.testing.assert_array_equal((double().to("cpu") * 3).numpy(), values * 6)
