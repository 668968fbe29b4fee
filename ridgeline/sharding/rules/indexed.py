"""Gathers and scatters: indices are shared out, or the dimension they point into is.

Where the table is sharded along the dimension that indices name, as a vocabulary is, a rank takes
part for the rows that it has, and the result is partial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ridgeline.graph.node import Node, node as make
from ridgeline.ops.elementwise import IOTA, full_like, iota, select
from ridgeline.ops.movement import broadcast
from ridgeline.ops.placed import Partial, Placement, Shard
from ridgeline.ops.reduce import kept_axes
from ridgeline.sharding.mesh_shapes import REPLICATE, Spec, factors
from ridgeline.sharding.rules.movement import whole_operands
from ridgeline.sharding.share import RankShare


def _index_shard(share: RankShare, indices: Sequence[Node], axis: int) -> Shard | None:
    """How index arrays are sharded along an axis of the mesh, if they are."""
    for index in indices:
        placement = share.spec(index)[axis]
        if not share.is_free(index) and isinstance(placement, Shard):
            return placement
    return None


def _one_run(shard: Shard) -> bool:
    """True where ranks hold consecutive elements."""
    return shard.outer == 1 and not shard.zigzag


def _ramp_along(index: Node, size: int) -> int | None:
    """The axis along which an index array counts all of a dimension."""
    if index.op is IOTA and index.shape[index.attrs.axis] == size:
        axis: int = index.attrs.axis
        return axis
    return None


def gather_rule(share: RankShare, node: Node) -> None:
    """The result is sharded as the indices are, or as the dimensions that they leave."""
    source, *indices = node.inputs
    axes, sizes = node.attrs.axes, share.sizes(source)
    rest, rank = kept_axes(len(sizes), axes), len(indices[0].shape)
    wants: list[Placement] = []  # of the source
    index_wants: list[Placement] = []
    result: list[Placement] = []
    own_rows: list[int] = []  # axes of the mesh along which a rank has some of the rows
    aligned: dict[int, None] = {}  # index arrays that count the rows which a rank has
    for axis in range(len(share.shape.axes)):
        of_source, of_index = share.spec(source)[axis], _index_shard(share, indices, axis)
        if isinstance(of_source, Shard) and of_source.stored:
            of_source = REPLICATE
        counted = _counted_rows(indices, axes, sizes, of_source, of_index)
        if counted is not None:  # a rank's rows are counted: both are shared out along them
            number, shared = counted
            aligned[number] = None
            wants.append(replace(shared, dim=axes[number]))
            index_wants.append(shared)
            result.append(shared)
            continue
        if isinstance(of_source, Shard) and of_source.dim in axes:
            if of_index is None and _one_run(of_source) and len(axes) == 1:
                own_rows.append(axis)
                wants.append(of_source)
                index_wants.append(REPLICATE)
                result.append(Partial())
                continue
            of_source = REPLICATE
        if of_index is not None and isinstance(of_source, Shard):
            larger = prod(sizes) > prod(share.sizes(indices[0]))
            of_index, of_source = (None, of_source) if larger else (of_index, REPLICATE)
        if of_index is not None:
            wants.append(REPLICATE)
            index_wants.append(of_index)
            result.append(of_index)
        elif isinstance(of_source, Shard):
            wants.append(of_source)
            index_wants.append(REPLICATE)
            result.append(replace(of_source, dim=rank + rest.index(of_source.dim)))
        else:
            kept = of_source if of_source == Partial() else REPLICATE
            wants.append(kept)
            index_wants.append(REPLICATE)
            result.append(kept)
    share.asked = node
    local = share.at(source, tuple(wants))
    places = [
        _own_ramp(share, index, tuple(index_wants)) if number in aligned
        else share.at(index, tuple(index_wants))
        for number, index in enumerate(indices)
    ]  # fmt: skip
    if own_rows:
        made = _of_own_rows(share, node, local, places[0], tuple(wants))
    else:
        made = make(node.op, (local, *places), node.attrs)
    share.set(node, made, tuple(result))


def _counted_rows(
    indices: Sequence[Node],
    axes: Sequence[int],
    sizes: Sequence[int],
    of_source: Placement,
    of_index: Shard | None,
) -> tuple[int, Shard] | None:
    """The index array that counts the rows which are shared out along an axis, and its shard.

    Where several axes share rows out, source and indices must be shared out along the same ones.
    """
    for number, index in enumerate(indices):
        along = _ramp_along(index, sizes[axes[number]])
        if along is None:
            continue
        if of_index is not None and of_index.dim == along:
            return number, of_index
        own = isinstance(of_source, Shard) and of_source.dim == axes[number]
        if own and isinstance(of_source, Shard) and of_index is None:
            return number, replace(of_source, dim=along)
    return None


def _own_ramp(share: RankShare, index: Node, spec: Spec) -> Node:
    """0, 1, 2 … over the rows that a rank has."""
    attrs = index.attrs
    return iota(share.local_shape(index, spec), attrs.axis, attrs.dtype, share.device)


def _own_start(share: RankShare, source: Node, spec: Spec, dim: int) -> tuple[int, int]:
    """Where the rows begin that a rank has of a table, and how many they are."""
    (part,) = factors(share.shape, spec, dim, share.sizes(source)[dim], share.place)
    return part.start, part.count


def _of_own_rows(share: RankShare, node: Node, table: Node, index: Node, spec: Spec) -> Node:
    """Rows that a rank has, zeros for others."""
    axis = node.attrs.axes[0]
    start, count = _own_start(share, node.inputs[0], spec, axis)
    at, mine = _shifted(index, start, count)
    found = make(node.op, (table, at), node.attrs)
    inside = broadcast(mine, found.shape, tuple(range(len(index.shape))))
    return select(inside, found, full_like(found, 0))


def _shifted(index: Node, start: int, count: int) -> tuple[Node, Node]:
    """Indices counted from a rank's first row, and which of them are its own."""
    at = index - full_like(index, start)
    mine = (full_like(at, 0) <= at) & (at < full_like(at, count))
    return select(mine, at, full_like(at, 0)), mine


