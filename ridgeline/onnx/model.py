"""Reads ONNX files: bytes in, a checked program out, which nothing in the file can make large.

Files come from anywhere. Data outside a file are read from its own folder only, no function may
call itself, every name is given before it is read, and no tensor has other bytes than its
dimensions say. Each fault is one `OnnxError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from ridgeline.errors import unreadable
from ridgeline.onnx.build import Builder
from ridgeline.onnx.program import GraphProgram
from ridgeline.onnx.values import DAMAGE, OnnxError


@dataclass(frozen=True, eq=False)
class Port:
    """An input or an output of a model: its name, element type and shape, where they are said."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, eq=False)
class Model:
    """What a file holds: a program, and what goes in and out."""

    program: GraphProgram
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    opset: int


def read_model(source: str | Path | bytes) -> Model:
    """The model of a file, or of its bytes."""
    folder: Path | None = None
    if isinstance(source, bytes):
        content = source
    else:
        folder = Path(source).resolve().parent
        try:
            content = Path(source).read_bytes()
        except OSError as error:
            raise unreadable(source, error) from None
    proto = ModelProto()
    try:
        proto.ParseFromString(content)
    except (DecodeError, ValueError, RecursionError):
        raise OnnxError(f"{_name(source)} is no ONNX model, or cut off") from None
    if not proto.HasField("graph") or not proto.graph.output:
        raise OnnxError(f"{_name(source)} is no ONNX model, or cut off")
    builder = Builder(proto, folder)
    try:
        program = builder.model()
        given = tuple(port for port in map(_port, proto.graph.input) if port.name in program.inputs)
        outputs = tuple(map(_port, proto.graph.output))
    except DAMAGE as error:
        what = str(error).partition("\n")[0]
        raise OnnxError(f"{_name(source)} is damaged: {what}") from error
    return Model(program, given, outputs, builder.opsets.get("", 1))


def _name(source: str | Path | bytes) -> str:
    return "this" if isinstance(source, bytes) else str(source)


def _port(info: Any) -> Port:
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type"):
        return Port(info.name, str(info.type.WhichOneof("value")).removesuffix("_type"), None)
    try:
        dtype = TensorProto.DataType.Name(kind.elem_type).lower()
    except ValueError:
        raise OnnxError(f"{info.name!r} has no element type that is known") from None
    shape = tuple(
        each.dim_value if each.HasField("dim_value") else (each.dim_param or None)
        for each in kind.shape.dim
    )
    return Port(info.name, dtype, shape if kind.HasField("shape") else None)
