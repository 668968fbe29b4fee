"""A jitted step that reads a value after a pass went through it, as its graph is partly let go."""

from __future__ import annotations

from typing import Any

import pytest

import ridgeline as rl


def step(x: rl.Tensor, w: rl.Tensor, v: rl.Tensor) -> list[rl.Tensor]:
    turned = w[[2, 0, 1]].tanh()
    made = v - x * w
    off = made.sum() - 1
    loss = (off**2).reshape(1)
    loss.backward()
    shown = (made.clone().detach() * turned).tanh()
    scaled = (v * shown.mean()).tanh()
    both = [(scaled + 1).tanh(), w.flip(0).tanh()]
    result = rl.stack(both).mean(0).tanh()
    cycle: list[Any] = [off, *both]
    cycle.append(cycle)  # so that somebody still holds them when the function has ended
    return [loss, result]


@pytest.mark.parametrize("returned", [1, 2])
def test_what_is_kept_for_a_later_pass_is_computed(returned: int) -> None:
    def run(jitted: bool) -> list[list[list[float]]]:
        w = rl.tensor([-0.5, 0.125, 0.25], dtype=rl.float64, requires_grad=True)
        v = rl.tensor([0.5, -0.25, 0.75], dtype=rl.float64, requires_grad=True)

        def function(x: rl.Tensor) -> list[rl.Tensor]:
            return step(x, w, v)[:returned]

        call = rl.jit(function) if jitted else function
        found = []
        for _ in range(3):
            results = call(rl.tensor([1.0, 2.0, 3.0], dtype=rl.float64))
            if returned == 2:
                results[1].sum().backward()
            assert w.grad is not None and v.grad is not None
            found.append([t.tolist() for t in (*results, w.grad, v.grad)])
        return found

    for one, other in zip(run(True), run(False)):
        for got, wanted in zip(one, other):
            assert got == pytest.approx(wanted, rel=1e-12)
