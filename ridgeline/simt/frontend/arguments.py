"""Arguments of calls in a kernel, matched with the names that a function takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ridgeline.simt.frontend.arrays import as_array, element_index, indexed_part
from ridgeline.simt.frontend.context import ArrayPart, Context, Items, KernelValue
from ridgeline.simt.frontend.parts import full_index, is_part, part_of
from ridgeline.simt.frontend.problems import nearest
from ridgeline.simt.ir import ThreadArray, ThreadExpr


def matched(
    c: Context, node: ast.Call, name: str, takes: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, ast.expr]:
    """The argument nodes of a call by parameter; `optional` ones may be missing."""
    every = (*takes, *optional)
    if len(node.args) > len(every):
        c.fail(
            node,
            f"{name} takes {_counted(every)}, not {len(node.args)}",
            f"{name}({', '.join(every)})",
        )
    found = dict(zip(every, node.args))
    for keyword in node.keywords:
        if keyword.arg not in every:
            given = keyword.arg or "**"
            c.fail(
                node,
                f"{name} has no argument {given}",
                nearest(given, every) or f"{name}({', '.join(every)})",
            )
        if keyword.arg in found:
            c.fail(node, f"{name} is given {keyword.arg} twice")
        found[keyword.arg] = keyword.value
    missing = [parameter for parameter in takes if parameter not in found]
    if missing:
        c.fail(node, f"{name} needs {' and '.join(missing)}", f"{name}({', '.join(every)})")
    return found


def _counted(every: Sequence[str]) -> str:
    return f"{len(every)} argument{'' if len(every) == 1 else 's'}"


def element(
    c: Context, node: ast.Call, name: str, takes: Sequence[str], optional: Sequence[str] = ()
) -> tuple[ThreadArray, tuple[ThreadExpr, ...], dict[str, ast.expr]]:
    """The element a call works on, as `f(a[i], …)` or `f(a, i, …)`, and its other arguments."""
    base: KernelValue | None = None
    index: list[KernelValue] = []
    if node.args and isinstance(node.args[0], ast.Subscript):
        base, places = indexed_part(c, node.args[0])
        if is_part(base, places):
            base = part_of(c, node, base, places)
        else:
            index = places  # type: ignore[assignment]
    if base is not None and not isinstance(base, ArrayPart):
        rest = ast.copy_location(ast.Call(node.func, node.args[1:], node.keywords), node)
        others = matched(c, rest, name, takes, optional)
    else:
        others = matched(c, node, name, ("array", "index", *takes), optional)
        array_node, place = others.pop("array"), c.evaluate(others.pop("index"))
        base = c.evaluate(array_node) if base is None else base
        index = list(place.items) if isinstance(place, Items) else [place]
        if isinstance(base, ArrayPart) and (full := full_index(c, node, base, index)) is not None:
            base, index = base.array, full
    array, _ = as_array(c, node, base)
    return array, element_index(c, node, array, index), others


def values(c: Context, nodes: Sequence[ast.expr]) -> list[KernelValue]:
    """The values of argument nodes, in order."""
    return c.evaluate_in_order(list(nodes))
