"""L-BFGS: Newton-like steps from the last few gradients, with an optional line search.

A step evaluates its closure several times and reads numbers in between, so this rule does not run
inside jit; what the closure computes may be jitted. The vectors of the method are kept in float64;
they are not part of the saved state, so a resumed run builds up its history anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline.optim.line_search import Point, Vector, strong_wolfe
from ridgeline.optim.optimizer import Optimizer, OptimizerError
from ridgeline.record.modes import called, enable_grad, no_grad
from ridgeline.record.mutation import ParamGroup
from ridgeline.record.values import read_array
from ridgeline.tensors.tensor import Tensor, tensor


class LBFGS(Optimizer):
    """`step(closure)` makes up to max_iter iterations; one group of parameters only."""

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise OptimizerError(
                f"line_search_fn is None or 'strong_wolfe', not {line_search_fn!r}"
            )
        self.max_iter, self.history_size = max_iter, history_size
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.line_search_fn = line_search_fn
        defaults = {
            "lr": lr, "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise OptimizerError("LBFGS takes one group of parameters")
        self._changes: list[tuple[Vector, Vector]] = []  # of the position and of the gradient
        self._last: tuple[Vector, Vector, float] | None = None  # gradient, direction, length

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        for name in ("tolerance_grad", "tolerance_change"):
            self._at_least(name, group[name], 0.0)

    def _members(self) -> list[Tensor]:
        members: list[Tensor] = self.param_groups[0]["params"]
        return members

    def _position(self) -> Vector:
        parts = [read_array(p.detach(), "LBFGS").ravel() for p in self._members()]
        return np.concatenate(parts).astype(np.float64)

    def _slope(self) -> Vector:
        parts = [
            np.zeros(p.numel()) if p.grad is None else read_array(p.grad.detach(), "LBFGS").ravel()
            for p in self._members()
        ]
        return np.concatenate(parts).astype(np.float64)

    def _go_to(self, position: Vector) -> None:
        start = 0
        with no_grad():
            for parameter in self._members():
                part = position[start : start + parameter.numel()]
                shaped = part.reshape(tuple(parameter.shape)).astype(parameter.dtype.numpy)
                parameter.copy_(tensor(shaped))
                start += parameter.numel()

    def _direction(self, gradient: Vector) -> Vector:
        """The two-loop recursion: minus the inverse Hessian's estimate times the gradient."""
        q = -gradient
        weights = []
        for move, change in reversed(self._changes):
            weight = float(move @ q) / float(change @ move)
            weights.append(weight)
            q = q - weight * change
        if self._changes:
            move, change = self._changes[-1]
            q = q * (float(change @ move) / float(change @ change))
        for (move, change), weight in zip(self._changes, reversed(weights)):
            q = q + move * (weight - float(change @ q) / float(change @ move))
        return q

    def _remember(self, gradient: Vector) -> None:
        """Keep the last move and the change of the gradient, if they say something of curvature."""
        if self._last is None:
            return
        before, direction, length = self._last
        move, change = direction * length, gradient - before
        if float(change @ move) > 1e-10:
            self._changes.append((move, change))
            del self._changes[: -self.history_size]

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        """Minimise along successive directions; the closure computes loss and gradients anew."""
        if closure is None:
            raise OptimizerError("LBFGS.step needs a closure that computes the loss")
        return self._whole(lambda: self._minimised(closure))

    def _minimised(self, closure: Callable[[], Any]) -> Any:
        evaluations = 0

        def evaluate() -> tuple[float, Vector]:
            nonlocal evaluations
            evaluations += 1
            with enable_grad():
                return float(called(closure)()), self._slope()

        with enable_grad():
            first = called(closure)()
        evaluations += 1
        loss, gradient = float(first), self._slope()
        group = self.param_groups[0]
        lr, flat, still = (group[k] for k in ("lr", "tolerance_grad", "tolerance_change"))
        for iteration in range(self.max_iter):
            if np.max(np.abs(gradient)) <= flat:
                break
            self._remember(gradient)
            direction = self._direction(gradient)
            fresh = self._last is None
            length = min(1.0, 1.0 / float(np.abs(gradient).sum())) * lr if fresh else lr
            slope = float(gradient @ direction)
            if slope > -still:
                break
            here, before, old = self._position(), loss, gradient
            if self.line_search_fn is not None:
                loss, gradient, length = self._searched(
                    evaluate, here, direction, Point(0.0, loss, slope, gradient), length, still
                )
            else:
                self._go_to(here + length * direction)
                if iteration + 1 < self.max_iter:
                    loss, gradient = evaluate()
            self._last = (old, direction, length)
            moved = float(np.max(np.abs(direction))) * length
            if evaluations >= self.max_eval or moved <= still or abs(loss - before) < still:
                break
        return first

    def _searched(
        self,
        evaluate: Callable[[], tuple[float, Vector]],
        here: Vector,
        direction: Vector,
        start: Point,
        length: float,
        still: float,
    ) -> tuple[float, Vector, float]:
        """Go to the point that the line search accepts."""

        def at(distance: float) -> tuple[float, Vector]:
            self._go_to(here + distance * direction)
            return evaluate()

        found, _ = strong_wolfe(at, direction, start, length, still)
        self._go_to(here + found.length * direction)
        return found.loss, found.gradient, found.length
