"""Optimizers against torch's: the same parameters after every one of many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import nn, optim
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError
from ridgeline.optim.optimizer import OptimizerError
from ridgeline.record import mutation
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit
from tests.nn.oracle import assert_as_good

STEPS = 10
SHAPES = ((4, 3), (6, 4), (5,))

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.1}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"maximize": True}),
    ("RMSprop", {"momentum": 0.8, "centered": True, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("RAdam", {"betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"t0": 3, "lambd": 0.1, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.1}),
    ("Adafactor", {"weight_decay": 0.1}),
]


@pytest.mark.parametrize("settings", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}])
def test_muon_follows_torch_to_bfloat16(settings: dict[str, Any]) -> None:
    """The iteration runs in bfloat16 on both sides, so only its digits can agree."""
    ours, theirs = parameters("ours")[:2], parameters("torch")[:2]
    mine = optim.Muon(ours, lr=0.1, **settings)
    peer = torch.optim.Muon(theirs, lr=0.1, **settings)
    for step in range(STEPS):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        mine.step()
        peer.step()
    for a, b in zip(ours, theirs):
        assert np.allclose(as_array(a), b.detach().numpy(), atol=2e-2)
    with pytest.raises(OptimizerError, match="updates matrices"):
        optim.Muon(parameters("ours"))


def test_lion_moves_by_the_sign() -> None:
    weight = nn.Parameter(tensor([1.0, -2.0, 3.0]))
    rule = optim.Lion([weight], lr=0.1, weight_decay=0.5)
    weight.grad = tensor([0.5, -7.0, 0.0])
    rule.step()
    assert np.allclose(as_array(weight), [0.95 - 0.1, -1.9 + 0.1, 2.85])


def test_lamb_step_has_the_norm_of_the_parameter() -> None:
    weight = nn.Parameter(tensor([3.0, 4.0]))
    rule = optim.LAMB([weight], lr=0.1)
    weight.grad = tensor([1.0, -2.0])
    rule.step()
    moved = as_array(weight) - [3.0, 4.0]
    assert np.isclose(np.linalg.norm(moved), 0.1 * 5, rtol=1e-4)


def start() -> list[np.ndarray]:
    source = np.random.default_rng(0)
    return [source.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def gradients(step: int) -> list[np.ndarray]:
    source = np.random.default_rng(100 + step)
    return [source.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def parameters(kind: str) -> list[Any]:
    if kind == "ours":
        return [nn.Parameter(tensor(a)) for a in start()]
    dtype = torch.float64 if kind == "exact" else torch.float32
    return [torch.nn.Parameter(torch.tensor(a, dtype=dtype)) for a in start()]


def set_gradients(params: list[Any], step: int) -> None:
    for parameter, gradient in zip(params, gradients(step)):
        if isinstance(parameter, Tensor):
            parameter.grad = tensor(gradient)
        else:
            parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda v: str(v) if v else "defaults")
def test_follows_torch(name: str, settings: dict[str, Any]) -> None:
    kinds = ("ours", "torch", "exact")
    params = {kind: parameters(kind) for kind in kinds}
    rules = {
        kind: getattr(optim if kind == "ours" else torch.optim, name)(params[kind], **settings)
        for kind in kinds
    }
    for step in range(STEPS):
        for kind in kinds:
            set_gradients(params[kind], step)
            rules[kind].step()
        for number, (a, b, c) in enumerate(zip(*params.values())):
            triple = (as_array(a), b.detach().numpy(), c.detach().numpy())
            assert_as_good(*triple, f"parameter {number} after step {step + 1}")


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda v: str(v) if v else "defaults")
def test_state_moves_between_torch_and_us(name: str, settings: dict[str, Any]) -> None:
    """Steps begun in torch go on here: the state_dict has torch's form both ways."""
    theirs, mine = parameters("torch"), parameters("ours")
    rule = getattr(torch.optim, name)(theirs, **settings)
    for step in range(3):
        set_gradients(theirs, step)
        rule.step()
    own = getattr(optim, name)(mine, lr=0.7)
    own.load_state_dict(rule.state_dict())
    for a, b in zip(mine, theirs):
        a.data.copy_(tensor(b.detach().numpy().copy()))
    assert own.param_groups[0]["lr"] == rule.param_groups[0]["lr"]
    for step in range(3, 6):
        set_gradients(theirs, step)
        set_gradients(mine, step)
        rule.step()
        own.step()
    for a, b in zip(mine, theirs):
        assert np.allclose(as_array(a), b.detach().numpy(), rtol=1e-5, atol=1e-6)
    held, their_held = own.state_dict()["state"], rule.state_dict()["state"]
    assert {n: set(s) for n, s in held.items()} == {
        n: {k for k, v in s.items() if v is not None} for n, s in their_held.items()
    }


def test_groups_have_settings_of_their_own() -> None:
    a, b, c = parameters("ours")
    rule = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.0}], lr=0.5)
    rule.add_param_group({"params": c, "lr": 1.0})
    before = [as_array(p) for p in (a, b, c)]
    set_gradients([a, b, c], 0)
    rule.step()
    moved = [as_array(p) - old for p, old in zip((a, b, c), before)]
    for change, rate, gradient in zip(moved, (0.5, 0.0, 1.0), gradients(0)):
        assert np.allclose(change, -rate * gradient, atol=1e-6)


