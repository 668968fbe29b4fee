"""A kernel's text as a Python generator that stops wherever others could notice it."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np


class Unsupported(Exception):
    """A construct that this interpreter does not know."""


@dataclass(frozen=True)
class Op:
    """What a thread wants done before it goes on."""

    name: str
    line: int
    array: Any = None
    index: tuple[int, ...] = ()
    value: Any = None
    compare: Any = None
    scope: str = "device"
    order: str = "relaxed"
    guarded: bool = False
    turns: tuple[int, ...] = ()
    mask: int | None = None
    width: int = 32


def signature(function: ast.FunctionDef, arguments: Any, keywords: Any) -> tuple[Any, Any]:
    """Arrays (values, type, whether they hold something) and numbers by parameter."""
    given = list(arguments)
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    sizes: dict[str, int] = dict(keywords)
    made: list[tuple[str, str, list[str]]] = []
    defaults = [None] * (len(function.args.args) - len(function.args.defaults))
    for parameter, default in zip(function.args.args, [*defaults, *function.args.defaults]):
        text = ast.unparse(parameter.annotation) if parameter.annotation else ""
        kind, _, names = text.removeprefix("inout[").removeprefix("out[").partition("[")
        axes = names.strip("]'").split()
        if text.startswith("const"):
            known = ast.literal_eval(default) if default is not None else None
            scalars[parameter.arg] = keywords.get(parameter.arg, known)
        elif text.startswith("out["):
            made.append((parameter.arg, kind, axes))
            arrays[parameter.arg] = None
        elif axes:
            value = np.asarray(given.pop(0))
            arrays[parameter.arg] = (value, kind, True)
            sizes |= dict(zip(axes, value.shape))
        else:
            scalars[parameter.arg] = given.pop(0)
    for name, kind, axes in made:
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in axes]
        arrays[name] = (np.zeros(shape, np.int64), kind, False)
    return arrays, scalars


BARRIERS = {"syncthreads", "grid_sync", "syncthreads_count", "syncthreads_or", "syncthreads_and"}
FENCES = {"fence", "threadfence", "threadfence_block", "threadfence_system"}
LANES = {"shfl", "shfl_up", "shfl_down", "shfl_xor", "ballot", "any", "all", "warp_sum",
         "warp_max", "warp_min", "match", "activemask"}  # fmt: skip
ATOMIC = {f"atomic_{op}" for op in ("add", "sub", "min", "max", "and", "or", "xor", "inc", "dec",
                                    "exch", "cas", "load", "store")}  # fmt: skip
REFUSED = {"cp_async", "volatile_load", "volatile_store", "remote", "cluster_sync", "load2",
           "load4", "load8", "store2", "store4", "store8", "bitcast", "dynamic", "cluster_rank",
           "wmma", "constant"}  # fmt: skip


class ThreadText(ast.NodeTransformer):
    """Turns a kernel into a generator that yields an `Op` for everything that others can see."""

    def __init__(
        self, function: ast.FunctionDef, functions: set[str], device: bool = False
    ) -> None:
        self.function, self.functions, self.device = function, functions, device
        self.loops: list[int] = []
        self.count = itertools.count()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.Tuple)):
                self._note_arrays(node)

    def _note_arrays(self, node: ast.Assign) -> None:
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        for target, value in zip(targets, values):
            if isinstance(value, ast.Call) and _called(value) in ("shared", "local"):
                assert isinstance(target, ast.Name)
                value.args.append(ast.Constant(f"{target.id}:{node.lineno}"))

    def compiled(self) -> ast.Module:
        function = self.function
        function.decorator_list = []
        for parameter in function.args.args:
            parameter.annotation = None
        function.args.defaults = []
        function.returns = None
        self.generic_visit(function)
        nothing = ast.parse("if False:\n    yield None").body
        function.body += nothing
        return ast.fix_missing_locations(ast.Module([function], []))

    def _op(self, node: ast.AST, name: str, **parts: ast.expr | None) -> ast.expr:
        keywords = [ast.keyword(key, value) for key, value in parts.items() if value is not None]
        made = ast.Call(ast.Name("_Op", ast.Load()),
                        [ast.Constant(name), ast.Constant(getattr(node, "lineno", 0))],
                        keywords)  # fmt: skip
        return ast.Yield(made)

    def _place(self, node: ast.expr) -> tuple[ast.expr, ast.expr]:
        """The array and the index of an element."""
        assert isinstance(node, ast.Subscript)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return node.value, ast.Tuple([self.visit(part) for part in parts], ast.Load())

    def _is_element(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not self._is_element(node):
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise Unsupported("elements assigned in another way")
        array, index = self._place(node)
        return self._op(node, "read", array=array, index=index)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(isinstance(target, ast.Tuple) and any(map(self._is_element, target.elts))
               for target in node.targets):  # fmt: skip
            raise Unsupported("elements assigned as a tuple")
        if len(node.targets) == 1 and self._is_element(node.targets[0]):
            return self._store(node, node.targets[0], self.visit(node.value))
        return self.generic_visit(node)

    def _store(self, node: ast.AST, target: ast.expr, value: ast.expr) -> ast.Expr:
        array, index = self._place(target)
        return ast.Expr(self._op(node, "write", array=array, index=index, value=value))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not self._is_element(node.target):
            return self.generic_visit(node)
        assert isinstance(node.target, ast.Subscript)
        again = ast.Subscript(node.target.value, node.target.slice, ast.Load())
        value = ast.BinOp(self.visit(again), node.op, self.visit(node.value))
        return self._store(node, ast.parse(ast.unparse(node.target), mode="eval").body, value)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._loop(node)

    def _loop(self, node: Any) -> Any:
        number = next(self.count)
        self.loops.append(number)
        made = self.generic_visit(node)
        self.loops.pop()
        made.body.insert(0, ast.parse(f"_turn(_turns, {number})").body[0])
        return [ast.parse(f"_turns[{number}] = 0").body[0], made]

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.device:
            return self.generic_visit(node)
        return [ast.parse(f"_turns['left'] = {node.lineno}").body[0], node]  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called(node)
        if name in self.functions:
            return ast.YieldFrom(self.generic_visit(node))  # type: ignore[arg-type]
        if name in REFUSED or (isinstance(node.func, ast.Attribute) and _is_wmma(node.func)):
            raise Unsupported(name)
        if name in ATOMIC:
            return self._atomic(node, name)
        if name in BARRIERS | FENCES | {"syncwarp"}:
            return self._sync(node, name)
        if name in LANES:
            return self._lanes(node, name)
        if name in ("get", "put") and isinstance(node.func, ast.Attribute):
            return self._guarded(node, name)
        return self.generic_visit(node)

    def _guarded(self, node: ast.Call, name: str) -> ast.expr:
        assert isinstance(node.func, ast.Attribute)
        array = node.func.value
        *index, value = [self.visit(part) for part in node.args]
        given = {kw.arg: self.visit(kw.value) for kw in node.keywords}
        if given:
            raise Unsupported("keywords of get and put")
        return self._op(node, "read" if name == "get" else "write", array=array, value=value,
                        index=ast.Tuple(index, ast.Load()), guarded=ast.Constant(True))  # fmt: skip

    def _atomic(self, node: ast.Call, name: str) -> ast.expr:
        named = {kw.arg: self.visit(kw.value) for kw in node.keywords}
        rest = list(node.args)
        first = rest.pop(0)
        if self._is_element(first):
            array, index = self._place(first)
        else:
            array = first
            given = rest.pop(0)
            parts = given.elts if isinstance(given, ast.Tuple) else [given]
            index = ast.Tuple([self.visit(part) for part in parts], ast.Load())
        values = [self.visit(part) for part in rest]
        compare = values.pop(0) if name == "atomic_cas" and len(values) > 1 else None
        compare = compare or named.get("compare")
        value = values[0] if values else named.get("value")
        return self._op(node, name, array=array, index=index, value=value, compare=compare,
                        scope=named.get("scope"), order=named.get("order"))  # fmt: skip

    def _sync(self, node: ast.Call, name: str) -> ast.expr:
        turns = ast.Tuple([ast.parse(f"_turns[{n}]", mode="eval").body for n in self.loops],
                          ast.Load())  # fmt: skip
        value = self.visit(node.args[0]) if node.args else None
        named = {kw.arg: self.visit(kw.value) for kw in node.keywords}
        if name == "syncwarp":
            return self._op(node, name, mask=value or named.get("mask"))
        if "fence" in name:
            scope = named.get("scope") or value
            scope = scope or ast.Constant("block" if name.endswith("block") else "device")
            return self._op(node, "fence", scope=scope)
        return self._op(node, name, value=value, turns=turns)

    def _lanes(self, node: ast.Call, name: str) -> ast.expr:
        named = {kw.arg: self.visit(kw.value) for kw in node.keywords}
        values = [self.visit(part) for part in node.args]
        value = values[0] if values else None
        compare = values[1] if len(values) > 1 else next(
            (named[k] for k in ("lane", "delta", "lane_mask") if k in named), None)  # fmt: skip
        return self._op(node, name, value=value, compare=compare, mask=named.get("mask"),
                        width=named.get("width"))  # fmt: skip


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_wmma(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Attribute) and node.value.attr == "wmma"
