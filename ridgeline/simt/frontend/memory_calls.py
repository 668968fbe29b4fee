"""Calls in a kernel on memory: shared and local arrays, atomics, vector accesses, fragments."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.simt.frontend.arguments import element, matched
from ridgeline.simt.frontend.arrays import writable
from ridgeline.simt.frontend.context import Context, Items, KernelValue, Static
from ridgeline.simt.frontend.sync_calls import SCOPES, one_of
from ridgeline.simt.ir import (
    ArrayFill,
    Atomic,
    Builtin,
    Compute,
    Fragment,
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    Number,
    ThreadArray,
    ThreadExpr,
    VectorRead,
    VectorWrite,
)
from ridgeline.simt.language import ATOMICS, Dynamic
from ridgeline.simt.types import ElementType, element_of, short

_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
_INTEGERS_ONLY = ("and", "or", "xor", "inc", "dec")


def _shape(c: Context, node: ast.expr, name: str) -> tuple[int | str, ...]:
    help = f"sizes of {name} memory are numbers or const parameters"
    if name == "shared":
        help += "; shared(dynamic, type) has the launch's length"
    value = c.static(node, f"the size of {name} memory", help)
    if isinstance(value, Dynamic):
        return ("dynamic",)
    sizes = value if isinstance(value, tuple) else (value,)
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            c.fail(node, f"{size!r} is no size of an array", help)
    return sizes


def _element_type(c: Context, node: ast.expr) -> ElementType:
    found = element_of(c.static(node, "the element type"))
    if found is None:
        c.fail(node, "this is no element type", "one of i32, f32, f16, …")
    return found


def _shared(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "shared", ("shape", "type"))
    shape, kind = _shape(c, found["shape"], "shared"), _element_type(c, found["type"])
    if shape == ("dynamic",) and any(a.shape == shape for a in c.arrays if a.space == "shared"):
        c.fail(node, "a kernel has one dynamic shared array", "cut pieces out of it by index")
    return _declared(c, ThreadArray(c.unique(c.scope.prefix + c.hint), kind.dtype, shape, "shared"))


def _declared(c: Context, array: ThreadArray) -> ThreadArray:
    c.arrays.append(array)
    return array


def _local(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "local", ("shape", "type"), ("fill",))
    shape, kind = _shape(c, found["shape"], "local"), _element_type(c, found["type"])
    if shape == ("dynamic",):
        c.fail(node, "local memory has no dynamic length")
    fill = c.static(found["fill"], "the fill") if "fill" in found else None
    array = ThreadArray(c.unique(c.scope.prefix + c.hint), kind.dtype, shape, "local")
    if fill is not None:
        value = c.converted(Static(fill), kind.dtype, found["fill"], "the array")
        assert isinstance(value, Number)
        c.emit(ArrayFill(array, value, c.place(node)))
    return _declared(c, array)


def _atomic(name: str) -> Callable[[Context, ast.Call], KernelValue]:
    op: Any = name.split("_")[1]
    volatile = name.startswith("volatile")
    takes = {"cas": ("compare", "value"), "load": ()}.get(op, ("value",))

    def atomic(c: Context, node: ast.Call) -> KernelValue:
        array, index, found = element(c, node, name, takes, ("scope", "order"))
        if op != "load":
            writable(c, node, array)
        _check_atomic(c, node, name, op, array)
        values = c.evaluate_in_order([found[parameter] for parameter in takes])
        parts = [c.converted(v, array.dtype, node, f"an element of {array.name}") for v in values]
        target = None if op == "store" else c.variable(c.hint, array.dtype)
        scope = one_of(c, found, "scope", SCOPES, "device")
        order = one_of(c, found, "order", _ORDERS, "relaxed")
        value = parts[-1] if parts else None
        compare = parts[0] if op == "cas" else None
        c.emit(
            Atomic(op, target, array, index, value, compare, scope, order, c.place(node), volatile)
        )
        return Static(None) if target is None else target

    return atomic


def _check_atomic(c: Context, node: ast.AST, name: str, op: str, array: ThreadArray) -> None:
    if array.space not in ("global", "shared"):
        c.fail(node, f"{array.name} is {array.space} memory, which no other thread sees")
    dtype = array.dtype
    if op in ("load", "store"):
        return
    if dtype.kind == "float" and (op in _INTEGERS_ONLY or dtype.itemsize == 1):
        c.fail(node, f"{name} takes integers, and {array.name} holds {short(dtype)}")
    if dtype.kind in ("int", "uint") and dtype.itemsize < 4 and op != "cas":
        c.fail(node, f"{name} takes i32, u32, i64 or u64, and {array.name} holds {short(dtype)}")
    if dtype.kind == "bool":
        c.fail(node, f"{name} does not take bools", "use an array of i32")


def _vector_load(width: int) -> Callable[[Context, ast.Call], KernelValue]:
    def load(c: Context, node: ast.Call) -> KernelValue:
        array, index, _ = element(c, node, f"load{width}", ())
        targets = tuple(c.variable(f"{c.hint}_{'xyzwabcd'[k]}", array.dtype) for k in range(width))
        _check_width(c, node, array, width)
        c.emit(VectorRead(targets, array, index, c.place(node)))
        return Items(targets)

    return load


def _vector_store(width: int) -> Callable[[Context, ast.Call], KernelValue]:
    names = tuple("xyzwabcd"[:width])

    def store(c: Context, node: ast.Call) -> KernelValue:
        array, index, found = element(c, node, f"store{width}", names)
        writable(c, node, array)
        _check_width(c, node, array, width)
        values = c.evaluate_in_order([found[name] for name in names])
        parts = tuple(
            c.converted(v, array.dtype, node, f"an element of {array.name}") for v in values
        )
        c.emit(VectorWrite(array, index, parts, c.place(node)))
        return Static(None)

    return store


def _check_width(c: Context, node: ast.AST, array: ThreadArray, width: int) -> None:
    if array.dtype.itemsize * width > 16:
        most = 16 // array.dtype.itemsize
        c.fail(node, f"a thread accesses 16 bytes at once: {most} elements of {short(array.dtype)}")


def _global_index(c: Context, node: ast.Call) -> KernelValue:
    """numba's `grid(n)`: the thread's place in the grid."""
    dims = c.static(matched(c, node, "grid", ("ndim",))["ndim"], "the number of axes")
    if dims not in (1, 2, 3):
        c.fail(node, "grid takes 1, 2 or 3")
    found = tuple(global_thread(axis) for axis in range(dims))
    return found[0] if dims == 1 else Items(found)


def global_thread(axis: int) -> ThreadExpr:
    """blockIdx * blockDim + threadIdx along an axis."""
    i32 = dtypes.int32
    start = Compute("mul", (Builtin("blockIdx", axis), Builtin("blockDim", axis)), i32)
    return Compute("add", (start, Builtin("threadIdx", axis)), i32)


_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8), (8, 8, 4))


def _fragment(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "wmma.fragment", ("use", "m", "n", "k", "type"), ("layout",))
    use = one_of(c, found, "use", ("a", "b", "accumulator"), "")
    m, n, k = (c.static(found[name], name) for name in "mnk")
    if (m, n, k) not in _SHAPES:
        c.fail(node, f"no tensor core multiplies {m}x{n}x{k}", f"one of {_SHAPES}")
    layout = one_of(c, found, "layout", ("row", "col"), "row")
    name = c.unique(c.scope.prefix + c.hint)
    made = Fragment(name, use, m, n, k, _element_type(c, found["type"]).dtype, layout)
    c.fragments.append(made)
    return made


def _as_fragment(c: Context, node: ast.expr) -> Fragment:
    value = c.evaluate(node)
    if not isinstance(value, Fragment):
        c.fail(node, "this is no fragment", "make one with wmma.fragment(…)")
    return value


def _fill(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "wmma.fill_fragment", ("fragment", "value"))
    fragment = _as_fragment(c, found["fragment"])
    value = c.converted(c.evaluate(found["value"]), fragment.dtype, node, fragment.name)
    c.emit(FragmentFill(fragment, value, c.place(node)))
    return Static(None)


def _load_matrix(c: Context, node: ast.Call) -> KernelValue:
    fragment = _as_fragment(c, node.args[0]) if node.args else None
    if fragment is None:
        c.fail(node, "load_matrix_sync takes a fragment, an element and a stride")
    rest = ast.copy_location(ast.Call(node.func, node.args[1:], node.keywords), node)
    array, index, found = element(c, rest, "wmma.load_matrix_sync", ("stride",))
    stride = c.converted(c.evaluate(found["stride"]), dtypes.int32, node, "the stride")
    if array.dtype is not fragment.dtype:
        c.fail(
            node,
            f"{fragment.name} holds {short(fragment.dtype)}, {array.name} {short(array.dtype)}",
        )
    c.emit(FragmentLoad(fragment, array, index, stride, c.place(node)))
    return Static(None)


def _mma(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "wmma.mma_sync", ("d", "a", "b", "c"))
    d, a, b, third = (_as_fragment(c, found[name]) for name in ("d", "a", "b", "c"))
    if (d.use, a.use, b.use, third.use) != ("accumulator", "a", "b", "accumulator"):
        c.fail(node, "mma_sync takes an accumulator, a fragment a, a fragment b, an accumulator")
    c.emit(FragmentMultiply(d, a, b, third, c.place(node)))
    return Static(None)


def _store_matrix(c: Context, node: ast.Call) -> KernelValue:
    array, index, found = element(
        c, node, "wmma.store_matrix_sync", ("fragment", "stride"), ("layout",)
    )
    fragment = _as_fragment(c, found["fragment"])
    writable(c, node, array)
    stride = c.converted(c.evaluate(found["stride"]), dtypes.int32, node, "the stride")
    layout = one_of(c, found, "layout", ("row", "col"), "row")
    c.emit(FragmentStore(fragment, array, index, stride, layout, c.place(node)))
    return Static(None)


MEMORY_CALLS: dict[str, Callable[[Context, ast.Call], KernelValue]] = {
    "shared": _shared,
    "local": _local,
    "grid": _global_index,
    **{name: _atomic(name) for name in ATOMICS},
    **{f"load{width}": _vector_load(width) for width in (2, 4, 8)},
    **{f"store{width}": _vector_store(width) for width in (2, 4, 8)},
    "wmma.fragment": _fragment,
    "wmma.fill_fragment": _fill,
    "wmma.load_matrix_sync": _load_matrix,
    "wmma.mma_sync": _mma,
    "wmma.store_matrix_sync": _store_matrix,
}
