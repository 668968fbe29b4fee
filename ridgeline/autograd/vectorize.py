"""vmap: a function of one element as a function of a batch, by a rewrite of its graph.

The function runs once on leaves that stand for one element; the graph it records is then rebuilt
with a leading axis, by the batching rules of the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from ridgeline.autograd.batch_frame import Frame
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.graph.vectorize import Batching, BatchingError
from ridgeline.ops.movement import permute, spread
from ridgeline.record.cells import CUT, GRAPH, LEAF
from ridgeline.record.modes import called
from ridgeline.record.values import read, write
from ridgeline.tensors import dispatch
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, wrap

Dims = Any  # an int, None, or a structure of them that the values' structure begins with


def vmap(
    function: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that maps `function` over an axis of its arguments, all elements at once.

    `in_dims` and `out_dims` say where that axis is in the arguments and in the results: an int for
    all, None for what has no such axis, or a structure of them. Keyword arguments are mapped over
    their first axis. `chunk_size` bounds how many elements are computed together.
    """
    if randomness not in ("error", "same", "different"):
        raise BatchingError(f'randomness is "error", "same" or "different", not {randomness!r}')
    if chunk_size is not None and chunk_size < 1:
        raise BatchingError(f"chunk_size is at least 1, not {chunk_size}")

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, args, kwargs, in_dims)
        if chunk_size is None or call.size <= chunk_size:
            return call.run(range(call.size), out_dims, randomness)
        return _in_chunks(call, chunk_size, out_dims, randomness)

    return run


def matched(dims: Dims, tree: Any, what: str) -> list[int | None]:
    """One entry for every leaf of `tree`: where `dims` ends, its entry counts for all below."""
    if dims is None or (isinstance(dims, int) and not isinstance(dims, bool)):
        leaves: list[Any] = []
        flatten(tree, leaves)
        return [dims] * len(leaves)
    if isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        pairs = [(dims[key], tree[key]) for key in tree]
    elif (
        isinstance(dims, tuple | list) and isinstance(tree, tuple | list) and len(dims) == len(tree)
    ):
        pairs = list(zip(dims, tree))
    else:
        raise BatchingError(
            f"{what} {dims!r:.60} does not fit what it describes",
            help="give one int or None for all, or a structure like that of the values",
        )
    return [entry for own, part in pairs for entry in matched(own, part, what)]


def _place(dim: int, rank: int, what: str) -> int:
    """An axis counted from the front."""
    if not -rank <= dim < rank:
        raise BatchingError(f"{what} {dim} is outside a tensor with {rank} axes")
    return dim % rank


def _first(value: Node, axis: int) -> Node:
    """One axis moved to the front."""
    order = [axis, *(a for a in range(len(value.shape)) if a != axis)]
    return permute(value, tuple(order))


def _back(value: Node, axis: int) -> Node:
    """The first axis moved to another place."""
    order = list(range(1, len(value.shape)))
    order.insert(axis, 0)
    return permute(value, tuple(order))


