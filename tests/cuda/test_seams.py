"""Every seam between devices, over two GPUs that are not there and whose memory is their own."""

from __future__ import annotations

import pytest

import ridgeline as rl
from ridgeline.execution import interpreter_cost

from .fake_code import FakeCode
from .seams import MOVES, SEAMS, check


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", SEAMS)
def test_a_value_is_the_same_on_the_other_side(fake_code: FakeCode, name: str, move: str) -> None:
    check(SEAMS[name], *MOVES[move], 5)


@pytest.mark.parametrize("rows", [2, 12])
@pytest.mark.parametrize("name", ["deferred", "eager", "jitted", "in_place", "trained"])
def test_pieces_of_both_tiers_meet(
    fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch, name: str, rows: int
) -> None:
    """Small pieces are interpreted, and those of more than 45 elements compiled at once."""
    monkeypatch.setattr(interpreter_cost, "_PER_ELEMENT", 1e-3)
    with rl.config.override(tier="auto"):
        for places in MOVES.values():
            check(SEAMS[name], *places, rows)


def test_results_of_control_flow_on_several_devices(fake_code: FakeCode) -> None:
    x, y = rl.arange(20, dtype=rl.float32, device="cuda:0"), rl.arange(20, dtype=rl.float32)

    def both(x: rl.Tensor, y: rl.Tensor) -> tuple[rl.Tensor, ...]:
        first, second = rl.cond(
            y.sum() > 0,
            lambda u, w: (u.cpu() * 2, w.to("cuda:1")),
            lambda u, w: (w, u.to("cuda:1")),
            x, y,
        )  # fmt: skip
        ordered, places = (-x).sort()  # one of two results is read after a copy there and back
        back = (ordered.cpu() * 3).to("cuda:0") + places
        return first + y, second.to("cuda:0") + x, back

    for run in (both, rl.jit(both)):
        first, second, back = run(x, y)
        assert first.tolist() == [3.0 * n for n in range(20)]
        assert second.tolist() == [2.0 * n for n in range(20)]
        assert back.tolist() == [19.0 - n - 3 * (19 - n) for n in range(20)]


def test_a_number_of_the_host_goes_along_before_it_is_computed(fake_code: FakeCode) -> None:
    x, y = rl.tensor([1.0, 2.0], device="cuda:1"), rl.tensor([3.0, 4.0])

    def use(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        return x * y.sum() + rl.where(x > 1, x, y.prod())

    for run in (use, rl.jit(use)):
        assert run(x, y).tolist() == [19.0, 16.0]
    with rl.eager():
        assert use(x, y).tolist() == [19.0, 16.0]


def test_what_a_program_does_not_read_may_lie_anywhere(fake_code: FakeCode) -> None:
    """A backward pass is over parameters of both devices, the gradient of one over its own."""
    here = (rl.ones(5, 4) * 1).requires_grad_()
    there = (rl.ones(5, 4, device="cuda:1") * 1).requires_grad_()
    for first, second in ((here, there), (there, here)):
        ((first * first).sum().to("cuda:0") + (second * second).sum().to("cuda:0")).backward()
        second.grad = None
        assert (first.grad + 1).tolist() == [[3.0] * 4] * 5
        first.grad = None
