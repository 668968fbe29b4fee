"""`jit(memory=)`: budgets are kept, and results have the bits of a call without one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import ArgumentError, MemoryBudgetError
from tests.fuzz.budgets import find, measured_arenas, within

nn = rl.nn


class Blocks(nn.Module):
    """Residual layers with dropout: each keeps its wide values for the backward pass."""

    def __init__(self, layers: int = 4, width: int = 32, p: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(width, 4 * width),
                    nn.GELU(),
                    nn.Dropout(p),
                    nn.Linear(4 * width, width),
                )
                for _ in range(layers)
            ]
        )

    def forward(self, x: rl.Tensor, checkpoint: bool = False) -> rl.Tensor:
        for layer in self.layers:
            x = x + (rl.checkpoint(layer, x) if checkpoint else layer(x))
        return x


def training(memory: Any = None, checkpoint: bool = False, **settings: Any) -> tuple[Any, Any]:
    """A jitted step of SGD, and its model."""
    rl.manual_seed(7)
    model = in_memory(Blocks(**settings))
    optimizer = rl.optim.SGD(model.parameters(), lr=1e-2)

    def step(x: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = model(x, checkpoint).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return rl.jit(step, memory=memory), model


def in_memory(model: nn.Module) -> nn.Module:
    """The model once its weights are drawn: what is recorded before a call is no part of it."""
    for parameter in model.parameters():
        parameter.tolist()
    return model


def batch(rows: int = 512, width: int = 32) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32))


def trained(step: Any, model: Any, x: rl.Tensor, budget: int | None = None) -> list[bytes]:
    """Losses and parameters after three steps, to the bit."""
    rl.manual_seed(3)
    losses = [within(step, budget, lambda: step(x)).numpy().tobytes() for _ in range(3)]
    return [*losses, *(p.detach().numpy().tobytes() for p in model.parameters())]


def test_a_budget_is_kept_and_changes_no_bit() -> None:
    x = batch()
    with measured_arenas():
        plain, model = training()
        wanted = trained(plain, model, x)
        held = plain.program.held
        seen = set()
        for share in (0.7, 0.4):
            budget = held.total - int((1 - share) * held.temporaries)
            step, model = training(budget)
            assert trained(step, model, x, budget) == wanted
            assert step.program.held.total <= budget
            seen.add(len(step.program.layout.calls))
        assert max(seen) > len(plain.program.layout.calls), "some kernels ran again"


def test_the_error_names_the_smallest_budget_that_fits() -> None:
    x = batch()
    step, _ = training("1 KiB")
    with pytest.raises(MemoryBudgetError, match="smallest budget that fits is") as caught:
        step(x)
    assert isinstance(caught.value, MemoryError) and isinstance(caught.value, rl.RidgelineError)
    assert "test_memory_budget.py" in str(caught.value), "the line of the call"
    smallest = caught.value.smallest
    fits, model = training(smallest)
    assert trained(fits, model, x, smallest) == trained(*training(), x)
    assert fits.program.held.total <= smallest
    with pytest.raises(MemoryBudgetError) as again:
        training(smallest - 1)[0](x)
    assert again.value.smallest == smallest


def test_what_an_error_leaves_is_as_it_was() -> None:
    x = batch()
    step, model = training(100_000)
    before = [p.detach().numpy().copy() for p in model.parameters()]
    place = rl.get_rng_state()
    with pytest.raises(MemoryBudgetError):
        step(x)
    assert rl.get_rng_state() == place
    for one, other in zip(model.parameters(), before, strict=True):
        assert one.grad is None
        np.testing.assert_array_equal(one.detach().numpy(), other)


def test_functions_that_fit_are_compiled_as_without_a_budget() -> None:
    x = batch()
    (plain, one), (budgeted, other) = training(), training("1 GiB")
    assert trained(plain, one, x) == trained(budgeted, other, x)
    names = [[call.symbol for call in f.program.layout.calls] for f in (plain, budgeted)]
    assert names[0] == names[1]


def test_checkpoints_of_users_stay() -> None:
    """A budget is kept on top of regions that are marked by hand."""
    x = batch()
    plain, model = training(checkpoint=True)
    wanted = trained(plain, model, x)
    held = plain.program.held
    budget = held.total - held.temporaries // 4
    step, model = training(budget, checkpoint=True)
    assert trained(step, model, x, budget) == wanted


def test_state_that_somebody_else_holds_is_counted() -> None:
    x = batch()
    probe, model = training("1 GiB")
    trained(probe, model, x)
    step, model = training(probe.program.held.total)
    trained(step, model, x)
    kept = [p.detach().numpy() for p in model.parameters()]  # arrays over the parameters' memory
    before = [array.copy() for array in kept]
    with pytest.raises(MemoryBudgetError, match="something else holds it"):
        step(x)
    np.testing.assert_array_equal(kept[0], before[0])
    del kept
    step(x)


def test_every_length_of_a_dynamic_axis_keeps_the_budget() -> None:
    def loss_of(x: rl.Tensor, memory: int | None) -> Any:
        rl.manual_seed(1)
        model = in_memory(Blocks(4, p=0.0))

        def step(x: rl.Tensor) -> rl.Tensor:
            for p in model.parameters():
                p.grad = None
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        return rl.jit(step, dynamic={"x": 0}, memory=memory)

    with measured_arenas():
        plain = loss_of(batch(8), None)
        wanted = {rows: plain(batch(rows)).item() for rows in (128, 200)}
        budget = plain.program.held.total * 3 // 4  # of the largest
        step = loss_of(batch(8), budget)
        for rows in (128, 200, 128):
            x = batch(rows)
            assert within(step, budget, lambda x=x: step(x)).item() == pytest.approx(wanted[rows])
        assert step.compilations == 1
        with pytest.raises(MemoryBudgetError):
            step(batch(20_000))
        assert step(batch(64)).item() > 0


def test_recurrent_layers_keep_a_budget() -> None:
    """Loops run again as a whole."""
    rl.manual_seed(0)
    layers = nn.ModuleList([nn.GRU(8, 8) for _ in range(3)])
    x = batch(40 * 16, 8).reshape(40, 16, 8)

    def step(x: rl.Tensor) -> list[rl.Tensor]:
        h = x
        for layer in layers:
            h = layer(h)[0].tanh()
        return rl.autograd.grad(h.square().mean(), list(layers.parameters()))

    plain = rl.jit(step)
    wanted = [g.numpy() for g in plain(x)]
    held = plain.program.held
    budget = held.total - held.temporaries // 8
    with measured_arenas():
        budgeted = rl.jit(step, memory=budget)
        found = within(budgeted, budget, lambda: budgeted(x))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize(
    ("memory", "nbytes"),
    [
        (4096, 4096), ("512 MiB", 512 << 20), ("1.5GB", 1_500_000_000), (" 6 gib ", 6 << 30),
        ("100", 100), ("3KiB", 3072), (np.int64(5), 5), ("0.5 kb", 500),
    ],
)  # fmt: skip
def test_ways_to_write_a_budget(memory: Any, nbytes: int) -> None:
    assert rl.jit(lambda x: x, memory=memory)._budget == nbytes


@pytest.mark.parametrize(
    "memory", ["", "six GiB", "6 GiBs", "-1 MB", 0, -5, 1.5, True, "0", float("nan"), [], "1e9"]
)
def test_budgets_that_are_none(memory: Any) -> None:
    with pytest.raises(ArgumentError, match="jit: memory is a number of bytes"):
        rl.jit(lambda x: x, memory=memory)


def test_what_cannot_keep_a_budget_says_so() -> None:
    x = batch(8)
    with rl.config.override(tier="interpreter"), pytest.raises(MemoryBudgetError, match="tier"):
        rl.jit(lambda x: x * 2, memory="1 MiB")(x)
    with pytest.raises(MemoryBudgetError, match="mask"):
        rl.jit(lambda x: x[x > 0].sum(), memory="1 MiB")(x)


def test_open_functions_keep_it_too() -> None:
    """Where no trace can be replayed, every call is compiled for itself."""
    clock = iter(range(100))

    def step(x: rl.Tensor) -> rl.Tensor:
        return (x.exp() @ x.sin().T).sum() * 0 + next(clock)

    jitted = rl.jit(step, memory="100 KB")
    assert [jitted(batch(64)).item() for _ in range(12)] == list(range(12))
    with pytest.raises(MemoryBudgetError):
        jitted(batch(256))


def test_methods_and_copies_have_the_budget() -> None:
    class Model:
        @rl.jit(memory="2 KiB")
        def run(self, x: rl.Tensor) -> rl.Tensor:
            return (x * 2).sum()

    assert Model().run(rl.ones(4)).item() == 8
    with pytest.raises(MemoryBudgetError):
        Model().run(rl.ones(4096))
    assert pickle.loads(pickle.dumps(rl.jit(batch, memory=512)))._budget == 512


@pytest.mark.parametrize("first", [0, 15])
def test_random_programs_keep_budgets(first: int) -> None:
    with rl.config.override(cache_max_bytes=0):
        faults = [fault for seed in range(first, first + 15) if (fault := find(seed))]
    assert not faults, faults[0]


@pytest.mark.slow
def test_a_thousand_random_programs_keep_budgets() -> None:
    with rl.config.override(cache_max_bytes=0):
        faults = [fault for seed in range(1000) if (fault := find(seed))]
    assert not faults, faults[0]


def test_the_frontier_in_words_and_as_a_drawing(tmp_path: Path) -> None:
    x = batch()
    step, _ = training("1 GiB")
    ways = step.frontier(x)
    assert len(ways) > 3
    assert [w.nbytes for w in ways] == sorted((w.nbytes for w in ways), reverse=True)
    assert ways[0].repeats == 0 < ways[-1].repeats
    assert ways[0].seconds < ways[-1].seconds
    with pytest.raises(MemoryBudgetError) as caught:
        training(1)[0](x)
    assert ways[-1].nbytes == caught.value.smallest
    shown = str(step.explanation("memory"))
    assert str(ways) in shown and "of arguments and state" in shown
    ways.save(tmp_path / "frontier.svg")
    drawing = ElementTree.parse(tmp_path / "frontier.svg").getroot()
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}circle"))) == len(ways)
