"""Kernels with one thing changed: a barrier taken out, a guard widened, an atomic made plain.

Nothing says what a change does to a kernel: that is decided by `tests/simt/reference.py`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = Callable[[ast.AST], Iterator[ast.AST | None]]


@dataclass(frozen=True)
class Mutant:
    """A changed text, and what was changed where."""

    what: str
    text: str


def _calls(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _statement_calls(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Expr) and _calls(node.value, *names)


SYNCS = ("syncthreads", "syncwarp", "threadfence", "threadfence_block", "grid_sync")


def _without_syncs(node: ast.AST) -> Iterator[ast.AST]:
    if _statement_calls(node, *SYNCS):
        yield ast.Pass()


def _other_syncs(node: ast.AST) -> Iterator[ast.AST]:
    others = {"syncthreads": "syncwarp()", "syncwarp": "syncthreads()",
              "threadfence": "threadfence_block()", "grid_sync": "syncthreads()",
              "threadfence_block": "threadfence()"}  # fmt: skip
    for name, other in others.items():
        if _statement_calls(node, name):
            yield ast.parse(other).body[0]


def _guarded_syncs(node: ast.AST) -> Iterator[ast.AST]:
    if _statement_calls(node, "syncthreads", "syncwarp"):
        for guard in ("threadIdx.x < 32", "threadIdx.x > 0"):
            yield ast.If(ast.parse(guard, mode="eval").body, [node], [])  # type: ignore[list-item]


def _more_syncs(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.If)):
        for name in ("syncthreads", "syncwarp"):
            yield ast.If(ast.Constant(True), [node, ast.parse(f"{name}()").body[0]], [])


def _plain(node: ast.AST) -> Iterator[ast.AST]:
    """Atomics as plain accesses."""
    call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
    if call is None or not _calls(call, "atomic_add", "atomic_exch", "atomic_store", "atomic_load"):
        return
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    rest = list(call.args)
    element = rest.pop(0)
    if not isinstance(element, ast.Subscript):
        element = ast.Subscript(element, rest.pop(0), ast.Load())
    read = ast.unparse(element)
    lines = []
    if isinstance(node, ast.Assign):
        lines.append(f"{ast.unparse(node.targets[0])} = {read}")
    if call.func.id != "atomic_load":
        sign = "+=" if call.func.id == "atomic_add" else "="
        lines.append(f"{read} {sign} {ast.unparse(rest[0])}")
    yield ast.If(ast.Constant(True), ast.parse("\n".join(lines)).body, [])


def _scopes(node: ast.AST) -> Iterator[ast.AST]:
    atomics = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if atomics and node.func.id.startswith("atomic_"):
        kept = [word for word in node.keywords if word.arg != "scope"]
        scope = ast.keyword("scope", ast.Constant("block"))
        yield ast.Call(node.func, node.args, [*kept, scope])
        if len(kept) < len(node.keywords):
            yield ast.Call(node.func, node.args, kept)
        if any(word.arg == "order" for word in node.keywords):
            yield ast.Call(node.func, node.args, [w for w in kept if w.arg != "order"])


_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.LtE,
             ast.NotEq: ast.Gt}  # fmt: skip


def _comparisons(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)


def _indices(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if isinstance(node.slice, ast.Tuple):
            return
        for sign in (ast.Add(), ast.Sub()):
            moved = ast.BinOp(node.slice, sign, ast.Constant(1))
            yield ast.Subscript(node.value, moved, node.ctx)


def _numbers(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        if node.value > 0:
            yield ast.Constant(node.value - 1)


def _guards(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If):
        yield ast.If(ast.Constant(True), node.body, [])


def _steps(node: ast.AST) -> Iterator[ast.AST]:
    """Two statements the other way round."""
    for name in ("body", "orelse"):
        body = getattr(node, name, None)
        if not isinstance(body, list):
            continue
        for first in range(len(body) - 1):
            made = copy.copy(node)
            setattr(made, name, [*body[:first], body[first + 1], body[first], *body[first + 2 :]])
            yield made


CHANGES: dict[str, Change] = {
    "sync removed": _without_syncs,
    "sync of another kind": _other_syncs,
    "sync guarded": _guarded_syncs,
    "sync added": _more_syncs,
    "atomic made plain": _plain,
    "other scope": _scopes,
    "comparison": _comparisons,
    "index": _indices,
    "number": _numbers,
    "guard removed": _guards,
    "order of statements": _steps,
}


class _Replace(ast.NodeTransformer):
    """Puts one node in place of another one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return self.new
        if isinstance(node, ast.arguments):
            return node  # types of parameters stay
        return self.generic_visit(node)


def mutants(text: str) -> Iterator[Mutant]:
    """All changes of one place of a kernel."""
    many = len(list(ast.walk(ast.parse(text))))
    for number in range(many):
        for what, change in CHANGES.items():
            turn = 0
            while True:
                tree = ast.parse(text)
                node = list(ast.walk(tree))[number]
                found = list(change(node))
                if turn >= len(found):
                    break
                changed = _Replace(node, found[turn]).visit(tree)
                turn += 1
                try:
                    made = ast.unparse(ast.fix_missing_locations(changed))
                except (TypeError, AttributeError):
                    continue
                if made != ast.unparse(ast.parse(text)):
                    yield Mutant(f"{what} at {getattr(node, 'lineno', 0)}", made)
