"""Arrays in a kernel: their sizes, their elements, and the guarded `get` and `put`."""

from __future__ import annotations

import ast

from ridgeline.simt.frontend import parts
from ridgeline.simt.frontend.context import (
    ArrayPart,
    Context,
    Items,
    KernelValue,
    PeerArray,
    Static,
    describe,
    quotient_help,
    unwrapped,
)
from ridgeline.simt.frontend.problems import nearest
from ridgeline.simt.ir import (
    Compute,
    ElementRead,
    ElementWrite,
    Extent,
    Number,
    ThreadArray,
    ThreadExpr,
)
from ridgeline.simt.types import element_of


def array_attribute(c: Context, node: ast.Attribute, array: ThreadArray) -> KernelValue:
    """`a.shape`, `a.size`, `a.ndim`, and `a.dtype`, which converts to the elements' type."""
    if node.attr == "dtype":
        return Static(element_of(array.dtype))
    if node.attr == "shape":
        return Items(tuple(extent(array, axis) for axis in range(len(array.shape))))
    if node.attr == "ndim":
        return Static(len(array.shape))
    if node.attr == "size":
        return _element_count(c, array)
    known = ("shape", "size", "ndim", "dtype", "get", "put")
    raise c.refused(
        node,
        f"the array {array.name} has no {node.attr}",
        nearest(node.attr, known) or "it has shape, size, ndim, dtype, get and put",
    )


def part_attribute(c: Context, node: ast.Attribute, part: ArrayPart) -> KernelValue:
    """`a[i:j].shape`, `.size`, `.ndim` and `.dtype`."""
    sizes = parts.sizes(part)
    if node.attr == "dtype":
        return Static(element_of(part.array.dtype))
    if node.attr == "shape":
        return Items(sizes)
    if node.attr == "ndim":
        return Static(len(sizes))
    if node.attr == "size" and len(sizes) == 1:
        return sizes[0]
    raise c.refused(
        node,
        f"{describe(part)} has no {node.attr}",
        "it has shape, ndim and dtype, with one axis size; get and put belong to whole arrays",
    )


def extent(array: ThreadArray, axis: int) -> KernelValue:
    """One size of an array: a number where it is known already."""
    size = array.shape[axis]
    return Static(size) if isinstance(size, int) else Extent(array, axis)


def _element_count(c: Context, array: ThreadArray) -> KernelValue:
    known, sizes = 1, []
    for axis in range(len(array.shape)):
        size = extent(array, axis)
        if isinstance(size, Static):
            known *= size.value
        else:
            sizes.append(size)
    if not sizes:
        return Static(known)
    product: ThreadExpr = sizes[0]  # type: ignore[assignment]
    for size in sizes[1:]:
        product = Compute("mul", (product, size), product.dtype)  # type: ignore[arg-type]
    if known != 1:
        product = Compute("mul", (product, Number(known, product.dtype)), product.dtype)
    return product


def indexed(c: Context, node: ast.Subscript) -> tuple[KernelValue, list[KernelValue]]:
    """What is indexed and by what; `a[i][j]` is `a[i, j]`, elements of parts are the array's."""
    base, index = indexed_part(c, node)
    for place in index:
        if isinstance(place, ast.Slice):
            c.fail(place, "a slice is no element", "index one element, or write a loop")
    if isinstance(base, ArrayPart):
        axes = len(parts.sizes(base))
        c.fail(node, f"{describe(base)} with {axes} axes is indexed by {len(index)}")
    return base, index  # type: ignore[return-value]


def indexed_part(
    c: Context, node: ast.Subscript
) -> tuple[KernelValue, list[KernelValue | ast.Slice]]:
    """The same, with slices as they stand."""
    nodes: list[ast.expr] = []
    base: ast.expr = node
    while isinstance(base, ast.Subscript):
        part = base.slice
        nodes = [*(part.elts if isinstance(part, ast.Tuple) else [part]), *nodes]
        below = base.value
        if not (isinstance(below, ast.Subscript) and _is_element(c, below)):
            base = below
            break
        base = below
    found, *values = c.evaluate_in_order([base, *(n for n in nodes if not _is_slice(n))])
    rest = iter(values)
    index = [node if isinstance(node, ast.Slice) else next(rest) for node in nodes]
    if isinstance(found, ArrayPart) and len(values) == len(nodes):
        full = parts.full_index(c, node, found, values)
        if full is not None:
            return found.array, [*full]
    return found, index


