"""Collectives of values on GPUs: through the host, on ranks with a GPU each that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.distributed import functional
from tests.cuda.fake_code import FakeCode


@pytest.mark.parametrize("jitted", [False, True])
def test_ranks_with_a_gpu_each(fake_code: FakeCode, jitted: bool) -> None:
    def step(x: Any) -> Any:
        return functional.all_reduce(x * 2) + functional.all_gather(x, 0)[:3]

    def work() -> tuple[str, np.ndarray]:
        rank = dist.world().rank
        x = rl.full((3,), float(rank + 1), device=f"cuda:{rank}")
        made = (rl.jit(step) if jitted else step)(x)
        return str(made.device), made.cpu().numpy()

    for rank, (device, got) in enumerate(dist.run(work, ranks=2)):
        assert device == f"cuda:{rank}"
        np.testing.assert_array_equal(got, np.full(3, 7.0))
