"""Products of matrices: matmul and its relatives, einsum, linear. All are contractions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, mul
from ridgeline.functions.contraction_order import contraction_order
from ridgeline.functions.diagonals import diagonal
from ridgeline.functions.operands import Operand, promote_types
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, bounds, remembered
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.ops.elementwise import cast, full_like, iota, select
from ridgeline.ops.movement import broadcast, broadcast_shapes, permute, reshape, stretch
from ridgeline.ops.reduce import sum_


def same_type(a: Node, b: Node, what: str) -> None:
    """Products of matrices do not promote, as in torch."""
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{what} needs operands of one element type, got {a.dtype.name} and {b.dtype.name}",
            help=f"convert one of them, such as with .to(ridgeline.{a.dtype.name})",
        )
    if a.dtype is dtypes.bool_:
        raise DTypeError(f"{what} is not defined for bool tensors")


@public()
def matmul(input: Node, other: Node) -> Node:
    """The matrix product, with torch's rules for vectors and batches."""
    same_type(input, other, "matmul")
    left, right = input.shape, other.shape
    if not left or not right:
        raise ShapeError(
            f"matmul needs tensors with at least one axis, got {list(left)} and {list(right)}",
            help="use * for scalars",
        )
    if left[-1] != right[-2 if len(right) > 1 else 0]:
        raise ShapeError(
            f"matmul: shapes {list(left)} and {list(right)} do not fit: {left[-1]} columns on the "
            f"left, {right[-2 if len(right) > 1 else 0]} rows on the right",
            help="the last axis of the left operand must equal the last but one of the right",
        )
    batch = broadcast_shapes(left[:-2], right[:-2])
    a, left_axes = _batch_axes(input, left[:-2], batch, len(left) > 1)
    b, right_axes = _batch_axes(other, right[:-2], batch, len(right) > 1)
    # axes in order: batch, m, n, k; a vector has no m (left) or no n (right)
    m, n, k = len(batch), len(batch) + 1, len(batch) + 2
    extents = (
        *batch,
        left[-2] if len(left) > 1 else 1,
        right[-1] if len(right) > 1 else 1,
        left[-1],
    )
    rows, columns = len(left) > 1, len(right) > 1
    output = (*range(len(batch)), *[m] * rows, *[n] * columns)
    left_all = (*left_axes, *[m] * rows, k)
    right_all = (*right_axes, k, *[n] * columns)
    return contract(a, b, _contraction(extents, output, left_all, right_all))


def _batch_axes(
    operand: Node, own: tuple[Size, ...], batch: tuple[Size, ...], matrix: bool
) -> tuple[Node, list[int]]:
    """An operand without batch axes that it only repeats, and which batch axes it has."""
    shift = len(batch) - len(own)
    kept = [i for i, size in enumerate(own) if size == batch[i + shift]]
    core = operand.shape[len(own) :]
    return reshape(operand, (*[own[i] for i in kept], *core)), [i + shift for i in kept]


@remembered
def _contraction(
    extents: tuple[Size, ...],
    output: tuple[int, ...],
    left: tuple[int, ...],
    right: tuple[int, ...],
) -> ContractAttrs:
    """Operands as contractions take them, by their axes; axes without a use get no number."""
    new = {old: i for i, old in enumerate(sorted({*left, *right}))}
    return ContractAttrs(
        tuple(extents[i] for i in new),
        tuple(new[i] for i in output),
        tuple(axis(new[i]) for i in left),
        tuple(axis(new[i]) for i in right),
    )


def _of_rank(node: Node, rank: int, what: str) -> None:
    if len(node.shape) != rank:
        raise ShapeError(f"{what} needs {rank} axes, got shape {list(node.shape)}")


@public()
def mm(input: Node, mat2: Node) -> Node:
    """The product of two matrices."""
    _of_rank(input, 2, "mm")
    _of_rank(mat2, 2, "mm")
    return matmul(input, mat2)


@public()
def bmm(input: Node, mat2: Node) -> Node:
    """The products of two batches of matrices."""
    _of_rank(input, 3, "bmm")
    _of_rank(mat2, 3, "bmm")
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(
            f"bmm needs equal batches, got shapes {list(input.shape)} and {list(mat2.shape)}"
        )
    return matmul(input, mat2)


@public()
def mv(input: Node, vec: Node) -> Node:
    """A matrix times a vector."""
    _of_rank(input, 2, "mv")
    _of_rank(vec, 1, "mv")
    return matmul(input, vec)


