"""Writes a function of tensors as an ONNX file: recorded, written, checked, compared, and put down.

What is recorded is the graph of primitive ops that `jit` would compile, with unknowns for dynamic
axes. The file is read again and run on the same arguments before it gets its name, so a file that
is there computes what the function does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper

import ridgeline as rl
from ridgeline.deploy.contents import Contents, contents
from ridgeline.deploy.export import recorded
from ridgeline.errors import BadValueError, RidgelineError
from ridgeline.files import write_atomic
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.legalize.decompose import decompose, strip_autograd
from ridgeline.graph.sizes import Sym
from ridgeline.nn.module import Module
from ridgeline.onnx.model import read_model
from ridgeline.onnx.module import OnnxModule
from ridgeline.onnx.writing.emitter import Emitter, OnnxExportError, dimension, onnx_type
from ridgeline.onnx.writing.pointwise import where_made
from ridgeline.onnx.writing.rules import write
from ridgeline.ops.sort import SORT
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import ArgumentInput, SizesNeeded
from ridgeline.tracing.recording import Recording
from ridgeline.tracing.side_effects import Fresh, Given, live_buffer

LOWEST, HIGHEST = 18, 23
Axes = Mapping[str, Mapping[int, str]]


def save(
    function: Callable[..., Any], path: str | os.PathLike[str], args: Sequence[Any],
    kwargs: dict[str, Any], dynamic: Axes | None, opset: int,
) -> Path:  # fmt: skip
    """Write the file, and give its path."""
    if not LOWEST <= opset <= HIGHEST:
        raise BadValueError(f"opset {opset} is not written", help=f"{LOWEST} to {HIGHEST} are")
    own = function.input_names if isinstance(function, OnnxModule) else []
    axes: list[tuple[Any, int]] = [
        (own.index(name) if name in own else name, axis)
        for name, named in (dynamic or {}).items()
        for axis in named
    ]
    jitted = rl.jit(function, dynamic=axes or False)
    with rl.no_grad():
        try:
            recording, leaves = recorded(jitted, args, kwargs)
        except SizesNeeded:
            raise OnnxExportError(
                "sizes of results follow from values, which has no form here",
                help="choose with where(), or take what picks by values out of the function",
            ) from None
        _refuse_complex(recording)
        made = contents(recording, leaves, getattr(function, "forward", function))
        made.name = re.sub(r"\W+", "_", recording.name)
        for place, name in enumerate(own):
            made.inputs[place] = replace(made.inputs[place], name=name)
        proto = _model(recording, made, leaves, function, dynamic or {}, opset)
        onnx.checker.check_model(proto, full_check=True)
        _compare(proto, function, args, kwargs)
        longer = _longer(args, kwargs, recording, leaves)
        if longer is not None:
            _compare_if_it_runs(proto, function, *longer)
    where = Path(path)
    write_atomic(where, proto.SerializeToString())
    return where


def _refuse_complex(recording: Recording) -> None:
    """Raise where a value is complex: the type is in the format, and no operator takes it."""
    for node in topological(recording.outputs):
        if any(kind.dtype.is_complex for kind in node.types):
            raise OnnxExportError("complex numbers have no form in ONNX", note=where_made(node))


def _refuse_fixed(recording: Recording, named: Mapping[Any, str]) -> None:
    """Raise where an axis that is named can have one length only."""
    if recording.pattern is None:
        return
    values = recording.pattern.facts.values
    for fact in recording.pattern.facts:
        terms = fact.size.form.terms
        same = sorted(terms.values()) == [-1, 1] and all(
            len(monomial) == 1 and isinstance(monomial[0], Sym) for monomial in terms
        )  # two axes are as long as each other
        # what is divided evenly still is at twice the length; what is a number is not
        doubled = [{**values, name: 2 * values[name]} for name in fact.unknowns]
        fixed = fact.relation == "==" and fact.holds and not all(map(fact.fits, doubled))
        if fixed and not (same and not fact.size.form.constant):
            text = str(fact.size)
            for size, name in named.items():
                text = re.sub(rf"\b{re.escape(str(size))}\b", name, text)
            raise OnnxExportError(
                f"an axis that is named has one length only: {text} has to be 0",
                help="leave the axis out of dynamic=, or compute what needs it from its size",
            )


def _longer(
    args: Sequence[Any], kwargs: dict[str, Any], recording: Recording, leaves: Sequence[Any]
) -> tuple[Any, Any] | None:
    """The arguments with one more element along each axis that may have any length."""
    if recording.pattern is None:
        return None
    made = list(leaves)
    for place, kind in recording.pattern.types.items():
        own = leaves[place].detach().numpy()
        shape = [n if isinstance(m, int) else n + 1 for n, m in zip(own.shape, kind.shape)]
        made[place] = rl.tensor(np.resize(own, shape))
    longer: tuple[Any, Any] = unflatten(recording.signature.structure, made)
    return longer


def _compare_if_it_runs(
    proto: ModelProto, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Compare at other lengths, unless the function itself does not take them."""
    try:
        function(*args, **kwargs)
    except RidgelineError:
        return
    _compare(proto, function, args, kwargs)


