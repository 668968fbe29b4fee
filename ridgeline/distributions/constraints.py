"""Where parameters and samples of distributions may lie: a check, element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Constraint:
    """A set of values; `event_dim` axes together are one value."""

    name: str
    holds: Callable[[Tensor], Tensor]
    is_discrete: bool = False
    event_dim: int = 0

    def check(self, value: Tensor) -> Tensor:
        """True for each value that lies in the set."""
        found = self.holds(value)
        return found.all(-1) if self.event_dim == 1 else found

    def __repr__(self) -> str:
        return self.name


def _known(value: Tensor) -> Tensor:
    return value == value


real = Constraint("Real()", _known)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), True)
positive = Constraint("GreaterThan(lower_bound=0.0)", lambda x: x > 0)
nonnegative = Constraint("GreaterThanEq(lower_bound=0.0)", lambda x: x >= 0)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0), True
)
unit_interval = Constraint(
    "Interval(lower_bound=0.0, upper_bound=1.0)", lambda x: (x >= 0) & (x <= 1)
)
real_vector = Constraint("IndependentConstraint(Real(), 1)", _known, event_dim=1)
simplex = Constraint(
    "Simplex()", lambda x: (x >= 0) & ((x.sum(-1, keepdim=True) - 1).abs() < 1e-6), event_dim=1
)
one_hot = Constraint(
    "OneHot()", lambda x: ((x == 0) | (x == 1)) & (x.sum(-1, keepdim=True) == 1), True, 1
)
lower_cholesky = Constraint("LowerCholesky()", lambda x: (x.tril() == x).all(-1), event_dim=1)


def greater_than(lower_bound: Any) -> Constraint:
    """Above a number."""
    return Constraint(f"GreaterThan(lower_bound={lower_bound})", lambda x: x > lower_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Between two numbers, these included."""
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda x: (x >= lower_bound) & (x <= upper_bound))


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers between two, these included."""
    name = f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    within = interval(lower_bound, upper_bound)
    return Constraint(name, lambda x: (x % 1 == 0) & within.holds(x), True)
