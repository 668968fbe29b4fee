"""The value of an expression for many lanes at once, in NumPy; iterative and memoised.

The caller says what leaves are worth: `leaf` receives a variable, hole or load, the values of its
operands, and the lanes they are wanted for (None for all). Only `guarded` narrows the lanes: its
second operand is evaluated just where its condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ridgeline import scalars
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, OpExpr
from ridgeline.scalars import Array

Leaf = Callable[[Expr, list[Array], Array | None], Array]


def evaluate(roots: Sequence[Expr], count: int, leaf: Leaf) -> list[Array]:
    """Values of `roots` as arrays of `count` lanes."""
    evaluation = Evaluation(count, leaf)
    return [evaluation.value(root) for root in roots]


class Evaluation:
    """A stack machine over (node, region); a region is the set of lanes a guard leaves.

    Values are kept, so expressions given one after another share their common parts.
    """

    def __init__(self, count: int, leaf: Leaf) -> None:
        self._leaf = leaf
        self._regions: list[Array | None] = [None]
        self._sizes = [count]
        self._narrowed: dict[tuple[Expr, int], int] = {}
        self._values: dict[tuple[Expr, int], Array] = {}

    def value(self, root: Expr) -> Array:
        """The value of an expression in every lane."""
        stack = [(root, 0)]
        while stack:
            node, region = stack[-1]
            missing = [task for task in self._needs(node, region) if task not in self._values]
            if missing:
                stack.extend(reversed(missing))
            else:
                stack.pop()
                if (node, region) not in self._values:
                    self._values[node, region] = self._apply(node, region)
        return np.broadcast_to(self._values[root, 0], (self._sizes[0],))

    def _needs(self, node: Expr, region: int) -> list[tuple[Expr, int]]:
        if isinstance(node, OpExpr) and node.name == "guarded":
            condition, yes, no = node.args
            needs = [(condition, region), (no, region)]
            if (condition, region) in self._values:
                inner = self._narrow(condition, region)
                if self._sizes[inner]:
                    needs.append((yes, inner))
            return needs
        return [(child, region) for child in ir.children(node)]

    def _narrow(self, condition: Expr, region: int) -> int:
        """The region of those lanes of `region` where `condition` holds."""
        key = (condition, region)
        if key not in self._narrowed:
            holds = self._mask(condition, region)
            outer = self._regions[region]
            lanes = np.flatnonzero(holds) if outer is None else outer[holds]
            self._narrowed[key] = len(self._regions)
            self._regions.append(lanes)
            self._sizes.append(len(lanes))
        return self._narrowed[key]

    def _mask(self, condition: Expr, region: int) -> Array:
        return np.broadcast_to(self._values[condition, region], (self._sizes[region],))

    def _apply(self, node: Expr, region: int) -> Array:
        if isinstance(node, Const):
            return np.array(node.value, node.dtype.numpy)
        operands = [self._values[child] for child in self._needs(node, region)]
        if not isinstance(node, OpExpr):
            return self._leaf(node, operands, self._regions[region])
        if node.name == "guarded":
            result = np.array(np.broadcast_to(operands[1], (self._sizes[region],)))
            if len(operands) == 3:
                result[self._mask(node.args[0], region)] = operands[2]
            return result
        if node.name == "cast":
            return scalars.cast(operands[0], node.dtype)
        if node.name == "bitcast":
            return operands[0].view(node.dtype.numpy)
        return scalars.evaluate(node.name, *operands)
