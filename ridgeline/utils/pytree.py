"""Trees of Python containers, under the names that torch programs use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.tensors.pytree import flatten, unflatten


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, and what puts them together again."""
    leaves: list[Any] = []
    return leaves, flatten(tree, leaves)


def tree_unflatten(leaves: Any, treespec: Any) -> Any:
    """A tree from its leaves."""
    return unflatten(treespec, list(leaves))


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """A function of every leaf, or of the leaves of several like trees."""
    leaves, spec = tree_flatten(tree)
    others = [tree_leaves(rest) for rest in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others, strict=True)], spec)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """A function of every leaf of a class; other leaves stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)
