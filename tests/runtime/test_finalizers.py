"""Finalizers and callbacks of weak references are C code: CPython swallows what is raised there.

What would run Python is found in the source text: it would take an interrupt at the wrong moment
to see it happen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ridgeline

# of the module `weakref`: what forgets a member, or calls back, in a function written in Python
IN_PYTHON = {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "WeakMethod", "finalize"}


def _in_python(tree: ast.Module) -> Iterator[int]:
    """The lines that make a finalizer or a callback in Python."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__del__":
            yield node.lineno
        names: set[str] = set()
        if isinstance(node, ast.ImportFrom) and node.module == "weakref":
            names = {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "weakref":
            names = {node.attr}
        if names & IN_PYTHON:
            yield node.lineno


def test_no_finalizer_is_written_in_python() -> None:
    folder = Path(ridgeline.__file__).parent
    found = [
        f"{path.relative_to(folder)}:{line}"
        for path in sorted(folder.rglob("*.py"))
        for line in _in_python(ast.parse(path.read_text()))
    ]
    assert not found, f"an interrupt could be swallowed here: {found}"
