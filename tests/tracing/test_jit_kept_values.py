"""jit and state in places that are neither the user's objects nor modules: each change is seen."""

from __future__ import annotations

import decimal
import fractions
import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributions
from ridgeline.config import config


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    options = np.get_printoptions()
    with config.override(tier="interpreter"), np.errstate(), decimal.localcontext():
        yield
    np.set_printoptions(**options)


NORMAL = distributions.Normal(rl.tensor(0.0), rl.tensor(1.0))
WIDE = distributions.TransformedDistribution(
    distributions.Normal(0.0, 1.0), [distributions.AffineTransform(0.0, 2.0)]
)
LABELS = distributions.Categorical(probs=rl.tensor([0.25, 0.75]))
THIRD = fractions.Fraction(1, 3)
LAW = statistics.NormalDist(1.0, 2.0)


class Shifted(distributions.Normal):
    """A law of a user's."""

    shift = 1.0

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(value - self.shift)


SHIFTED = Shifted(rl.tensor(0.0), rl.tensor(1.0))


def _divided(x: Any) -> Any:
    try:
        return x * float(np.float64(1) / np.float64(0))
    except FloatingPointError:
        return x * 7


CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[], object]]] = {
    "a law": (lambda x: NORMAL.log_prob(x), lambda: setattr(NORMAL, "loc", rl.tensor(1.0))),
    "a law's mean": (lambda x: x + NORMAL.mean, lambda: setattr(NORMAL, "loc", rl.tensor(5.0))),
    "a law's part": (
        lambda x: WIDE.log_prob(x),
        lambda: setattr(WIDE.base_dist, "scale", rl.tensor(3.0)),
    ),
    "a transform": (
        lambda x: WIDE.log_prob(x), lambda: setattr(WIDE.transforms[0], "scale", rl.tensor(4.0))
    ),
    "logits": (
        lambda x: x + LABELS.log_prob(rl.tensor([0, 1])),
        lambda: setattr(LABELS, "logits", rl.tensor([1.0, 5.0])),
    ),
    "a user's law": (
        lambda x: SHIFTED.log_prob(x), lambda: setattr(SHIFTED, "scale", rl.tensor(2.0))
    ),
    "two laws": (
        lambda x: x + distributions.kl_divergence(NORMAL, SHIFTED),
        lambda: setattr(SHIFTED, "scale", rl.tensor(8.0)),
    ),
    "a fraction": (lambda x: x * float(THIRD), lambda: setattr(THIRD, "_numerator", 2)),
    "a sum with a fraction": (
        lambda x: x * float(THIRD + 1), lambda: setattr(THIRD, "_denominator", 7)
    ),
    "a law of statistics": (lambda x: x * LAW.mean, lambda: setattr(LAW, "_mu", 3.0)),
    "digits": (
        lambda x: x * float(decimal.Decimal(1) / 3),
        lambda: setattr(decimal.getcontext(), "prec", 3),
    ),
    "NumPy's errors, asked": (
        lambda x: x * (2 if np.geterr()["divide"] == "ignore" else 1),
        lambda: np.seterr(divide="ignore"),
    ),
    "NumPy's errors": (_divided, lambda: np.seterr(divide="raise")),
    "how NumPy prints": (
        lambda x: x * np.get_printoptions()["precision"], lambda: np.set_printoptions(precision=3)
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    function, change = CHANGES[name]
    jitted, x = rl.jit(function), rl.tensor([1.0, 2.0])
    for _ in range(2):
        np.testing.assert_array_equal(jitted(x).numpy(), function(x).numpy())
    before = function(x).numpy()
    change()
    np.testing.assert_array_equal(jitted(x).numpy(), function(x).numpy())
    assert not np.array_equal(function(x).numpy(), before)


def test_what_the_function_sets_itself_breaks_no_guard() -> None:
    def function(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return x * float(np.float64(1) / np.float64(2))

    jitted, x = rl.jit(function), rl.ones(2)
    for _ in range(4):
        jitted(x)
    assert jitted.traces == 1


def test_a_law_is_traced_once() -> None:
    labels = distributions.Categorical(probs=rl.tensor([0.5, 0.5]))
    jitted = rl.jit(lambda x: labels.log_prob(x))
    for _ in range(4):
        jitted(rl.tensor([0, 1]))
    assert jitted.traces == 1
    assert labels.log_prob(rl.tensor([0])).item() == pytest.approx(np.log(0.5))


def test_the_audit_agrees_with_functions_whose_results_are_kept() -> None:
    @functools.lru_cache
    def places(count: int) -> rl.Tensor:
        return rl.arange(count).float()

    jitted = rl.jit(lambda x: x + places(2))
    with config.override(audit=True):
        for _ in range(9):
            assert jitted(rl.ones(2)).tolist() == [1.0, 2.0]
    assert jitted.traces == 1
    assert places(2).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("given", [False, True])
def test_a_tensor_from_outside_is_detached(given: bool) -> None:
    source = rl.tensor([1.0, 2.0], requires_grad=True)
    state = source * 3
    if given:
        jitted: Any = rl.jit(lambda x, state: state.detach_() * x)
    else:
        jitted = rl.jit(lambda x: state.detach_() * x)
    for _ in range(3):
        result = jitted(rl.ones(2), state) if given else jitted(rl.ones(2))
        assert result.tolist() == [3.0, 6.0]
        assert not result.requires_grad and not state.requires_grad and state.is_leaf
    assert source.requires_grad


def test_gradients_flow_until_a_tensor_is_detached() -> None:
    """As in torch: the first call finds a variable, the second one does not."""
    weight = rl.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Any) -> Any:
        wanted = (weight * x).requires_grad
        weight.detach_()
        return x * (2.0 if wanted else 1.0)

    jitted = rl.jit(step)
    assert [jitted(rl.ones(1)).item() for _ in range(3)] == [2.0, 1.0, 1.0]


def test_an_exception_leaves_a_detached_tensor_as_it_was() -> None:
    weight = rl.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Any) -> Any:
        weight.detach_()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rl.jit(step)(rl.ones(1))
    assert weight.requires_grad
