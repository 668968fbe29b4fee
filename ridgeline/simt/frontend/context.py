"""What the front end knows while it walks a kernel: names, types, and the statements so far."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeGuard, get_args

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.simt import language
from ridgeline.simt.frontend import conversion
from ridgeline.simt.frontend.conversion import TypeClash
from ridgeline.simt.frontend.outside import OutsideRead
from ridgeline.simt.frontend.problems import problem
from ridgeline.simt.frontend.source import CapturedFunction
from ridgeline.simt.ir import (
    Assign,
    Choose,
    Compute,
    Convert,
    ElementRead,
    Fragment,
    Number,
    SourcePlace,
    ThreadArray,
    ThreadExpr,
    ThreadStmt,
    Variable,
)
from ridgeline.simt.traversal import subexpressions


@dataclass(frozen=True)
class Static:
    """A value of Python's that is known while the kernel is compiled."""

    value: Any


@dataclass(frozen=True)
class Items:
    """Several values side by side."""

    items: tuple[KernelValue, ...]


@dataclass(frozen=True)
class PeerArray:
    """Shared memory of another block of the cluster."""

    array: ThreadArray
    peer: ThreadExpr


@dataclass(frozen=True)
class FreeAxis:
    """An axis of a part that is still to be indexed: where it starts, its size, and its step."""

    start: KernelValue
    size: KernelValue
    step: int = 1


@dataclass(frozen=True)
class ArrayPart:
    """Some elements of an array: along each axis one index, or those from a start on."""

    array: ThreadArray
    axes: tuple[FreeAxis | KernelValue, ...]


_EXPRESSIONS = get_args(ThreadExpr)
KernelValue: TypeAlias = (
    ThreadExpr | Static | Items | ThreadArray | ArrayPart | Fragment | PeerArray
)


@dataclass
class FunctionScope:
    """Names of one function: the kernel, or a device function that is being inlined."""

    captured: CapturedFunction
    outside: Mapping[str, Any]
    assignments: Mapping[str, int]  # how often the source assigns each name
    prefix: str = ""
    names: dict[str, KernelValue] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)  # variables that surely have a value here
    loop_variables: set[str] = field(default_factory=set)
    ended_loops: set[str] = field(default_factory=set)
    loops: int = 0
    is_kernel: bool = True
    results: list[Variable] | None = None  # of a device function, where its values go
    result_count: int = -1  # how many values it returns; -1 before the first return
    returned: Variable | None = None  # set where it returned from inside a loop
    blocks: int = 0  # how many were open when its body began
    whole: KernelValue | None = None  # what it returns for certain, where that is no number


