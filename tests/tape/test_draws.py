"""Random numbers that are read one by one: no draw is ever made twice, whatever came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from ridgeline.nn import functional as F
from tests.tape.test_tape import data

DRAWS = 6


@pytest.fixture(params=["compiled", "auto"], autouse=True)
def tier(request: Any, nothing_recorded: None) -> Iterator[None]:
    with config.override(tier=request.param, tape=True):
        yield


def in_new_thread(function: Callable[[], Any]) -> Any:
    """What a function gives in a thread that knows no calls of other tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def mapped() -> None:
    """Draws that belong to no run, in a function that is called the first time."""

    def scaled(row: rl.Tensor) -> rl.Tensor:
        first = rl.rand(2)
        return row * first * rl.rand(2)

    rl.vmap(scaled, randomness="different")(data(3, 2)).numpy()


def mapped_and_dropped() -> None:
    def scaled(row: rl.Tensor) -> rl.Tensor:
        first = rl.rand(2)
        return row * first * rl.rand(2)

    rl.vmap(scaled, randomness="same")(data(3, 2))


def mapped_in_vain() -> None:
    def fails(row: rl.Tensor) -> rl.Tensor:
        drawn = rl.rand(2)
        raise ValueError(drawn.shape)

    with pytest.raises(ValueError, match="2"):
        rl.vmap(fails, randomness="different")(data(3, 2))


def dropped() -> None:
    for _ in range(3):
        rl.rand(5)


def nothing() -> None:
    pass


def between() -> Any:
    """Draws of a function that is mapped, between two calls that draw themselves."""
    first = rl.rand(2)
    rows = rl.vmap(lambda row: row * rl.rand(2), randomness="different")(rl.ones(3, 2))
    return (first + rows.sum(0) + rl.randn(2)).numpy()


LOOPS: dict[str, Callable[[], Any]] = {
    "rand": lambda: rl.rand(2).numpy(),
    "randn": lambda: rl.randn(2).numpy(),
    "one number": lambda: rl.rand(1).item(),
    "dropout": lambda: F.dropout(rl.ones(64), 0.5).numpy(),
    "bernoulli": lambda: rl.bernoulli(rl.full((64,), 0.5)).numpy(),
    "two draws": lambda: (rl.rand(3) + rl.randn(3)).sum().item(),
    "between": between,
    "one of two": lambda: (rl.rand(3), rl.randn(3).numpy())[1],
}


@pytest.mark.parametrize("before", [nothing, mapped, mapped_and_dropped, mapped_in_vain, dropped])
@pytest.mark.parametrize("name", LOOPS)
def test_every_draw_is_the_next_one(name: str, before: Callable[[], None]) -> None:
    draw = LOOPS[name]

    def drawn() -> tuple[list[Any], Any]:
        x = data(2)
        for _ in range(3):  # settings changed: the tapes of before are gone after the first run
            (x + 1).numpy()
        before()
        rl.manual_seed(3)
        return [draw() for _ in range(DRAWS)], rl.get_rng_state()

    found, place = in_new_thread(drawn)
    with config.override(tape=False):
        expected, expected_place = in_new_thread(drawn)
    np.testing.assert_array_equal(np.array(found), np.array(expected))
    assert place == expected_place
    assert len({np.array(values).tobytes() for values in found}) == DRAWS
