"""jit of functions whose sizes follow from values: one trace for all counts, equal to NumPy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.record.captures import CaptureError

F = nn.functional
RNG = np.random.default_rng(0)
BODIES = {
    "mask": (lambda x: x[x > 0] * 2, lambda x: x[x > 0] * 2),
    "rows": (lambda x: x[x.sum(1) > 0], lambda x: x[x.sum(1) > 0]),
    "nonzero": (lambda x: (x > 0).nonzero(), lambda x: np.stack(np.nonzero(x > 0), 1)),
    "argwhere": (lambda x: rl.argwhere(x > 0), lambda x: np.argwhere(x > 0)),
    "where": (lambda x: rl.where(x > 0)[1].sum(), lambda x: np.where(x > 0)[1].sum()),
    "masked_select": (
        lambda x: x.masked_select(x.abs() > 1).cumsum(0),
        lambda x: x[np.abs(x) > 1].cumsum(),
    ),
    "written": (lambda x: put(x.clone()), lambda x: np.where(x > 0, x + 1, x)),
    "two levels": (
        lambda x: (y := x[x > 0])[y < y.sum() / 9].sum(),
        lambda x: (y := x[x > 0])[y < y.sum() / 9].sum(),
    ),
    "two masks": (
        lambda x: x[x > 0].sum() * x[x < -1].sum() + x[x > 0].sum(),
        lambda x: x[x > 0].sum() * x[x < -1].sum() + x[x > 0].sum(),
    ),
}


def put(x):
    x[x > 0] += 1
    return x


def samples():
    """Six rows and four columns: some positive, all, one, none."""
    drawn = [RNG.standard_normal((6, 4)) for _ in range(4)]
    one = -np.ones((6, 4))
    one[2, 3] = 5.0
    return [*drawn, np.ones((6, 4)), one, -np.ones((6, 4)), drawn[0] * 2]


@pytest.mark.parametrize("name", BODIES)
def test_counts_are_found_in_every_call(name):
    ours, expected = BODIES[name]
    program = rl.jit(ours)
    for value in samples():
        found = program(rl.tensor(value))
        wanted = expected(value)
        assert tuple(found.shape) == np.shape(wanted)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
    assert program.traces <= 5  # several, one and none may each be traced by themselves
    before = program.traces
    for value in samples()[:4]:
        program(rl.tensor(value))
    assert program.traces == before


def test_other_counts_need_no_other_program():
    program = rl.jit(lambda x: x[x > 0].exp().sum())
    for length in range(2, 40):
        value = -np.ones(50)
        value[:length] = np.linspace(0.1, 1, length)
        assert program(rl.tensor(value)).item() == pytest.approx(np.exp(value[:length]).sum())
    assert program.traces == 1 and program.compilations == 1


class Routed(nn.Module):
    """Each row goes to one of three layers."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(5, 3)
        self.experts = nn.ModuleList([nn.Linear(5, 5) for _ in range(3)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        results = rl.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, nth = rl.where(chosen == number)
            results[row] += weights[row, nth, None] * expert(x[row])
        return results


def losses(jit):
    rl.manual_seed(3)
    model = nn.Sequential(Routed(), nn.Tanh(), Routed())
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    batches = [rl.tensor(np.random.default_rng(n).standard_normal((12, 5))) for n in range(8)]
    model.double()

    def train(x):
        optimizer.zero_grad()
        loss = (F.dropout(model(x), 0.2) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = rl.jit(train) if jit else train
    return [step(x).item() for x in batches], rl.rand(3).tolist()


def test_routing_trains_as_undecorated():
    """Two layers of experts, so three stages; draws come from the stream once a step."""
    plain, after = losses(False)
    jitted, after_jitted = losses(True)
    np.testing.assert_allclose(jitted, plain, rtol=1e-9)
    assert after == after_jitted


def test_gradients_flow_on_through_what_was_picked():
    program = rl.jit(lambda x, w: (x * w)[x > 0].square().sum())
    for value in samples()[:3]:
        x, w = rl.tensor(value), rl.tensor(np.full((6, 4), 0.5), requires_grad=True)
        program(x, w).backward()
        np.testing.assert_allclose(w.grad.numpy(), np.where(value > 0, value**2, 0), rtol=1e-12)


def test_lengths_and_counts_are_both_unknown():
    program = rl.jit(lambda x: x[x > x.mean()].sum(), dynamic={"x": 0})
    for length in (5, 17, 30, 11, 64):
        value = RNG.standard_normal(length)
        expected = value[value > value.mean()].sum()
        assert program(rl.tensor(value)).item() == pytest.approx(expected, rel=1e-12)
    assert program.traces <= 2


def test_state_is_written_once_and_read_before():
    total = rl.zeros(3, dtype=rl.float64)

    @rl.jit
    def add(x):
        picked = x[total < 2]
        total.add_(x)
        return picked.sum()

    expected = np.zeros(3)
    for value in ([1.0, 0.5, 3.0], [1.0, 0.5, 0.0], [1.0, 0.5, 1.0], [1.0, 2.0, 1.0]):
        wanted = np.array(value)[expected < 2].sum()
        expected += value
        assert add(rl.tensor(value, dtype=rl.float64)).item() == wanted
        assert total.tolist() == expected.tolist()


def test_threads_that_write_to_one_state_take_turns():
    seen = rl.zeros((), dtype=rl.float64)

    @rl.jit
    def step(x):
        seen.add_(x[x > 0].sum())
        return x[x > 0].sum()

    values = [np.where(np.arange(20) < 2 + n % 15, 1.0, -1.0) for n in range(24)]
    step(rl.tensor(values[0]))

    def work(part):
        for value in part:
            step(rl.tensor(value))

    threads = [threading.Thread(target=work, args=(values[k::3],)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sum((v > 0).sum() for v in values) + (values[0] > 0).sum()
    assert seen.item() == expected


def test_numbers_that_python_needs_are_traced_for_each():
    program = rl.jit(lambda x: x[x > 0].mean())
    for value in samples()[:4]:
        assert program(rl.tensor(value)).item() == pytest.approx(value[value > 0].mean())
    counted = rl.jit(lambda x: [x.sum() + n for n in range(x[x > 0].shape[0])])
    for value in samples()[:2]:
        assert len(counted(rl.tensor(value))) == (value > 0).sum()


def test_looking_inside():
    program = rl.jit(lambda x: x[x > 0].exp().sum(), check=True)
    for value in samples()[:3]:
        assert program(rl.tensor(value)).item() == pytest.approx(np.exp(value[value > 0]).sum())
    assert "sum" in str(program.explanation("kernels"))
    assert program.profile(rl.tensor(samples()[1]))


def test_inside_control_flow_sizes_must_be_known():
    program = rl.jit(lambda x: rl.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: x.sum(), x))
    with pytest.raises(CaptureError, match="depends on values"):
        program(rl.ones(3))


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_tiers_agree(tier):
    with rl.config.override(tier=tier):
        program = rl.jit(lambda x: x[x > 0].cumsum(0))
        for value in samples()[:3]:
            found = program(rl.tensor(value)).numpy()
            np.testing.assert_allclose(found, value[value > 0].cumsum(), rtol=1e-12)
