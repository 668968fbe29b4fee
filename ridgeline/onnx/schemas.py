"""Operators that have no row but a function body in ONNX's own schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, TypeProto, defs
from onnx.helper import np_dtype_to_tensor_dtype

from ridgeline.onnx.values import Value, has_sizes
from ridgeline.tensors.tensor import Tensor

ValueType: TypeAlias = tuple[int, tuple[int, ...]]  # ONNX's number of the elements, and the shape
TypedBody: TypeAlias = Callable[[tuple[ValueType, ...]], FunctionProto]


def body(domain: str, version: int, node: NodeProto) -> FunctionProto | TypedBody | None:
    """The function that stands for a node, where its schema has one; some depend on types."""
    try:
        schema = defs.get_schema(node.op_type, version, domain)
    except defs.SchemaError:
        return None
    if schema.has_function:
        function = FunctionProto()
        function.ParseFromString(_plain_body(schema, version))
        _fill_defaults(function, schema, node)
        return function
    if not schema.has_context_dependent_function:
        return None

    def typed(types: tuple[ValueType, ...]) -> FunctionProto:
        kinds = []
        for kind, shape in types:
            proto = TypeProto()
            proto.tensor_type.elem_type = kind
            proto.tensor_type.shape.Clear()
            for length in shape:
                proto.tensor_type.shape.dim.add().dim_value = length
            kinds.append(proto.SerializeToString())
        function = FunctionProto()
        text = schema.get_context_dependent_function_with_opset_version(
            _context_version(schema, version), node.SerializeToString(), kinds
        )
        function.ParseFromString(text)
        _fill_defaults(function, schema, node)
        return function

    return typed


def _plain_body(schema: Any, version: int) -> bytes:
    fitting = [each for each in schema.function_opset_versions if each <= version]
    chosen = max(fitting, default=min(schema.function_opset_versions))
    text: bytes = schema.get_function_with_opset_version(chosen)
    return text


def _context_version(schema: Any, version: int) -> int:
    known = schema.context_dependent_function_opset_versions
    return int(max((each for each in known if each <= version), default=min(known)))


def _fill_defaults(function: FunctionProto, schema: Any, node: NodeProto) -> None:
    """Give a function the defaults that its schema has for attributes a node leaves out."""
    said = {a.name for a in node.attribute} | {a.name for a in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in said and attribute.default_value.name:
            function.attribute_proto.add().CopyFrom(attribute.default_value)


def value_type(value: Value) -> ValueType:
    """The type of a value as schemas ask for it; of no elements where it is no tensor."""
    if isinstance(value, Tensor):
        return int(np_dtype_to_tensor_dtype(value.dtype.numpy)), tuple(map(int, value.shape))
    if isinstance(value, np.ndarray):
        kind = TensorProto.INT64 if has_sizes(value) else np_dtype_to_tensor_dtype(value.dtype)
        return int(kind), value.shape
    return 0, ()