def scatter_rule(share: RankShare, node: Node) -> None:
    """Updates that ranks share out make sums of their own; or ranks have rows of their own."""
    base, updates, *indices = node.inputs
    axes, sizes = node.attrs.axes, share.sizes(base)
    if node.attrs.mode != "add" or not share.is_free(base):
        _scatter_whole(share, node)
        return
    rest, rank = kept_axes(len(sizes), axes), len(indices[0].shape)
    base_wants: list[Placement] = []
    update_wants: list[Placement] = []
    result: list[Placement] = []
    own_rows = False
    for axis in range(len(share.shape.axes)):
        of_updates = share.spec(updates)[axis]
        of_index = _index_shard(share, indices, axis)
        if isinstance(of_updates, Shard) and of_updates.dim >= rank:
            kept = replace(of_updates, dim=rest[of_updates.dim - rank], stored=False)
            base_wants.append(kept)
            update_wants.append(of_updates)
            result.append(kept)
            continue
        shared = of_updates if isinstance(of_updates, Shard) else of_index
        if shared is not None:
            base_wants.append(REPLICATE)
            update_wants.append(shared)
            result.append(Partial())
            continue
        hint = share.hint(node, axis)
        rows = isinstance(hint, Shard) and hint.dim in axes and _one_run(hint) and len(axes) == 1
        if isinstance(hint, Shard) and rows and of_updates != Partial():
            own_rows = True
            base_wants.append(Shard(hint.dim))
            update_wants.append(REPLICATE)
            result.append(Shard(hint.dim))
            continue
        base_wants.append(REPLICATE)
        update_wants.append(Partial() if of_updates == Partial() else REPLICATE)
        result.append(Partial() if of_updates == Partial() else REPLICATE)
    share.asked = node
    spec, of = tuple(base_wants), tuple(update_wants)
    index_spec = tuple(p if isinstance(p, Shard) and p.dim < rank else REPLICATE for p in of)
    local, new = share.at(base, spec), share.at(updates, of)
    places = [share.at(index, index_spec) for index in indices]
    if own_rows:
        start, count = _own_start(share, base, spec, axes[0])
        at, mine = _shifted(places[0], start, count)
        inside = broadcast(mine, new.shape, tuple(range(len(at.shape))))
        new, places = select(inside, new, full_like(new, 0)), [at]
    share.set(node, make(node.op, (local, new, *places), node.attrs), tuple(result))


def _scatter_whole(share: RankShare, node: Node) -> None:
    """Rows that index arrays count themselves stay shared out; all else is whole."""
    base, updates, *indices = node.inputs
    axes, sizes = node.attrs.axes, share.sizes(base)
    ramps = {
        along: number
        for number, index in enumerate(indices)
        if (along := _ramp_along(index, sizes[axes[number]])) is not None
    }
    found: list[Placement] = []
    for axis in range(len(share.shape.axes)):
        have = [share.spec(i)[axis] for i in (updates, *indices) if not share.is_free(i)]
        made = next((p for p in have if isinstance(p, Shard)), REPLICATE)
        shared = isinstance(made, Shard) and made.dim in ramps and _one_run(made)
        found.append(made if shared else REPLICATE)
    spec = tuple(found)
    if not any(isinstance(p, Shard) for p in spec):
        whole_operands(share, node)
        return
    base_spec = tuple(
        Shard(axes[ramps[p.dim]]) if isinstance(p, Shard) else REPLICATE for p in spec
    )
    counted = {ramps[p.dim] for p in spec if isinstance(p, Shard)}
    share.asked = node
    places = [
        _own_ramp(share, index, spec) if number in counted else share.at(index, spec)
        for number, index in enumerate(indices)
    ]
    operands = (share.at(base, base_spec), share.at(updates, spec), *places)
    share.set(node, make(node.op, operands, node.attrs), base_spec)
