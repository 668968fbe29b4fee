"""Statements of compiled functions as LLVM IR."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

from ridgeline.codegen.cpython import calls
from ridgeline.codegen.cpython.builder import IrValue, Kind, Raw, class_of, held_by
from ridgeline.codegen.cpython.expressions import ExpressionTranslator, Untranslatable
from ridgeline.codegen.cpython.helpers import BAIL
from ridgeline.codegen.cpython.unit import Unit

_IMPORTED = time.time()


class FunctionTranslator(ExpressionTranslator):
    """Translates one function."""

    of_python = calls.OF_PYTHON
    primitives = calls.PRIMITIVES

    def __init__(self, unit: Unit, function: FunctionType) -> None:
        super().__init__(unit, function)
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self._tree = tree = source_of(function)
        self._types_of = _types_of(tree)
        self.result = unit.kind(function.__annotations__.get("return"))

    def translated(self, symbol: str) -> str:
        """The function as IR."""
        parameters: list[str] = []
        for argument in self._tree.args.args:
            annotation = self.function.__annotations__.get(argument.arg)
            if argument.arg == "self":
                annotation = self.function.__qualname__.partition(".")[0]
            kind = self.unit.kind(annotation)
            value = IrValue(f"%given.{argument.arg}", Raw.BIT if kind is bool else kind)
            parameters.append(value.typed)
            self.assign(argument.arg, value)
        if self.function.__name__ == "__init__":
            self.made.add("self")
        self.block(self._tree.body)
        self._return(self.constant(None) if self.result is not bool else IrValue("false", Raw.BIT))
        self.code.start("bail")
        self.code.give(f"i8 {BAIL}" if self.result is bool else "ptr null")
        given = ", ".join(["ptr %pool", *parameters])
        gives = "i8" if self.result is bool else "ptr"
        return self.code.text(f"define internal {gives} {symbol}({given})")

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Statements one after the other."""
        for statement in body:
            method: Callable[[Any], None] | None = getattr(
                self, f"_{type(statement).__name__}", None
            )
            if method is None:
                raise self.error(
                    statement, f"no compiled function may use {type(statement).__name__}"
                )
            method(statement)

    # ---- assignments ----------------------------------------------------------------------------

    def assign(self, name: str, value: IrValue) -> None:
        """Give a local variable a value."""
        if name not in self.places:
            self.places[name] = self.code.variable(name, value.type), value.type
        place, llvm = self.places[name]
        if value.type != llvm:
            value = self.box(value) if llvm == "ptr" else self._raw(value, llvm)
        if value.kind is not None or name not in self.kinds:
            self.kinds[name] = value.kind
        self.made.discard(name)
        self.known = frozenset(pair for pair in self.known if pair[0] != name)
        self.code.do(f"store {value.typed}, ptr {place}")

    def _raw(self, value: IrValue, llvm: str) -> IrValue:
        return self.bit(value) if llvm == Raw.BIT.value else self.number(value)

    def _Assign(self, node: ast.Assign) -> None:
        value: Any = node.value
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                parts = [self.value(part) for part in value.elts]
                for name, part in zip(target.elts, parts):
                    self._store(name, part)
            else:
                self._store_in_all(node.targets, self.value(value), value)
                return

    def _store_in_all(self, targets: Sequence[ast.expr], value: IrValue, source: ast.expr) -> None:
        for target in targets:
            self._store(target, value)
            if isinstance(target, ast.Name) and _makes(self.function, source):
                self.made.add(target.id)

    def _store(self, target: ast.expr, value: IrValue) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Attribute):
            self._put(target, self.box(value))
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            self.check(owner, dict)
            key, given = self.boxed(target.slice), self.box(value)
            self.note_change(target.value)
            pair = f"ptr {key.text}, ptr {given.text}"
            status = self.code.let(f"call i32 @PyDict_SetItem(ptr {owner.text}, {pair})").text
            self.bail_if(self.code.let(f"icmp ne i32 {status}, 0").text)
        elif isinstance(target, ast.Tuple):
            self._unpack(target, value)
        else:
            raise self.error(target, "an assignment to this")

    def _put(self, target: ast.Attribute, value: IrValue) -> None:
        """Fill a slot."""
        owner = self.value(target.value)
        slots = self.unit.slots(owner.kind)
        if target.attr not in slots:
            raise self.error(target, f"nothing is known of .{target.attr} of {owner.kind}")
        self.check(owner, owner.kind)
        if target.attr not in self.unit.scratch:
            self.note_change(target.value)
        self.put(owner, target.attr, value)

    def _unpack(self, target: ast.Tuple, value: IrValue) -> None:
        size = self.size(value).text
        self.bail_if(self.code.let(f"icmp ne i64 {size}, {len(target.elts)}").text)
        for index, part in enumerate(target.elts):
            found = self.item_inside(value, IrValue(str(index), Raw.INT))
            self._store(part, IrValue(found.text, held_by(value.kind, index)))

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        assert isinstance(node.target, ast.Name)
        kind = self.unit.kind(ast.unparse(node.annotation))
        if node.value is None:
            raise self.error(node, "a declaration without a value")
        value = self.value(node.value)
        if not isinstance(value.kind, Raw) and kind is not None:
            value = IrValue(value.text, kind)
        self._store_in_all([node.target], value, node.value)

    def _AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.value, ast.List):
            items = self.boxed(node.target)
            self.check(items, list)
            self.note_change(node.target)
            for part in node.value.elts:
                self.append(items, self.boxed(part))
            return
        load: Any = ast.parse(ast.unparse(node.target), mode="eval").body
        self._store(node.target, self.value(ast.BinOp(load, node.op, node.value)))

    # ---- control flow ---------------------------------------------------------------------------

    def _If(self, node: ast.If) -> None:
        yes, no, done = map(self.code.fresh, ("then", "else", "done"))
        self.truth(node.test, yes, no)
        before, known, made = self.kinds.copy(), self.known, self.made.copy()
        is_so, is_not = self.narrowed(node.test)
        self.code.start(yes)
        self.kinds |= is_so
        self.block(node.body)
        after, reached, one, held = self.kinds, self.code.open, self.known, self.made
        self.code.jump(done)
        self.code.start(no)
        self.kinds = {**self.kinds, **before, **is_not}
        self.known, self.made = known, made
        self.block(node.orelse)
        falls = self.code.open
        self.code.start(done)
        if reached:
            otherwise = self.kinds if falls else after
            self.kinds = self._met(after, otherwise, before)
            self.known = self.known & one if falls else one
            self.made = self.made & held if falls else held

    def _met(
        self, one: dict[str, Kind], other: dict[str, Kind], before: dict[str, Kind]
    ) -> dict[str, Kind]:
        """What is known of variables where two ways meet."""
        found: dict[str, Kind] = {}
        for name in {**one, **other}:
            a, b = one.get(name), other.get(name)
            found[name] = a if a is b else before.get(name, a if b in (None, type(None)) else b)
        return found

    def narrowed(self, test: ast.expr) -> tuple[dict[str, Kind], dict[str, Kind]]:
        """What a test says of the classes of variables, where it holds and where not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            is_so, is_not = self.narrowed(test.operand)
            return is_not, is_so
        if isinstance(test, ast.BoolOp):
            parts = [self.narrowed(part) for part in test.values]
            every = isinstance(test.op, ast.And)
            both: dict[str, Kind] = {}
            for part in parts:
                both |= part[0 if every else 1]
            return (both, {}) if every else ({}, both)
        found = self._tested(test)
        if found is None:
            return {}, {}
        name, kind, holds = found
        return ({name: kind}, {}) if holds else ({}, {name: kind})

    def _tested(self, test: ast.expr) -> tuple[str, Kind, bool] | None:
        """The variable that a test is about, the class, and whether it is of it where it holds."""
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name):
            if test.func.id == "isinstance" and isinstance(test.args[0], ast.Name):
                kind = test.args[1]
                if isinstance(kind, ast.Name):
                    return test.args[0].id, self.global_object(kind), True
            return None
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Is | ast.IsNot):
            return None
        right, left = test.comparators[0], test.left
        if isinstance(right, ast.Name) and right.id not in self.places:
            kind = self.global_object(right)
            name = self._typed(left)
            if name is not None and isinstance(kind, type):
                return name, kind, isinstance(test.ops[0], ast.Is)
        return None

    def _typed(self, node: ast.expr) -> str | None:
        """The variable of `type(variable)`, or of another one that holds that."""
        if isinstance(node, ast.Name):
            return self._types_of.get(node.id)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        of = node.args[0] if node.func.id == "type" else None
        return of.id if isinstance(of, ast.Name) else None

    def _While(self, node: ast.While) -> None:
        head, body, done = map(self.code.fresh, ("while", "body", "done"))
        self.code.start(head)
        self._forget_assigned(node)
        self.truth(node.test, body, done)
        self._looped(node.body, body, head, done)
        self.block(node.orelse)

    def _looped(self, body: Sequence[ast.stmt], label: str, again: str, done: str) -> None:
        before, known, made = self.kinds.copy(), self.known, self.made.copy()
        self._loops.append((again, done))
        self.code.start(label)
        self.block(body)
        self.code.jump(again)
        self._loops.pop()
        self.kinds, self.known, self.made = {**self.kinds, **before}, known, made
        self.code.start(done)

    def _forget_assigned(self, loop: ast.AST) -> None:
        """At the head of a loop nothing is known of what it assigns."""
        names = {
            n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store
        }
        self.known = frozenset(pair for pair in self.known if pair[0] not in names)
        self.made -= names

    def _For(self, node: ast.For) -> None:
        if node.orelse:
            raise self.error(node, "an else of a loop")
        source = node.iter
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            self._over_items(node, source.func)
        elif isinstance(source, ast.Call) and isinstance(source.func, ast.Name):
            if source.func.id != "zip" or not isinstance(node.target, ast.Tuple):
                raise self.error(node, "a loop over this")
            self._over(node, [self.value(part) for part in source.args], node.target.elts)
        else:
            self._over(node, [self.value(source)], [node.target])

    def _over(
        self, node: ast.For, sequences: Sequence[IrValue], targets: Sequence[ast.expr]
    ) -> None:
        """A loop over tuples or lists, in step, that nobody changes meanwhile."""
        index = self.code.variable("index", "i64")
        self.code.do(f"store i64 -1, ptr {index}")
        sizes = [self.size(sequence).text for sequence in sequences]
        head, body, done = map(self.code.fresh, ("for", "body", "done"))
        self.code.start(head)
        self._forget_assigned(node)
        now = self.code.let(f"load i64, ptr {index}").text
        here = self.code.let(f"add i64 {now}, 1", Raw.INT)
        self.code.do(f"store {here.typed}, ptr {index}")
        for size in sizes:
            further = self.code.fresh("more")
            more = self.code.let(f"icmp slt i64 {here.text}, {size}").text
            self.code.branch(more, further, done)
            self.code.start(further)
        for sequence, target in zip(sequences, targets):
            self._store(target, self.item_inside(sequence, here))
        self._looped(node.body, body, head, done)

    def _over_items(self, node: ast.For, called: ast.Attribute) -> None:
        """A loop over the items of a dictionary."""
        table = self.value(called.value)
        if class_of(table.kind) is not dict or called.attr != "items":
            raise self.error(node, "a loop over this")
        assert isinstance(node.target, ast.Tuple)
        self.check(table, dict)
        place, key, value = (self.code.variable(n, t) for n, t in (
            ("place", "i64"), ("key", "ptr"), ("item", "ptr"),
        ))  # fmt: skip
        self.code.do(f"store i64 0, ptr {place}")
        head, body, done = map(self.code.fresh, ("for", "body", "done"))
        self.code.start(head)
        self._forget_assigned(node)
        found = self.code.let(
            f"call i32 @PyDict_Next(ptr {table.text}, ptr {place}, ptr {key}, ptr {value})"
        ).text
        more = self.code.let(f"icmp ne i32 {found}, 0").text
        further = self.code.fresh("more")
        self.code.branch(more, further, done)
        self.code.start(further)
        for target, held, kind in zip(node.target.elts, (key, value), (None, held_by(table.kind))):
            self._store(target, self.code.let(f"load ptr, ptr {held}", kind))
        self._looped(node.body, body, head, done)

    def _Break(self, node: ast.Break) -> None:
        self.code.jump(self._loops[-1][1])

    def _Continue(self, node: ast.Continue) -> None:
        self.code.jump(self._loops[-1][0])

    def _Return(self, node: ast.Return) -> None:
        if self.result is bool:
            found = IrValue("false", Raw.BIT) if node.value is None else self.value(node.value)
            self._return(self.bit(found))
        else:
            self._return(self.constant(None) if node.value is None else self.boxed(node.value))

    def _return(self, value: IrValue) -> None:
        if self.result is bool:
            wide = self.code.let(f"zext i1 {value.text} to i8").text
            self.code.give(f"i8 {wide}")
        else:
            self.code.give(value.typed)

    def _Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _Pass(self, node: ast.Pass) -> None:
        pass


def source_of(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function."""
    code = function.__code__
    tree = _functions_in(code.co_filename).get(code.co_firstlineno)
    if tree is None or tree.name != code.co_name:
        raise Untranslatable(f"{code.co_filename} is not there as source")
    return tree


