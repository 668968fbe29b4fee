"""An undecorated step as one program: what it computes, when there is one, and when there is none.

The truth is torch in float64.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import optim
from ridgeline.compiler.background import background

RULES = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop",
         "ASGD", "Rprop", "Adafactor")  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "AdamW": {"lr": 0.1, "amsgrad": True},
    "RMSprop": {"lr": 0.1, "momentum": 0.5, "centered": True},
}  # fmt: skip
SHAPES = ((3,), (2, 4), (3,), (1,))


@pytest.fixture(autouse=True, params=["auto", "compiled"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    with rl.config.override(tier=request.param):
        yield request.param


def values(number: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(number).normal(size=shape).astype(np.float32)


def parameters(library: Any, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Any]:
    dtype = library.float64 if library is torch else library.float32
    made = [library.tensor(values(n, shape), dtype=dtype) for n, shape in enumerate(shapes)]
    return [library.nn.Parameter(value) for value in made]


def give_gradients(
    library: Any, members: list[Any], step: int, missing: tuple[int, ...] = ()
) -> None:
    for n, p in enumerate(members):
        value = library.tensor(values(100 * step + n + 7, tuple(p.shape)), dtype=p.dtype)
        p.grad = None if n in missing else value


def programs(rule: optim.Optimizer) -> int:
    background.wait()
    return len(rule._program._traces)


def taken(rule: optim.Optimizer, members: list[Any]) -> None:
    """Steps until there is a program, which the next one finds."""
    for step in range(60):
        give_gradients(rl, members, step)
        rule.step()
        if programs(rule):
            return
    raise AssertionError("no program was made in 60 steps")


def near(ours: list[Any], theirs: list[Any], rel: float = 2e-4) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            mine.detach().numpy(), other.detach().numpy(), rtol=rel, atol=rel * 1e-1
        )


class Both:
    """The same optimizer here and in torch, over the same numbers."""

    def __init__(self, name: str = "AdamW", **settings: Any) -> None:
        settings = settings or SETTINGS.get(name, {"lr": 0.05})
        self.members = {library: parameters(library) for library in (rl, torch)}
        self.rules = {
            library: getattr(library.optim, name)(members, **settings)
            for library, members in self.members.items()
        }
        self.number = 0

    @property
    def ours(self) -> Any:
        return self.rules[rl]

    def step(self, missing: tuple[int, ...] = (), times: int = 1) -> None:
        for _ in range(times):
            for library, members in self.members.items():
                give_gradients(library, members, self.number, missing)
                self.rules[library].step()
            self.number += 1

    def until_program(self, missing: tuple[int, ...] = ()) -> None:
        before = list(self.ours._program._traces)
        for _ in range(60):
            self.step(missing)
            if programs(self.ours) and self.ours._program._traces[0] not in before:
                self.step(missing)
                return
        raise AssertionError("no program was made in 60 steps")

    def near(self) -> None:
        near(self.members[rl], self.members[torch])


@pytest.mark.parametrize("name", RULES)
def test_every_rule_goes_on_as_it_began(name: str) -> None:
    both = Both(name)
    both.until_program()
    both.step(times=4)
    both.near()
    assert programs(both.ours) == 1


def test_numbers_of_groups_are_read_in_every_step() -> None:
    both = Both("AdamW", lr=0.1, betas=(0.8, 0.9))
    both.until_program()
    for lr in (0.05, 0.2, 0.01):
        for rule in both.rules.values():
            rule.param_groups[0]["lr"] = lr
            rule.param_groups[0]["betas"] = (0.5 + lr, 0.9)
        both.step()
    both.near()
    assert programs(both.ours) == 1


def test_schedulers() -> None:
    both = Both("SGD", lr=0.1, momentum=0.9)
    schedules = [
        library.optim.lr_scheduler.OneCycleLR(both.rules[library], 0.5, total_steps=200)
        for library in (rl, torch)
    ]
    for _ in range(40):
        both.step()
        for schedule in schedules:
            schedule.step()
    both.near()
    assert programs(both.ours) == 1


def test_which_gradients_there_are_tells_programs_apart(tier: str) -> None:
    both = Both("AdamW")
    both.until_program()
    both.until_program(missing=(1,))
    for missing in ((), (1,), (0, 3), (), (1,)):
        both.step(missing)
    both.near()
    assert programs(both.ours) == (3 if tier == "compiled" else 2)


def test_frozen_and_thawed_parameters() -> None:
    both = Both("SGD", lr=0.1, momentum=0.9)
    for members in both.members.values():
        members[2].requires_grad_(False)
    both.until_program(missing=(2,))
    for members in both.members.values():
        members[2].requires_grad_(True)
    both.step(times=6)
    both.near()


def test_flags_and_new_groups_begin_anew() -> None:
    both = Both("AdamW", lr=0.1)
    both.until_program()
    for rule in both.rules.values():
        rule.param_groups[0]["maximize"] = True
    both.step(times=2)
    both.near()
    for library, rule in both.rules.items():
        more = parameters(library, ((2, 2),))
        rule.add_param_group({"params": more, "lr": 0.3})
        both.members[library] += more
    both.until_program()
    both.step()
    both.near()


def test_state_is_saved_loaded_and_replaced_in_mid_run() -> None:
    both = Both("AdamW", lr=0.1)
    both.until_program()
    saved = {library: copy.deepcopy(rule.state_dict()) for library, rule in both.rules.items()}
    both.step(times=3)
    for library, rule in both.rules.items():
        rule.load_state_dict(saved[library])
    both.until_program()
    both.near()
    for library, members in both.members.items():
        mean = both.rules[library].state[members[0]]["exp_avg"]
        both.rules[library].state[members[0]]["exp_avg"] = library.zeros_like(mean)
    both.step(times=3)
    both.near()
    for rule in both.rules.values():
        rule.zero_grad(set_to_none=False)
        rule.step()
    both.near()


def test_gradients_that_are_views_or_shared() -> None:
    both = Both("SGD", lr=0.1)
    both.until_program()
    for library, members in both.members.items():
        flat = library.arange(15, dtype=members[0].dtype)
        members[0].grad = flat[3:6]
        members[1].grad = flat[4:12].reshape(4, 2).t()
        members[2].grad = members[0].grad
        both.rules[library].step()
        members[2].grad = members[0].grad * 2
        both.rules[library].step()
    both.near()


def test_tied_parameters_and_other_memory() -> None:
    both = Both("SGD", lr=0.1, momentum=0.5)
    both.until_program()
    for members in both.members.values():
        members[2].data = members[0].data
    both.step(times=3)
    both.near()
    for library, members in both.members.items():
        members[1].data = library.ones(2, 4, dtype=members[1].dtype)
    both.step(times=3)
    both.near()


def test_hooks_closures_and_clipping() -> None:
    losses: dict[Any, list[float]] = {rl: [], torch: []}
    members = {library: parameters(library) for library in (rl, torch)}
    for library, mine in members.items():
        rule = library.optim.AdamW(mine, lr=0.1)
        seen: list[int] = []

        def clip(*given: Any, mine: list[Any] = mine, utils: Any = library.nn.utils) -> None:
            utils.clip_grad_norm_(mine, 0.5)

        rule.register_step_pre_hook(clip)
        rule.register_step_post_hook(lambda o, a, k, seen=seen: seen.append(1))

        def closure(mine: list[Any] = mine, rule: Any = rule) -> Any:
            rule.zero_grad()
            loss = sum((p * p).sum() for p in mine)
            loss.backward()
            return loss

        for _ in range(35):
            losses[library].append(float(rule.step(closure)))
        assert len(seen) == 35
    assert losses[rl] == pytest.approx(losses[torch], rel=1e-4)
    near(members[rl], members[torch])


def test_a_model_trains_as_in_torch() -> None:
    def trained(library: Any, dtype: Any) -> list[float]:
        weights = [values(1, (8, 5)), values(2, (8,)), values(3, (3, 8)), values(4, (3,))]
        net = library.nn.Sequential(
            library.nn.Linear(5, 8), library.nn.ReLU(), library.nn.Linear(8, 3)
        ).to(dtype)
        with library.no_grad():
            for p, value in zip(net.parameters(), weights, strict=True):
                p.copy_(library.tensor(value, dtype=dtype))
        rule = library.optim.AdamW(net.parameters(), lr=0.01)
        x = library.tensor(values(5, (16, 5)), dtype=dtype)
        y = library.tensor([n % 3 for n in range(16)])
        found = []
        for _ in range(40):
            rule.zero_grad()
            loss = library.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            rule.step()
            found.append(float(loss))
        return found

    assert trained(rl, rl.float32) == pytest.approx(trained(torch, torch.float64), rel=1e-4)


def test_gradient_scaling_leaves_out_steps() -> None:
    members = parameters(rl)
    rule, scaler = optim.SGD(members, lr=0.1), rl.amp.GradScaler("cpu", init_scale=4.0)
    taken(rule, members)
    before = [p.tolist() for p in members]
    give_gradients(rl, members, 3)
    members[0].grad = rl.full((3,), float("inf"))
    scaler.scale(rl.ones(()))
    scaler.unscale_(rule)
    scaler.step(rule)
    scaler.update()
    assert [p.tolist() for p in members] == before


def test_copies_begin_anew() -> None:
    members = parameters(rl)
    rule = optim.AdamW(members, lr=0.1)
    taken(rule, members)
    for other in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert programs(other) == 0
        before = [p.tolist() for p in members]
        mine = other.param_groups[0]["params"]
        give_gradients(rl, mine, 5)
        other.step()
        assert [p.tolist() for p in members] == before
        assert [p.tolist() for p in mine] != before


class Halved(optim.SGD):
    """A rule of a user's, with state in Python."""

    calls = 0

    def _update(self, parameter: Any, gradient: Any, state: Any, group: Any) -> None:
        self.calls += 1
        super()._update(parameter, gradient * 0.5, state, group)


