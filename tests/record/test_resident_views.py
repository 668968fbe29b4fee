"""Slices of data that lies in memory: a batch from another place is the same program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.execution import tiers

ROWS, COLUMNS = 40, 6


def data() -> np.ndarray[Any, Any]:
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def resident() -> rl.Tensor:
    x = rl.tensor(data())
    x.sum().item()
    return x


BLOCKS = {
    "rows": lambda x, i: x[4 * i : 4 * i + 4],
    "a row": lambda x, i: x[i],
    "a part of a row": lambda x, i: x[i, 2:5],
    "an element": lambda x, i: x[i, 3],
    "rows of rows": lambda x, i: x[2:][i : i + 2],
    "rows in another shape": lambda x, i: x.view(ROWS // 2, 2, COLUMNS)[i].t(),
    "narrow": lambda x, i: x.narrow(0, i, 3),
    "chunks": lambda x, i: x.chunk(10)[i],
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_where_a_block_begins_is_no_part_of_the_program(block: Any, tier: str) -> None:
    x, theirs = resident(), torch.tensor(data())
    with rl.config.override(tier=tier):
        (block(x, 0) * 2 + 1).numpy()
        known = len(tiers._pieces)
        for i in range(1, 7):
            got = (block(x, i) * 2 + 1).numpy()
            np.testing.assert_array_equal(got, (block(theirs, i) * 2 + 1).numpy())
        assert len(tiers._pieces) == known


def test_a_training_step_over_moving_batches_is_one_program() -> None:
    x = resident()
    model = rl.nn.Linear(COLUMNS, 3)
    optimizer = rl.optim.Adam(model.parameters(), lr=0.01)

    def step(i: int) -> float:
        optimizer.zero_grad()
        loss = model(x[4 * i : 4 * i + 4]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step(0) for _ in range(3)]
    known = len(tiers._pieces)
    losses += [step(i) for i in range(10)]
    assert len(tiers._pieces) == known and np.isfinite(losses).all()


def test_what_was_seen_stays_when_the_memory_is_written() -> None:
    x = resident()
    part = x[4:8]
    before = part + 0  # recorded, not computed
    x[5] = -1.0
    after = part + 0
    np.testing.assert_array_equal(before.numpy(), data()[4:8])
    wanted = data()[4:8]
    wanted[1] = -1.0
    np.testing.assert_array_equal(after.numpy(), wanted)
    part.zero_()
    assert x[4:8].sum().item() == 0.0 and x[8].sum().item() == data()[8].sum()


def test_a_step_that_overwrites_its_state_leaves_pending_slices_alone() -> None:
    x = resident()

    @rl.jit
    def double() -> None:
        x.mul_(2)

    double()
    pending = x[3:5] + 0
    double()
    np.testing.assert_array_equal(pending.numpy(), data()[3:5] * 2)
    np.testing.assert_array_equal(x.numpy(), data() * 4)


def test_a_clone_of_a_block_is_memory_of_its_own() -> None:
    x = resident()
    own = x[2:4].clone()
    x.zero_()
    own.add_(1)
    np.testing.assert_array_equal(own.numpy(), data()[2:4] + 1)
    assert x.sum().item() == 0.0


def test_gradients_flow_through_slices_of_variables() -> None:
    x = resident().requires_grad_()
    (x[2:4].square().sum() + x[3].sum()).backward()
    theirs = torch.tensor(data()).requires_grad_()
    (theirs[2:4].square().sum() + theirs[3].sum()).backward()
    assert x.grad is not None and theirs.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), theirs.grad.numpy())


def test_memory_of_numpy_is_read_as_it_is_at_the_call() -> None:
    array = data()
    x = rl.from_numpy(array)
    first = x[1:3] + 0
    array[:] = 7
    np.testing.assert_array_equal(first.numpy(), data()[1:3])
    np.testing.assert_array_equal((x[1:3] + 0).numpy(), array[1:3])
