"""Which names of torch a program uses that are not here, as far as its source shows.

Imports and attributes are followed from file to file of the program's own folder. Uses that the
program asks about first (`hasattr`, `try`) are left out: it can do without them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from ridgeline.torch_names import reason

ROOTS = {"torch": "ridgeline", "torchvision": "ridgeline.vision"}
_MOST_SHOWN = 30


@dataclass(frozen=True, slots=True)
class MissingName:
    """A name that is not here, and where it is first used."""

    name: str
    path: Path
    line: int
    hint: str


def findings(program: Path, folder: Path) -> list[MissingName]:
    """What is not here of what a program and the files that it imports use."""
    found: dict[str, MissingName] = {}
    waiting, seen = [program], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # Python says so itself, when it gets there
        for name, line in used_names(tree):
            if name not in found and (hint := _lack(name)) is not None:
                found[name] = MissingName(name, path, line, hint)
        waiting += _imported_files(tree, path, folder)
    return list(found.values())


def report(found: list[MissingName]) -> str:
    """The findings as text, a line each."""
    lines = [f"{len(found)} of torch's names that this program uses are not here:"]
    for one in found[:_MOST_SHOWN]:
        lines.append(f"  {one.path}:{one.line}: {one.name}{f' ({one.hint})' if one.hint else ''}")
    if len(found) > _MOST_SHOWN:
        lines.append(f"  … {len(found) - _MOST_SHOWN} more")
    return "\n".join([*lines, "The program runs until it needs one of them."])


def used_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of torch in a file, with the lines of their first uses."""
    names: dict[str, str] = {}
    optional = _optional(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in ROOTS:
                    yield from _use(alias.name, node, optional)
                    root = alias.name if alias.asname else alias.name.partition(".")[0]
                    names[alias.asname or root] = root
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ROOTS:
            for alias in node.names:
                full = str(node.module) if alias.name == "*" else f"{node.module}.{alias.name}"
                yield from _use(full, node, optional)
                names[alias.asname or alias.name] = full
    for name in _bound(tree):
        names.pop(name, None)  # `optim = Adam(…)` after `from torch import optim`
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            full = _dotted(node, names)
            if full and not isinstance(node.ctx, ast.Store):
                yield from _use(full, node, optional)


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives to values of its own, somewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _use(name: str, node: ast.stmt | ast.expr, optional: set[int]) -> Iterator[tuple[str, int]]:
    if id(node) not in optional:
        yield name, node.lineno


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The name of torch that a chain of attributes spells, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *parts])


def _optional(tree: ast.AST) -> set[int]:
    """What stands where a program is prepared for its absence."""
    found: set[int] = set()
    for node in ast.walk(tree):
        inside: list[ast.stmt] = []
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and _asks(node.test)):
            inside = node.body
        for statement in inside:
            found.update(id(part) for part in ast.walk(statement))
    return found


def _asks(test: ast.expr) -> bool:
    """Whether a condition asks what there is: `hasattr(torch, …)`, `….is_available()`."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    attributes = {n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)}
    return "hasattr" in names or bool(attributes & {"is_available", "is_initialized"})


def _lack(name: str) -> str | None:
    """Why a name is not here, or what is nearest; None for one that is, or cannot be known."""
    root, *parts = name.split(".")
    found: object = import_module(ROOTS[root])
    path = ROOTS[root]
    for number, part in enumerate(parts):
        if not (isinstance(found, type(ast)) or path.endswith("jit") or number == 0):
            return None  # an attribute of a value
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = import_module(f"{path}.{part}")
            except ImportError:
                why = reason(".".join(parts))
                near = get_close_matches(part, dir(found), 2)
                return why or (f"near: {', '.join(near)}" if near else "")
        path = f"{path}.{part}"
    return None


def _imported_files(tree: ast.AST, path: Path, folder: Path) -> Iterator[Path]:
    """The files of the program's own folder that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else folder
            name = node.module or ""
            modules = [(base, name), *((base, f"{name}.{a.name}".strip(".")) for a in node.names)]
        else:
            continue
        for base, module in modules:
            if module and module.partition(".")[0] not in ROOTS:
                candidate = base.joinpath(*module.split("."))
                yield candidate.with_suffix(".py")
                yield candidate / "__init__.py"
