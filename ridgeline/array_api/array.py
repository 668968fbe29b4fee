"""Array: a tensor that follows the standard's rules instead of torch's.

The functions of this namespace take any tensor and give arrays. An `Array` is a `Tensor`, on the
same memory and with the same gradients; only its operators, its indexing and `size` differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.array_api.types import KindError, held_by, is_number, promote, require, weak
from ridgeline.dtypes import DType
from ridgeline.errors import AxisError, BadValueError, RidgelineError, ShapeError
from ridgeline.record.upcalls import upcalls
from ridgeline.tensors.creation import wrap_operand
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor


class IndexingError(AxisError, IndexError):
    """An index that does not fit the array."""


class SizeError(ShapeError, ValueError):
    """Shapes that the standard does not allow together."""


class Count(int):
    """The number of elements. Also callable, so that torch's `x.size()` still gives the shape."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


Method = Callable[["Array", Any], Any]


def _function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(upcalls.array_namespace(), name)
    return function


def _operator(name: str, swapped: bool = False) -> Method:
    def method(self: Array, other: Any, /) -> Any:
        if not isinstance(other, Tensor) and not is_number(other):
            return NotImplemented
        return _function(name)(*((other, self) if swapped else (self, other)))

    return method


def _augmented(name: str) -> Method:
    def method(self: Array, other: Any, /) -> Any:
        if not isinstance(other, Tensor) and not is_number(other):
            return NotImplemented
        result = _function(name)(self, other)
        if not held_by(result.dtype, self.dtype) or result.shape != self.shape:
            raise KindError(
                f"{name} in place would change {self._type} into {result._type}",
                help="write the result to a new name",
            )
        return self.copy_(result)

    return method


def _methods(name: str) -> tuple[Method, Method, Method]:
    """The operator, with swapped operands, and in place."""
    return _operator(name), _operator(name, swapped=True), _augmented(name)


def _unary(name: str) -> Callable[[Array], Any]:
    def method(self: Array, /) -> Any:
        return _function(name)(self)

    return method


class Array(Tensor):
    """A tensor under the rules of the Array API standard."""

    __slots__ = ()

    @property
    def size(self) -> Count:
        """The number of elements."""
        count = Count(self.numel())
        count.shape = self.shape
        return count

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise SizeError(f".T needs 2 axes, got shape {list(self.shape)}", help="use .mT")
        return as_array(self.transpose(0, 1))

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise SizeError(f".mT needs at least 2 axes, got shape {list(self.shape)}")
        return as_array(self.transpose(-2, -1))

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """This array on another device."""
        if stream is not None:
            raise BadValueError(f"copies take the current stream, got stream={stream!r}")
        return as_array(self.to(device=device))

    def __getitem__(self, key: Any, /) -> Array:
        if isinstance(key, Tensor) and _picks_nothing(self, key):
            return call("zeros", (0, *self.shape[key.ndim :]), dtype=self.dtype)
        try:
            return as_array(super().__getitem__(key))
        except IndexError:
            raise
        except RidgelineError as error:
            raise IndexingError(error.message, note=error.note, help=error.help) from None

    def __setitem__(self, key: Any, value: Any, /) -> None:
        if isinstance(value, Tensor):
            if not held_by(value.dtype, self.dtype):
                raise KindError(f"{value.dtype.name} cannot be written into {self.dtype.name}")
        elif weak(value, self.dtype) is not self.dtype:
            raise KindError(f"{value!r} cannot be written into {self.dtype.name}")
        super().__setitem__(key, value)

    def __hash__(self) -> int:
        return id(self)

    __abs__, __neg__, __pos__ = _unary("abs"), _unary("negative"), _unary("positive")
    __invert__ = _unary("bitwise_invert")
    __add__, __radd__, __iadd__ = _methods("add")
    __sub__, __rsub__, __isub__ = _methods("subtract")
    __mul__, __rmul__, __imul__ = _methods("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _methods("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _methods("floor_divide")
    __mod__, __rmod__, __imod__ = _methods("remainder")
    __pow__, __rpow__, __ipow__ = _methods("pow")
    __matmul__, __rmatmul__, __imatmul__ = _methods("matmul")
    __and__, __rand__, __iand__ = _methods("bitwise_and")
    __or__, __ror__, __ior__ = _methods("bitwise_or")
    __xor__, __rxor__, __ixor__ = _methods("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _methods("bitwise_left_shift")
    __rshift__, __rrshift__, __irshift__ = _methods("bitwise_right_shift")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __eq__ = _operator("equal")
    __ne__ = _operator("not_equal")


def _picks_nothing(x: Tensor, mask: Tensor) -> bool:
    """True for a mask without elements: an axis of size 0 fits an axis of any size."""
    if mask.dtype.kind != "bool" or mask.numel() or mask.ndim > x.ndim:
        return False
    return all(own in (size, 0) for own, size in zip(mask.shape, x.shape))


def as_array(value: Tensor) -> Array:
    """A tensor as an array of this namespace, on the same memory."""
    return value if isinstance(value, Array) else value.as_subclass(Array)


def call(name: str, *operands: Any, **options: Any) -> Array:
    """One of the framework's functions, with its result as an array."""
    return as_array(FUNCTIONS[name](*operands, **options))


def need_array(name: str, value: Any) -> Tensor:
    """Raise unless an argument is an array."""
    if not isinstance(value, Tensor):
        raise KindError(f"{name} needs an array, not {type(value).__name__}")
    return value


def converted(value: Any, dtype: DType) -> Tensor:
    """An operand in an element type; Python numbers become 0-d arrays."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    return wrap_operand(value.item() if hasattr(value, "item") else value, dtype)


def together(name: str, kinds: frozenset[str], x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two operands of which at least one is an array, promoted to one type of some kinds."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        dtype = promote(x1.dtype, x2.dtype)
    elif isinstance(x1, Tensor) and is_number(x2):
        dtype = weak(x2, x1.dtype)
    elif isinstance(x2, Tensor) and is_number(x1):
        dtype = weak(x1, x2.dtype)
    else:
        raise KindError(
            f"{name} needs arrays, one of which may be a number; "
            f"got {type(x1).__name__} and {type(x2).__name__}"
        )
    require(name, dtype, kinds)
    return converted(x1, dtype), converted(x2, dtype)
