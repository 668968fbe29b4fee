"""`FloatTensor`, `LongTensor` and the like: classes for an element type and a kind of device."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError
from ridgeline.functions.operands import defaults
from ridgeline.tensors.tensor import Tensor, tensor

ELEMENTS = {
    "Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16, "Long": dtypes.int64, "Int": dtypes.int32,
    "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool_,
}  # fmt: skip
_NAMES = {dtype: f"{name}Tensor" for name, dtype in ELEMENTS.items()}


class TypedTensor(type):
    """A class that no tensor is made of: calls make tensors, `isinstance` compares types."""

    element_type: DType
    kind: str  # of device

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        """Values, or sizes of memory to be written to."""
        values = data[0] if len(data) == 1 and not isinstance(data[0], int) else None
        if values is None or type(values).__name__ == "Size":
            sizes = data if values is None else tuple(values)
            return Tensor(*sizes, dtype=cls.element_type).to(device or cls.kind)
        return tensor(values, dtype=cls.element_type, device=device or cls.kind)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and type_name(value) == cls.full_name

    @property
    def full_name(cls) -> str:
        """The class's name in torch, which `x.type()` gives."""
        return f"torch.{'cuda.' * (cls.kind == 'cuda')}{cls.__name__}"


def _named(name: str, dtype: DType, kind: str) -> TypedTensor:
    about = f"Tensors of {dtype.name} on the {kind}, as a class to call and to compare with."
    module = "ridgeline.cuda" if kind == "cuda" else "ridgeline"
    known = {"element_type": dtype, "kind": kind, "__module__": module, "__doc__": about}
    return TypedTensor(name, (), known)


CLASSES = {kind: {n: _named(n, d, kind) for d, n in _NAMES.items()} for kind in ("cpu", "cuda")}
_BY_NAME = {made.full_name: made for table in CLASSES.values() for made in table.values()}


def type_name(value: Tensor) -> str:
    """torch's name for the element type and the kind of device of a tensor."""
    name = _NAMES.get(value.dtype)
    if name is None:
        raise DTypeError(f"there is no class of tensors of {value.dtype.name}", help="use x.dtype")
    return f"torch.{'cuda.' * value.is_cuda}{name}"


def typed(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The input in another element type, or the name of the class for its own."""
    if dtype is None:
        return type_name(self)
    found = _BY_NAME.get(dtype) if isinstance(dtype, str) else dtype
    if isinstance(found, TypedTensor):
        return self.to(found.kind, found.element_type)
    return self.to(dtypes.as_dtype(found or dtype))


def set_default_tensor_type(t: Any) -> None:
    """Set the element type of new tensors by a class such as FloatTensor."""
    found = _BY_NAME.get(t) if isinstance(t, str) else t
    if not isinstance(found, TypedTensor) or not found.element_type.is_floating_point:
        raise DTypeError(f"{t!r:.40} is no class of floating tensors")
    defaults.dtype = found.element_type