def _is_slice(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice)


def _is_element(c: Context, node: ast.expr) -> bool:
    """True for `a[i]` and `a[i][j]` of an array, without a slice."""
    while isinstance(node, ast.Subscript):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(map(_is_slice, index)):
            return False
        node = node.value
    held = c.scope.names.get(node.id) if isinstance(node, ast.Name) else None
    return isinstance(held, (ThreadArray, ArrayPart))


def element_index(
    c: Context, node: ast.AST, array: ThreadArray, index: list[KernelValue]
) -> tuple[ThreadExpr, ...]:
    """Indices of an element, checked for number, type and what is known of them."""
    flat = [item for part in index for item in (part.items if isinstance(part, Items) else [part])]
    if len(flat) != len(array.shape):
        axes = f"{len(array.shape)} {'axis' if len(array.shape) == 1 else 'axes'}"
        c.fail(
            node,
            f"{array.name} has {axes} and is indexed by {len(flat)}",
            f"its sizes are ({', '.join(map(str, array.shape))})",
        )
    return tuple(_one_index(c, node, array, axis, item) for axis, item in enumerate(flat))


def _one_index(
    c: Context, node: ast.AST, array: ThreadArray, axis: int, value: KernelValue
) -> ThreadExpr:
    known, size = unwrapped(value), array.shape[axis]
    if isinstance(known, int) and known < 0:
        c.fail(
            node,
            f"index {known} of {array.name} is negative, and a kernel does not count from the end",
            f"write {array.name}.shape[{axis}] - {-known}",
        )
    if isinstance(known, int) and isinstance(size, int) and known >= size:
        c.fail(node, f"index {known} is past the end of {array.name}, which has {size}")
    found = c.expression(value, node)
    if found.dtype.kind not in ("int", "uint"):
        c.fail(node, "an index is an integer", quotient_help(found) + "convert it by name: i32(…)")
    return found


def element_read(
    c: Context, node: ast.AST, base: KernelValue, index: list[KernelValue],
    default: KernelValue | None = None,
) -> ThreadExpr:  # fmt: skip
    """The element of an array."""
    array, peer = as_array(c, node, base)
    fill = None if default is None else c.converted(default, array.dtype, node, f"{array.name}")
    places = element_index(c, node, array, index)
    return ElementRead(array, places, c.place(node), fill, peer)


def element_write(
    c: Context, node: ast.AST, base: KernelValue, index: tuple[ThreadExpr, ...],
    value: KernelValue, guarded: bool = False,
) -> None:  # fmt: skip
    """Store a value in an element."""
    array, peer = as_array(c, node, base)
    writable(c, node, array)
    stored = c.converted(value, array.dtype, node, f"an element of {array.name}")
    c.emit(ElementWrite(array, index, stored, c.place(node), guarded, peer))


def as_array(
    c: Context, node: ast.AST, value: KernelValue
) -> tuple[ThreadArray, ThreadExpr | None]:
    """An array, and the block of the cluster it is in if that is another one."""
    if isinstance(value, PeerArray):
        return value.array, value.peer
    if isinstance(value, ArrayPart):
        c.fail(node, f"{describe(value)} is no whole array", f"index {value.array.name} itself")
    if not isinstance(value, ThreadArray):
        c.fail(node, f"{describe(value)} is no array")
    return value, None


def writable(c: Context, node: ast.AST, array: ThreadArray) -> None:
    """Refuse writes to what the kernel only reads."""
    if array.access == "in":
        help = f"declare it out[…] or inout[…]: {array.name}: inout[…]"
        c.fail(
            node,
            f"{array.name} is read only",
            "constant memory cannot be written" if array.space == "constant" else help,
        )
