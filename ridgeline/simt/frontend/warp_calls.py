"""Calls in a kernel of what lanes of a warp do together."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.simt.frontend.arguments import matched
from ridgeline.simt.frontend.context import Context, KernelValue, Static
from ridgeline.simt.frontend.expressions import truth
from ridgeline.simt.ir import Convert, Number, ThreadExpr, WarpOp
from ridgeline.simt.language import WARP_REDUCTIONS, WARP_SHUFFLES

_ARGUMENTS = {"shfl": "lane", "shfl_up": "delta", "shfl_down": "delta", "shfl_xor": "lane_mask"}


def _mask(c: Context, found: dict[str, ast.expr]) -> ThreadExpr | None:
    if "mask" not in found:
        return None
    node = found["mask"]
    value = c.evaluate(node)
    if isinstance(value, Static) and isinstance(value.value, int):
        if not 0 < value.value < 1 << 32:
            c.fail(node, "a mask has a bit for each of 32 lanes", "all lanes: 0xffffffff")
        return Number(value.value, dtypes.uint32)
    expr = c.expression(value, node)
    if expr.dtype.kind not in ("int", "uint"):
        c.fail(node, "a mask is an integer")
    return expr if expr.dtype is dtypes.uint32 else Convert(expr, dtypes.uint32)


def _shuffle(name: Any) -> Callable[[Context, ast.Call], KernelValue]:
    argument_name = _ARGUMENTS[name]

    def shuffle(c: Context, node: ast.Call) -> KernelValue:
        found = matched(c, node, name, ("value", argument_name), ("mask", "width"))
        pair = c.evaluate_in_order([found["value"], found[argument_name]])
        value = c.expression(pair[0], node)
        argument = c.converted(pair[1], dtypes.int32, node, argument_name)
        width = c.static(found["width"], "the width") if "width" in found else 32
        if width not in (1, 2, 4, 8, 16, 32):
            c.fail(node, f"a shuffle's width is a power of two up to 32, not {width!r}")
        target = c.variable(c.hint, value.dtype)
        c.emit(WarpOp(name, target, value, argument, _mask(c, found), width, c.place(node)))
        return target

    return shuffle


def _vote(name: Any) -> Callable[[Context, ast.Call], KernelValue]:
    def vote(c: Context, node: ast.Call) -> KernelValue:
        found = matched(c, node, name, ("value",), ("mask",))
        value = c.expression(c.evaluate(found["value"]), node)
        if name != "match":
            value = truth(c, value)
        kind = dtypes.bool_ if name in ("any", "all") else dtypes.uint32
        target = c.variable(c.hint, kind)
        c.emit(WarpOp(name, target, value, None, _mask(c, found), 32, c.place(node)))
        return target

    return vote


def _reduction(name: str, op: Any) -> Callable[[Context, ast.Call], KernelValue]:
    def reduction(c: Context, node: ast.Call) -> KernelValue:
        found = matched(c, node, name, ("value",), ("mask",))
        value = c.expression(c.evaluate(found["value"]), node)
        if op in ("and", "or", "xor") and value.dtype.kind == "float":
            c.fail(node, f"{name} joins the bits of integers")
        target = c.variable(c.hint, value.dtype)
        c.emit(WarpOp(op, target, value, None, _mask(c, found), 32, c.place(node)))
        return target

    return reduction


def _syncwarp(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "syncwarp", (), ("mask",))
    c.emit(WarpOp("sync", None, None, None, _mask(c, found), 32, c.place(node)))
    return Static(None)


def _activemask(c: Context, node: ast.Call) -> KernelValue:
    matched(c, node, "activemask", ())
    target = c.variable(c.hint, dtypes.uint32)
    c.emit(WarpOp("activemask", target, None, None, None, 32, c.place(node)))
    return target


WARP_CALLS: dict[str, Callable[[Context, ast.Call], KernelValue]] = {
    **{name: _shuffle(name) for name in WARP_SHUFFLES},
    **{name: _vote(name) for name in ("ballot", "any", "all", "match")},
    **{name: _reduction(name, op) for name, op in WARP_REDUCTIONS.items()},
    "syncwarp": _syncwarp,
    "activemask": _activemask,
}