def _model(
    recording: Recording, made: Contents, leaves: Sequence[Any], function: Any, dynamic: Axes,
    opset: int,
) -> ModelProto:  # fmt: skip
    """The recorded call as a model."""
    emitter = Emitter(opset)
    recorded = strip_autograd(Graph(recording.outputs, recording.inputs))
    graph = decompose(recorded, lambda node: node.op is SORT)
    weights = _weight_names(function)
    inputs = []
    named_sizes: dict[Any, str] = {}
    for info in made.inputs:
        for axis, size in enumerate(info.type.shape):
            if not isinstance(size, int):
                symbol = next(iter(size.form.terms))[0]
                assert isinstance(symbol, Sym)
                emitter.symbols.setdefault(symbol, (info.name, axis))
                named_sizes.setdefault(size, dynamic.get(info.name, {}).get(axis, str(size)))
    _refuse_fixed(recording, named_sizes)
    for node, source in zip(graph.inputs, recording.inputs.values()):
        if isinstance(source, ArgumentInput):
            emitter.names[node] = made.inputs[made.input_of[source.index]].name
        else:
            kind = node.types[0]
            array = live_buffer(source, leaves).array(kind.dtype, [int(n) for n in kind.shape])
            name = weights.get(id(getattr(source, "cell", None)), "weight")
            emitter.names[node] = emitter.weight(np.array(array), name)
    for node in graph.order:
        if node not in emitter.names:
            _write(emitter, node, graph)
    for info in made.inputs:
        shape = [dimension(size, named_sizes) for size in info.type.shape]
        inputs.append(helper.make_tensor_value_info(info.name, onnx_type(info.type.dtype), shape))
    outputs: list[Any] = []
    for spec in recording.returns:
        if isinstance(spec, Fresh):
            result, kind = emitter.name(graph.outputs[spec.output]), spec.type
        elif isinstance(spec, Given) and spec.argument is not None:
            info = made.inputs[made.input_of[spec.argument]]
            result, kind = info.name, info.type
        else:
            continue
        # made by a node of its own: an input or a weight may be returned, or one value twice
        name = f"output_{len(outputs)}"
        emitter.nodes.append(helper.make_node("Identity", [result], [name]))
        shape = [dimension(size, named_sizes) for size in kind.shape]
        outputs.append(helper.make_tensor_value_info(name, onnx_type(kind.dtype), shape))
    if not outputs:
        raise OnnxExportError(f"{recording.name} returns no tensor")
    _prune(emitter, [value.name for value in outputs])
    body = helper.make_graph(emitter.nodes, made.name, inputs, outputs, emitter.initializers)
    proto = helper.make_model(
        body, producer_name="ridgeline", opset_imports=[helper.make_opsetid("", opset)]
    )
    proto.ir_version = 10 if opset > 21 else 8
    return proto


def _write(emitter: Emitter, node: Node, graph: Graph) -> None:
    if node.buffer is not None and not node.inputs and node.op.name == "leaf":
        kind = node.types[0]
        array = node.buffer.array(kind.dtype, kind.shape)
        emitter.names[node] = emitter.weight(np.array(array), "constant_array")
    else:
        write(emitter, node)


def _weight_names(function: Any) -> dict[int, str]:
    """The names of a module's parameters and buffers, by the cells that hold them."""
    if not isinstance(function, Module):
        return {}
    held = [*function.named_parameters(), *function.named_buffers()]
    return {id(tensor._cell): name for name, tensor in held}


def _prune(emitter: Emitter, outputs: Sequence[str]) -> None:
    """Drop nodes and constants of which nothing is read."""
    needed = set(outputs)
    kept = []
    for node in reversed(emitter.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed.update(node.input)
            for attribute in node.attribute:
                for inner in attribute.g.node:
                    needed.update(inner.input)
    emitter.nodes = kept[::-1]
    emitter.initializers = [each for each in emitter.initializers if each.name in needed]


def _compare(
    proto: ModelProto, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Run the model on the arguments it was recorded with; it must give what the function does."""
    module = OnnxModule(read_model(proto.SerializeToString()))
    given: list[Any] = []
    flatten((tuple(args), kwargs), given)
    wanted: list[Any] = []
    flatten(function(*args, **kwargs), wanted)
    found = module.run([each for each in given if isinstance(each, Tensor)])
    tensors = [value for value in wanted if isinstance(value, Tensor)]
    for number, (value, other) in enumerate(zip(tensors, found, strict=True)):
        expected = value.detach().numpy()
        actual = other.numpy() if isinstance(other, Tensor) else np.asarray(other)
        if not _close(expected, actual):
            raise OnnxExportError(
                f"result {number + 1} of the written model differs from the function's",
                help="this is a fault of the export: no file was written",
            )


def _close(expected: Any, actual: Any) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.dtype.kind in "biu":
        return bool(np.array_equal(expected, actual))
    wide = expected.astype(np.float64), actual.astype(np.float64)
    itemsize = expected.dtype.itemsize
    tolerance = {1: 0.3, 2: 2e-2, 4: 1e-3}.get(itemsize, 1e-7)
    scale = float(np.max(np.abs(wide[0][np.isfinite(wide[0])]), initial=0.0)) * tolerance / 10
    return bool(np.allclose(*wide, rtol=tolerance, atol=max(scale, 1e-6), equal_nan=True))
