"""Transforms from all real numbers onto a set: for parameters that an optimizer moves freely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ridgeline.distributions.constraints import Constraint
from ridgeline.distributions.transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

Factory: TypeAlias = Callable[[Constraint], Transform]


class ConstraintRegistry:
    """Gives the transform for a set; `register` adds one for a set of one's own."""

    _compared_by_jit = True

    def __init__(self, known: dict[str, Factory]) -> None:
        self._known: dict[Any, Factory] = dict(known)

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Decorates a function from a set to its transform."""
        if factory is None:
            return lambda given: self.register(constraint, given)
        self._known[_key(constraint)] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform whose values are the set."""
        for key in (constraint.name, constraint.kind):
            if key in self._known:
                return self._known[key](constraint)
        raise NotImplementedError(f"no transform onto {constraint!r} is known")


def _key(constraint: Any) -> str:
    """What a set is known by: one set by its name, sets with bounds by what makes them."""
    if isinstance(constraint, Constraint):
        return constraint.name
    return str(constraint.__name__)


def _above(constraint: Constraint) -> Transform:
    (low,) = constraint.bounds
    return ComposeTransform([ExpTransform(), AffineTransform(low, 1)]) if _not(low, 0) else EXP


def _below(constraint: Constraint) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.bounds[0], -1)])


def _between(constraint: Constraint) -> Transform:
    low, high = constraint.bounds
    if not _not(low, 0) and not _not(high, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _not(bound: Any, number: float) -> bool:
    return not isinstance(bound, int | float) or bound != number


EXP = ExpTransform()


def _registry(simplex: Callable[[], Transform], own: dict[str, Factory]) -> ConstraintRegistry:
    made: ConstraintRegistry
    known: dict[str, Factory] = {
        "real": lambda _: identity_transform,
        "greater_than": _above,
        "less_than": _below,
        "interval": _between,
        "simplex": lambda _: simplex(),
        "corr_cholesky": lambda _: CorrCholeskyTransform(),
        "independent": lambda c: IndependentTransform(made(c.bounds[0]), c.bounds[1]),
        "cat": lambda c: CatTransform([made(part) for part in c.bounds[0]], *c.bounds[1:]),
        "stack": lambda c: StackTransform([made(part) for part in c.bounds[0]], c.bounds[1]),
    }
    made = ConstraintRegistry(known | own)
    return made


_matrices: dict[str, Factory] = {
    "lower_cholesky": lambda _: LowerCholeskyTransform(),
    "positive_definite": lambda _: PositiveDefiniteTransform(),
}
biject_to = _registry(StickBreakingTransform, {})
transform_to = _registry(SoftmaxTransform, _matrices)
