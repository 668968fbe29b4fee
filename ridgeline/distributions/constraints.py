"""Where parameters and samples of distributions may lie: a check, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.functions.creation import finfo
from ridgeline.linalg import eigvalsh
from ridgeline.tensors.public import cat as cat_tensors, stack as stack_tensors
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Constraint:
    """A set of values; `event_dim` axes together are one value.

    `holds` says it for each element, or for each matrix; `kind` and `bounds` are what transforms
    onto the set go by.
    """

    name: str
    holds: Callable[[Tensor], Tensor]
    is_discrete: bool = False
    event_dim: int = 0
    kind: str = ""
    bounds: tuple[Any, ...] = ()

    def check(self, value: Tensor) -> Tensor:
        """True for each value that lies in the set."""
        found = self.holds(value)
        axes = self.event_dim - (value.dim() - found.dim())
        return found.all(tuple(range(-axes, 0))) if axes > 0 else found

    def __repr__(self) -> str:
        return self.name


def _known(value: Tensor) -> Tensor:
    return value == value


real = Constraint("Real()", _known, kind="real")
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), True)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0), True
)
positive_integer = Constraint(
    "IntegerGreaterThan(lower_bound=1)", lambda x: (x % 1 == 0) & (x >= 1), True
)


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """A set of vectors or more: so many axes of values of another set."""
    if reinterpreted_batch_ndims == 0:
        return base
    name = f"IndependentConstraint({base!r}, {reinterpreted_batch_ndims})"
    axes = base.event_dim + reinterpreted_batch_ndims
    bounds = (base, reinterpreted_batch_ndims)
    return replace(base, name=name, event_dim=axes, kind="independent", bounds=bounds)


def greater_than(lower_bound: Any) -> Constraint:
    """Above a number."""
    name = f"GreaterThan(lower_bound={lower_bound})"
    return Constraint(name, lambda x: x > lower_bound, kind="greater_than", bounds=(lower_bound,))


def greater_than_eq(lower_bound: Any) -> Constraint:
    """From a number on."""
    name = f"GreaterThanEq(lower_bound={lower_bound})"
    return Constraint(name, lambda x: x >= lower_bound, kind="greater_than", bounds=(lower_bound,))


def less_than(upper_bound: Any) -> Constraint:
    """Below a number."""
    name = f"LessThan(upper_bound={upper_bound})"
    return Constraint(name, lambda x: x < upper_bound, kind="less_than", bounds=(upper_bound,))


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Between two numbers, these included."""
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(
        name,
        lambda x: (x >= lower_bound) & (x <= upper_bound),
        kind="interval",
        bounds=(lower_bound, upper_bound),
    )


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Between two numbers, the first included."""
    name = f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(
        name,
        lambda x: (x >= lower_bound) & (x < upper_bound),
        kind="interval",
        bounds=(lower_bound, upper_bound),
    )


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers between two, these included."""
    name = f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    within = interval(lower_bound, upper_bound)
    return Constraint(name, lambda x: (x % 1 == 0) & within.holds(x), True)


def multinomial(upper_bound: Any) -> Constraint:
    """Counts along the last axis that sum to a number at most."""
    return Constraint(
        "Multinomial()", lambda x: (x >= 0) & (x.sum(-1, keepdim=True) <= upper_bound), True, 1
    )


positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
real_vector = independent(real, 1)
simplex = Constraint(
    "Simplex()",
    lambda x: (x >= 0) & ((x.sum(-1, keepdim=True) - 1).abs() < 1e-6),
    event_dim=1,
    kind="simplex",
)
one_hot = Constraint(
    "OneHot()", lambda x: ((x == 0) | (x == 1)) & (x.sum(-1, keepdim=True) == 1), True, 1
)


def _lower(x: Tensor) -> Tensor:
    return (x.tril() == x).flatten(-2).all(-1)


def _factor(x: Tensor) -> Tensor:
    return _lower(x) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _of_length_one(x: Tensor) -> Tensor:
    tolerance = finfo(x.dtype).eps * x.shape[-1] * 10
    return ((x * x).sum(-1) - 1).abs().le(tolerance).all(-1)


def _equal_across(x: Tensor) -> Tensor:
    return ((x - x.mT).abs() <= 1e-6 * x.abs() + 1e-6).flatten(-2).all(-1)


lower_triangular = Constraint("LowerTriangular()", _lower, event_dim=2)
lower_cholesky = Constraint("LowerCholesky()", _factor, event_dim=2, kind="lower_cholesky")
corr_cholesky = Constraint(
    "CorrCholesky()",
    lambda x: _factor(x) & _of_length_one(x),
    event_dim=2,
    kind="corr_cholesky",
)
square = Constraint("Square()", lambda x: _known(x).flatten(-2).all(-1), event_dim=2)
symmetric = Constraint("Symmetric()", _equal_across, event_dim=2)
positive_semidefinite = Constraint(
    "PositiveSemidefinite()",
    lambda x: _equal_across(x) & (eigvalsh(x) >= 0).all(-1),
    event_dim=2,
    kind="positive_definite",
)
positive_definite = Constraint(
    "PositiveDefinite()",
    lambda x: _equal_across(x) & (eigvalsh(x) > 0).all(-1),
    event_dim=2,
    kind="positive_definite",
)


def stack(cseq: Sequence[Constraint], dim: int = 0) -> Constraint:
    """Values of several sets, one beside the other along an axis."""

    def holds(value: Tensor) -> Tensor:
        parts = zip(cseq, value.unbind(dim), strict=True)
        return stack_tensors([part.check(piece) for part, piece in parts], dim)

    axes = max((part.event_dim for part in cseq), default=0)
    axes += dim + axes < 0  # the axis of the parts is inside of a value
    discrete = any(part.is_discrete for part in cseq)
    return Constraint("Stack()", holds, discrete, axes, "stack", (tuple(cseq), dim))


def cat(
    cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
) -> Constraint:
    """Values of several sets, in stretches of an axis."""
    sizes = [1] * len(cseq) if lengths is None else list(lengths)

    def holds(value: Tensor) -> Tensor:
        parts = zip(cseq, value.split(sizes, dim), strict=True)
        return cat_tensors([part.check(piece) for part, piece in parts], dim)

    axes = max((part.event_dim for part in cseq), default=0)
    discrete = any(part.is_discrete for part in cseq)
    return Constraint("Cat()", holds, discrete, axes, "cat", (tuple(cseq), dim, tuple(sizes)))