@lru_cache(maxsize=64)
def _functions_in(file: str) -> Mapping[int, ast.FunctionDef]:
    """The functions of a file by their first lines, which are those of decorators."""
    try:
        known = os.stat(file)
        tree = ast.parse(Path(file).read_bytes())
    except OSError as error:
        raise Untranslatable(f"there is no source: {error}") from None
    if max(known.st_mtime, known.st_ctime) > _IMPORTED:  # another version was installed, say
        raise Untranslatable(f"{file} has changed since the process began")
    bodies = [tree.body, *[node.body for node in tree.body if isinstance(node, ast.ClassDef)]]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    return {min([f.lineno, *[d.lineno for d in f.decorator_list]]): f for f in functions}


@lru_cache(maxsize=256)
def _gives_new(function: FunctionType) -> bool:
    """True for a function that gives an object which it makes."""
    nodes = [*ast.walk(source_of(function))]
    given = [node.value for node in nodes if isinstance(node, ast.Return)]
    names = {value.id for value in given if isinstance(value, ast.Name)}
    sources = [value for value in given if not isinstance(value, ast.Name)]
    sources += [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id in names
    ]
    return bool(sources) and all(_makes(function, s) for s in sources)


def _makes(function: FunctionType, source: ast.expr | None) -> bool:
    """True for an expression, in a function, that makes an object."""
    if not isinstance(source, ast.Call):
        return isinstance(source, ast.List)
    called, space = source.func, function.__globals__
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        owner = function.__qualname__.partition(".")[0] if called.value.id == "self" else ""
        found = getattr(space.get(owner), called.attr, None)
    else:
        local = isinstance(called, ast.Name) and called.id in function.__code__.co_varnames
        found = space.get(called.id) if isinstance(called, ast.Name) and not local else None
    if isinstance(found, FunctionType):
        return _gives_new(found)
    return found is object.__new__ or isinstance(found, type)


def _types_of(tree: ast.FunctionDef) -> dict[str, str]:
    """Variables that hold the types of others: assigned once, as `kind = type(value)`."""
    return {
        node.targets[0].id: node.value.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "type"
        and isinstance(node.value.args[0], ast.Name)
    }
