"""Scripts without `if __name__ == "__main__":`, as workers of a loader see them.

A worker imports the script again, for the classes that the dataset is made of; a script that trains
on import would start again in each. Many are written so, since a forked worker imports nothing.
Of such scripts only what defines is run. Imported in the server that workers are forked from.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Any

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAME = "__mp_main__"  # what the standard library calls a script that is imported again


def is_guarded(tree: ast.Module) -> bool:
    """Whether a script asks by what name it is run."""
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return "__name__" in names


def definitions(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that define what others use: no loops, no calls of the script's own functions."""
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return (statement for statement in tree.body if _defines(statement, own))


def _defines(statement: ast.stmt, own: set[str]) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return not _calls(statement, own)
    if isinstance(statement, ast.Expr):
        return _adds_an_argument(statement.value)
    return isinstance(statement, _DEFINITIONS)


def _calls(statement: ast.stmt, own: set[str]) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id in own for function in calls)


def _adds_an_argument(value: ast.expr) -> bool:
    """Such as `parser.add_argument("--lr")`, without which the options would be missing."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("add_argument", "set_defaults")
    )


def load(path: str, tree: ast.Module) -> ModuleType:
    """The script as a module, of what it defines; a value that cannot be made is left out."""
    module = ModuleType(_NAME)
    module.__file__ = path
    sys.modules["__main__"] = sys.modules[_NAME] = module
    for statement in definitions(tree):
        code = compile(ast.Module([statement], []), path, "exec")
        with suppress(Exception):
            exec(code, vars(module))
    return module


def _wrapped(whole: Callable[[str], Any]) -> Callable[[str], Any]:
    def prepare(path: str) -> None:
        try:
            tree = ast.parse(Path(path).read_bytes())
        except (OSError, SyntaxError, ValueError):
            whole(path)
            return
        if is_guarded(tree):
            whole(path)
        else:
            load(path, tree)

    return prepare


spawn._fixup_main_from_path = _wrapped(spawn._fixup_main_from_path)  # type: ignore[attr-defined]
