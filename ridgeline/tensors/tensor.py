"""Tensor: the thin user-facing array. A handle on a cell, a chain of view steps, and a track.

Reading gives the node that stands for the value now; nothing is computed before somebody looks at
the numbers. The functions of `ridgeline/functions` become methods in `dispatch.py`; gradients are
in `differentiable.py`; what needs memory or Python values is here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, DTypeError, GradientError, RidgelineError, ShapeError
from ridgeline.functions.operands import as_node, defaults
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import here, stamp
from ridgeline.graph.placement import transfer
from ridgeline.layouts import ORDERS, contiguous_format, memory_format
from ridgeline.ops.elementwise import cast
from ridgeline.ops.tracking import apart, narrowed, tag
from ridgeline.record import recorder
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import (
    CUT,
    GRAPH,
    LEAF,
    PLAIN,
    Cell,
    InnerStep,
    Step,
    Track,
    apply_steps,
    filled_leaf,
    no_step,
    rare,
    steps_between,
)
from ridgeline.record.memory import adopt
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Lifted, lift
from ridgeline.record.values import (
    operand,
    owned,
    read,
    read_array,
    result_mode,
    shared_array,
    under_apart,
    write,
)
from ridgeline.runtime.buffer import check_device, space
from ridgeline.scalars import Array
from ridgeline.tensors.arguments import annotated
from ridgeline.tensors.conversions import conversion
from ridgeline.tensors.differentiable import Differentiable
from ridgeline.tensors.exchange import Exchange
from ridgeline.tensors.handle import Size
from ridgeline.tensors.methods import TensorMethods
from ridgeline.tensors.python_data import array_from, python_values
from ridgeline.tensors.storage import Stored, in_format, left_behind

T = TypeVar("T", bound="Tensor")


class NoAxesError(ShapeError, TypeError):
    """A scalar where a sequence was asked for; Python's and NumPy's own question is a TypeError."""


class Tensor(Differentiable, Stored, TensorMethods, Exchange):
    """An n-dimensional array that records what is done to it."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy's operators hand over to ours

    def __new__(cls: type[T], *data: Any, **options: Any) -> T:
        """`Tensor(values)`, or `Tensor(2, 3)` for uninitialised memory; prefer `tensor()`."""
        if len(data) == 1 and isinstance(data[0], Size):
            data = data[0]
        if data and all(isinstance(size, int) for size in data):
            values: Any = np.zeros(data, np.bool_)
        else:
            values = data[0] if data else ()
        made = tensor(values, dtype=options.get("dtype", defaults.dtype))
        return made.to(options.get("device")).as_subclass(cls)

    # ---- other handles on the same memory -------------------------------------------------------

    def detach(self) -> Tensor:
        """The same memory, through which no gradient passes."""
        self._resolved()  # raises for a tensor that a trace left behind
        return alias(self, Track(CUT, modes.capture))

    def detach_(self: T) -> T:
        """Cut this tensor off from the graph it came from."""
        recorder.exchange(self._cell)
        capture = modes.capture
        if capture is not None and self._track.capture is None:
            if self._resolved()[1].mode <= CUT:
                return self  # as it is already
            capture.cut(self)
        self._track = Track(CUT, capture)
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without gradients; assigning puts other memory in its place."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise BadTypeError(f".data needs a tensor, not {type(value).__name__}")
        if modes.capture is not None:
            raise CaptureError(
                "memory cannot be exchanged inside jit", help="use copy_() to write the values"
            )
        mode, owned = self._track.mode, self._track.rare
        if mode == GRAPH:
            raise GradientError(
                "the memory of a tensor through which gradients flow cannot be exchanged",
                help="go on with the new tensor, or write to it in place",
            )
        if mode == LEAF and not value.dtype.is_differentiable:
            raise GradientError(
                f"a tensor that requires gradients cannot show memory of {value.dtype.name}"
            )
        recorder.exchange(self._cell)
        left_behind(self)
        self._cell, self._steps, self._seen = value._cell, value._steps, None
        self._track = Track(CUT if mode != LEAF else LEAF, None)
        if mode == LEAF and owned is not None:
            details = rare(self._track)
            details.owner, details.steps = owned.owner, self._steps

    # ---- values ---------------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Array:
        """The values as a NumPy array that shares memory with this tensor."""
        if self.requires_grad and not force:
            raise GradientError(
                "a tensor that requires gradients has no NumPy form",
                help="use x.detach().numpy()",
            )
        return shared_array(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = shared_array(self.detach())
        if dtype is not None and array.dtype != dtype:
            if copy is False:  # NumPy's protocol asks for this kind of error
                raise ValueError(f"{self.dtype.name} as {np.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Any:
        """The one element as a Python number."""
        if self.numel() != 1:
            raise ShapeError(
                f"item() needs exactly one element, got shape {list(self.shape)}",
                help="use tolist() for more",
            )
        return python_values(read_array(self, "item()").reshape(()), self.dtype)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return python_values(read_array(self, "tolist()"), self.dtype)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"the truth of a tensor with {self.numel()} elements is not defined",
                help="use any() or all()",
            )
        return bool(read_array(self, "bool()").reshape(()) != 0)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.is_differentiable:
            raise DTypeError(f"an index is an integer, not {self.dtype.name}")
        if self.numel() != 1:  # of the kind after which Python tries other ways, as `bytes` does
            raise BadTypeError(f"an index is one integer, not a tensor of {list(self.shape)}")
        return int(self.item())

    def __len__(self) -> int:
        if not self._type.shape:
            raise NoAxesError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._type.shape:
            raise NoAxesError("a 0-d tensor cannot be iterated over", help="use item()")
        return (self[index] for index in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        from ridgeline.tensors.display import describe_tensor

        return describe_tensor(self)

    def _repr_html_(self) -> str:
        from ridgeline.tensors.display import html

        return html(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 and spec else repr(self)

    # ---- writing --------------------------------------------------------------------------------

    @recorder.taped
    def copy_(self: T, src: Any, non_blocking: bool = False) -> T:
        """Write other values, broadcast and converted, into this memory."""
        if not isinstance(non_blocking, bool):
            raise BadTypeError(f"copy_: non_blocking is True or False, not {non_blocking!r:.40}")
        if not isinstance(src, Tensor):
            src = tensor(src, dtype=None if isinstance(src, np.ndarray) else self.dtype)
        value = cast(operand(src), self.dtype)
        try:
            return write(self, value, src._resolved()[1].mode, "copy_")
        except RidgelineError as error:
            raise annotated(error, "copy_", (self, src)) from None

    @recorder.taped
    def zero_(self: T) -> T:
        """Write zeros."""
        return write(self, as_node(0, self.dtype), PLAIN, "zero_")

    @recorder.taped
    def clone(self, *, memory_format: memory_format | None = None) -> Tensor:
        """The same values in memory of their own."""
        mode = result_mode(self._resolved()[1].mode)
        made = wrap(tag(read(self)) if mode == GRAPH else owned(operand(self)), mode)
        return in_format(made, memory_format)

    def contiguous(self, memory_format: memory_format = contiguous_format) -> Tensor:
        """This tensor if its memory is in that order, else a copy that is."""
        if type(memory_format) is not type(contiguous_format):
            raise BadTypeError(f"contiguous: {memory_format!r:.40} is no memory format")
        if memory_format in ORDERS:
            return in_format(self, memory_format)
        return self if self.is_contiguous() else self.clone()

    # ---- element types and devices --------------------------------------------------------------

    def pin_memory(self, device: Any = None) -> Tensor:
        """A copy in pinned memory of the host, which a GPU reads where it lies.

        All other memory is copied through such by itself. Inside jit, where gradients flow, and
        without a GPU, it is this tensor.
        """
        from ridgeline.runtime.cuda.driver import missing  # for who has a GPU

        if self.is_cuda or self.requires_grad or modes.capture is not None or missing():
            return self
        place: Any = space(check_device("cuda" if device is None else device))
        pinned = place.pin(read_array(self, "pin_memory()"))
        return holding(filled_leaf(self._type, pinned), PLAIN)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """In another element type or on another device, or like another tensor in both."""
        wanted = conversion(args, kwargs)
        dtype, device = wanted.dtype, wanted.device
        made = self if dtype is None or dtype is self.dtype else self._cast(dtype)
        if device is not None and check_device(device) != made._memory.device:
            made = _transferred(made, check_device(device))
        made = in_format(made, wanted.memory_format)
        return self.clone() if made is self and wanted.copy else made

    def as_subclass(self, cls: type[T]) -> T:
        """A handle of another class on the same memory."""
        made = object.__new__(cls)
        made._cell, made._track, made._steps = self._cell, self._track, self._steps
        made._seen, made._extra = None, None
        return made

    def cpu(self, memory_format: memory_format | None = None) -> Tensor:
        """This tensor if its memory is the host's, else a copy that is."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(
        self,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: memory_format | None = None,
    ) -> Tensor:
        """This tensor if it is on that GPU (the current one, if none is named), else a copy."""
        return self.to("cuda" if device is None else device, memory_format=memory_format)

    def type_as(self, other: Tensor) -> Tensor:
        """In the element type and on the device of another tensor."""
        return self.to(other.device, other.dtype)

    def new_tensor(
        self,
        data: Any,
        *,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """A tensor with a copy of `data`, in the element type and on the device of this one."""
        kind, target = dtype or self.dtype, device or self.device
        return tensor(data, dtype=kind, device=target, requires_grad=requires_grad)

    def new(self, *data: Any, device: Any = None) -> Tensor:
        """Values, or memory of some sizes, in the element type and on the device of this one."""
        return Tensor(*data, dtype=self.dtype).to(device or self.device)

    # ---- copying and storing --------------------------------------------------------------------

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        if not self.is_leaf:
            raise GradientError("only leaf tensors can be deep-copied", help="detach() it first")
        cell = self._cell
        copied = memo.get(id(cell))  # views of one memory are views of one copy
        if copied is None:
            whole = alias(self.detach())
            whole._steps, whole._seen = (), None
            copied = memo[id(cell)] = wrap(owned(read(whole)), PLAIN)
        made = alias(copied, Track(PLAIN, modes.capture) if self._steps else None)
        made._steps, made._seen = self._steps, None
        made = made.as_subclass(type(self))
        memo[id(self)] = made
        made._require_grad(self.requires_grad)
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
        return made

    def __copy__(self: T) -> T:
        return alias(self).as_subclass(type(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise GradientError("only leaf tensors can be pickled", help="detach() it first")
        array = np.ascontiguousarray(read_array(self.detach(), "pickle"))
        state = (
            type(self), array.tobytes(), self.dtype, tuple(self.shape), self.requires_grad,
            self.device,
        )  # fmt: skip
        return (unpickled, state)


# ---- new handles --------------------------------------------------------------------------------


def wrap(node: Node, mode: int) -> Tensor:
    """A new tensor whose value is `node`."""
    capture = modes.capture
    cell = Cell(node, mode, capture)
    made = object.__new__(Tensor)
    made._cell = made._track = cell
    made._steps = ()
    made._seen = made._extra = None
    if mode == GRAPH:
        node.shown = True
    if capture is not None:
        capture.made.append(weakref.ref(cell))
    elif node.buffer is None:
        recorder.record(cell)
    return made


def filled(type: TensorType, buffer: Any) -> Tensor:
    """A new tensor over memory that nobody else has, outside of captures."""
    return holding(filled_leaf(type, buffer), PLAIN)


def holding(node: Node, mode: int) -> Tensor:
    """A new tensor over a node that has its value or is about to get it, outside of captures."""
    made = object.__new__(Tensor)
    made._cell = made._track = Cell(node, mode, None)
    made._steps = ()
    made._seen = made._extra = None
    return made


def alias(source: Tensor, track: Track | None = None) -> Tensor:
    """Another handle on the same memory, with the same view steps."""
    made = object.__new__(Tensor)
    made._cell, made._steps, made._seen = source._cell, source._steps, source._seen
    made._track = source._track if track is None else track
    made._extra = None
    return made


def as_view(source: Tensor, base: Node, result: Node) -> Tensor:
    """A view whose steps are the movement ops from `base` (what `source` read as) to `result`."""
    steps = steps_between(result, base)
    if steps is None:
        return wrap(result, result_mode(source._resolved()[1].mode))
    return seen_through(source, result, steps)


def as_shared(result: Any, arguments: Sequence[tuple[Tensor, Node]]) -> Any:
    """Results that are arguments as these tensors, and what movement makes of them as views."""
    if isinstance(result, tuple | list):
        return type(result)([as_shared(part, arguments) for part in result])
    for given, node in arguments if isinstance(result, Node) else ():
        if result is node:
            return given
        if steps_between(result, node) is not None:
            return as_view(given, node, result)
    return result


def seen_through(source: Tensor, result: Node, steps: tuple[Step, ...]) -> Tensor:
    """The view that some steps more show, as `result`."""
    track, under = source._track, None
    if source._resolved()[1].mode >= GRAPH:
        if not modes.gradients:
            track = Track(CUT, modes.capture)
        else:
            under = under_apart(source)
            steps = (*map(InnerStep, steps[:-1]), *steps[-1:])
            if under is not None:
                result = apply_steps(read(source), steps, True)
                if result.origins or not steps:
                    result = apart(result, [read(source)])
                result.shown = True
            steps = steps or (no_step(len(result.shape)),)
    made = alias(source, track)
    made._steps = source._steps + steps
    if not result.origins:
        stamp(result, here(3))
    # the node goes until it is read; its line is kept
    made._seen = (under, None if under is None else result, result.origins)
    return made


@recorder.taped
def _transferred(source: Tensor, target: device) -> Tensor:
    """The values on another device, through which gradients flow back."""
    made = transfer(operand(source), target)
    stamp(made, here(3))
    return wrap(made, result_mode(source._resolved()[1].mode))


def narrow_gradient(source: Tensor, dtype: DType) -> Tensor:
    """The same values, whose gradient is rounded to a narrower type on its way back."""
    return wrap(narrowed(read(source), dtype), result_mode(source._resolved()[1].mode))


# ---- tensors from values ------------------------------------------------------------------------


def from_array(array: Array, dtype: DType, device_name: str = CPU) -> Tensor:
    """A tensor over an array that nobody else will write to."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    node = filled_leaf(TensorType(array.shape, dtype, device_name), adopt(contiguous, device_name))
    stamp(node, here(2))
    return wrap(node, PLAIN)


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, arrays or tensors."""
    target = None if device is None else check_device(device)
    if target is None and defaults.device != CPU and not isinstance(data, Tensor):
        target = check_device(defaults.device)
    dtype = dtypes.wanted(dtype)
    if isinstance(data, Tensor):
        wanted = data.detach().to(dtype=dtype, device=target)
        made = wanted.clone() if wanted._cell is data._cell else wanted
    elif isinstance(data, Lifted) and (dtype is None or dtype.kind == "float"):
        made = wrap(lift(data, dtype or defaults.dtype), PLAIN).to(device=target)
    else:
        array, found = array_from(data, dtype)
        traced = traced_array(data, found)
        if traced is None:
            made = from_array(array, found, target or CPU)
        else:
            made = traced if target is None else traced.to(target)
    return made.requires_grad_() if requires_grad else made


def traced_array(data: Any, dtype: DType) -> Tensor | None:
    """Inside jit, a large array that later calls read again; None for all else."""
    if modes.capture is None or not isinstance(data, np.ndarray):
        return None
    node = modes.capture.array(data, dtype)
    if node is None:
        return None
    stamp(node, here(3))
    return wrap(node, PLAIN)


def unpickled(
    cls: type[T],
    values: bytes,
    dtype: DType,
    shape: tuple[int, ...],
    requires_grad: bool,
    device_name: str = CPU,
) -> T:
    """A tensor from what pickle stored of it."""
    array = np.frombuffer(values, dtype.numpy).reshape(shape).copy()
    return from_array(array, dtype, device_name).as_subclass(cls).requires_grad_(requires_grad)
