"""Products of matrices whose rows lie in groups, each with a matrix of its own."""

from __future__ import annotations

from ridgeline.dtypes import DType, int64
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.functions.arithmetic import add
from ridgeline.functions.creation import zeros_like
from ridgeline.functions.differences import diff
from ridgeline.functions.linear import bmm
from ridgeline.functions.movement import narrow, transpose
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.ops.experts import grouped_outer, grouped_product


@functional()
def grouped_mm(
    mat_a: Node,
    mat_b: Node,
    *,
    offs: Node | None = None,
    bias: Node | None = None,
    out_dtype: DType | None = None,
) -> Node:
    """The products of groups of matrices; `offs` says where groups end in matrices of all."""
    ranks = len(mat_a.shape), len(mat_b.shape)
    if not {*ranks} <= {2, 3}:
        raise ShapeError(f"grouped_mm takes matrices or batches of them, got {mat_a} and {mat_b}")
    if (offs is None) != (ranks == (3, 3)):
        raise ShapeError(
            "grouped_mm needs offs where a matrix holds all groups, and not for two batches"
        )
    found = bmm(mat_a, mat_b) if offs is None else _by_counts(mat_a, mat_b, _counts(offs))
    if out_dtype is not None:
        found = cast(found, out_dtype)
    return found if bias is None else add(found, bias)


def _by_counts(a: Node, b: Node, counts: Node) -> Node:
    groups = counts.shape[0]
    inner = a.shape[-1], b.shape[-2]
    batches = [each.shape[0] for each in (a, b) if len(each.shape) == 3]
    if inner[0] != inner[1] or any(count != groups for count in batches):
        raise ShapeError(
            f"grouped_mm of {list(a.shape)} and {list(b.shape)} in {groups} groups: the last axis "
            "of the first has to fit the last but one of the second, and a batch the groups"
        )
    if len(a.shape) == 2 and len(b.shape) == 3:
        return grouped_product(a, transpose(b, 1, 2), counts)
    if len(a.shape) == 3:  # columns lie in groups: the transposed product
        return transpose(grouped_product(transpose(b, 0, 1), a, counts), 0, 1)
    return grouped_outer(b, transpose(a, 0, 1), counts, int(groups))


def _counts(offs: Node) -> Node:
    """How many rows each group has."""
    kind = offs.types[0]
    if len(kind.shape) != 1 or not kind.dtype.is_integer:
        raise DTypeError(f"offs is {kind}, expected the ends of groups as integers")
    ends = cast(offs, int64)
    return diff(ends, prepend=zeros_like(narrow(ends, 0, 0, 1)))
