"""Jitted training steps whose Python numbers change: a loss that went backward is returned."""

from __future__ import annotations

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim


def test_the_loss_of_a_step_over_changing_lengths_is_returned() -> None:
    numbers = np.random.default_rng(3)
    data = numbers.standard_normal((2, 9, 4)).astype(np.float32)

    def losses(decorate) -> list[float]:
        rl.manual_seed(0)
        gru = nn.GRU(4, 3, batch_first=True)
        optimizer = optim.SGD(gru.parameters(), lr=0.1)

        @decorate
        def step(x, lengths):
            optimizer.zero_grad()
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            output, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
            loss = (output**2).mean()
            loss.backward()
            optimizer.step()
            return loss

        cases = [[9, 4], [5, 7], [6, 3], [8, 8], [9, 4]]
        return [step(rl.tensor(data[:, : max(n)].copy()), n).item() for n in cases]

    np.testing.assert_allclose(losses(rl.jit), losses(lambda f: f), rtol=1e-5)
