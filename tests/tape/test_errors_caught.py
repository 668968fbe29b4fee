"""Errors that a program catches in the midst of known calls: what came before them is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config

DATA = np.arange(12, dtype=np.float32).reshape(3, 4)
KNOWN = 8  # calls after which a sequence is matched


@pytest.fixture(params=["compiled", "auto", "interpreter"], autouse=True)
def tier(request: Any, nothing_recorded: None) -> Iterator[None]:
    with config.override(tier=request.param, tape=True):
        yield


def test_a_row_that_is_not_there() -> None:
    data, scale = rl.tensor(DATA), rl.full((4,), 2.0)

    def product(x: rl.Tensor, row: int) -> rl.Tensor:
        before = x * scale + 1
        try:
            found = data[row]
        except IndexError:
            found = data[0]
        return (before * found).sum()

    for number in range(KNOWN + 4):
        x = np.full(4, number, np.float32)
        row = 1 if number < KNOWN else 7
        wanted = ((x * 2 + 1) * DATA[1 if number < KNOWN else 0]).sum()
        assert product(rl.tensor(x), row).item() == wanted
