"""Arrays in a kernel: their sizes, their elements, and the guarded `get` and `put`."""

from __future__ import annotations

import ast

from ridgeline.simt.frontend.context import (
    Context,
    Items,
    KernelValue,
    PeerArray,
    Static,
    describe,
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


def array_attribute(c: Context, node: ast.Attribute, array: ThreadArray) -> KernelValue:
    """`a.shape`, `a.size`, `a.ndim`."""
    if node.attr == "shape":
        return Items(tuple(extent(array, axis) for axis in range(len(array.shape))))
    if node.attr == "ndim":
        return Static(len(array.shape))
    if node.attr == "size":
        return _element_count(c, array)
    known = ("shape", "size", "ndim", "get", "put")
    raise c.refused(
        node,
        f"the array {array.name} has no {node.attr}",
        nearest(node.attr, known) or "it has shape, size, ndim, get and put",
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
    """What is indexed and by what; `a[i][j]` is `a[i, j]`."""
    nodes: list[ast.expr] = []
    base: ast.expr = node
    while isinstance(base, ast.Subscript):
        part = base.slice
        nodes = [*(part.elts if isinstance(part, ast.Tuple) else [part]), *nodes]
        below = base.value
        if not (isinstance(below, ast.Subscript) and _is_array(c, below)):
            base = below
            break
        base = below
    found, *index = c.evaluate_in_order([base, *nodes])
    return found, index


def _is_array(c: Context, node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and isinstance(c.scope.names.get(node.id), ThreadArray)


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
        c.fail(node, "an index is an integer", "convert it by name: i32(…)")
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
