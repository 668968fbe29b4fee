"""Control flow: bodies as graphs inside the attributes of Scan, If and Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from ridgeline import dtypes
from ridgeline.graph.body import Body
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.passes.legalize.decompose import decompose, strip_autograd
from ridgeline.onnx.writing.emitter import Emitter, OnnxExportError, onnx_type
from ridgeline.ops.control.loop import LoopAttrs
from ridgeline.ops.sort import SORT

Write: TypeAlias = Callable[[Emitter, Node], None]


def _inside(emitter: Emitter, body: Body, names: Sequence[str], write: Write) -> list[str]:
    """Write a body into an emitter; its inputs have these names, and its results those given."""
    graph = decompose(strip_autograd(body.graph), lambda node: node.op is SORT)
    emitter.names.update(zip(graph.inputs, names))
    for node in graph.order:
        if node not in emitter.names:
            write(emitter, node)
    return [emitter.name(node) for node in graph.outputs]


def _info(name: str, kind: TensorType) -> ValueInfoProto:
    shape = [size if isinstance(size, int) else None for size in kind.shape]
    return helper.make_tensor_value_info(name, onnx_type(kind.dtype), shape)


def _graph(
    emitter: Emitter, inputs: list[ValueInfoProto], results: Sequence[str],
    kinds: Sequence[TensorType],
) -> GraphProto:  # fmt: skip
    """The nodes of an emitter as a graph; each result is made by a node of its own."""
    outputs = []
    for result, kind in zip(results, kinds):
        name = emitter.fresh("result")
        emitter.nodes.append(helper.make_node("Identity", [result], [name]))
        outputs.append(_info(name, kind))
    return helper.make_graph(emitter.nodes, emitter.fresh("body"), inputs, outputs)


def write_iterations(emitter: Emitter, node: Node, given: list[str], write: Write) -> str:
    """A loop along an axis as Scan."""
    attrs: LoopAttrs = node.attrs
    first, last = attrs.carried, attrs.carried + attrs.scanned
    inner = Emitter(emitter.opset, emitter)
    own = [inner.fresh("state" if place < first else "slice") for place in range(last)]
    kinds = [leaf.types[0] for leaf in attrs.body.inputs[:last]]
    inputs = [_info(name, kind) for name, kind in zip(own, kinds)]
    scanned = given[first:last]
    if not scanned:  # Scan takes its length from what it goes along
        zero = helper.make_tensor("zero", onnx_type(dtypes.int64), [1], [0])
        scanned = [emitter.add("ConstantOfShape", [emitter.size(attrs.length)], value=zero)]
        inputs.append(_info(inner.fresh("turn"), TensorType((), dtypes.int64)))
    results = _inside(inner, attrs.body, [*own, *given[last:]], write)
    body = _graph(inner, inputs, results, attrs.body.types)
    backwards = {}
    if attrs.reverse:
        backwards = {"scan_input_directions": [1] * len(scanned)}
        if len(results) > first:
            backwards["scan_output_directions"] = [1] * (len(results) - first)
    names = emitter.add_all(
        "Scan", [*given[:first], *scanned], len(results), body=body,
        num_scan_inputs=len(scanned), **backwards,
    )  # fmt: skip
    emitter.several[node] = names
    return names[0]


def write_branches(emitter: Emitter, node: Node, given: list[str], write: Write) -> str:
    """A choice as If."""
    graphs = []
    for body in (node.attrs.on_true, node.attrs.on_false):
        inner = Emitter(emitter.opset, emitter)
        results = _inside(inner, body, given[1:], write)
        graphs.append(_graph(inner, [], results, body.types))
    names = emitter.add_all(
        "If", given[:1], len(node.types), then_branch=graphs[0], else_branch=graphs[1]
    )
    emitter.several[node] = names
    return names[0]


def write_repeated(emitter: Emitter, node: Node, given: list[str], write: Write) -> str:
    """A loop until a test fails as Loop: the test is made before it, and after every turn."""
    attrs = node.attrs
    count = attrs.carried
    (start,) = _inside(emitter, attrs.test, given, write)
    inner = Emitter(emitter.opset, emitter)
    own = [inner.fresh("state") for _ in range(count)]
    kinds = [leaf.types[0] for leaf in attrs.body.inputs[:count]]
    one = TensorType((), dtypes.int64)
    inputs = [
        _info(inner.fresh("turn"), one),
        _info(inner.fresh("goes_on"), TensorType((), dtypes.bool_)),
        *(_info(name, kind) for name, kind in zip(own, kinds)),
    ]
    results = _inside(inner, attrs.body, [*own, *given[count:]], write)
    # the test reads the new state: its leaves may be those of the body
    tested = Emitter(emitter.opset, inner)
    (again,) = _inside(tested, attrs.test, [*results, *given[count:]], write)
    inner.nodes += tested.nodes
    flag = TensorType((), dtypes.bool_)
    body = _graph(inner, inputs, [again, *results], [flag, *attrs.body.types])
    most = emitter.constant(np.iinfo(np.int64).max, np.int64)
    names = emitter.add_all("Loop", [most, start, *given[:count]], count, body=body)
    emitter.several[node] = names
    return names[0]


def write_running(emitter: Emitter, node: Node, given: str) -> str:
    """A running product, maximum or minimum along an axis as Scan."""
    attrs, kind = node.attrs, node.types[0]
    ops = {"prod": "Mul", "max": "Max", "min": "Min"}
    if attrs.monoid not in ops:
        raise OnnxExportError(f"a running {attrs.monoid} has no form in ONNX")
    rest = TensorType((*kind.shape[: attrs.axis], *kind.shape[attrs.axis + 1 :]), kind.dtype)
    # from the first element, which joined with itself stays; a product starts from one
    place = emitter.constant(-1 if attrs.reverse else 0, np.int64)
    start = emitter.add("Gather", [given, place], axis=attrs.axis)
    if attrs.monoid == "prod":
        one = emitter.constant(1, kind.dtype.numpy)
        start = emitter.add("Expand", [one, emitter.add("Shape", [start])])
    inner = Emitter(emitter.opset, emitter)
    state, element = inner.fresh("state"), inner.fresh("slice")
    joined = inner.add(ops[attrs.monoid], [state, element])
    body = _graph(inner, [_info(state, rest), _info(element, rest)], [joined, joined], [rest, rest])
    back = int(attrs.reverse)
    return emitter.add_all(
        "Scan", [start, given], 2, body=body, num_scan_inputs=1, scan_input_axes=[attrs.axis],
        scan_output_axes=[attrs.axis], scan_input_directions=[back], scan_output_directions=[back],
    )[1]  # fmt: skip
