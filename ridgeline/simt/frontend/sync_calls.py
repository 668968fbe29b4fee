"""Calls in a kernel that order threads: barriers, fences, asynchronous copies, clusters."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.simt.frontend.arguments import matched
from ridgeline.simt.frontend.arrays import as_array, element_index, indexed
from ridgeline.simt.frontend.context import Context, KernelValue, PeerArray, Static
from ridgeline.simt.frontend.expressions import truth
from ridgeline.simt.ir import AsyncCommit, AsyncCopy, AsyncWait, Barrier, Fence, ThreadArray

SCOPES = ("block", "cluster", "device", "system")


def one_of(
    c: Context, found: dict[str, ast.expr], name: str, known: tuple[str, ...], start: str
) -> Any:
    """A named choice among words."""
    value = c.static(found[name], name) if name in found else start
    if value not in known:
        c.fail(found[name], f"{value!r} is no {name}", f"one of {', '.join(known)}")
    return value


def _barrier(scope: Any) -> Callable[[Context, ast.Call], KernelValue]:
    def barrier(c: Context, node: ast.Call) -> KernelValue:
        matched(c, node, "the barrier", ())
        c.emit(Barrier(c.place(node), scope))
        return Static(None)

    return barrier


def _voting(vote: Any) -> Callable[[Context, ast.Call], KernelValue]:
    def barrier(c: Context, node: ast.Call) -> KernelValue:
        found = matched(c, node, f"syncthreads_{vote}", ("predicate",))
        value = truth(c, c.expression(c.evaluate(found["predicate"]), node))
        target = c.variable(c.hint, dtypes.int32 if vote == "count" else dtypes.bool_)
        c.emit(Barrier(c.place(node), "block", vote, value, target))
        return target

    return barrier


def _fence(scope: str) -> Callable[[Context, ast.Call], KernelValue]:
    def fence(c: Context, node: ast.Call) -> KernelValue:
        found = matched(c, node, "fence", (), ("scope",))
        c.emit(Fence(one_of(c, found, "scope", SCOPES, scope), c.place(node)))
        return Static(None)

    return fence


def _copy(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "cp_async", ("target", "source"), ("count",))
    both = []
    for name in ("target", "source"):
        part = found[name]
        if not isinstance(part, ast.Subscript):
            c.fail(part, "cp_async takes elements", "cp_async(buffer[i], array[j], count)")
        base, index = indexed(c, part)
        array, _ = as_array(c, part, base)
        both.append((array, element_index(c, part, array, index)))
    (target, there), (source, here) = both
    count = c.static(found["count"], "the count") if "count" in found else 1
    if target.space != "shared" or source.space != "global" or target.dtype is not source.dtype:
        c.fail(node, "cp_async copies from global to shared memory, of one type")
    if not isinstance(count, int) or count * target.dtype.itemsize not in (4, 8, 16):
        c.fail(node, "cp_async copies 4, 8 or 16 bytes", "the count is in elements")
    c.emit(AsyncCopy(target, there, source, here, count, c.place(node)))
    return Static(None)


def _commit(c: Context, node: ast.Call) -> KernelValue:
    matched(c, node, "cp_async_commit", ())
    c.emit(AsyncCommit(c.place(node)))
    return Static(None)


def _wait(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "cp_async_wait", (), ("pending",))
    pending = c.static(found["pending"], "the number of groups") if "pending" in found else 0
    if not isinstance(pending, int) or pending < 0:
        c.fail(node, "cp_async_wait takes a number of groups")
    c.emit(AsyncWait(pending, c.place(node)))
    return Static(None)


def _remote(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "remote", ("array", "rank"))
    array = c.evaluate(found["array"])
    if not isinstance(array, ThreadArray) or array.space != "shared":
        c.fail(node, "remote(array, rank) takes an array in shared memory")
    return PeerArray(array, c.expression(c.evaluate(found["rank"]), node))


SYNC_CALLS: dict[str, Callable[[Context, ast.Call], KernelValue]] = {
    "syncthreads": _barrier("block"),
    "grid_sync": _barrier("grid"),
    "cluster_sync": _barrier("cluster"),
    "syncthreads_count": _voting("count"),
    "syncthreads_and": _voting("and"),
    "syncthreads_or": _voting("or"),
    "fence": _fence("device"),
    "threadfence": _fence("device"),
    "threadfence_block": _fence("block"),
    "threadfence_system": _fence("system"),
    "cp_async": _copy,
    "cp_async_commit": _commit,
    "cp_async_wait": _wait,
    "remote": _remote,
}
