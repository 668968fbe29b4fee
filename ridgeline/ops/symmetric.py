"""Symmetric and Hermitian indefinite systems as library calls: LDL factors and their solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.linalg import matrix_type
from ridgeline.ops.values import matrices, symmetric
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class SymmetryAttrs(Attrs):
    """Whether the other triangle is the conjugate of the one that is read, and whether a block
    of D that is zero is an error."""

    hermitian: bool
    checked: bool = False


def ldl(a: Node, hermitian: bool, checked: bool) -> tuple[Node, Node, Node]:
    """Packed factors of the lower triangle, pivots, and where a block of D was zero."""
    all_three = node(LDL, (a,), SymmetryAttrs(hermitian, checked))
    return proj(all_three, 0), proj(all_three, 1), proj(all_three, 2)


def ldl_solve(packed: Node, pivots: Node, b: Node, hermitian: bool) -> Node:
    """The solution of a system whose matrix is given by its packed factors."""
    return node(LDL_SOLVE, (packed, pivots, b), SymmetryAttrs(hermitian))


def _infer(types: Sequence[TensorType], attrs: SymmetryAttrs) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "ldl_factor")
    *lead, size, _ = source.shape
    return (
        source,
        TensorType((*lead, size), dtypes.int32, source.device),
        TensorType(tuple(lead), dtypes.int32, source.device),
    )


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    packed, pivots, info = symmetric.factored(inputs[0], current.attrs.hermitian)
    if current.attrs.checked:
        matrices.checked(info, "ldl_factor: a block of D is zero")
    return packed, pivots, info


def _infer_solution(types: Sequence[TensorType], attrs: SymmetryAttrs) -> tuple[TensorType, ...]:
    packed, pivots, b = types
    source = matrix_type(packed, "ldl_solve")
    if b.dtype is not source.dtype or pivots.dtype is not dtypes.int32:
        raise DTypeError(
            f"ldl_solve needs a right side of {source.dtype.name} and int32 pivots, got "
            f"{b.dtype.name} and {pivots.dtype.name}"
        )
    if len(b.shape) < 2 or b.shape[-2] != source.shape[-1] or pivots.shape != source.shape[:-1]:
        raise ShapeError(
            f"ldl_solve: factors {list(packed.shape)}, pivots {list(pivots.shape)} and right side "
            f"{list(b.shape)} do not fit"
        )
    return (b,)


def _solution(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    packed, pivots, b = inputs
    return (symmetric.solved(packed, pivots, b, current.attrs.hermitian),)


LDL = Op("ldl", "library", _infer, _value, batch=leading)
LDL_SOLVE = Op("ldl_solve", "library", _infer_solution, _solution, batch=leading)
