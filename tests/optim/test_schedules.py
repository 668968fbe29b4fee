"""Learning-rate schedules against torch's, step by step, and through a saved state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ridgeline import nn, optim
from ridgeline.errors import RidgelineError
from ridgeline.tensors.tensor import tensor

STEPS = 25

CASES: list[tuple[str, dict[str, Any]]] = [
    ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.95}),
    ("StepLR", {"step_size": 4, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 3, 9], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 6}),
    ("LinearLR", {"start_factor": 0.1, "total_iters": 7}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 30}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 30, "three_phase": True, "pct_start": 0.25}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 3, "steps_per_epoch": 10,
                    "anneal_strategy": "linear"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4, "step_size_down": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4, "mode": "triangular2"}),
]  # fmt: skip


def make(lib: Any, name: str, settings: dict[str, Any], adam: bool = False) -> tuple[Any, Any]:
    if lib is torch:
        params: Any = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    else:
        params = [nn.Parameter(tensor([1.0, 1.0])), nn.Parameter(tensor([1.0]))]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.05}]
    module = torch.optim if lib is torch else optim
    rule = module.Adam(groups, lr=0.2) if adam else module.SGD(groups, lr=0.2, momentum=0.8)
    return rule, getattr(module.lr_scheduler, name)(rule, **settings)


def follow(rule: Any, schedule: Any, steps: int) -> list[Any]:
    seen = []
    for _ in range(steps):
        seen.append([(g["lr"], g.get("momentum"), g.get("betas")) for g in rule.param_groups])
        rule.step()
        schedule.step()
    return seen


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == b or abs(a - b) <= 1e-12 * abs(b))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adam", [False, True], ids=["momentum", "betas"])
@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_follows_torch(name: str, settings: dict[str, Any], adam: bool) -> None:
    assert close(
        follow(*make(optim, name, settings, adam), STEPS),
        follow(*make(torch, name, settings, adam), STEPS),
    )


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_goes_on_from_a_saved_state(name: str, settings: dict[str, Any]) -> None:
    whole = follow(*make(optim, name, settings), 20)
    rule, schedule = make(optim, name, settings)
    first = follow(rule, schedule, 9)
    again, second = make(optim, name, settings)
    again.load_state_dict(rule.state_dict())
    second.load_state_dict(schedule.state_dict())
    assert first + follow(again, second, 11) == whole


@pytest.mark.filterwarnings("ignore")
def test_sequence_and_chain_follow_torch() -> None:
    def sequence(lib: Any) -> list[Any]:
        rule, warm = make(lib, "LinearLR", {"start_factor": 0.1, "total_iters": 4})
        kinds = (torch.optim if lib is torch else optim).lr_scheduler
        parts = [warm, kinds.CosineAnnealingLR(rule, 10), kinds.ExponentialLR(rule, 0.9)]
        return follow(rule, kinds.SequentialLR(rule, parts, [4, 12]), 20)

    def chain(lib: Any) -> list[Any]:
        rule, first = make(lib, "ConstantLR", {"factor": 0.1, "total_iters": 3})
        kinds = (torch.optim if lib is torch else optim).lr_scheduler
        return follow(rule, kinds.ChainedScheduler([first, kinds.ExponentialLR(rule, 0.9)]), 10)

    assert close(sequence(optim), sequence(torch))
    assert close(chain(optim), chain(torch))


def test_plateau_follows_torch() -> None:
    metrics = [1.0, 0.9, 0.91, 0.92, 0.9, 0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.5, 0.6, 0.6, 0.6]
    for settings in (
        {"patience": 1, "factor": 0.5},
        {"patience": 0, "cooldown": 2, "threshold": 0.05},
        {"patience": 1, "threshold_mode": "abs", "threshold": 0.05, "min_lr": 0.01},
    ):
        seen = []
        for lib in (optim, torch):
            rule, schedule = make(lib, "ReduceLROnPlateau", settings)
            for metric in metrics:
                schedule.step(metric)
                seen.append([g["lr"] for g in rule.param_groups])
        assert close(seen[: len(metrics)], seen[len(metrics) :])


def test_mistakes_are_named() -> None:
    with pytest.raises(RidgelineError, match="needs total_steps"):
        make(optim, "OneCycleLR", {"max_lr": 1.0})
    with pytest.raises(RidgelineError, match="made for 2 steps"):
        follow(*make(optim, "OneCycleLR", {"max_lr": 1.0, "total_steps": 2}), 4)
    with pytest.raises(RidgelineError, match="2 groups need 2"):
        make(optim, "LambdaLR", {"lr_lambda": [lambda e: 1.0]})


@pytest.mark.parametrize("steps", [0, -3, 2.5, None])
def test_a_number_of_steps_is_one_at_least(steps: Any) -> None:
    optimizer = optim.SGD([nn.Parameter(tensor([1.0, 1.0]))], lr=0.1)
    with pytest.raises(RidgelineError, match="at least 1"):
        optim.lr_scheduler.StepLR(optimizer, steps)
    with pytest.raises(RidgelineError, match="at least 1"):
        optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
