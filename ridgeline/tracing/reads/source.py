"""The syntax tree of a function, found by its code object and checked against it.

A file may have been edited since it was loaded, so its text counts only if compiling it gives the
very code that runs.
"""

from __future__ import annotations
import __future__

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_REWRITERS = ("AssertionRewritingHook",)  # loaders that compile something else than the text


@dataclass(frozen=True, slots=True)
class Definition:
    """A function in its file: its syntax and the class whose private names it uses."""

    node: Function
    owner: str  # the innermost class around it, or an empty text


class _File:
    """The functions of one text: their syntax, and the code that it compiles to."""

    def __init__(self, text: str, name: str, flags: int) -> None:
        tree = ast.parse(text)
        self.definitions: dict[tuple[str, int], list[Definition]] = {}
        self.codes: dict[tuple[str, int], list[CodeType]] = {}
        for found in _definitions(tree):
            self.definitions.setdefault(_place(found.node), []).append(found)
        for code in _nested(compile(tree, name, "exec", flags, dont_inherit=True)):
            self.codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)


# By name and flags of the compiler, with the text that was read.
_files: dict[tuple[str, int], tuple[str, _File | None]] = {}
FUTURE = __future__.annotations.compiler_flag  # the one that changes what is compiled


def definition(code: CodeType, namespace: dict[str, Any]) -> Definition | None:
    """The syntax of a function; None where its text is not at hand or is another one."""
    file = _file(code.co_filename, code.co_flags & FUTURE, namespace)
    if file is None:
        return None
    key = (code.co_name, code.co_firstlineno)
    found, made = file.definitions.get(key, []), file.codes.get(key, [])
    if code not in made:
        if not _is_rewritten(namespace) or not any(_may_become(one, code) for one in made):
            return None
        found = [one for one in found if any(isinstance(n, ast.Assert) for n in ast.walk(one.node))]
    if len(found) > 1:
        found = _innermost(found, code)
    return found[0] if len(found) == 1 else None


def _file(name: str, flags: int, namespace: dict[str, Any]) -> _File | None:
    frozen = namespace.get("__file__") if name.startswith("<frozen ") else None
    text = "".join(linecache.getlines(frozen or name, namespace)) or _command(name)
    known = _files.get((name, flags))
    if known is None or known[0] != text:
        try:
            made = _File(text, name, flags) if text else None
        except (SyntaxError, ValueError, RecursionError):
            made = None
        known = _files[name, flags] = text, made
    return known[1]


def _command(name: str) -> str:
    """The program that was given on the command line, or in a file as standard input."""
    if name == "<string>" and "-c" in sys.orig_argv:
        given = sys.orig_argv[sys.orig_argv.index("-c") + 1 :]
        return given[0] if given else ""
    if name == "<stdin>":
        try:
            return os.pread(0, os.fstat(0).st_size, 0).decode()
        except (OSError, ValueError):  # a pipe or a terminal, which cannot be read again
            return ""
    return ""


def _is_rewritten(namespace: dict[str, Any]) -> bool:
    loader = namespace.get("__loader__") or getattr(namespace.get("__spec__"), "loader", None)
    return type(loader).__name__ in _REWRITERS


def _may_become(before: CodeType, after: CodeType) -> bool:
    """Whether code may be another's with its assertions written out: that adds names and values."""

    def parameters(code: CodeType) -> tuple[str, ...]:
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] + code.co_freevars

    names = {*after.co_names, *after.co_varnames, *after.co_cellvars}
    values = [(type(value), value) for value in after.co_consts]
    return (
        parameters(before) == parameters(after)
        and {*before.co_names, *before.co_varnames} <= names
        and all((type(v), v) in values for v in before.co_consts if not isinstance(v, CodeType))
    )


def _definitions(tree: ast.AST) -> Iterator[Definition]:
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, owner = stack.pop()
        if isinstance(node, ast.ClassDef):
            owner = node.name
        elif isinstance(node, _FUNCTIONS):
            yield Definition(node, owner)
        stack += [(child, owner) for child in ast.iter_child_nodes(node)]


def _place(node: Function) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    first = node.decorator_list[0] if node.decorator_list else node
    return node.name, first.lineno


def _nested(code: CodeType) -> Iterator[CodeType]:
    stack = [code]
    while stack:
        current = stack.pop()
        yield current
        stack += [const for const in current.co_consts if isinstance(const, CodeType)]


def _extent(node: Function) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the body of a function begins and ends."""
    body = node.body if isinstance(node, ast.Lambda) else node
    first = (body.lineno, body.col_offset)
    return first, (body.end_lineno or 0, body.end_col_offset or 0)


def _innermost(found: list[Definition], code: CodeType) -> list[Definition]:
    """Of several functions on one line the smallest from which all of the instructions come."""
    starts = [
        ((line, column), (end, until))
        for line, end, column, until in code.co_positions()
        if line is not None and end is not None and column is not None and until
    ]
    around = [
        one
        for one in found
        if all(_extent(one.node)[0] <= p[0] and p[1] <= _extent(one.node)[1] for p in starts)
    ]
    return [
        one
        for one in around
        if not any(_extent(one.node)[0] < _extent(o.node)[0] for o in around if o is not one)
    ]
