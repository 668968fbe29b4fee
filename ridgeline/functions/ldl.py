"""LDL factors of symmetric and Hermitian matrices, and systems solved by them."""

from __future__ import annotations

from typing import NamedTuple

from ridgeline.functions.operands import broadcast_shapes, stretch
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import symmetric


class FactoredLDL(NamedTuple):
    """L and D in one matrix, and the row exchanges."""

    LD: Node
    pivots: Node


class FactoredLDLInfo(NamedTuple):
    """L and D in one matrix, the row exchanges, and where a block of D was zero."""

    LD: Node
    pivots: Node
    info: Node


@public(namespace="linalg")
def ldl_factor(A: Node, *, hermitian: bool = False) -> FactoredLDL:
    """A = P L D L^T P^T with D of blocks of one or two; only the lower triangle is read."""
    return FactoredLDL(*symmetric.ldl(A, hermitian, True)[:2])


@public(namespace="linalg")
def ldl_factor_ex(
    A: Node, *, hermitian: bool = False, check_errors: bool = False
) -> FactoredLDLInfo:
    """The LDL factors, and per matrix 0 or the place where a block of D was zero."""
    return FactoredLDLInfo(*symmetric.ldl(A, hermitian, check_errors))


@public(namespace="linalg")
def ldl_solve(LD: Node, pivots: Node, B: Node, *, hermitian: bool = False) -> Node:
    """The solution of A X = B, from what `ldl_factor` gives for A."""
    lead = broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    packed = stretch(LD, (*lead, *LD.shape[-2:]))
    places = stretch(pivots, (*lead, *pivots.shape[-1:]))
    return symmetric.ldl_solve(packed, places, stretch(B, (*lead, *B.shape[-2:])), hermitian)
