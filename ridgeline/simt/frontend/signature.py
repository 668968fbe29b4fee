"""A kernel's parameters: arrays, scalars and constants by their annotations."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.simt.frontend.problems import problem
from ridgeline.simt.frontend.source import CapturedFunction
from ridgeline.simt.ir import SourcePlace
from ridgeline.simt.types import (
    ArrayType,
    ConstMark,
    ElementType,
    TypeParameter,
    element_of,
    f32,
    i32,
)


@dataclass(frozen=True)
class KernelSignature:
    """Parameters in order; each is in one of the three tables."""

    names: tuple[str, ...]
    arrays: Mapping[str, ArrayType]
    scalars: Mapping[str, ElementType | TypeParameter]
    constants: Mapping[str, Any]  # with their defaults; `REQUIRED` where there is none

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a launch is given in order: all but `out` arrays, constants last by keyword."""
        return tuple(
            n for n in self.names if n not in self.arrays or self.arrays[n].access != "out"
        )


REQUIRED = object()


class _AnnotationNames(dict[str, Any]):
    """Names in an annotation: one that means nothing else is the name of a size."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, name)


# what reading an annotation raises: it is no expression, or one of names and indices that fail
_UNREADABLE = (
    SyntaxError, NameError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError,
    RidgelineError,
)  # fmt: skip


def annotation_of(captured: CapturedFunction, argument: ast.arg) -> Any:
    """What a parameter's annotation means, or None without one."""
    if argument.annotation is None:
        return None
    node = argument.annotation
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    try:
        code = compile(text or ast.unparse(node), captured.source.path, "eval")
        return eval(code, {}, _AnnotationNames(captured.names()))
    except _UNREADABLE as error:
        raise _refused(captured, argument, f"the annotation cannot be read: {error}") from error


def signature_of(captured: CapturedFunction) -> KernelSignature:
    """The parameters of a kernel, or a refusal of what is no parameter."""
    arguments = captured.tree.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        first = arguments.vararg or arguments.kwarg or arguments.posonlyargs[0]
        raise _refused(captured, first, "a kernel's parameters are named one by one")
    every = [*arguments.args, *arguments.kwonlyargs]
    defaults = _defaults(captured)
    arrays: dict[str, ArrayType] = {}
    scalars: dict[str, ElementType | TypeParameter] = {}
    constants: dict[str, Any] = {}
    for argument in every:
        kind, name = annotation_of(captured, argument), argument.arg
        scalar = {int: i32, float: f32}.get(kind) if isinstance(kind, type) else None
        scalar = scalar or element_of(kind)
        if isinstance(kind, ArrayType):
            arrays[name] = kind
        elif isinstance(kind, ConstMark):
            constants[name] = defaults.get(name, REQUIRED)
        elif scalar is not None or isinstance(kind, TypeParameter):
            scalars[name] = kind if isinstance(kind, TypeParameter) else scalar  # type: ignore[assignment]
        else:
            raise _refused(captured, argument, f"the parameter {name} needs a type")
    return KernelSignature(tuple(argument.arg for argument in every), arrays, scalars, constants)


def _defaults(captured: CapturedFunction) -> dict[str, Any]:
    arguments, function = captured.tree.args, captured.function
    values = function.__defaults__ or ()
    names = [argument.arg for argument in arguments.args]
    found = dict(zip(names[len(names) - len(values) :], values))
    return {**found, **(function.__kwdefaults__ or {})}


def _refused(captured: CapturedFunction, argument: ast.arg, message: str) -> Exception:
    place = SourcePlace(captured.source.path, argument.lineno, argument.col_offset + 1)
    help = 'as in a: f32["n"], c: out[f32["n"]], n: i32, or L: const = 64'
    return problem(message, place, captured.source, help)
