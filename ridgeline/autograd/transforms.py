"""Functional differentiation: grad, value_and_grad, vjp and jvp of functions of tensors.

Each gives its function inputs that are tagged with a name of their own, and differentiates what
comes out by those tags. Tags let outer derivatives pass, so the transforms nest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ridgeline.autograd.joints import opened
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.ops.differentiate import forward, ones_like, reverse
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.tracking import tag
from ridgeline.record.cells import CUT, GRAPH, PLAIN
from ridgeline.record.modes import GradientMode, called
from ridgeline.record.values import read
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, wrap


class _Inputs:
    """Arguments in which every tensor was replaced by a tagged one."""

    def __init__(self, tree: Any, what: str) -> None:
        leaves: list[Any] = []
        self.structure = flatten(tree, leaves)
        self.tags: list[Node] = []
        self.outer = PLAIN  # the highest mode among the originals
        fresh = []
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise GradientError(f"{what} needs tensors, got {type(leaf).__name__}")
            if not leaf.dtype.is_differentiable:
                raise GradientError(
                    f"{what} needs floating tensors, got {leaf._type}", help="use .float()"
                )
            self.outer = max(self.outer, leaf._resolved()[1].mode)
            self.tags.append(tag(read(leaf)))
            fresh.append(wrap(self.tags[-1], GRAPH))
        self.tree = unflatten(self.structure, fresh)

    @property
    def mode(self) -> int:
        """How derivatives by these inputs stand to outer differentiation."""
        return GRAPH if self.outer >= GRAPH else CUT

    def results(self, nodes: Sequence[Node | None]) -> Any:
        """Derivatives in the structure of the inputs; zeros where there is none."""
        mark = here(3)
        made = []
        for index, node in zip(self.tags, nodes):
            value = full_like(index, 0) if node is None else node
            stamp(value, mark)
            made.append(wrap(value, self.mode))
        return unflatten(self.structure, made)


def _outputs(result: Any, what: str) -> tuple[Any, list[Node]]:
    leaves: list[Any] = []
    structure = flatten(result, leaves)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise GradientError(f"{what} needs a function that returns tensors")
    nodes = [read(leaf) for leaf in leaves]
    opened(nodes)
    return structure, nodes


def _cut(tensor: Tensor, mode: int) -> Tensor:
    """A result seen from outside: tracked only where the inputs were."""
    return wrap(read(tensor), mode)


def _arguments(args: tuple[Any, ...], argnums: int | Sequence[int]) -> Any:
    if isinstance(argnums, int):
        return args[argnums]
    return tuple(args[number] for number in argnums)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives `(value, gradient)` of a scalar function, by the chosen arguments."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs(_arguments(args, argnums), "grad")
        replaced = list(args)
        numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        parts = [inputs.tree] if isinstance(argnums, int) else list(inputs.tree)
        for number, part in zip(numbers, parts):
            replaced[number] = part
        with GradientMode(True):
            result = called(function)(*replaced, **kwargs)
        value, aux = result if has_aux else (result, None)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise GradientError(
                f"grad needs a function that returns a scalar tensor, got {shape}",
                help="reduce the result, such as with .sum(), or use vjp()",
            )
        node = read(value)
        opened([node])
        gradients = inputs.results(reverse([node], [ones_like(node)], inputs.tags))
        outer = _cut(value, inputs.mode)
        return ((outer, aux), gradients) if has_aux else (outer, gradients)

    return run


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of a scalar function, by the chosen arguments."""
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return run


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of a function, and the map from its cotangents to those of the primals."""
    inputs = _Inputs(tuple(primals), "vjp")
    with GradientMode(True):
        result = called(function)(*inputs.tree)
    structure, nodes = _outputs(result, "vjp")

    def pull(cotangents: Any) -> Any:
        given: list[Any] = []
        if flatten(cotangents, given) != structure:
            raise GradientError("the cotangents are not nested like the function's result")
        for leaf, node in zip(given, nodes):
            if tuple(leaf.shape) != node.shape:
                raise GradientError(
                    f"a cotangent has shape {list(leaf.shape)}, the result {list(node.shape)}"
                )
        return inputs.results(reverse(nodes, [read(leaf) for leaf in given], inputs.tags))

    outer = [wrap(node, inputs.mode) for node in nodes]
    return unflatten(structure, outer), pull


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of a function, and the map from tangents of the primals to those of the result."""
    inputs = _Inputs(tuple(primals), "linearize")
    with GradientMode(True):
        result = called(function)(*inputs.tree)
    structure, nodes = _outputs(result, "linearize")

    def push(*tangents: Any) -> Any:
        given = _tangents(inputs, tangents)
        return unflatten(structure, _pushed(inputs, nodes, given))

    outer = [wrap(node, inputs.mode) for node in nodes]
    return unflatten(structure, outer), push


def _tangents(inputs: _Inputs, tangents: Any) -> list[Tensor]:
    given: list[Any] = []
    if flatten(tuple(tangents), given) != inputs.structure:
        raise GradientError("the tangents are not nested like the primals")
    for leaf, index in zip(given, inputs.tags):
        if tuple(leaf.shape) != index.shape:
            raise GradientError(
                f"a tangent has shape {list(leaf.shape)}, the primal {list(index.shape)}"
            )
    return given


def _pushed(inputs: _Inputs, nodes: Sequence[Node], given: Sequence[Tensor]) -> list[Tensor]:
    moved = forward(nodes, inputs.tags, [read(leaf) for leaf in given])
    highest = max([inputs.mode, *[leaf._resolved()[1].mode for leaf in given]])
    mode = GRAPH if highest >= GRAPH else CUT
    return [
        wrap(full_like(node, 0) if part is None else part, mode) for node, part in zip(nodes, moved)
    ]


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The result of a function, and how it moves when the primals move along the tangents."""
    inputs = _Inputs(tuple(primals), "jvp")
    given = _tangents(inputs, tangents)
    with GradientMode(True):
        result = called(function)(*inputs.tree)
    structure, nodes = _outputs(result, "jvp")
    found = _pushed(inputs, nodes, given)
    mode = GRAPH if any(leaf._resolved()[1].mode >= GRAPH for leaf in found) else inputs.mode
    outer = [wrap(node, mode) for node in nodes]
    return unflatten(structure, outer), unflatten(structure, found)
