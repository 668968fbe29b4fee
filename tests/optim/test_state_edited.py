"""State that programs load, drop or exchange, and models whose type changes: as in torch."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

Run = Callable[[Any, Any, Any], None]  # a library, an optimizer, its parameters
KINDS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}, "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1, "amsgrad": True}, "RMSprop": {"lr": 0.01, "centered": True},
    "Adagrad": {"lr": 0.1}, "NAdam": {"lr": 0.1}, "ASGD": {"t0": 2}, "Rprop": {"lr": 0.01},
}  # fmt: skip


def steps(optimizer: Any, parameters: Any, count: int) -> None:
    for number in range(count):
        optimizer.zero_grad()
        sum(((p * (number + 1)).sin() * p).sum() for p in parameters).backward()
        optimizer.step()


def agree(kind: str, program: Run) -> None:
    found = []
    for lib in (rl, torch):
        default = lib.get_default_dtype()
        lib.set_default_dtype(lib.float64)
        try:
            parameters = [lib.ones(2).requires_grad_(), lib.full((3,), 0.5).requires_grad_()]
            optimizer = getattr(lib.optim, kind)(parameters, **KINDS[kind])
            program(lib, optimizer, parameters)
        finally:
            lib.set_default_dtype(default)
        found.append(np.concatenate([p.detach().tolist() for p in parameters]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_a_saved_optimizer_lacks_begins_anew(kind: str) -> None:
    def program(lib: Any, optimizer: Any, parameters: Any) -> None:
        steps(optimizer, parameters, 3)
        saved = optimizer.state_dict()
        saved["state"] = {k: v for k, v in saved["state"].items() if k == 1}
        optimizer.load_state_dict(saved)
        steps(optimizer, parameters, 3)

    agree(kind, program)


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_dropped_begins_anew(kind: str) -> None:
    def program(lib: Any, optimizer: Any, parameters: Any) -> None:
        steps(optimizer, parameters, 3)
        optimizer.state.clear()
        steps(optimizer, parameters, 2)
        optimizer.state = collections.defaultdict(dict)
        steps(optimizer, parameters, 2)

    agree(kind, program)


def test_loaded_groups_decide_what_new_state_there_is() -> None:
    def program(lib: Any, optimizer: Any, parameters: Any) -> None:
        saved = optimizer.state_dict()
        saved["param_groups"][0]["amsgrad"] = True
        optimizer.load_state_dict(saved)
        steps(optimizer, parameters, 4)

    agree("Adam", program)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "Adagrad"])
def test_nothing_is_saved_before_a_step(kind: str) -> None:
    found = []
    for lib in (rl, torch):
        parameters = [lib.ones(2).requires_grad_(), lib.ones(3).requires_grad_()]
        optimizer = getattr(lib.optim, kind)(parameters[:1], **KINDS[kind])
        counts = [len(optimizer.state_dict()["state"])]
        steps(optimizer, parameters[:1], 1)
        counts.append(len(optimizer.state_dict()["state"]))
        optimizer.add_param_group({"params": parameters[1:]})
        counts.append(len(optimizer.state_dict()["state"]))
        steps(optimizer, parameters, 1)
        counts.append(len(optimizer.state_dict()["state"]))
        found.append(counts)
    assert found[0] == found[1]


def test_state_of_what_is_trained_no_more_is_not_saved() -> None:
    parameters = [rl.ones(2, requires_grad=True), rl.ones(3, requires_grad=True)]
    optimizer = rl.optim.Adam(parameters)
    steps(optimizer, parameters, 1)
    del optimizer.param_groups[0]["params"][0]
    assert list(optimizer.state_dict()["state"]) == [0]
    assert optimizer.state_dict()["state"][0]["exp_avg"].shape == (3,)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_cast_before_its_first_step_has_state_of_its_type(
    kind: str, jitted: bool
) -> None:
    found = []
    for lib in (rl, torch):
        model = lib.nn.Linear(2, 2)
        scale = lib.nn.Parameter(lib.tensor(0.7))
        with lib.no_grad():
            model.weight.fill_(0.25)
            model.bias.fill_(0.1)
        model.register_parameter("scale", scale)
        optimizer = getattr(lib.optim, kind)(model.parameters(), **KINDS[kind])
        model.double()

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (model(x) * model.scale).square().sum().backward()
            optimizer.step()

        call = rl.jit(step) if jitted and lib is rl else step
        for number in range(4):
            call(lib.ones(1, 2, dtype=lib.float64) + number)
        state = optimizer.state[model.weight].items()
        types = {name: str(v.dtype).partition(".")[2] for name, v in state if v is not None}
        values = [model.weight.detach().tolist()[0], model.bias.detach().tolist()]
        found.append((np.array([*values[0], *values[1], model.scale.item()]), types))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-7)
    assert found[0][1] == found[1][1]


def test_a_copy_has_no_hooks() -> None:
    for lib in (rl, torch):
        parameters, seen = [lib.ones(2).requires_grad_()], list[Any]()
        optimizer = lib.optim.SGD(parameters, lr=0.1)
        optimizer.register_step_pre_hook(lambda *given, seen=seen: seen.append("before"))
        optimizer.register_step_post_hook(lambda *given, seen=seen: seen.append("after"))
        copy.deepcopy(optimizer).step()
        assert not seen
        optimizer.step()
        assert seen == ["before", "after"]
