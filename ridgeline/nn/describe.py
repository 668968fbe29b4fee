"""The printed form of a module: its tree as torch prints it, with parameter counts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.nn.module import Module


def count_parameters(module: Module) -> int:
    """The number of elements of all parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def describe(module: Module) -> str:
    """The tree below a module, a line per child, the counts at the right of each."""
    lines = _lines(module)
    return "\n".join(lines)


def html(module: Module) -> str:
    """The tree for a notebook."""
    return f"<pre>{escape(repr(module))}</pre>"


def _count(module: Module) -> str:
    total = count_parameters(module)
    return f"  # {total:,} parameter{'s' * (total != 1)}" if total else ""


def _lines(module: Module) -> list[str]:
    """A module's own lines; equal consecutive children are folded into one entry."""
    if getattr(type(module).__repr__, "__module__", "") != "ridgeline.nn.module":
        return repr(module).split("\n")  # a class that prints itself
    name, extra = type(module).__name__, module.extra_repr()
    children = [(key, child) for key, child in module._modules.items() if child is not None]
    own = extra.split("\n") if extra else []
    if not children and len(own) < 2:
        return [f"{name}({extra}){_count(module)}"]
    lines = [f"{name}({_count(module)}", *(f"  {line}" for line in own)]
    for keys, body in _folded([(key, _lines(child)) for key, child in children]):
        lines.append(f"  ({keys}): {body[0]}")
        lines.extend(f"  {line}" for line in body[1:])
    return [*lines, ")"]


def _folded(children: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Runs of equal neighbours with numbers for names become one entry `(3-8): 6 x …`."""
    runs: list[tuple[list[str], list[str]]] = []
    for key, body in children:
        if runs and runs[-1][1] == body and key.isdigit() and runs[-1][0][-1].isdigit():
            runs[-1][0].append(key)
        else:
            runs.append(([key], body))
    return [
        (keys[0], body)
        if len(keys) == 1
        else (f"{keys[0]}-{keys[-1]}", [f"{len(keys)} x {body[0]}", *body[1:]])
        for keys, body in runs
    ]