@public()
def dot(input: Node, tensor: Node) -> Node:
    """The inner product of two vectors."""
    _of_rank(input, 1, "dot")
    _of_rank(tensor, 1, "dot")
    return matmul(input, tensor)


@public("ger")
def outer(input: Node, vec2: Node) -> Node:
    """All products of an element of one vector with one of another."""
    _of_rank(input, 1, "outer")
    _of_rank(vec2, 1, "outer")
    return mul(reshape(input, (*input.shape, 1)), vec2)


@public(inplace=True, wide=True)
def addmm(input: Node, mat1: Node, mat2: Node, *, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """beta * input + alpha * (mat1 @ mat2)."""
    return plus(input, mm(mat1, mat2), beta, alpha)


@public(inplace=True, wide=True)
def baddbmm(
    input: Node, batch1: Node, batch2: Node, *, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    """beta * input + alpha * (batch1 @ batch2), for batches."""
    return plus(input, bmm(batch1, batch2), beta, alpha)


def plus(input: Node, product: Node, beta: Operand, alpha: Operand) -> Node:
    """beta * input + alpha * product; a beta of 0 keeps NaN and infinities of the input out."""
    if input.dtype is not product.dtype:
        raise DTypeError(
            f"{input.dtype.name} cannot be added to a product of {product.dtype.name}",
            help=f"convert it with .to(ridgeline.{product.dtype.name})",
        )
    if broadcast_shapes(product.shape, input.shape) != product.shape:
        raise ShapeError(
            f"what is added, {list(input.shape)}, does not fit a product {list(product.shape)}"
        )
    if not product.dtype.is_differentiable:  # torch takes the factors as integers here
        beta, alpha = (b if isinstance(b, Node) else int(b) for b in (beta, alpha))  # type: ignore[arg-type]
        if product.dtype is dtypes.bool_:
            beta, alpha = bool(beta), bool(alpha)
    unscaled = not isinstance(alpha, Node) and alpha == 1
    scaled = product if unscaled else mul(product, alpha)
    if not isinstance(beta, Node):
        if beta == 0:
            return stretch(scaled, broadcast_shapes(input.shape, scaled.shape))
        if beta == 1:
            return add(scaled, input)
    return add(scaled, mul(input, beta))


@public(method=False)
def linear(input: Node, weight: Node, bias: Node | None = None) -> Node:
    """input @ weight.T + bias, rounded once: a small bias is not lost beside a 16-bit product."""
    same_type(input, weight, "linear")
    if not input.shape or len(weight.shape) not in (1, 2) or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: input {list(input.shape)} does not fit weight {list(weight.shape)}: "
            f"{list(input.shape[-1:])} features given, {list(weight.shape[-1:])} expected",
            help="the last axis of the input must equal in_features",
        )
    rank = len(input.shape)
    extents = (*input.shape[:-1], *weight.shape[:-1], input.shape[-1])
    k = len(extents) - 1
    right = (k,) if len(weight.shape) == 1 else (rank - 1, k)
    attrs = _contraction(extents, tuple(range(k)), (*range(rank - 1), k), right)
    if bias is None:
        return contract(input, weight, attrs)
    made = extents[:-1]
    if broadcast_shapes(made, bias.shape) != made:
        raise ShapeError(f"linear: bias {list(bias.shape)} does not fit results {list(made)}")
    if bias.dtype is not input.dtype or not _is_narrow(input.dtype):
        return add(contract(input, weight, attrs), bias)
    wide, by, shift = (cast(operand, dtypes.float32) for operand in (input, weight, bias))
    return cast(add(contract(wide, by, attrs), shift), input.dtype)


def _is_narrow(dtype: dtypes.DType) -> bool:
    return dtype.kind == "float" and dtype.itemsize == 2


@public(method=False, shares=True)
def einsum(equation: str, *operands: Node) -> Node:
    """Sums of products by Einstein's convention: `einsum("ij,jk->ik", a, b)`."""
    nodes: list[Node] = (
        list(operands[0])
        if len(operands) == 1 and isinstance(operands[0], list | tuple)
        else list(operands)
    )
    inputs, output = _parse(equation, nodes)
    dtype = nodes[0].dtype
    for other in nodes[1:]:
        dtype = promote_types(dtype, other.dtype)
    pieces = _distinct([_one_per_label(cast(n, dtype), part) for n, part in zip(nodes, inputs)])
    current, labels = _contracted(pieces, output)
    gone = [i for i, label in enumerate(labels) if label not in output]
    current = sum_(current, gone)
    labels = [label for label in labels if label in output]
    return permute(current, tuple(labels.index(label) for label in output))


Labelled = tuple[Node, list[str]]


def _distinct(pieces: Sequence[Labelled]) -> list[Labelled]:
    """Operands without the axes of size 1 that stand for a larger size: products repeat them."""
    sizes: dict[str, Size] = {}
    for node, labels in pieces:
        for label, size in zip(labels, node.shape):
            before = sizes.setdefault(label, size)
            if before == 1:
                sizes[label] = size
            elif size not in (1, before):
                raise ShapeError(f"einsum: label {label!r} has sizes {before} and {size}")
    return [_without_repeated(node, labels, sizes) for node, labels in pieces]


def _contracted(pieces: Sequence[Labelled], output: Sequence[str]) -> Labelled:
    """The product of all operands, two at a time, in the order that costs least."""
    if len(pieces) == 1:
        return pieces[0]
    alive = dict(enumerate(pieces))
    for position, (first, second) in enumerate(_order(pieces, output), len(pieces)):
        one, other = alive.pop(first), alive.pop(second)
        later = {label for _, rest in alive.values() for label in rest} | set(output)
        alive[position] = _pairwise(*one, *other, later, () if alive else output)
    (found,) = alive.values()
    return found


def _order(pieces: Sequence[Labelled], output: Sequence[str]) -> Sequence[tuple[int, int]]:
    """Which two come next; a size that is not known counts as the largest it can be."""
    if len(pieces) == 2:
        return ((0, 1),)
    sizes: dict[str, int] = {}
    for node, labels in pieces:
        sizes |= {label: bounds(size)[1] for label, size in zip(labels, node.shape)}
    listed = tuple(tuple(labels) for _, labels in pieces)
    return contraction_order(listed, tuple(output), tuple(sizes.values()))


def _parse(equation: str, nodes: Sequence[Node]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the output; an ellipsis becomes labels of its own."""
    text = equation.replace(" ", "")
    terms, arrow, result = text.partition("->")
    parts = terms.split(",")
    if len(parts) != len(nodes) or not nodes:
        raise BadValueError(f"einsum {equation!r} names {len(parts)} operands, got {len(nodes)}")
    inputs: list[list[str]] = []
    widest = 0
    for part, node in zip(parts, nodes):
        head, dots, tail = part.partition("...")
        if not all(c.isalpha() for c in head + tail):
            raise BadValueError(f"einsum {equation!r}: labels are letters")
        extra = len(node.shape) - len(head) - len(tail)
        if extra < 0 or (extra and not dots):
            raise ShapeError(f"einsum {equation!r}: {part!r} does not fit shape {list(node.shape)}")
        widest = max(widest, extra)
        inputs.append([*head, *[f".{i}" for i in range(extra, 0, -1)], *tail])
    broadcast = [f".{i}" for i in range(widest, 0, -1)]
    if arrow:
        head, dots, tail = result.partition("...")
        output = [*head, *(broadcast if dots else ()), *tail]
    else:
        letters = [c for c in terms if c.isalpha()]
        output = [*broadcast, *sorted(c for c in set(letters) if letters.count(c) == 1)]
    known = {label for labels in inputs for label in labels}
    if len(set(output)) < len(output) or not set(output) <= known:
        raise BadValueError(f"einsum {equation!r}: the output repeats or invents a label")
    return inputs, output


def _one_per_label(node: Node, labels: list[str]) -> Labelled:
    """An operand in which each label occurs once: repeated ones are taken on the diagonal."""
    while len(set(labels)) < len(labels):
        label = next(c for c in labels if labels.count(c) > 1)
        first, second = [i for i, c in enumerate(labels) if c == label][:2]
        if node.shape[first] != node.shape[second]:
            raise ShapeError(f"einsum: label {label!r} has two sizes in shape {list(node.shape)}")
        if isinstance(node.shape[first], int):
            node = diagonal(node, 0, first, second)
            rest = [c for position, c in enumerate(labels) if position not in (first, second)]
            labels = [*rest, label]
            continue
        row = iota(node.shape, first, dtypes.int64)
        on_diagonal = row.eq(iota(node.shape, second, dtypes.int64))
        node = sum_(select(on_diagonal, node, full_like(node, 0)), (second,))
        labels = labels[:second] + labels[second + 1 :]
    return node, labels


def _pairwise(
    a: Node,
    a_labels: list[str],
    b: Node,
    b_labels: list[str],
    later: set[str],
    output: Sequence[str],
) -> tuple[Node, list[str]]:
    """Contract two operands, keeping the labels that are still needed.

    In the order of the output, where that is one in which matrices lie.
    """
    a, a_labels = _sum_out(a, a_labels, later | set(b_labels))
    b, b_labels = _sum_out(b, b_labels, later | set(a_labels))
    sizes = dict(zip([*a_labels, *b_labels], [*a.shape, *b.shape]))
    every = list(dict.fromkeys([*a_labels, *b_labels]))
    kept = [label for label in every if label in later]
    if len(kept) == len(every):  # nothing is summed: no zero to begin a sum with has a sign
        shape = tuple(sizes[label] for label in kept)
        return _spread(a, a_labels, kept, shape) * _spread(b, b_labels, kept, shape), kept
    if set(output) == set(kept) and _are_matrices(output, set(a_labels), set(b_labels)):
        kept = list(output)
        if any(label in a_labels and label not in b_labels for label in kept[-1:]):
            a, a_labels, b, b_labels = b, b_labels, a, a_labels  # rows come before columns
    order = [*kept, *(label for label in every if label not in kept)]
    number = {label: i for i, label in enumerate(order)}
    attrs = _contraction(
        tuple(sizes[label] for label in order),
        tuple(number[label] for label in kept),
        tuple(number[label] for label in a_labels),
        tuple(number[label] for label in b_labels),
    )
    return contract(a, b, attrs), kept


def _are_matrices(output: Sequence[str], left: set[str], right: set[str]) -> bool:
    """True for labels of both operands, then all others of one, and then those of the other."""
    kinds = [(label in left) + 2 * (label in right) for label in output]
    batches = kinds.count(3)
    rest = kinds[batches:]
    return 3 not in rest and sum(a != b for a, b in pairwise(rest)) <= 1


def _spread(node: Node, labels: list[str], over: list[str], shape: tuple[Size, ...]) -> Node:
    """An operand with all labels in their order, repeated along those that it lacks."""
    order = sorted(range(len(labels)), key=lambda position: over.index(labels[position]))
    turned = permute(node, tuple(order))
    return broadcast(turned, shape, tuple(over.index(labels[position]) for position in order))


def _sum_out(node: Node, labels: list[str], needed: set[str]) -> tuple[Node, list[str]]:
    gone = [i for i, label in enumerate(labels) if label not in needed]
    return sum_(node, gone), [label for label in labels if label in needed]


def _without_repeated(
    node: Node, labels: list[str], sizes: dict[str, Size]
) -> tuple[Node, list[str]]:
    """Axes of size 1 that stand for a larger size are dropped: the contraction repeats them."""
    kept = [i for i, label in enumerate(labels) if node.shape[i] == sizes[label]]
    dropped = reshape(node, tuple(node.shape[i] for i in kept))
    return dropped, [labels[i] for i in kept]


def _summed(node: Node, axis: int) -> Node:
    shape = tuple(1 if a == axis else s for a, s in enumerate(node.shape))
    return reshape(sum_(node, (axis,)), shape)


@public(method=False)
def tensordot(a: Node, b: Node, dims: int | Sequence[Sequence[int]] = 2) -> Node:
    """Contraction over some axes of both operands."""
    if isinstance(dims, int):
        if not 0 <= dims <= min(len(a.shape), len(b.shape)):
            raise BadValueError(f"tensordot over {dims} axes of {len(a.shape)} and {len(b.shape)}")
        left = list(range(len(a.shape) - dims, len(a.shape)))
        right = list(range(dims))
    else:
        left = [d % len(a.shape) for d in dims[0]]
        right = [d % len(b.shape) for d in dims[1]]
    same_type(a, b, "tensordot")
    for i, j in zip(left, right):  # an axis of size 1 stands for any size, as in torch
        if a.shape[i] == 1 != b.shape[j]:
            b = _summed(b, j)
        elif b.shape[j] == 1 != a.shape[i]:
            a = _summed(a, i)
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ShapeError(f"tensordot: axes {dims} differ in {list(a.shape)} and {list(b.shape)}")
    names = [chr(ord("a") + i) for i in range(len(a.shape) + len(b.shape))]
    first, second = names[: len(a.shape)], names[len(a.shape) :]
    for i, j in zip(left, right):
        second[j] = first[i]
    output = [n for i, n in enumerate(first) if i not in left]
    output += [n for j, n in enumerate(second) if j not in right]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(output)}", a, b)
