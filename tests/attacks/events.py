"""Attack: training loops to which things happen that programs do to models, optimizers and data.

A loop of a dozen alike steps is learnt by tapes and update programs. Then, at random steps and
places, its world changes: weights are written or exchanged, layers and optimizers replaced, copied
or loaded, groups and states edited, hooks come and go, gradients are edited, kept or gone, tensors
are held, read, shared with NumPy or read by other threads, steps end by an exception, the batch has
another size. Everything that it leaves behind is what torch leaves behind.
"""

from __future__ import annotations

import copy
import gc
import io
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.config import config
from tests.attacks.attack import Attack
from tests.fuzz.deviations import interpreted_programs
from tests.fuzz.faults import Fault
from tests.fuzz.ways import torch

_STEPS, _QUIET = 26, 6  # steps of a loop, and those before anything happens
_NEAR = 1e-7  # float64, and a step that doubles an error makes 1e-15 of it at most 1e-9
_PLACES = ("before", "inside", "loss", "gradients", "after")
_WIDTH = 4


class Stop(Exception):
    """Ends a step."""


class World:
    """A model, an optimizer, data, and what a program keeps besides, in one library."""

    def __init__(self, lib: Any, seed: int) -> None:
        self.lib, self.seed = lib, seed
        draw = random.Random(seed)
        self.model = _filled(self, draw.choice(_MODELS)(lib.nn), draw)
        self.make_optimizer = draw.choice(_OPTIMIZERS)
        self.optimizer = self.make_optimizer(lib.optim, [*self.model.parameters()])
        self.rows, self.scale, self.passes = 3, 1.0, 1
        self.trained, self.cleared, self.stepped = True, True, True
        self.penalised = False
        self.averaged = copy.deepcopy(self.model)
        self.shared = np.ones(_WIDTH)  # memory that NumPy writes to
        self.factor = lib.from_numpy(self.shared)
        self.buffer = lib.zeros(2, _WIDTH)
        self.kept: list[Any] = []
        self.handles: list[Any] = []
        self.seen: list[np.ndarray] = []
        self.marks: list[tuple[int, float]] = []
        self.happening = _happening(draw)

    def parameters(self) -> list[Any]:
        return [*self.model.parameters()]

    def say(self, *values: Any) -> None:
        """What can be seen of the loop."""
        for value in values:
            if hasattr(value, "detach"):
                value = value.detach().tolist()
            self.seen.append(np.array(np.nan if value is None else value, np.float64))

    def mark(self, kind: int, value: Any) -> None:
        """What a hook sees; those of different tensors have an order of their own in torch."""
        self.marks.append((kind, round(float(value), 9)))

    def tensor(self, *shape: int, seed: int = 0) -> Any:
        return self.lib.tensor(np.random.default_rng(seed).standard_normal(shape) * 0.5)

    def at(self, number: int, place: str, value: Any = None) -> Any:
        """Whatever happens here; the value, which may be replaced."""
        for count, event in enumerate(self.happening.get((number, place), ())):
            draw = random.Random(f"{self.seed} {number} {place} {count}")
            made = event(self, draw, value)
            value = value if made is None else made
        return value

    def step(self, number: int) -> None:
        """A step like all others, but for what happens."""
        self.penalised = False
        self.at(number, "before")
        x = self.tensor(self.rows, _WIDTH, seed=number % 3)
        with nullcontext() if self.trained else self.lib.no_grad():
            h = self.at(number, "inside", self.model[0](x * self.factor))
            out = self.model[1](h)
            loss = (out * self.scale).square().mean() + 0.01 * out.sum()
            loss = self.at(number, "loss", loss)
        if self.cleared:
            self.optimizer.zero_grad()
        if loss.requires_grad:
            for left in range(self.passes)[::-1]:
                loss.backward(retain_graph=left > 0)
        self.at(number, "gradients")
        if self.stepped:
            self.optimizer.step()
        with self.lib.no_grad():
            for mean, parameter in zip(self.averaged.parameters(), self.parameters()):
                if mean.shape == parameter.shape:
                    mean.mul_(0.9).add_(parameter, alpha=0.1)
            self.buffer[number % 2] = h.mean(0)[:_WIDTH] if h.ndim == 2 else h.sum()
        self.at(number, "after")
        self.say(loss, self.buffer)

    def run(self) -> str:
        """All steps; the last one that the library refused."""
        for number in range(_STEPS):
            try:
                self.step(number)
            except Stop:
                self.say(-1.0)
            self.say(*[value for _, value in sorted(self.marks)])
            self.marks.clear()
            if number % 4 == 3:
                self.say(*self.parameters(), *[p.grad for p in self.parameters()])
        self.say(*self.averaged.parameters(), *[k for k in self.kept if hasattr(k, "detach")])
        return ""


