"""Backward hooks of modules see what torch's see: several outputs, some untracked or unused."""

from __future__ import annotations

from typing import Any

import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")


def _two(lib: Any) -> Any:
    class Two(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = lib.nn.Linear(2, 2, bias=False)

        def forward(self, a: Any, b: Any) -> Any:
            return self.linear(a) * b, a + b

    made = Two()
    with lib.no_grad():
        made.linear.weight.copy_(lib.tensor([[0.125, 0.25], [0.5, -0.25]]))
    return made


def _shown(gradients: Any) -> list[Any]:
    return [None if g is None else g.tolist() for g in gradients]


def _seen(lib: Any, tracked: tuple[bool, bool], used: int) -> list[Any]:
    seen: list[Any] = []
    module = _two(lib)
    module.register_full_backward_hook(lambda m, i, o: seen.append((_shown(i), _shown(o))))
    module.register_full_backward_pre_hook(lambda m, o: seen.append(_shown(o)))
    module.register_forward_hook(lambda m, a, o: (o[0] * 2, o[1] * 4))  # before what is seen
    a, b = lib.tensor([1.0, 2.0]), lib.tensor([4.0, 8.0])
    a.requires_grad_(tracked[0])
    b.requires_grad_(tracked[1])
    found = module(a, b)
    loss = (found[0] * found[1]).sum() if used == 2 else found[used].sum()
    seen += [part.requires_grad for part in found]
    if loss.requires_grad:
        loss.backward()
    return [*seen, a.grad is None or a.grad.tolist(), b.grad is None or b.grad.tolist()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("used", [0, 1, 2])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_gradients_by_place(first: bool, second: bool, used: int) -> None:
    assert _seen(rl, (first, second), used) == _seen(torch, (first, second), used)


def _kept(lib: Any) -> list[Any]:
    seen: list[Any] = []
    module = lib.nn.Linear(2, 1)
    first = module.register_full_backward_hook(lambda m, i, o: seen.append("first"))
    found = module(lib.ones(1, 2).requires_grad_())
    first.remove()
    module.register_full_backward_hook(lambda m, i, o: seen.append("late"))
    found.sum().backward()
    seen.append("again")
    module(lib.ones(1, 2).requires_grad_()).sum().backward()
    return seen


def test_the_hooks_are_those_of_the_call() -> None:
    assert _kept(rl) == _kept(torch) == ["first", "again", "late"]
