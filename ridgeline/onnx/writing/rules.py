"""A rule for each primitive op that has a form in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import PROJ, Node
from ridgeline.graph.sizes import Size
from ridgeline.onnx.writing.bodies import (
    write_branches,
    write_iterations,
    write_repeated,
    write_running,
)
from ridgeline.onnx.writing.contractions import write_contraction
from ridgeline.onnx.writing.emitter import Emitter, OnnxExportError
from ridgeline.onnx.writing.pointwise import where_made, write_scalar
from ridgeline.scalars import TABLE

Rule = Callable[[Emitter, Node, list[str]], Any]
_BACK = -(1 << 62)  # before the first element, for a slice that goes backwards


def write(emitter: Emitter, node: Node) -> None:
    """Write one node, whose inputs are written; its name, or names, are then known."""
    name = node.op.name
    if node.op is PROJ:
        emitter.names[node] = emitter.several[node.inputs[0]][node.attrs.output]
        return
    if name in TABLE:
        emitter.names[node] = _scalar(emitter, node)
        return
    rule = _RULES.get(name)
    if rule is None:
        raise OnnxExportError(f"{name} has no form in ONNX", note=where_made(node))
    emitter.names[node] = rule(emitter, node, [emitter.name(each) for each in node.inputs])


def _scalar(emitter: Emitter, node: Node) -> str:
    """A scalar operation; operands that are broadcast stay narrow where the result is not."""
    rank = len(node.types[0].shape)
    covered = [False] * rank
    for each in node.inputs:
        if each.op.name != "broadcast" or each not in emitter.unspread:
            covered = [True] * rank
        else:
            for axis in each.attrs.axes:
                covered[axis] = covered[axis] or True
    given = [emitter.unspread.get(each, "") if all(covered) else "" for each in node.inputs]
    names = [short or emitter.name(each) for short, each in zip(given, node.inputs)]
    return write_scalar(emitter, node, names)


def _broadcast(emitter: Emitter, node: Node, given: list[str]) -> str:
    """Axes of length 1 first; they are spread where no operator does that by itself."""
    rank, axes = len(node.attrs.shape), list(node.attrs.axes)
    missing = [axis for axis in range(rank) if axis not in axes]
    narrow = given[0]
    if missing:
        narrow = emitter.add("Unsqueeze", [narrow, emitter.integers(missing)])
    emitter.unspread[node] = narrow
    return emitter.add("Expand", [narrow, emitter.shape(node.attrs.shape)])


def _reshape(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Reshape", [given[0], emitter.shape(node.attrs.shape)], allowzero=1)


def _permute(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Transpose", given, perm=list(node.attrs.order))


def _slice(emitter: Emitter, node: Node, given: list[str]) -> str:
    attrs, lengths = node.attrs, node.inputs[0].types[0].shape
    axes, starts, ends, steps = [], [], [], []
    for axis, (start, size, step) in enumerate(zip(attrs.starts, attrs.sizes, attrs.steps)):
        if start == 0 and step == 1 and size == lengths[axis]:
            continue
        end: Size = start + size * step if step < 0 else start + (size - 1) * step + 1
        if isinstance(end, int) and end < 0:
            end = _BACK
        if size == 0:
            end = start
        axes.append(axis)
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if not axes:
        return given[0]
    return emitter.add(
        "Slice",
        [given[0], emitter.shape(starts), emitter.shape(ends), emitter.integers(axes),
         emitter.integers(steps)],
    )  # fmt: skip


def _pad(emitter: Emitter, node: Node, given: list[str]) -> str:
    attrs, name = node.attrs, given[0]
    kind = node.types[0].dtype
    shape = list(node.inputs[0].types[0].shape)
    carrier = dtypes.uint8 if kind is dtypes.bool_ else kind
    value = emitter.constant(attrs.value, carrier.numpy)
    if carrier is not kind:
        name = emitter.cast(name, carrier)
    for axis, gap in enumerate(attrs.interior):
        if (
            gap
        ):  # each element becomes a row of itself and what lies between, of which the last goes
            rank = len(shape) + 1
            name = emitter.add("Unsqueeze", [name, emitter.integers([axis + 1])])
            pads = [0] * (2 * rank)
            pads[rank + axis + 1] = gap
            name = emitter.add("Pad", [name, emitter.integers(pads), value])
            shape[axis] = shape[axis] * (gap + 1)
            name = emitter.add("Reshape", [name, emitter.shape(shape)])
            shape[axis] = shape[axis] - gap
            ends = emitter.shape([shape[axis]])
            first, at = emitter.integers([0]), emitter.integers([axis])
            name = emitter.add("Slice", [name, first, ends, at])
    if any(n != 0 for n in (*attrs.low, *attrs.high)):
        name = emitter.add("Pad", [name, emitter.shape([*attrs.low, *attrs.high]), value])
    return name if carrier is kind else emitter.cast(name, kind)


def _concat(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Concat", given, axis=node.attrs.axis)


def _reduce(emitter: Emitter, node: Node, given: list[str]) -> str:
    kind, monoid = node.types[0].dtype, node.attrs.monoid
    axes = emitter.integers(node.attrs.axes)
    ops = {"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "any": "Max", "all": "Min",
           "or": "Max", "and": "Min"}  # fmt: skip
    if monoid not in ops:
        raise OnnxExportError(f"a {monoid} over axes has no form in ONNX", note=where_made(node))
    wide = _summed_in(kind)
    name = given[0] if wide is kind else emitter.cast(given[0], wide)
    made = emitter.add(f"Reduce{ops[monoid]}", [name, axes], keepdims=0)
    return made if wide is kind else emitter.cast(made, kind)


def _summed_in(kind: dtypes.DType) -> dtypes.DType:
    """A type that runtimes reduce."""
    if kind in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        return kind
    return dtypes.float32 if kind.is_floating_point else dtypes.int32


def _arg_reduce(emitter: Emitter, node: Node, given: list[str]) -> str:
    """The largest or smallest along an axis, and its place."""
    ops = ("ReduceMax", "ArgMax") if node.attrs.monoid == "argmax" else ("ReduceMin", "ArgMin")
    axis, kind, place = node.attrs.axis, node.types[0].dtype, node.types[1].dtype
    wide = _summed_in(kind)
    name = given[0] if wide is kind else emitter.cast(given[0], wide)
    best = emitter.add(ops[0], [name, emitter.integers([axis])], keepdims=0)
    at = emitter.add(ops[1], [name], axis=axis, keepdims=0)
    best = best if wide is kind else emitter.cast(best, kind)
    emitter.several[node] = [best, at if place is dtypes.int64 else emitter.cast(at, place)]
    return best


def _contract(emitter: Emitter, node: Node, given: list[str]) -> str:
    kind = node.types[0].dtype
    wide = dtypes.float32 if kind.is_floating_point and kind.itemsize < 4 else kind
    if kind.is_integer and kind.itemsize < 4:
        wide = dtypes.int32
    names = given if wide is kind else [emitter.cast(each, wide) for each in given]
    made = write_contraction(emitter, node, names[0], names[1])
    return made if wide is kind else emitter.cast(made, kind)


def _cast(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.cast(given[0], node.attrs.dtype)


def _constant(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.constant(node.attrs.value, node.attrs.dtype.numpy)


def _extent(emitter: Emitter, node: Node, given: list[str]) -> str:
    name = emitter.add("Squeeze", [emitter.size(node.attrs.size), emitter.integers([0])])
    return name if node.attrs.dtype is dtypes.int64 else emitter.cast(name, node.attrs.dtype)


def _iota(emitter: Emitter, node: Node, given: list[str]) -> str:
    attrs = node.attrs
    length = attrs.shape[attrs.axis]
    if isinstance(length, int):
        ramp = emitter.constant(np.arange(length), np.int64)
    else:
        zero, one = (emitter.constant(n, np.int64) for n in (0, 1))
        end = emitter.add("Squeeze", [emitter.size(length), emitter.integers([0])])
        ramp = emitter.add("Range", [zero, end, one])
    if attrs.dtype is not dtypes.int64:
        ramp = emitter.cast(ramp, attrs.dtype)
    if len(attrs.shape) == 1:
        return ramp
    others = [axis for axis in range(len(attrs.shape)) if axis != attrs.axis]
    ramp = emitter.add("Unsqueeze", [ramp, emitter.integers(others)])
    return emitter.add("Expand", [ramp, emitter.shape(attrs.shape)])


def _places(emitter: Emitter, indices: list[str], nodes: Any) -> str:
    """Indices along several axes as rows of one tensor, on its last axis."""
    rank = len(nodes[0].types[0].shape)
    wide = [emitter.cast(each, dtypes.int64) if node.types[0].dtype is not dtypes.int64 else each
            for each, node in zip(indices, nodes)]  # fmt: skip
    columns = [emitter.add("Unsqueeze", [each, emitter.integers([rank])]) for each in wide]
    return columns[0] if len(columns) == 1 else emitter.add("Concat", columns, axis=rank)


def _gather(emitter: Emitter, node: Node, given: list[str]) -> str:
    axes = list(node.attrs.axes)
    rank = len(node.inputs[0].types[0].shape)
    rest = [axis for axis in range(rank) if axis not in axes]
    if len(axes) == 1 and axes == [0]:
        return emitter.add("Gather", given, axis=0)
    source = given[0]
    if [*axes, *rest] != list(range(rank)):
        source = emitter.add("Transpose", [source], perm=[*axes, *rest])
    if len(axes) == 1:
        return emitter.add("Gather", [source, given[1]], axis=0)
    return emitter.add("GatherND", [source, _places(emitter, given[1:], node.inputs[1:])])


def _scatter(emitter: Emitter, node: Node, given: list[str]) -> str:
    modes = {"set": "none", "add": "add", "prod": "mul", "max": "max", "min": "min"}
    if node.attrs.mode not in modes:
        raise OnnxExportError(f"a scatter by {node.attrs.mode} has no form in ONNX")
    axes = list(node.attrs.axes)
    rank = len(node.types[0].shape)
    order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
    base = given[0]
    if order != list(range(rank)):
        base = emitter.add("Transpose", [base], perm=order)
    places = _places(emitter, given[2:], node.inputs[2:])
    made = emitter.add("ScatterND", [base, places, given[1]], reduction=modes[node.attrs.mode])
    if order != list(range(rank)):
        made = emitter.add("Transpose", [made], perm=[order.index(axis) for axis in range(rank)])
    return made


def _scan(emitter: Emitter, node: Node, given: list[str]) -> str:
    if node.attrs.monoid != "sum":
        return write_running(emitter, node, given[0])
    axis = emitter.constant(node.attrs.axis, np.int64)
    return emitter.add("CumSum", [given[0], axis], reverse=int(node.attrs.reverse))


def _determinant(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Det", given)


def _sort(emitter: Emitter, node: Node, given: list[str]) -> str:
    attrs, shape = node.attrs, node.inputs[0].types[0].shape
    count = emitter.size(shape[attrs.axis] if attrs.count is None else attrs.count)
    found = emitter.add_all(
        "TopK", [given[0], count], 2, axis=attrs.axis, largest=int(attrs.descending)
    )
    emitter.several[node] = found
    return found[0]


def _loop(emitter: Emitter, node: Node, given: list[str]) -> str:
    return write_iterations(emitter, node, given, write)


def _cond(emitter: Emitter, node: Node, given: list[str]) -> str:
    return write_branches(emitter, node, given, write)


def _while(emitter: Emitter, node: Node, given: list[str]) -> str:
    return write_repeated(emitter, node, given, write)


_RULES: dict[str, Rule] = {
    "broadcast": _broadcast, "reshape": _reshape, "permute": _permute, "slice": _slice,
    "pad": _pad, "concat": _concat, "reduce": _reduce, "arg_reduce": _arg_reduce,
    "contract": _contract, "cast": _cast, "constant": _constant, "extent": _extent, "iota": _iota,
    "gather": _gather, "scatter": _scatter, "scan": _scan, "sort": _sort,
    "determinant": _determinant, "loop": _loop, "cond": _cond, "while_loop": _while,
}  # fmt: skip
for _same in ("checked", "stop_gradient", "variable", "tag", "alias", "narrowed", "replaced"):
    _RULES[_same] = lambda emitter, node, given: given[0]
