"""A function's source: its text, its tree with the file's own lines, and the names it can see."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import BadTypeError, BadValueError
from ridgeline.simt.frontend.prompt import typed_source
from ridgeline.simt.ir import SourceText

_COUNTER = itertools.count(1)


@dataclass(frozen=True)
class CapturedFunction:
    """A function as syntax, with the file's line numbers, and what its free names mean."""

    name: str
    tree: ast.FunctionDef
    source: SourceText
    function: Callable[..., Any]

    def binds_later(self, name: str) -> bool:
        """Whether the text around the function gives the name a value that it has not yet."""
        if name in self.function.__code__.co_freevars:
            return True
        try:
            text = "".join(linecache.getlines(self.source.path))
            module = ast.parse(text)
        except (SyntaxError, ValueError):
            return False
        return name in _bound(module.body)

    def names(self) -> Mapping[str, Any]:
        """What names mean where the function is defined, now: globals, then enclosing functions."""
        found = dict(self.function.__globals__)
        cells = self.function.__closure__ or ()
        for name, cell in zip(self.function.__code__.co_freevars, cells):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # assigned later in the enclosing function
                continue
        return found


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    """Names that statements of a module bind, outside of functions and classes."""
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield statement.name
                continue
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in statement.names)
                continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                yield node.name


def capture(function: Any) -> CapturedFunction:
    """The source of a function, or of a text that defines one."""
    if isinstance(function, str):
        function = defined_by(function)
    if not isinstance(function, types.FunctionType):
        raise BadTypeError(
            f"a kernel is a function or the text of one, not {function!r:.40}",
            help="write @simt.kernel above a def",
        )
    lines, first, path = _source(function)
    first = max(first, 1)
    text = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(lines[0].lstrip())
    tree = _definition(text, function.__name__, first, indent)
    numbered = SourceText(path, first, tuple(line.rstrip("\n") for line in lines))
    return CapturedFunction(function.__name__, tree, numbered, function)


def _source(function: types.FunctionType) -> tuple[list[str], int, str]:
    """A function's lines, the number of the first, and its file or where it was typed."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        typed = typed_source(function)
        if typed is None:
            raise BadValueError(
                f"the source of {function.__name__} is not to be found",
                note="Python's prompt keeps none, and its history has no text of this code",
                help='pass the text itself: simt.kernel("""def name(...): ...""")',
            ) from error
        return typed, 1, f"<typed {function.__name__}>"
    return lines, first, inspect.getsourcefile(function) or "<kernel>"


def _definition(text: str, name: str, first: int, indent: int) -> ast.FunctionDef:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            for inner in ast.walk(node):
                if isinstance(inner, (ast.expr, ast.stmt, ast.arg, ast.keyword)):
                    inner.lineno += first - 1
                    inner.col_offset += indent
            return node
    raise BadValueError(f"{name} is no def", help="a kernel is a function with a name")


def defined_by(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """The one function that a text defines; the kernel language is known in it by its names."""
    path = f"<kernel {next(_COUNTER)}>"
    text = textwrap.dedent(text)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope: dict[str, Any] = dict(names or {})
    try:
        exec(compile(text, path, "exec"), scope)
    except SyntaxError as error:
        raise BadValueError(f"the kernel's text is not Python: {error}") from error
    found = [
        v
        for k, v in scope.items()
        if isinstance(v, types.FunctionType) and v.__code__.co_filename == path
    ]
    if len(found) != 1:
        raise BadValueError(f"the text defines {len(found)} functions, and a kernel is one")
    return found[0]