class Renamed(optim.AdamW):
    """A subclass that changes no rule."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return super().step(closure)


def test_subclasses_of_users() -> None:
    members, plain = parameters(rl), parameters(rl)
    rule, half = Halved(members, lr=0.2), optim.SGD(plain, lr=0.1)
    for step in range(12):
        for mine, one in ((members, rule), (plain, half)):
            give_gradients(rl, mine, step)
            one.step()
    near(members, plain, 1e-6)
    assert rule.calls == 12 * len(SHAPES) and programs(rule) == 0
    renamed = Renamed(members, lr=0.1)
    taken(renamed, members)
    assert programs(renamed) == 1


def test_state_in_a_dictionary_of_the_users() -> None:
    members = parameters(rl)
    rule = optim.SGD(members, lr=0.1, momentum=0.5)
    rule.state = dict(rule.state)
    for step in range(12):
        give_gradients(rl, members, step)
        rule.step()
    assert programs(rule) == 0


def test_eager_and_no_grad_modes() -> None:
    both = Both("AdamW", lr=0.1)
    both.until_program()
    with rl.eager():
        both.step()
    with rl.no_grad():
        both.step()
    both.step()
    both.near()


def test_handles_arrays_and_old_values_stay_what_they_are() -> None:
    members = parameters(rl)
    rule = optim.SGD(members, lr=1.0)
    taken(rule, members)
    view, array, old = members[0][1:], members[3].detach().numpy(), members[0] * 1
    before = old.tolist()
    give_gradients(rl, members, 9)
    expected = [np.asarray(p.tolist()) - np.asarray(p.grad.tolist()) for p in members]
    rule.step()
    assert old.tolist() == before
    np.testing.assert_allclose(view.tolist(), expected[0][1:], rtol=1e-6)
    np.testing.assert_allclose(array, expected[3], rtol=1e-6)


def test_threads_take_turns() -> None:
    members = parameters(rl)
    rule = optim.SGD(members, lr=1.0)
    start = [np.asarray(p.tolist()) for p in members]
    for p in members:
        p.grad = rl.ones(*p.shape)
    workers = [threading.Thread(target=lambda: [rule.step() for _ in range(20)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for p, before in zip(members, start, strict=True):
        np.testing.assert_allclose(p.tolist(), before - 80.0, rtol=1e-5)


def test_a_refused_step_changes_nothing() -> None:
    members = parameters(rl)
    rule = optim.SGD(members, lr=0.1)
    taken(rule, members)
    before = [p.tolist() for p in members]
    give_gradients(rl, members, 2)
    members[1].grad = rl.ones(3, 8)[rl.tensor([0, 8, 1]) + 1][:2, :4] * 1
    with pytest.raises(rl.RidgelineError):
        rule.step()
    assert [p.tolist() for p in members] == before


def test_no_program_in_the_interpreter() -> None:
    with rl.config.override(tier="interpreter"):
        members = parameters(rl)
        rule = optim.AdamW(members, lr=0.1)
        for step in range(8):
            give_gradients(rl, members, step)
            rule.step()
        assert programs(rule) == 0
