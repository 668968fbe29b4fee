"""Nested structures: Python's containers, named tuples and dataclasses, flattened and rebuilt.

A structure is described by a hashable key, so that two calls with equally built arguments compare
equal. Nothing here recurses deeper than the user's own nesting.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.modes import called

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
LEAVES = (DType, SizeExpr)  # dataclasses that are values


def flatten(tree: Any, leaves: list[Any]) -> Hashable:
    """Append the leaves of `tree` in order; the key of how they were nested."""
    kind: Any = type(tree)
    if kind is tuple or kind is list:
        return (kind, tuple([flatten(item, leaves) for item in tree]))
    if kind is dict or kind is OrderedDict:
        return (kind, tuple(tree), tuple([flatten(item, leaves) for item in tree.values()]))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = tuple([flatten(item, leaves) for item in tree])
        own = getattr(tree, "__dict__", None)  # of a class that extends the named tuple
        return (kind, parts, *flatten_attributes(tree, own, leaves)) if own else (kind, parts)
    if hasattr(kind, "__dataclass_fields__") and kind not in LEAVES and is_plain(kind):
        return (kind, *flatten_attributes(tree, attribute_names(tree), leaves))
    if kind is deque:
        return (deque, tuple([flatten(item, leaves) for item in tree]), tree.maxlen)
    leaves.append(tree)
    return None


def flatten_attributes(
    tree: Any, names: Iterable[str], leaves: list[Any]
) -> tuple[tuple[str, ...], tuple[Hashable, ...]]:
    """The names of attributes, and the keys of how they were nested."""
    names = tuple(names)
    return names, tuple([flatten(getattr(tree, name), leaves) for name in names])


def attribute_names(tree: Any) -> Sequence[str]:
    """The attributes of a dataclass: its fields, and those that it was given besides.

    Without what a `cached_property` keeps, which follows from the others.
    """
    kind: Any = type(tree)
    declared, table = _declared(kind), getattr(tree, "__dict__", {})
    if tuple(table) == declared:
        return declared
    names = [name for name in declared if hasattr(tree, name)]
    for name in table:
        if name not in names and type(getattr(kind, name, None)) is not cached_property:
            names.append(name)
    return names


@lru_cache(maxsize=256)
def _declared(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass, and slots of its bases that are none."""
    names = [field.name for field in fields(kind)]
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            names += [n for n, v in vars(base).items() if type(v) is types.MemberDescriptorType]
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=256)
def is_plain(kind: Any) -> bool:
    """True for a class whose objects are no more than their attributes, with no base in C.

    A module is more: it is the one that an optimizer and other modules hold.
    """
    if hasattr(kind, "register_parameter"):
        return False
    return all(base.__flags__ & _HEAP for base in kind.__mro__[:-1])


def unflatten(key: Any, leaves: Sequence[Any]) -> Any:
    """The structure with this key over these leaves."""
    return _build(key, iter(leaves))


def _build(part: Any, remaining: Iterator[Any]) -> Any:
    # no closure: one that calls itself would keep the leaves alive until the next collection
    if part is None:
        return next(remaining)
    kind = part[0]
    if kind is dict or kind is OrderedDict:
        return kind(zip(part[1], [_build(p, remaining) for p in part[2]]))
    if kind is tuple or kind is list:
        return kind([_build(p, remaining) for p in part[1]])
    if kind is deque:
        return deque([_build(p, remaining) for p in part[1]], part[2])
    # named tuples and dataclasses, as they were: nothing of their own runs again
    if issubclass(kind, tuple):
        made = tuple.__new__(kind, [_build(p, remaining) for p in part[1]])
    else:
        made = object.__new__(kind)
    for name, inner in zip(part[-2], part[-1]) if len(part) > 2 else ():
        object.__setattr__(made, name, _build(inner, remaining))
    return made


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with every leaf replaced by `function(leaf)`."""
    leaves: list[Any] = []
    key = flatten(tree, leaves)
    return unflatten(key, [called(function)(leaf) for leaf in leaves])
