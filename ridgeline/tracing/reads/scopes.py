"""Which names of a function are local to it, and which are looked up in its module."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)


class Scope:
    """The names that a function, a class body or a comprehension binds."""

    def __init__(self, bound: Iterable[str], declared: Iterable[str] = (), kind: str = "") -> None:
        self.declared = set(declared)  # global or nonlocal
        self.bound = set(bound) - self.declared
        self.kind = kind  # "class": seen by its own statements only


def function_scope(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Scope:
    """The scope of a function."""
    every = node.args
    names = [a.arg for a in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
    names += [a.arg for a in (every.vararg, every.kwarg) if a is not None]
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    return Scope([*names, *_bound(body)], _declared(body))


def class_scope(node: ast.ClassDef) -> Scope:
    """The scope of a class body."""
    implied = ("__module__", "__qualname__")
    return Scope([*_bound(list(node.body)), *implied], _declared(list(node.body)), "class")


def comprehension_scope(node: Comprehension) -> Scope:
    """The scope of a comprehension: the targets of its loops."""
    return Scope(name for part in node.generators for name in _bound([part.target]))


def is_global(name: str, scopes: list[Scope], free: frozenset[str]) -> bool:
    """True for a name that is looked up in the module and in the built-in names."""
    for depth, scope in enumerate(reversed(scopes)):
        if name in scope.declared:
            return name not in free and not any(name in s.bound for s in scopes[:-1])
        if name in scope.bound and (scope.kind != "class" or depth == 0):
            return False
    return name not in free


def _within(body: list[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the scopes inside it."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _SCOPES):
            stack += ast.iter_child_nodes(node)
        elif isinstance(node, COMPREHENSIONS):
            stack += [found for found in ast.walk(node) if isinstance(found, ast.NamedExpr)]
            stack.append(node.generators[0].iter)
        elif isinstance(node, ast.Lambda):
            stack += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        else:
            stack += node.decorator_list
            if isinstance(node, ast.ClassDef):
                stack += [*node.bases, *(k.value for k in node.keywords)]
            else:
                stack += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]


def _bound(body: list[ast.AST]) -> Iterator[str]:
    for node in _within(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _declared(body: list[ast.AST]) -> Iterator[str]:
    for node in _within(body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
