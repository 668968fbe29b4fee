"""A kernel's function, the types of its arguments and its constants: the thread program."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ridgeline import dtypes
from ridgeline.simt.frontend.calls import call
from ridgeline.simt.frontend.context import Context, FunctionScope, KernelValue, Static, is_expr
from ridgeline.simt.frontend.directions import with_directions
from ridgeline.simt.frontend.expressions import evaluate
from ridgeline.simt.frontend.outside import OutsideRead
from ridgeline.simt.frontend.returns import results_of
from ridgeline.simt.frontend.signature import KernelSignature, annotation_of
from ridgeline.simt.frontend.source import CapturedFunction
from ridgeline.simt.frontend.statements import bind_name, body
from ridgeline.simt.ir import Assign, Number, ThreadArray, ThreadProgram, Variable
from ridgeline.simt.types import ElementType, element_of

_DEEPEST = 32


def build(
    captured: CapturedFunction,
    signature: KernelSignature,
    types: Mapping[str, ElementType],
    constants: Mapping[str, Any],
) -> tuple[ThreadProgram, list[OutsideRead]]:
    """The program of a kernel, and what was read outside it and compiled in."""
    scope = FunctionScope(captured, captured.names(), _assignments(captured.tree))
    c = Context(scope)
    c.evaluate = lambda node: evaluate(c, node, lambda inner: call(c, inner, _inliner(c)))
    parameters = [_bind_parameter(c, signature, name, types, constants) for name in signature.names]
    body(c, captured.tree.body)
    kept = tuple(parameter for parameter in parameters if parameter is not None)
    named = {parameter.name for parameter in kept}
    program = ThreadProgram(
        captured.name,
        kept,
        tuple((name, constants[name]) for name in signature.constants),
        tuple(c.arrays),
        tuple(c.fragments),
        tuple(v for v in c.variables.values() if v.name not in named),
        with_directions(tuple(c.blocks[0])),
        captured.source,
    )
    return program, c.outside_used


def _bind_parameter(
    c: Context, signature: KernelSignature, name: str, types: Mapping[str, ElementType],
    constants: Mapping[str, Any],
) -> ThreadArray | Variable | None:  # fmt: skip
    scope = c.scope
    if name in signature.constants:
        scope.names[name] = Static(constants[name])
        return None
    c.taken.add(name)
    if name in signature.arrays:
        kind = signature.arrays[name]
        array = ThreadArray(name, types[name].dtype, kind.sizes, "global", kind.access)
        scope.names[name] = array
        return array
    scalar = Variable(name, types[name].dtype)
    scope.names[name] = scalar
    scope.assigned.add(name)
    return scalar


def _assignments(tree: ast.FunctionDef) -> Counter[str]:
    """How often a function assigns each name; in a loop counts as often, for it may change."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] += 1
    return counts


def _inliner(c: Context) -> Any:
    def inline(node: ast.Call, function: Any) -> KernelValue:
        return _inlined(c, node, function.captured)

    return inline


def _inlined(c: Context, node: ast.Call, captured: CapturedFunction) -> KernelValue:
    """The body of a device function, written out where it is called."""
    if c.depth >= _DEEPEST:
        c.fail(node, f"{captured.name} calls itself", "a kernel has no recursion: write a loop")
    parameters = [argument.arg for argument in captured.tree.args.args]
    given = _call_arguments(c, node, captured, parameters)
    caller, hint = c.scope, c.hint
    prefix = c.unique(f"{captured.name}") + "_"
    scope = FunctionScope(
        captured, captured.names(), _assignments(captured.tree), prefix, is_kernel=False,
        blocks=len(c.blocks),
    )  # fmt: skip
    c.depth += 1
    c.scope = scope
    c.hint = "value"
    if _returns_in_loop(captured.tree):
        scope.returned = c.variable("returned", dtypes.bool_)
        c.emit(Assign(scope.returned, Number(False, dtypes.bool_), c.place(captured.tree)))
    for argument, (value, place) in zip(captured.tree.args.args, given):
        _bind_argument(c, argument, value, place)
    body(c, captured.tree.body)
    result = results_of(c)
    c.scope, c.hint = caller, hint
    c.depth -= 1
    return result


def _call_arguments(
    c: Context, node: ast.Call, captured: CapturedFunction, parameters: list[str]
) -> list[tuple[KernelValue, ast.AST]]:
    values = c.evaluate_in_order(node.args)
    found: dict[str, KernelValue] = dict(zip(parameters, values))
    if len(values) > len(parameters):
        c.fail(node, f"{captured.name} takes {len(parameters)} arguments, not {len(values)}")
    for keyword in node.keywords:
        if keyword.arg not in parameters or keyword.arg in found:
            c.fail(node, f"{captured.name} takes no other argument {keyword.arg}")
        found[keyword.arg] = c.evaluate(keyword.value)
    defaults = captured.function.__defaults__ or ()
    for name, value in zip(parameters[len(parameters) - len(defaults) :], defaults):
        found.setdefault(name, Static(value))
    missing = [name for name in parameters if name not in found]
    if missing:
        c.fail(node, f"{captured.name} needs {' and '.join(missing)}")
    return [(found[name], node) for name in parameters]


def _bind_argument(c: Context, argument: ast.arg, value: KernelValue, place: ast.AST) -> None:
    kind = annotation_of(c.scope.captured, argument)
    element = element_of(kind)
    if element is not None:
        value = c.converted(value, element.dtype, place, argument.arg)
    changes = c.scope.assignments.get(argument.arg, 0) > 0
    if not changes and (not is_expr(value) or isinstance(value, (Variable, Number))):
        c.scope.names[argument.arg] = value
        c.scope.assigned.add(argument.arg)
        return
    bind_name(c, place, argument.arg, value)


def _returns_in_loop(tree: ast.FunctionDef) -> bool:
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
    return any(isinstance(inner, ast.Return) for loop in loops for inner in ast.walk(loop))
