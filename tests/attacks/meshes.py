"""Attack: random meshes, plans and collectives on simulated ranks, against one process and NumPy.

Training over a mesh of any axes, with any plan, comes to what one process comes to. Chains of
collectives, in every way to run, give what NumPy makes of all ranks' arrays, and their gradients
are those of the sum of what all ranks compute. A rank that raises, or calls something else than the
others, ends all of them with that error, and the next ranks start afresh.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.errors import BadValueError
from ridgeline.scalars import Array
from tests.attacks.attack import Attack
from tests.distributed.training import check
from tests.fuzz.faults import Fault

WAYS = ("plain", "eager", "jit")
AXES = ("dp", "tp", "pp", "cp", "replica")
KINDS = ("gpt2", "gpt2 of 4", "llama", "llama of 4", "mixture", "resnet")
LENGTHS = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1}  # chunks of a rank


@dataclass(frozen=True)
class Step:
    """One call of every rank: by tensors, and what it makes of the arrays of all ranks."""

    text: str
    run: Callable[[rl.Tensor], rl.Tensor]
    meaning: Callable[[list[Array]], list[Array]]
    linear: bool = True


def trial(seed: int) -> None:
    """Collectives in most trials, a rank that fails in others, and training now and then."""
    draw = random.Random(seed)
    if seed % 8 == 7:
        _train(draw)
    elif seed % 4 == 2:
        _fail(draw)
    else:
        _collectives(draw, WAYS[seed % len(WAYS)])


# ---- training ------------------------------------------------------------------------------------


def _train(draw: random.Random) -> None:
    kind = draw.choice(KINDS)
    names = ("ep", "dp") if kind == "mixture" else ("dp", "replica") if kind == "resnet" else AXES
    chosen = sorted(draw.sample(names, draw.randint(1, min(2, len(names)))), key=str)
    axes = {name: 2 if len(chosen) > 1 else draw.choice((2, 3, 4)) for name in chosen}
    if "ep" in axes:
        axes["ep"] = draw.choice((2, 4))
    if "replica" in axes:  # of what is sharded along dp
        axes["dp"] = 2
    schedule = draw.choice([*LENGTHS])
    plan = dist.Plan(
        zero=draw.randrange(4) if "dp" in axes else 0,
        sequence="tp" in axes and draw.random() < 0.5,
        ring="cp" in axes and draw.random() < 0.5,
        recompute=draw.choice(("none", "none", "selective", "full")),
        schedule=schedule if "pp" in axes else "1f1b",
        chunks=LENGTHS[schedule] if "pp" in axes else 1,
        microbatches=draw.choice((0, 2, 4)) if "pp" in axes else 0,
    )
    mode, rule = draw.choice(WAYS), draw.choice(("AdamW", "SGD"))
    try:
        check(kind, axes, plan, mode, rule)
    except BadValueError:  # a plan that does not fit, which is said before anything is computed
        pass
    except Exception as error:
        error.add_note(f"{kind} on {axes}, {plan}, {mode}, {rule}")
        raise


# ---- collectives ---------------------------------------------------------------------------------


def _collectives(draw: random.Random, way: str) -> None:
    ranks = draw.choice((1, 2, 3, 3, 4))
    shape = (ranks * draw.randint(1, 2), draw.randint(1, 3))
    numbers = np.random.default_rng(draw.randrange(2**32))
    given = [numbers.integers(-4, 5, shape).astype(np.float64) for _ in range(ranks)]
    kinds = draw.choice((_MOVING, _LINEAR, (*_LINEAR, *_OTHERS)))
    steps = [_step(draw, ranks, shape, kinds) for _ in range(draw.randint(1, 6))]
    linear = all(step.linear for step in steps)
    wanted = _meant(steps, given)
    weights = [numbers.integers(-3, 4, wanted[0].shape).astype(np.float64) for _ in given]
    gradients = _differences(steps, given, weights) if linear else None
    text = f"{way} on {ranks} ranks: {[step.text for step in steps]}"

    def work() -> Any:
        rank = dist.world().rank
        call = rl.jit(_chain(steps)) if way == "jit" else _chain(steps)
        with rl.eager() if way == "eager" else nullcontext():
            found = []
            for _ in range(3):
                x = rl.tensor(given[rank], requires_grad=linear)
                made = call(x)
                found.append(made.detach().numpy().copy())
                if linear:
                    (made * rl.tensor(weights[rank])).sum().backward()
                    assert x.grad is not None
                    found.append(x.grad.numpy().copy())
            return found

    for rank, found in enumerate(dist.run(work, ranks=ranks)):
        values = found[::2] if linear else found
        for value in values:
            np.testing.assert_allclose(value, wanted[rank], rtol=1e-12, err_msg=text)
        for gradient in found[1::2] if linear else ():
            assert gradients is not None
            np.testing.assert_allclose(
                gradient, gradients[rank], rtol=1e-9, atol=1e-9, err_msg=f"gradient, {text}"
            )


def _chain(steps: Sequence[Step]) -> Callable[[rl.Tensor], rl.Tensor]:
    def run(x: rl.Tensor) -> rl.Tensor:
        for step in steps:
            x = step.run(x)
        return x

    return run


def _meant(steps: Sequence[Step], given: Sequence[Array]) -> list[Array]:
    values = list(given)
    for step in steps:
        values = step.meaning(values)
    return values


def _differences(
    steps: Sequence[Step], given: Sequence[Array], weights: Sequence[Array]
) -> list[Array]:
    """The gradients of the weighted sum of all ranks' results, which is linear in what is given."""

    def total(values: Sequence[Array]) -> float:
        return sum(float((w * v).sum()) for w, v in zip(weights, _meant(steps, values)))

    start = total(given)
    found = [np.zeros_like(array) for array in given]
    for rank, array in enumerate(given):
        for place in np.ndindex(array.shape):
            moved = [each.copy() for each in given]
            moved[rank][place] += 1
            found[rank][place] = total(moved) - start
    return found


