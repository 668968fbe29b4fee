"""On a GPU: recurrent layers and loops against torch's on the CPU in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("length", "batch", "width", "hidden", "layers", "both_ways"),
    [(7, 3, 5, 9, 1, False), (33, 128, 64, 256, 1, False), (12, 17, 30, 65, 2, True)],
)
def test_recurrent_layers(
    kind: str, length: int, batch: int, width: int, hidden: int, layers: int, both_ways: bool
) -> None:
    settings = {"num_layers": layers, "bidirectional": both_ways}
    truth = getattr(torch.nn, kind)(width, hidden, **settings).double()
    ours = getattr(rl.nn, kind)(width, hidden, **settings)
    weights = {name: rl.tensor(w.numpy()).float() for name, w in truth.state_dict().items()}
    ours.load_state_dict(weights)
    ours = ours.to("cuda")
    values = np.random.default_rng(1).standard_normal((length, batch, width))

    @rl.jit
    def step(x: rl.Tensor) -> list[rl.Tensor]:
        total = (ours(x)[0] ** 2).mean()
        return [total.detach(), *rl.autograd.grad(total, list(ours.parameters()))]

    total = (truth(torch.tensor(values))[0] ** 2).mean()
    wanted = [total.detach(), *torch.autograd.grad(total, list(truth.parameters()))]
    x = rl.tensor(values.astype(np.float32), device="cuda")
    for _ in range(4):  # launches one by one, then a graph
        for mine, true in zip(step(x), wanted, strict=True):
            found = mine.cpu().numpy().astype(np.float64)
            error = np.linalg.norm(found - true.numpy()) / np.linalg.norm(true.numpy())
            assert error < 1e-4


def test_loops_that_the_device_decides() -> None:
    def collatz(n: rl.Tensor) -> Any:
        def step(state: Any) -> Any:
            value, count = state
            after = rl.cond(value % 2 == 0, lambda v: v // 2, lambda v: 3 * v + 1, value)
            return after, count + 1

        return rl.while_loop(lambda s: s[0] != 1, step, (n, n * 0))[1]

    function = rl.jit(collatz)
    for start, steps in ((1, 0), (6, 8), (27, 111)):
        assert int(function(rl.tensor(start, device="cuda"))) == steps