# ---- models and optimizers -----------------------------------------------------------------------


def _plain(nn: Any) -> Any:
    return nn.Sequential(nn.Sequential(nn.Linear(_WIDTH, 5), nn.Tanh()), nn.Linear(5, 2))


def _normed(nn: Any) -> Any:
    # nothing whose gradient is zero but for rounding, which Adam makes large
    linear = nn.Linear(_WIDTH, 4, bias=False)
    inner = nn.Sequential(linear, nn.BatchNorm1d(4), nn.SiLU(), nn.LayerNorm(4))
    return nn.Sequential(inner, nn.Linear(4, 2))


def _recurrent(nn: Any) -> Any:
    class Rows(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(_WIDTH, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cell(x[None])[0][0]

    return nn.Sequential(Rows(), nn.Linear(4, 2))


def _attending(nn: Any) -> Any:
    class Rows(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.MultiheadAttention(_WIDTH, 2, bias=False, batch_first=True)
            self.gain = nn.Linear(_WIDTH, _WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.gain(self.heads(x[None], x[None], x[None])[0][0])

    return nn.Sequential(Rows(), nn.Linear(_WIDTH, 2))


def _tied(nn: Any) -> Any:
    class Tied(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.there = nn.Linear(_WIDTH, _WIDTH)
            self.back = nn.Linear(_WIDTH, _WIDTH)
            self.back.weight = self.there.weight
            self.steps = 0

        def forward(self, x: Any) -> Any:
            self.steps += 1
            return self.back(self.there(x).tanh()) * (1 + self.steps % 2)

    return nn.Sequential(Tied(), nn.Linear(_WIDTH, 2))


_MODELS = (_plain, _plain, _normed, _recurrent, _attending, _tied)
_OPTIMIZERS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda optim, params: optim.SGD(params, lr=0.05),
    lambda optim, params: optim.SGD(params, lr=0.03, momentum=0.9, weight_decay=0.01),
    lambda optim, params: optim.Adam(params, lr=0.02),
    lambda optim, params: optim.AdamW(params, lr=0.02, amsgrad=True),
    lambda optim, params: optim.RMSprop(params, lr=0.01),
    lambda optim, params: optim.Adagrad(params, lr=0.05),
)


def _filled(world: World, model: Any, draw: random.Random) -> Any:
    with world.lib.no_grad():
        for count, parameter in enumerate(model.parameters()):
            parameter.copy_(world.tensor(*parameter.shape, seed=draw.randrange(99) + count))
    return model


# ---- what may happen -----------------------------------------------------------------------------
# Every event is given the world, numbers of its own, and the value at its place.


Event = Callable[[World, random.Random, Any], Any]


def _pick(world: World, draw: random.Random) -> Any:
    return draw.choice(world.parameters())


def _write(world: World, draw: random.Random, _: Any) -> None:
    p = _pick(world, draw)
    draw.choice((
        lambda: p.data.mul_(0.9),
        lambda: p.data.view(-1)[:2].fill_(0.25),
        lambda: p.detach()[0].add_(0.125),
        lambda: setattr(p, "data", p.data * 0.75),
        lambda: setattr(p, "data", world.tensor(*p.shape, seed=draw.randrange(9))),
        lambda: p.data.copy_(p.data.flip(0)),
        lambda: p.detach().numpy().__imul__(0.95),
    ))()  # fmt: skip
    with world.lib.no_grad():
        draw.choice((lambda: p.clamp_(-1, 1), lambda: p[:1].neg_(), lambda: p.sub_(p.mean())))()


def _exchange(world: World, draw: random.Random, _: Any) -> None:
    one, other = _pick(world, draw), _pick(world, draw)
    if one.shape == other.shape:
        one.data, other.data = other.data, one.data


def _freeze(world: World, draw: random.Random, _: Any) -> None:
    _pick(world, draw).requires_grad_(draw.random() < 0.5)
    if not any(p.requires_grad for p in world.parameters()):
        world.model.requires_grad_(True)


def _replace_layer(world: World, draw: random.Random, _: Any) -> None:
    nn, size = world.lib.nn, world.model[1].in_features
    world.model[1] = _filled(world, nn.Linear(size, 2, bias=draw.random() < 0.7), draw)
    world.averaged = copy.deepcopy(world.model)
    world.optimizer = world.make_optimizer(world.lib.optim, world.parameters())


def _replace_weight(world: World, draw: random.Random, _: Any) -> None:
    layer = world.model[1]
    layer.weight = world.lib.nn.Parameter(layer.weight.detach().clone() * 0.5)
    if draw.random() < 0.5:
        world.optimizer.add_param_group({"params": [layer.weight], "lr": 0.01})


def _copy(world: World, draw: random.Random, _: Any) -> None:
    if draw.random() < 0.5:
        world.model, world.optimizer = copy.deepcopy((world.model, world.optimizer))
    else:
        state = copy.deepcopy(world.optimizer.state_dict())
        world.model = copy.deepcopy(world.model)
        world.optimizer = world.make_optimizer(world.lib.optim, world.parameters())
        if len(state["param_groups"]) == 1:
            world.optimizer.load_state_dict(state)


def _load(world: World, draw: random.Random, _: Any) -> None:
    kind = draw.randrange(4)
    if kind == 0:
        world.model.load_state_dict(world.averaged.state_dict())
    elif kind == 1:
        world.averaged.load_state_dict(world.model.state_dict())
    elif kind == 2:
        halves = {n: v * 0.5 if v.ndim else v for n, v in world.model.state_dict().items()}
        world.model.load_state_dict(halves, assign=draw.random() < 0.5)
    else:
        file = io.BytesIO()
        world.lib.save((world.model.state_dict(), world.optimizer.state_dict()), file)
        file.seek(0)
        model, optimizer = world.lib.load(file)
        world.model.load_state_dict(model)
        world.optimizer.load_state_dict(optimizer)


def _edit_group(world: World, draw: random.Random, _: Any) -> None:
    group = draw.choice(world.optimizer.param_groups)
    name = draw.choice([n for n in ("lr", "weight_decay", "momentum", "eps") if n in group])
    if name != "momentum" or group["momentum"]:
        group[name] = group[name] * draw.choice((0.5, 1.5)) + 1e-3 * draw.choice((0, 1))
    if "maximize" in group and draw.random() < 0.2:
        group["maximize"] = not group["maximize"]
    if draw.random() < 0.2 and len(group["params"]) > 2:
        del group["params"][-1]


def _edit_state(world: World, draw: random.Random, _: Any) -> None:
    state = world.optimizer.state
    owners = [p for p in world.parameters() if state.get(p)]
    if not owners:
        return
    entries = state[draw.choice(owners)]
    names = [name for name, v in entries.items() if name != "step" and hasattr(v, "detach")]
    if draw.random() < 0.3 or not names:
        state.pop(draw.choice(owners))
        return
    name = draw.choice(names)
    if draw.random() < 0.5:
        entries[name].mul_(0.5)
    else:
        entries[name] = entries[name].detach().clone() + 0.01


def _switch(world: World, draw: random.Random, _: Any) -> None:
    name = draw.choice(("trained", "cleared", "stepped"))
    setattr(world, name, not getattr(world, name) or draw.random() < 0.2)


def _settle(world: World, draw: random.Random, _: Any) -> None:
    world.trained = world.cleared = world.stepped = True
    world.passes, world.rows = draw.choice((1, 1, 2)), draw.choice((3, 3, 4, 2))


def _scale(world: World, draw: random.Random, _: Any) -> None:
    world.scale = draw.choice((0.5, 1.0, 1, 2, -0.0, world.lib.tensor(0.75), np.float64(1.25)))


def _mode(world: World, draw: random.Random, _: Any) -> None:
    draw.choice((world.model.eval, world.model.train, world.model[0].eval))()


def _hook(world: World, draw: random.Random, _: Any) -> None:
    if world.handles and draw.random() < 0.6:
        world.handles.pop(draw.randrange(len(world.handles))).remove()
        return
    p, layer = _pick(world, draw), world.model[draw.randrange(2)]
    if not p.requires_grad:
        return
    world.handles.append(draw.choice((
        lambda: p.register_hook(lambda g: g * 0.5),
        lambda: p.register_hook(lambda g: world.mark(1, g.sum())),
        lambda: p.register_post_accumulate_grad_hook(lambda q: world.mark(2, q.grad.sum())),
        lambda: layer.register_forward_hook(lambda m, a, out: out * 0.5),
        lambda: layer.register_forward_pre_hook(lambda m, a: (a[0] + 0.125,)),
        lambda: layer.register_full_backward_hook(lambda m, i, o: world.mark(3, o[0].sum())),
        lambda: world.optimizer.register_step_post_hook(lambda *a: world.say(p)),
    ))())  # fmt: skip


def _patch(world: World, draw: random.Random, _: Any) -> None:
    layer = world.model[1]
    if "forward" in vars(layer):
        del layer.forward
    else:
        before, factor = layer.forward, draw.choice((0.5, 2.0))
        layer.forward = lambda x: before(x) * factor


def _gradients(world: World, draw: random.Random, _: Any) -> None:
    lib, p = world.lib, _pick(world, draw)
    if p.grad is None:
        p.grad = lib.ones_like(p)
        return
    draw.choice((
        lambda: setattr(p, "grad", None),
        lambda: setattr(p, "grad", p.grad * 0.5),
        lambda: setattr(p, "grad", world.tensor(*p.shape, seed=4)),
        lambda: p.grad.mul_(0.5),
        lambda: p.grad.data.clamp_(-0.01, 0.01),
        lambda: p.grad[0].zero_(),
        lambda: p.grad.detach().numpy().__imul__(0.5),
        lambda: world.say(lib.nn.utils.clip_grad_norm_(world.parameters(), 0.1)),
        lambda: lib.nn.utils.clip_grad_value_(world.parameters(), 0.05),
        lambda: world.kept.append(p.grad),
        lambda: world.optimizer.step(),
        lambda: world.optimizer.zero_grad(set_to_none=False),
    ))()  # fmt: skip


def _keep(world: World, draw: random.Random, value: Any) -> None:
    if value is None:
        value = _pick(world, draw)
    world.kept.append(draw.choice((value, value.detach(), value.detach().clone(), value * 2)))
    del world.kept[: -draw.randint(1, 4)]


def _read(world: World, draw: random.Random, value: Any) -> None:
    value = _pick(world, draw) if value is None else value
    draw.choice((
        lambda: world.say(value), lambda: world.say(value.sum().item()), lambda: repr(value),
        lambda: world.say(float(value.mean())), lambda: bool((value > 0).any()),
        lambda: world.say(value.detach().numpy().copy()),
    ))()  # fmt: skip


def _elsewhere(world: World, draw: random.Random, value: Any) -> None:
    value = _pick(world, draw) if value is None else value
    found: list[Any] = []
    work = draw.choice((
        lambda: found.append(value.detach().tolist()),
        lambda: found.append((value.detach() * 2).sum().tolist()),
        lambda: (value.sum().backward(retain_graph=True), found.append(0.0)),
    )) if value.requires_grad else lambda: found.append(0.0)  # fmt: skip
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    world.say(found[0])


def _again(world: World, draw: random.Random, value: Any) -> Any:
    """More work at a place: another loss, gradients of gradients, a value written over."""
    if value is None or not value.requires_grad:
        return None
    lib, kind = world.lib, draw.randrange(6)
    if kind == 0:
        value.sum().backward(retain_graph=True)
    elif kind == 1:
        wanted = [p for p in world.parameters() if p.requires_grad]
        grads = lib.autograd.grad(value.sum(), wanted, retain_graph=True, allow_unused=True)
        world.say(*grads)
    elif kind == 2 and not world.penalised:
        world.penalised = True  # third derivatives of norms are wrong in torch
        wanted = [p for p in world.parameters() if p.requires_grad]
        grads = lib.autograd.grad(value.sum(), wanted, create_graph=True, allow_unused=True)
        penalty = sum(g.square().sum() for g in grads if g is not None)
        return value + 0.01 * penalty
    elif kind == 3:
        value.retain_grad()
        world.kept.append(value)
    elif kind == 4:
        return value * 1.5 + 0.125
    else:
        return value.clone().mul_(0.75)
    return None


def _data(world: World, draw: random.Random, _: Any) -> None:
    draw.choice((
        lambda: world.shared.__setitem__(draw.randrange(_WIDTH), 0.5),
        lambda: world.factor.mul_(0.9),
        lambda: setattr(world, "factor", world.lib.from_numpy(world.shared.copy())),
        lambda: setattr(world, "factor", world.lib.ones(_WIDTH)),
        lambda: setattr(world, "factor", world.lib.ones(2, _WIDTH)[1]),
        lambda: setattr(world, "factor", world.lib.ones(_WIDTH, 2).T[0]),
        lambda: setattr(world, "factor", 1.0),
    ))()  # fmt: skip
    if not hasattr(world.factor, "mul_"):
        world.factor = world.lib.full((_WIDTH,), 0.5)


def _stop(world: World, draw: random.Random, _: Any) -> None:
    raise Stop


def _collect(world: World, draw: random.Random, _: Any) -> None:
    gc.collect(draw.randrange(2))


_INSIDE = (_keep, _keep, _read, _elsewhere, _again, _again, _stop, _write, _hook)
_EVENTS: dict[str, tuple[Event, ...]] = {
    "before": (
        _write, _exchange, _freeze, _replace_layer, _replace_weight, _copy, _load, _edit_group,
        _edit_state, _switch, _settle, _settle, _scale, _mode, _hook, _patch, _gradients, _keep,
        _data, _data, _collect,
    ),
    "inside": (_keep, _keep, _read, _elsewhere, _again, _again, _stop, _hook, _collect),
    "loss": (_keep, _read, _elsewhere, _again, _again, _stop, _collect),
    "gradients": (_gradients, _gradients, _gradients, _stop, _edit_group, _read, _keep),
    "after": (_write, _load, _read, _stop, _keep, _gradients, _edit_state, _data),
}  # fmt: skip


def _happening(draw: random.Random) -> dict[tuple[int, str], list[Event]]:
    """What happens when and where."""
    found: dict[tuple[int, str], list[Event]] = {}
    chance = draw.choice((0.15, 0.35, 0.7))
    for number in range(_QUIET, _STEPS):
        while draw.random() < chance:
            place = draw.choice(_PLACES)
            found.setdefault((number, place), []).append(draw.choice(_EVENTS[place]))
    return found


# ---- comparing -----------------------------------------------------------------------------------


@contextmanager
def _doubles(lib: Any) -> Iterator[None]:
    before = lib.get_default_dtype()
    lib.set_default_dtype(lib.float64)
    try:
        yield
    finally:
        lib.set_default_dtype(before)


def _outcome(lib: Any, seed: int) -> tuple[list[np.ndarray], Exception | None]:
    """What can be seen of a loop, and what ended it."""
    with _doubles(lib):
        world = World(lib, seed)
        try:
            world.run()
        except Exception as error:
            return world.seen, error
        return world.seen, None


def _compare(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for place, (a, b) in enumerate(zip(found, wanted)):
        if not np.isfinite(b).all():
            return  # what was divided by what, to come to that, is not said
        alike = a.shape == b.shape and np.allclose(a, b, rtol=_NEAR, atol=_NEAR, equal_nan=True)
        assert alike, f"value {place}: {a} instead of {b}"
    assert len(found) == len(wanted), f"{len(found)} values instead of {len(wanted)}"


def trial(seed: int) -> None:
    """Raise where a loop leaves behind something else than in torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if torch is not None:
            torch.set_num_threads(1)
            wanted, refused = _outcome(torch, seed)
        else:
            with config.override(tape=False):
                wanted, refused = _outcome(rl, seed)
        with interpreted_programs(), config.override(tape=True):
            found, error = _outcome(rl, seed)
    if error is not None and refused is None:
        raise error
    if refused is not None:  # the rest is not said
        count = min(len(found), len(wanted))
        found, wanted = found[:count], wanted[:count]
    _compare(found, wanted)


ATTACK = Attack(
    name="events",
    promise="a training loop gives torch's values whatever happens to its model, data and steps",
    trial=trial,
    short=30,
    faults=(
        Fault("what is inside of a function is a tensor that is equal", "ops.tracking",
              "tracked", "return run", "return body"),
        Fault("a variable is what it was before its memory was shared", "record.memory",
              "shared_memory", "cell.version + 1", "cell.version"),
        Fault("state that is not loaded is kept", "optim.optimizer", "Optimizer.load_state_dict",
              "table = StateTable()", "table = self.state"),
        Fault("hooks are looked for when gradients come", "nn.hooks", "BackwardPass._tell",
              "in self.hooks:", "in tuple(self.module._backward_hooks.values()):"),
    ),
)  # fmt: skip
