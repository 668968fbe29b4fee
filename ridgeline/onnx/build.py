"""From the messages of a file to programs: nodes bound to rows, functions written out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from ridgeline.onnx import schemas
from ridgeline.onnx.operators.table import find
from ridgeline.onnx.program import GraphProgram, NodeStep
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.tensors_in_files import array_of, sparse_array
from ridgeline.onnx.values import Array, OnnxError

MOST_STEPS = 5_000_000
MOST_NESTED = 64
_CONSTANTS = {
    "value": None, "sparse_value": None, "value_float": np.float32, "value_floats": np.float32,
    "value_int": np.int64, "value_ints": np.int64, "value_string": object, "value_strings": object,
}  # fmt: skip


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class Builder:
    """Builds the programs of one model."""

    def __init__(self, proto: ModelProto, folder: Path | None) -> None:
        self.proto, self.folder = proto, folder
        self.opsets = _versions(proto.opset_import)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
        self.unknown: set[str] = set()
        self._open: list[tuple[str, str]] = []  # functions being written out, from the outermost
        self._depth = 0
        self._written: dict[Any, GraphProgram] = {}

    def model(self) -> GraphProgram:
        """The program of the whole model."""
        program = self.graph(self.proto.graph, self.opsets, set(), {})
        if self.unknown:
            raise OnnxError(
                f"operators that are not offered: {', '.join(sorted(self.unknown))}",
                help="`ridgeline onnx check` lists what a model uses",
            )
        return program

    def graph(
        self, graph: GraphProto, opsets: Mapping[str, int], outer: set[str],
        attributes: Mapping[str, AttributeProto],
    ) -> GraphProgram:  # fmt: skip
        """The program of a graph, which sees the names `outer` of those around it."""
        constants: dict[str, Array] = {}
        for tensor in graph.initializer:
            constants[tensor.name] = array_of(tensor, self.folder)
        for sparse in graph.sparse_initializer:
            constants[sparse.values.name] = sparse_array(sparse, self.folder)
        inputs = tuple(v.name for v in graph.input if v.name not in constants)
        if len(set(inputs)) < len(inputs):
            raise OnnxError(f"two inputs of {graph.name or 'a graph'!r} have one name")
        program = GraphProgram(inputs, tuple(v.name for v in graph.output), constants=constants)
        program.initializers = set(constants)
        self._fill(program, graph.node, opsets, outer, attributes)
        return program

    def function(
        self, function: FunctionProto, node: NodeProto, given: Mapping[str, AttributeProto]
    ) -> GraphProgram:
        """The program of a function as a node calls it, with its attributes."""
        key = (_domain(function.domain), function.name)
        if key in self._open:
            raise OnnxError(f"the function {function.name!r} calls itself")
        attributes = {a.name: a for a in function.attribute_proto}
        attributes |= {a.name: _resolved(a, given) for a in node.attribute}
        said = [a.SerializeToString(deterministic=True) for _, a in sorted(attributes.items())]
        known = (*key, function.overload, *said)
        if known not in self._written:
            program = GraphProgram(tuple(function.input), tuple(function.output), closed=True)
            self._open.append(key)
            opsets = {**self.opsets, **_versions(function.opset_import)}
            self._fill(program, function.node, opsets, set(), attributes)
            self._open.pop()
            self._written[known] = program
        return self._written[known]

    def _fill(
        self, program: GraphProgram, nodes: Iterable[NodeProto], opsets: Mapping[str, int],
        outer: set[str], attributes: Mapping[str, AttributeProto],
    ) -> None:  # fmt: skip
        """Append the steps of nodes; each name is given before it is read, and once."""
        own = {*program.inputs, *program.constants}
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise OnnxError(f"graphs and functions are nested more than {MOST_NESTED} deep")
        for node in nodes:
            label = f"{node.op_type} {node.name!r}" if node.name else node.op_type
            for name in node.input:
                if name and name not in own and name not in outer:
                    raise OnnxError(
                        f"{label} reads {name!r}, which nothing before it gives",
                        note="nodes have to be in order, and graphs have no cycles",
                    )
            for name in node.output:
                if name and name in own:
                    raise OnnxError(f"{label} gives {name!r}, which is given already")
            if node.op_type == "Constant" and _domain(node.domain) == "":
                program.constants[node.output[0]] = self._constant(node, attributes)
            else:
                step = self._step(node, label, opsets, own | outer, attributes)
                program.steps.append(step)
                program.cost += 1 + sum(inner.cost for inner in step.subprograms)
                if program.cost > MOST_STEPS:
                    raise OnnxError(f"functions of this model make over {MOST_STEPS:,} steps")
            own.update(name for name in node.output if name)
        for name in program.outputs:
            # a function leaves out results that its caller does not ask for
            if name not in own and name not in outer and not program.closed:
                raise OnnxError(f"nothing gives the output {name!r}")
        self._depth -= 1

    def _constant(self, node: NodeProto, outer: Mapping[str, AttributeProto]) -> Array:
        for attribute in node.attribute:
            if attribute.name in _CONSTANTS:
                value = self.attribute(_resolved(attribute, outer), {}, set(), {})
                kind = _CONSTANTS[attribute.name]
                return value if kind is None else np.asarray(value, kind)
        raise OnnxError(f"the constant {node.output[0]!r} has no value")

    def _step(
        self, node: NodeProto, label: str, opsets: Mapping[str, int], names: set[str],
        outer: Mapping[str, AttributeProto],
    ) -> NodeStep:  # fmt: skip
        domain = _domain(node.domain)
        version = opsets.get(domain, 1)
        own = [_resolved(a, outer) for a in node.attribute if _is_said(a, outer)]
        attributes = {a.name: self.attribute(a, opsets, names, outer) for a in own}
        body = self._body(node, domain, version, outer)
        if not isinstance(body, OperatorRow):
            attributes = {}
        inputs, outputs = tuple(node.input), tuple(node.output)
        return NodeStep(node.op_type, inputs, outputs, body, attributes, version, label)

    def _body(
        self, node: NodeProto, domain: str, version: int, outer: Mapping[str, AttributeProto]
    ) -> Any:
        own = self.functions.get((domain, node.op_type, node.overload))
        if own is not None:
            return self.function(own, node, outer)
        row = find(domain, node.op_type, version)
        if row is not None:
            return row
        resolved = NodeProto()
        resolved.CopyFrom(node)
        del resolved.attribute[:]
        resolved.attribute.extend(_resolved(a, outer) for a in node.attribute if _is_said(a, outer))
        known = schemas.body(domain, version, resolved)
        if isinstance(known, FunctionProto):
            return self.function(known, resolved, {})
        if known is not None:
            return _Expanded(self, known, resolved)
        self.unknown.add(f"{domain}.{node.op_type}" if domain else node.op_type)
        return OperatorRow(node.op_type, _never)

    def attribute(
        self, proto: AttributeProto, opsets: Mapping[str, int], names: set[str],
        outer: Mapping[str, AttributeProto],
    ) -> Any:  # fmt: skip
        """An attribute as Python has it: a graph as its program, a tensor as an array."""
        kind = AttributeProto
        if proto.type == kind.GRAPH:
            return self.graph(proto.g, opsets, names, outer)
        if proto.type == kind.TENSOR:
            return array_of(proto.t, self.folder)
        if proto.type == kind.SPARSE_TENSOR:
            return sparse_array(proto.sparse_tensor, self.folder)
        if proto.type == kind.STRING:
            return proto.s.decode(errors="replace")
        if proto.type == kind.STRINGS:
            return [text.decode(errors="replace") for text in proto.strings]
        if proto.type == kind.TENSORS:
            return [array_of(tensor, self.folder) for tensor in proto.tensors]
        plain = {kind.FLOAT: "f", kind.INT: "i", kind.FLOATS: "floats", kind.INTS: "ints",
                 kind.TYPE_PROTO: "tp"}  # fmt: skip
        if proto.type not in plain:
            raise OnnxError(f"the attribute {proto.name!r} is of a kind that is not offered")
        value = getattr(proto, plain[proto.type])
        return list(value) if proto.type in (kind.FLOATS, kind.INTS) else value


class _Expanded:
    """An operator whose schema writes a function for the types of its inputs."""

    def __init__(self, builder: Builder, body: schemas.TypedBody, node: NodeProto) -> None:
        self._builder, self._body, self._node = builder, body, node
        self._programs: dict[Any, GraphProgram] = {}

    def __call__(self, inputs: list[Any]) -> GraphProgram:
        types = tuple(map(schemas.value_type, inputs))
        if types not in self._programs:
            function = self._body(types)
            self._programs[types] = self._builder.function(function, self._node, {})
        return self._programs[types]


def _never() -> None:
    raise AssertionError("a model with unknown operators is not run")


def _versions(imports: Iterable[Any]) -> dict[str, int]:
    return {_domain(each.domain): each.version for each in imports}


def _is_said(attribute: AttributeProto, outer: Mapping[str, AttributeProto]) -> bool:
    """False for an attribute of a function's node that refers to one its caller left out."""
    return not attribute.ref_attr_name or attribute.ref_attr_name in outer


def _resolved(attribute: AttributeProto, outer: Mapping[str, AttributeProto]) -> AttributeProto:
    """An attribute, or the one of the function around it that it stands for."""
    if not attribute.ref_attr_name:
        return attribute
    if attribute.ref_attr_name not in outer:
        raise OnnxError(f"a function is called without its attribute {attribute.ref_attr_name!r}")
    made = AttributeProto()
    made.CopyFrom(outer[attribute.ref_attr_name])
    made.name = attribute.name
    return made
