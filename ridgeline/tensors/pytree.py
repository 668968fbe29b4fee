"""Nested structures: tuples, lists, dicts, named tuples and dataclasses, flattened and rebuilt.

A structure is described by a hashable key, so that two calls with equally built arguments compare
equal. Nothing here recurses deeper than the user's own nesting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.modes import called

LEAVES = (DType, SizeExpr)  # dataclasses that are values


def flatten(tree: Any, leaves: list[Any]) -> Hashable:
    """Append the leaves of `tree` in order; the key of how they were nested."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return (kind, tuple([flatten(item, leaves) for item in tree]))
    if kind is dict:
        return (dict, tuple(tree), tuple([flatten(item, leaves) for item in tree.values()]))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, tuple([flatten(item, leaves) for item in tree]))
    if hasattr(kind, "__dataclass_fields__") and kind not in LEAVES:
        names = tuple([f.name for f in fields(tree)])
        return (kind, names, tuple([flatten(getattr(tree, n), leaves) for n in names]))
    leaves.append(tree)
    return None


def unflatten(key: Any, leaves: Sequence[Any]) -> Any:
    """The structure with this key over these leaves."""
    return _build(key, iter(leaves))


def _build(part: Any, remaining: Iterator[Any]) -> Any:
    # no closure: one that calls itself would keep the leaves alive until the next collection
    if part is None:
        return next(remaining)
    kind = part[0]
    if kind is dict:
        return dict(zip(part[1], [_build(p, remaining) for p in part[2]]))
    if len(part) == 3:  # a dataclass, as it was: nothing of its own runs again
        made = object.__new__(kind)
        for name, inner in zip(part[1], part[2]):
            object.__setattr__(made, name, _build(inner, remaining))
        return made
    items = [_build(p, remaining) for p in part[1]]
    return kind(items) if kind in (tuple, list) else kind(*items)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with every leaf replaced by `function(leaf)`."""
    leaves: list[Any] = []
    key = flatten(tree, leaves)
    return unflatten(key, [called(function)(leaf) for leaf in leaves])