@dataclass
class Context:
    """The state of one walk; the visitors of expressions and statements share it."""

    scope: FunctionScope
    outside_used: list[OutsideRead] = field(default_factory=list)
    blocks: list[list[ThreadStmt]] = field(default_factory=lambda: [[]])
    arrays: list[ThreadArray] = field(default_factory=list)
    fragments: list[Fragment] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    hint: str = "value"  # the name that the value being computed will have
    depth: int = 0  # of inlined device functions
    evaluate: Callable[[ast.expr], KernelValue] = field(default=lambda node: Static(None))

    def place(self, node: ast.AST) -> SourcePlace:
        """Where a node stands in the user's file."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return SourcePlace(self.scope.captured.source.path, line, column + 1)

    def fail(self, node: ast.AST, message: str, help: str = "") -> NoReturn:
        """Refuse what a node says."""
        raise self.refused(node, message, help) from None

    def refused(self, node: ast.AST, message: str, help: str = "") -> Exception:
        """The error for what a node says."""
        return problem(message, self.place(node), self.scope.captured.source, help)

    def clash(self, node: ast.AST, error: TypeClash) -> NoReturn:
        """Refuse types that do not go together."""
        self.fail(node, error.message, error.help)

    def emit(self, statement: ThreadStmt) -> None:
        """Append a statement to the current block."""
        self.blocks[-1].append(statement)

    @contextmanager
    def block(self) -> Iterator[list[ThreadStmt]]:
        """A block of its own for the statements emitted inside."""
        self.blocks.append([])
        try:
            yield self.blocks[-1]
        finally:
            self.blocks.pop()

    def unique(self, name: str) -> str:
        """The name, or one like it that nothing has yet."""
        found, number = name, 2
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def variable(self, name: str, dtype: DType) -> Variable:
        """A new variable of the program."""
        made = Variable(self.unique(self.scope.prefix + name), dtype)
        self.variables[made.name] = made
        return made

    def keep(self, value: ThreadExpr, node: ast.AST, name: str = "t") -> Variable:
        """The value in a variable of its own, so that it is evaluated here and once."""
        made = self.variable(name, value.dtype)
        self.emit(Assign(made, value, self.place(node)))
        return made

    def evaluate_in_order(self, nodes: list[ast.expr]) -> list[KernelValue]:
        """Operands from left to right; an element read before a later statement stays before it."""
        found: list[KernelValue] = []
        for node in nodes:
            start = len(self.blocks[-1])
            value = self.evaluate(node)
            if len(self.blocks[-1]) > start:
                found = self._kept_before(found, start, node)
            found.append(value)
        return found

    def _kept_before(
        self, values: list[KernelValue], start: int, node: ast.AST
    ) -> list[KernelValue]:
        kept: list[KernelValue] = []
        for value in values:
            if is_expr(value) and reads(value):
                made = self.variable("t", value.dtype)
                self.blocks[-1].insert(start, Assign(made, value, self.place(node)))
                start += 1
                value = made
            kept.append(value)
        return kept

    def expression(self, value: KernelValue, node: ast.AST) -> ThreadExpr:
        """The value as a typed expression; a Python number alone takes its own type."""
        if is_expr(value):
            return value
        if isinstance(value, Static) and isinstance(value.value, (bool, int, float)):
            try:
                return Number(value.value, conversion.alone(value.value))
            except TypeClash as error:
                self.clash(node, error)
        help = "only numbers can be computed with"
        if isinstance(value, Static) and isinstance(value.value, language.Triple):
            help = f"it has an x, a y and a z: {describe(value).removeprefix('simt.')}.x"
        raise self.refused(node, f"{describe(value)} is no number", help)

    def converted(self, value: KernelValue, dtype: DType, node: ast.AST, what: str) -> ThreadExpr:
        """The value as an expression of a type, where it becomes that by itself."""
        try:
            if isinstance(value, Static) and isinstance(value.value, (bool, int, float)):
                return Number(conversion.check_fits(value.value, dtype), dtype)
            found = self.expression(value, node)
            if found.dtype is dtype:
                return found
            if isinstance(found, Choose) and _are_numbers(found.then, found.otherwise):
                sides = [
                    Number(conversion.check_fits(side.value, dtype), dtype)
                    for side in (found.then, found.otherwise)
                    if isinstance(side, Number)
                ]
                return Choose(found.condition, *sides)
            if not conversion.converts(found.dtype, dtype):
                refused = conversion.refusal(found.dtype, dtype, what)
                raise TypeClash(refused.message, quotient_help(found, dtype) + refused.help)
            return Convert(found, dtype)
        except TypeClash as error:
            self.clash(node, error)

    def static(self, node: ast.expr, what: str, help: str = "") -> Any:
        """The value of an expression that must be known while the kernel is compiled."""
        value = self.evaluate(node)
        found = unwrapped(value)
        if found is NotImplemented:
            self.fail(node, f"{what} must be known when the kernel is compiled", help)
        return found


def quotient_help(expr: ThreadExpr, dtype: DType = dtypes.int32) -> str:
    """How to divide integers, where an expression for one has a / that gives a float."""
    quotients = (part for part in subexpressions(expr) if isinstance(part, Compute))
    has_one = any(part.name == "div" for part in quotients)
    return "// divides integers; or " if has_one and dtype.kind in ("int", "uint") else ""


def _are_numbers(*sides: ThreadExpr) -> bool:
    return all(isinstance(side, Number) for side in sides)


def is_expr(value: object) -> TypeGuard[ThreadExpr]:
    """True for typed expressions."""
    return isinstance(value, _EXPRESSIONS)


def unwrapped(value: KernelValue) -> Any:
    """The Python value of what is static, in tuples too; NotImplemented for anything else."""
    if isinstance(value, Static):
        return value.value
    if isinstance(value, Items):
        found = tuple(unwrapped(item) for item in value.items)
        return NotImplemented if any(item is NotImplemented for item in found) else found
    return NotImplemented


def reads(expr: ThreadExpr) -> bool:
    """True where evaluating the expression reads an array."""
    return any(isinstance(part, ElementRead) for part in subexpressions(expr))


def describe(value: object) -> str:
    """A few words on a value for messages."""
    if isinstance(value, ThreadArray):
        return f"the array {value.name}"
    if isinstance(value, ArrayPart):
        return f"a part of {value.array.name}"
    if isinstance(value, Fragment):
        return f"the fragment {value.name}"
    if isinstance(value, Items):
        return "a tuple"
    if isinstance(value, Static):
        return f"{value.value!r:.40}"
    return repr(value)