class _Call:
    """The arguments of one call, and where each has the axis that is mapped over."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], in_dims: Dims
    ) -> None:
        self.function = function
        self.leaves: list[Any] = []
        self.structure = flatten((args, kwargs), self.leaves)
        listed = tuple(in_dims) if isinstance(in_dims, list) else in_dims
        self.dims = [*matched(listed, args, "in_dims"), *matched(0, kwargs, "in_dims")]
        self.size = self._size()

    def _size(self) -> int:
        sizes: dict[int, Tensor] = {}
        for number, (leaf, dim) in enumerate(zip(self.leaves, self.dims)):
            if dim is None:
                continue
            if not isinstance(leaf, Tensor):
                raise BatchingError(
                    f"vmap maps over tensors, but argument {number} is {type(leaf).__name__}",
                    help="give None in in_dims for arguments that are the same for all elements",
                )
            axis = self.dims[number] = _place(dim, leaf.ndim, "in_dims")
            sizes.setdefault(leaf.shape[axis], leaf)
        if len(sizes) != 1:
            if not sizes:
                raise BatchingError("vmap needs at least one argument to map over")
            (size, one), (other_size, other) = list(sizes.items())[:2]
            raise BatchingError(
                f"the mapped axes have different sizes: {size} and {other_size}",
                note=f"the arguments are {one._type} and {other._type}",
            )
        return next(iter(sizes))

    def run(self, part: range, out_dims: Dims, randomness: str) -> Any:
        """Map over some of the elements."""
        frame = Frame(len(part), randomness)
        mapped: list[_Mapped] = []
        given = []
        for leaf, dim in zip(self.leaves, self.dims):
            if dim is not None:
                if len(part) != self.size:
                    leaf = leaf.narrow(dim, part.start, len(part))
                mapped.append(_Mapped(leaf, dim, _element(frame, leaf, dim)))
                leaf = mapped[-1].element
            given.append(leaf)
        args, kwargs = unflatten(self.structure, given)
        with frame.inside():
            result = called(self.function)(*args, **kwargs)
            found: list[Any] = []
            structure = flatten(result, found)
            for leaf in found:
                if not isinstance(leaf, Tensor):
                    raise BatchingError(
                        f"a function under vmap returns tensors, not {type(leaf).__name__}"
                    )
            nodes = [read(leaf) for leaf in found]
            levels = [leaf._resolved()[1].mode for leaf in found]
        written = [m for m in mapped if m.element._cell.version]
        frame.finish([*found, *(m.element for m in written)])
        dims = matched(out_dims, result, "out_dims")
        batching = Batching(frame.size, frame.batched, frame.inside)
        made = _results(batching.run(nodes), dims, levels, frame.size)
        for m in written:
            _write_back(m, batching)
        return unflatten(structure, made)


class _Mapped(NamedTuple):
    """An argument that is mapped over, its axis, and what the function sees of it."""

    source: Tensor
    dim: int
    element: Tensor


def _element(frame: Frame, source: Tensor, dim: int) -> Tensor:
    level = source._resolved()[1].mode
    element = frame.element(_first(read(source), dim))
    with frame.inside():
        return wrap(element, GRAPH if level == LEAF else level)


def _write_back(mapped: _Mapped, batching: Batching) -> None:
    """What the function wrote into an element is written into the argument."""
    cell = mapped.element._cell
    ((value, has_axis),) = batching.run([cell.node])
    whole = value if has_axis else spread(value, batching.size)
    write(mapped.source, _back(whole, mapped.dim), cell.mode, "an in-place op under vmap")


def _results(
    batched: Sequence[tuple[Node, bool]],
    dims: Sequence[int | None],
    levels: Sequence[int],
    size: int,
) -> list[Tensor]:
    mark = here(3)
    made = []
    for (value, has_axis), dim, level in zip(batched, dims, levels):
        if dim is None:
            if has_axis:
                raise BatchingError(
                    "out_dims is None for a result that differs from element to element"
                )
        else:
            whole = value if has_axis else spread(value, size)
            value = _back(whole, _place(dim, len(whole.shape), "out_dims"))
        stamp(value, mark)
        made.append(wrap(value, CUT if level == LEAF else level))
    return made


def _in_chunks(call: _Call, chunk_size: int, out_dims: Dims, randomness: str) -> Any:
    parts = [
        call.run(range(start, min(start + chunk_size, call.size)), out_dims, randomness)
        for start in range(0, call.size, chunk_size)
    ]
    columns: list[list[Any]] = []
    structure: Any = None
    for part in parts:
        leaves: list[Any] = []
        structure = flatten(part, leaves)
        columns.append(leaves)
    dims = matched(out_dims, parts[0], "out_dims")
    joined = [_joined(pieces, dim) for pieces, dim in zip(zip(*columns), dims)]
    return unflatten(structure, joined)


def _joined(pieces: Sequence[Tensor], dim: int | None) -> Tensor:
    if dim is None:
        return pieces[0]
    whole: Tensor = dispatch.FUNCTIONS["cat"](list(pieces), dim)
    return whole