_MOVING = ("shift", "all_to_all", "own")  # after which ranks still have different numbers
_LINEAR = ("sum", "mean", "gather", "scatter", "broadcast", *_MOVING)
_OTHERS = ("min", "max", "bent")


def _step(
    draw: random.Random, ranks: int, shape: tuple[int, ...], kinds: Sequence[str] = _LINEAR
) -> Step:
    """One step that gives every rank an array of the same shape again."""
    f = dist.functional
    kind = draw.choice(kinds)
    if kind in ("sum", "mean", "min", "max"):
        join = getattr(np, kind)
        return Step(
            f"all_reduce {kind}",
            lambda x: f.all_reduce(x, kind),
            lambda values: [join(np.stack(values), 0) for _ in values],
            linear=kind in ("sum", "mean"),
        )
    if kind == "gather":  # and a part of it again
        at, dim = draw.randrange(ranks), draw.randrange(2)
        return Step(
            f"all_gather along {dim}, part {at}",
            lambda x: f.all_gather(x, dim).split(shape[dim], dim)[at],
            lambda values: [values[at] for _ in values],
        )
    if kind == "scatter":
        dim = draw.randrange(2)
        counts = [shape[dim] // ranks + (rank < shape[dim] % ranks) for rank in range(ranks)]
        return Step(
            f"reduce_scatter along {dim} in {counts}, gathered",
            lambda x: f.all_gather(
                f.reduce_scatter(x, "sum", dim, counts=counts), dim, counts=counts
            ),
            lambda values: [np.sum(np.stack(values), 0) for _ in values],
        )
    if kind == "all_to_all":
        return Step("all_to_all", lambda x: f.all_to_all(x), _swapped)
    if kind == "broadcast":
        root = draw.randrange(ranks)
        return Step(
            f"broadcast from {root}",
            lambda x: f.broadcast(x, root),
            lambda values: [values[root] for _ in values],
        )
    if kind == "shift":
        by = draw.randint(-2, 3)
        return Step(
            f"shift by {by}",
            lambda x: f.shift(x, by),
            lambda values: [values[(rank - by) % ranks] for rank in range(ranks)],
        )
    if kind == "own":
        return Step(
            "times the rank",
            lambda x: x * (dist.world().rank + 1),
            lambda values: [value * (rank + 1) for rank, value in enumerate(values)],
        )
    return Step("abs", lambda x: x.abs(), lambda values: [*map(np.abs, values)], linear=False)


def _swapped(values: list[Array]) -> list[Array]:
    parts = [np.split(value, len(values)) for value in values]
    return [np.concatenate([part[rank] for part in parts]) for rank in range(len(values))]


# ---- ranks that fail -----------------------------------------------------------------------------


class _Mine(Exception):
    """What a rank raises."""


def _fail(draw: random.Random) -> None:
    ranks = draw.randint(2, 4)
    steps = [_step(draw, ranks, (ranks, 2)) for _ in range(draw.randint(1, 4))]
    culprit, when = draw.randrange(ranks), draw.randrange(len(steps))
    how = draw.choice(("raises", "calls another", "has another shape", "returns"))
    way = draw.choice(WAYS)

    def work() -> None:
        x = rl.ones(ranks, 2)
        with rl.eager() if way == "eager" else nullcontext():
            for number, step in enumerate(steps):
                if number == when and dist.world().rank == culprit:
                    if how == "raises":
                        raise _Mine(culprit)
                    if how == "returns":
                        return
                    if how == "calls another":
                        dist.functional.all_gather(x, 1)
                    x = rl.ones(ranks + 1, 2)
                dist.functional.all_reduce(x)
                x = (rl.jit(step.run) if way == "jit" else step.run)(x)
            x.numpy()

    text = f"{way}, rank {culprit} of {ranks} {how} before {steps[when].text}"
    try:
        dist.run(work, ranks=ranks)
    except _Mine as error:
        assert how == "raises" and error.args == (culprit,), text
    except dist.CommunicationError:
        assert how != "raises", text
    else:
        raise AssertionError(f"nobody was told: {text}")
    found = dist.run(lambda: dist.functional.all_reduce(rl.ones(1)).item(), ranks=ranks)
    assert found == [ranks] * ranks and math.isfinite(rl.ones(2).sum().item()), text


ATTACK = Attack(
    "meshes",
    "ranks come to what one process comes to, in every way, and a rank that fails ends all",
    trial,
    short=10,
    faults=(
        Fault(
            "gradients go around the ring the wrong way",
            "ops.collectives",
            "_shifted_vjp",
            "-current.attrs.root",
            "current.attrs.root",
        ),
        Fault(
            "the gradient of a sum is that of one rank",
            "ops.collectives",
            "_reduced_vjp",
            "joined = all_reduce(cotangent, attrs.group, _linear_reduction(attrs))",
            "joined = cotangent",
        ),
        Fault(
            "ranks that disagree go on",
            "communicators.threads",
            "ThreadsCommunicator._meet",
            "known.agreed != call.agreed",
            "False",
        ),
    ),
    limit=120.0,
)
