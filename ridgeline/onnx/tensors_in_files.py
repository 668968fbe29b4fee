"""Tensors as files hold them: typed data, raw bytes, or bytes in another file of the folder."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from ridgeline.onnx.values import Array, OnnxError

MOST_ELEMENTS = 1 << 40


def array_of(proto: TensorProto, folder: Path | None) -> Array:
    """The array of a tensor; its bytes are as many as its dimensions say, or it is refused."""
    name = proto.name or "a constant"
    count = prod(proto.dims)
    if any(length < 0 for length in proto.dims) or count > MOST_ELEMENTS:
        raise OnnxError(f"{name!r} has dimensions {list(proto.dims)}, which no tensor has")
    if proto.data_location == TensorProto.EXTERNAL:
        return _external(proto, folder)
    try:
        array: Array = numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OnnxError(f"{name!r} is damaged: {str(error).splitlines()[0]}") from None
    if array.size != count:
        raise OnnxError(f"{name!r} has {array.size} elements and should have {count}")
    if proto.data_type == TensorProto.STRING:
        return _texts(array)
    return array


def _texts(array: Array) -> Array:
    """Strings of a file as Python has them."""
    made = np.empty(array.shape, object)
    for place, text in np.ndenumerate(array):
        made[place] = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return made


def _external(proto: TensorProto, folder: Path | None) -> Array:
    """A tensor whose bytes lie in a file beside the model, and nowhere else."""
    where = {entry.key: entry.value for entry in proto.external_data}
    location = where.get("location", "")
    if folder is None:
        raise OnnxError(f"{proto.name!r} lies in {location!r}, and bytes have no folder")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder.resolve()):
        raise OnnxError(
            f"{proto.name!r} lies in {location!r}, outside of the model's folder",
            help="external data are read from the folder of the model only",
        )
    try:
        kind = np.dtype(tensor_dtype_to_np_dtype(proto.data_type))
    except KeyError:
        raise OnnxError(f"{proto.name!r} has no element type that is known") from None
    narrow = {"int4": 2, "uint4": 2, "float4_e2m1fn": 2, "int2": 4, "uint2": 4}
    count = prod(proto.dims)
    bytes_needed = -(-count // narrow[kind.name]) if kind.name in narrow else count * kind.itemsize
    try:
        offset, length = int(where.get("offset", 0)), int(where.get("length", bytes_needed))
        held = path.stat().st_size if path.is_file() else -1
    except (ValueError, OSError):
        raise OnnxError(f"{proto.name!r} has no place in {location!r}") from None
    if held < 0:
        raise OnnxError(f"{proto.name!r} lies in {location!r}, which is not there")
    if offset < 0 or length != bytes_needed or offset + length > held:
        raise OnnxError(f"{proto.name!r} needs {bytes_needed} bytes that {location!r} has not")
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(length)
    if kind.name not in narrow:
        return np.frombuffer(content, kind).reshape(tuple(proto.dims)).copy()
    inside = TensorProto()
    inside.CopyFrom(proto)
    inside.ClearField("external_data")
    inside.data_location = TensorProto.DEFAULT
    inside.raw_data = content
    array: Array = numpy_helper.to_array(inside)
    return array


def sparse_array(proto: SparseTensorProto, folder: Path | None) -> Array:
    """A sparse tensor, written out."""
    values, indices = array_of(proto.values, folder), array_of(proto.indices, folder)
    shape = tuple(proto.dims)
    count = prod(shape)
    if any(length < 0 for length in shape) or count > MOST_ELEMENTS >> 10:
        raise OnnxError(f"a sparse constant has dimensions {list(shape)}, too many to write out")
    dense = np.zeros(shape, values.dtype)
    flat: Any = indices
    if indices.ndim == 2:
        flat = np.ravel_multi_index(tuple(indices.T), shape, mode="clip")
    if flat.size and (flat.min() < 0 or flat.max() >= count):
        raise OnnxError("a sparse constant has indices outside of its shape")
    dense.reshape(-1)[flat] = values
    return dense
