"""Instrumented copies of functions, which report what they read; one per code object.

A copy shares the globals, closure cells and defaults of its original, and keeps its name, file and
lines, so that tracebacks, debuggers and the origins of tensors show the user's own text.
"""

from __future__ import annotations

import ast
from types import CellType, CodeType, FunctionType
from typing import Any

from ridgeline.tracing.reads.rewrite import HOOKS, rewritten
from ridgeline.tracing.reads.source import FUTURE, Function, definition

_OUTER = "__outer__"
_MOST = 20_000  # code objects remembered
# The reporting form of each code object, by its id: equal ones may come from different files.
_codes: dict[int, tuple[CodeType, CodeType | None]] = {}
_made: set[int] = set()  # all such forms, and those of functions inside them


def is_copy(function: FunctionType) -> bool:
    """True for a function that reports already."""
    return id(function.__code__) in _made


def copy_of(function: FunctionType, hooks: Any) -> FunctionType | None:
    """The function as one that reports to `hooks`; None where its text is not at hand."""
    code = function.__code__
    if id(code) not in _codes:
        if len(_codes) >= _MOST:
            _codes.clear()
            _made.clear()
        found = _reporting(code, function.__globals__)
        _codes[id(code)] = code, found
        _made.update(map(id, _nested(found)) if found is not None else ())
    made = _codes[id(code)][1]
    if made is None:
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    cells[HOOKS] = CellType(hooks)
    closure = tuple([cells[name] for name in made.co_freevars])
    copied = FunctionType(
        made, function.__globals__, function.__name__, function.__defaults__, closure
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    copied.__dict__ = function.__dict__  # one table: attributes are the original's
    return copied


def _reporting(code: CodeType, namespace: dict[str, Any]) -> CodeType | None:
    found = definition(code, namespace)
    if found is None:
        return None
    node = rewritten(found, frozenset(code.co_freevars))
    tree = _module(node, found.owner, [*code.co_freevars, HOOKS])
    outer = compile(tree, code.co_filename, "exec", flags=code.co_flags & FUTURE, dont_inherit=True)
    made = _inner(outer, code.co_name)
    known = {*code.co_freevars, HOOKS}
    if not known.issuperset(made.co_freevars) or made.co_argcount != code.co_argcount:
        return None
    return _renamed(made, made.co_qualname, code.co_qualname)


def _module(node: Function, owner: str, free: list[str]) -> ast.Module:
    """The function inside one that has its free variables, inside the class of its names."""
    body: list[ast.stmt] = [ast.Return(node)] if isinstance(node, ast.Lambda) else [node]
    empty = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    outer: ast.stmt = ast.FunctionDef(_OUTER, empty, body, [], None, None)
    if owner:
        outer = ast.ClassDef(owner, [], [], [outer], [])
    ast.copy_location(outer, node)
    return ast.fix_missing_locations(ast.Module([outer], []))


def _inner(code: CodeType, name: str) -> CodeType:
    """The code of the function inside those that were put around it."""
    outer = next(found for found in _nested(code) if found.co_name == _OUTER)
    return next(c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _renamed(code: CodeType, before: str, after: str) -> CodeType:
    """The code with the qualified names that it has in its file, and all code inside it."""
    consts = tuple(
        _renamed(const, before, after) if isinstance(const, CodeType) else const
        for const in code.co_consts
    )
    name = code.co_qualname
    name = after + name[len(before) :] if name.startswith(before) else name
    return code.replace(co_consts=consts, co_qualname=name)


def _nested(code: CodeType) -> list[CodeType]:
    found = [code]
    for current in found:
        found += [const for const in current.co_consts if isinstance(const, CodeType)]
    return found
