"""Work of each rank's own beside that on a mesh: drawn, sorted, computed when the mesh asks."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn


def losses(mode: str, axes: dict[str, int]) -> list[float]:
    """Of batches that the host draws and reorders, with numbers from the host in the loss."""
    rl.manual_seed(0)
    model: nn.Module = nn.Linear(4, 3).double()
    if axes:
        model = dist.parallelize(model, dist.Mesh(**axes))

    def loss() -> rl.Tensor:
        x = rl.randn(6, 4, dtype=rl.float64)
        rows = (x - x.mean()).sort(0).values[rl.randperm(6)]
        found: rl.Tensor = (model(rows) * rl.rand(6, 3, dtype=rl.float64)).square().mean()
        return found + rl.rand((), dtype=rl.float64)

    run = rl.jit(loss) if mode == "jit" else loss
    with rl.eager() if mode == "eager" else nullcontext():
        return [run().item() for _ in range(3)]


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_batches_that_the_host_has_yet_to_compute(mode: str, tier: str) -> None:
    with rl.config.override(tier=tier):
        expected = losses("eager", {})
        for found in dist.run(losses, mode, {"dp": 2}, ranks=2):
            assert found == pytest.approx(expected, rel=1e-13)