def test_parameters_without_gradients_stay() -> None:
    a, b, _ = parameters("ours")
    rule = optim.Adam([a, b], lr=0.1)
    a.grad = tensor(gradients(0)[0])
    before = as_array(b)
    rule.step()
    assert np.array_equal(as_array(b), before) and not np.array_equal(as_array(a), start()[0])
    rule.zero_grad()
    assert a.grad is None
    a.grad = tensor(gradients(0)[0])
    rule.zero_grad(set_to_none=False)
    assert not as_array(a.grad).any()


def test_a_closure_is_called_with_gradients_on() -> None:
    weight = nn.Parameter(tensor([2.0]))
    rule = optim.SGD([weight], lr=0.1)

    def closure() -> Tensor:
        rule.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    assert float(rule.step(closure)) == 4.0
    assert np.allclose(as_array(weight), 1.6)


def test_settings_move_the_guard_epoch() -> None:
    rule = optim.SGD(parameters("ours"), lr=0.1)
    before = mutation.epoch.value
    rule.param_groups[0]["lr"] = 0.2  # every call reads it anew
    assert mutation.epoch.value == before
    rule.param_groups[0]["nesterov"] = True
    assert mutation.epoch.value > before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.SGD([], lr=0.1), "no parameters"),
        (lambda: optim.SGD(tensor([1.0]), lr=0.1), "iterable"),
        (lambda: optim.SGD([1.0], lr=0.1), "takes tensors"),
        (lambda: optim.SGD(parameters("ours"), lr=-1), "lr of at least 0"),
        (lambda: optim.Adam(parameters("ours"), lr=float("nan")), "lr of at least 0"),
        (lambda: optim.Adam(parameters("ours"), betas=(1.0, 0.9)), "betas in 0…1"),
        (lambda: optim.SGD(parameters("ours"), nesterov=True), "Nesterov"),
        (lambda: optim.SGD([*parameters("ours")[:1]] * 2, lr=0.1), "twice"),
        (lambda: optim.SGD([nn.Parameter(tensor([1.0])) * 2], lr=0.1), "not a leaf"),
        (lambda: optim.Adam(parameters("ours"), differentiable=True), "differentiated"),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(OptimizerError, match=message):
        make()


def test_torchs_hints_are_taken_and_wrong_names_are_not() -> None:
    optim.Adam(parameters("ours"), foreach=True, fused=None, capturable=True)
    with pytest.raises(TypeError, match="no setting 'fusde'"):
        optim.Adam(parameters("ours"), fusde=True)  # type: ignore[call-arg]


def test_state_of_another_optimizer_is_refused() -> None:
    params = parameters("ours")
    one = optim.Adam(params)
    with pytest.raises(OptimizerError, match="other parameter groups"):
        one.load_state_dict(optim.Adam(parameters("ours")[:2]).state_dict())
    set_gradients(params, 0)
    one.step()
    state = one.state_dict()
    state["state"][0]["exp_avg"] = tensor([1.0, 2.0])
    with pytest.raises(RidgelineError, match="exp_avg has shape"):
        one.load_state_dict(state)


def test_lion_and_lamb_follow_their_papers() -> None:
    """Ten steps of the published update rules, in NumPy's float64."""
    for rule in ("Lion", "LAMB"):
        params, state = parameters("ours"), [a.astype(np.float64) for a in start()]
        mean, square = ([np.zeros_like(a) for a in state] for _ in range(2))
        lr, decay, (b1, b2), eps = 0.05, 0.1, (0.9, 0.95), 1e-6
        optimizer = getattr(optim, rule)(params, lr=lr, betas=(b1, b2), weight_decay=decay)
        for step in range(STEPS):
            set_gradients(params, step)
            optimizer.step()
            for n, g in enumerate(g.astype(np.float64) for g in gradients(step)):
                if rule == "Lion":
                    move = np.sign(b1 * mean[n] + (1 - b1) * g) + decay * state[n]
                    mean[n] = b2 * mean[n] + (1 - b2) * g
                    state[n] = state[n] - lr * move
                    continue
                mean[n] = b1 * mean[n] + (1 - b1) * g
                square[n] = b2 * square[n] + (1 - b2) * g * g
                corrected = mean[n] / (1 - b1 ** (step + 1))
                move = corrected / (np.sqrt(square[n] / (1 - b2 ** (step + 1))) + eps)
                move = move + decay * state[n]
                trust = np.linalg.norm(state[n]) / np.linalg.norm(move)
                state[n] = state[n] - lr * trust * move
        for mine, wanted in zip(params, state):
            np.testing.assert_allclose(as_array(mine), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jitted", [False, True])
def test_hooks_run_around_every_step(jitted: bool) -> None:
    parameter = nn.Parameter(tensor([1.0]))
    optimizer = optim.SGD([parameter], lr=1.0)

    def halve(optimizer: Any, args: Any, kwargs: Any) -> None:
        parameter.grad = parameter.grad * 0.5

    def clamp(optimizer: Any, args: Any, kwargs: Any) -> None:
        parameter.data.clamp_(min=-2.0)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (parameter * 4).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if jitted else step
    first = optimizer.register_step_pre_hook(halve)
    last = optimizer.register_step_post_hook(clamp)
    run()
    assert parameter.tolist() == [-1.0]
    run()
    assert parameter.tolist() == [-2.0]
    first.remove()
    last.remove()
    run()
    assert parameter.tolist() == [-6.0]
