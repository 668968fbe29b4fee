"""Random programs, compiled and interpreted: equal to the bit, because arithmetic is exact."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import evaluate
from tests.compiler.random_graphs import random_graph
from tests.compiler.test_compiled import run_compiled


def disagreement(seed: int, size: int = 12) -> str | None:
    """What is wrong with a random program, or None."""
    outputs, inputs = random_graph(seed, size)
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-4, 5, i.shape).astype(i.dtype.numpy) for i in inputs]  # type: ignore[arg-type]
    expected = evaluate(outputs, dict(zip(inputs, arrays)))
    for number, (got, want) in enumerate(zip(run_compiled(outputs, inputs, arrays), expected)):
        if not np.array_equal(got, want):
            return f"output {number} of {len(outputs)}: {np.argwhere(got != want)[:3].tolist()}"
    return None


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_agree(seed: int) -> None:
    assert disagreement(seed) is None
