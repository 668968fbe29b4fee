"""Tensor: the thin user-facing array. A handle on a cell, a chain of view steps, and a track.

Reading gives the node that stands for the value now; nothing is computed before somebody looks at
the numbers. The functions of `ridgeline/functions` become methods in `dispatch.py`; what needs
more than nodes (memory, gradients, Python values) is here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, GradientError, RidgelineError, ShapeError
from ridgeline.functions.indexing import getitem, is_basic
from ridgeline.functions.operands import Operand, as_node, broadcast_shapes, stretch
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import here, stamp
from ridgeline.graph.placement import placed, transfer
from ridgeline.interop.exchange import Exchange
from ridgeline.ops.elementwise import cast, stop_gradient
from ridgeline.ops.tracking import narrowed, tag, variable
from ridgeline.runtime.spaces import require, space
from ridgeline.scalars import Array
from ridgeline.tensors import execute
from ridgeline.tensors.cells import (
    CUT,
    GRAPH,
    LEAF,
    PLAIN,
    Cell,
    Step,
    Track,
    apply_steps,
    contiguous_strides,
    filled_leaf,
    no_step,
    rare,
    steps_between,
    strides_of,
    write_steps,
)
from ridgeline.tensors.methods import TensorMethods
from ridgeline.tensors.modes import modes
from ridgeline.tracing import guards

if TYPE_CHECKING:
    from ridgeline.autograd.engine import HookHandle

T = TypeVar("T", bound="Tensor")


class Size(tuple[int, ...]):
    """A shape: a tuple of ints that prints like torch's."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        total = 1
        for size in self:
            total *= size
        return total

    def __repr__(self) -> str:
        return f"ridgeline.Size({list(self)})"


class Extra:
    """What only some tensors have: a gradient, hooks, a retained gradient."""

    __slots__ = ("after", "grad", "hooks", "retains")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.after: dict[int, Callable[[Tensor], None]] = {}  # called once .grad is there
        self.retains = False


# Tensors inside graphs whose gradients somebody wants to see: hooks and retain_grad().
observed: weakref.WeakKeyDictionary[Node, list[weakref.ref[Tensor]]] = weakref.WeakKeyDictionary()


class Tensor(TensorMethods, Exchange):
    """An n-dimensional array that records what is done to it."""

    __slots__ = ("__weakref__", "_cell", "_extra", "_seen", "_steps", "_track")
    _cell: Cell
    _track: Track  # the cell itself, unless the handle was detached
    _steps: tuple[Step, ...]
    _seen: tuple[Node, Node] | None  # the last base a view was applied to, and the result
    _extra: Extra | None
    __array_priority__ = 1000  # NumPy's operators hand over to ours

    def __new__(cls: type[T], *data: Any, **options: Any) -> T:
        """`Tensor(values)`, or `Tensor(2, 3)` for uninitialised memory; prefer `tensor()`."""
        if data and all(isinstance(size, int) for size in data):
            values: Any = np.zeros(data)
        else:
            values = data[0] if data else ()
        made = tensor(values, dtype=options.get("dtype", dtypes.float32))
        return made.as_subclass(cls)

    # ---- what is known without computing -------------------------------------------------------

    @property
    def _type(self) -> TensorType:
        base = self._base
        if not self._steps:
            return base.types[0]
        seen = self._seen if base is self._cell.node else None
        return seen[1].types[0] if seen is not None else apply_steps(base, self._steps).types[0]

    @property
    def shape(self) -> Size:
        """The sizes of the axes."""
        return Size(self._type.shape)  # type: ignore[arg-type]

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def device(self) -> device:
        """Where the values are."""
        return device(self._cell.node.types[0].device)

    @property
    def is_cuda(self) -> bool:
        """True where the values are on an NVIDIA GPU."""
        return self._cell.node.types[0].device != CPU

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """True for real floating types."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """True for complex types."""
        return self.dtype.is_complex

    def stride(self, dim: int | None = None) -> Any:
        """Steps in memory, in elements."""
        shape = self._base.types[0].shape
        found = strides_of(shape, self._steps) or contiguous_strides(self._type.shape)
        return found if dim is None else found[dim]

    def is_contiguous(self) -> bool:
        """True where the elements lie in row-major order."""
        wanted = contiguous_strides(self._type.shape)
        pairs = zip(self.shape, self.stride(), wanted)
        return 0 in self.shape or all(own == want or size == 1 for size, own, want in pairs)

    @property
    def _version(self) -> int:
        """How often the memory was written."""
        return self._cell.version

    # ---- gradients ------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """True where gradients flow to or through this tensor."""
        return self._resolved()[1].mode >= GRAPH

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """True unless the tensor is the result of a tracked operation."""
        track = self._resolved()[1]
        if track.mode != LEAF:
            return track.mode != GRAPH
        return len(self._steps) == len(rare(track).steps)

    @property
    def grad_fn(self) -> Any:
        """The op whose gradient rule leads on, or None for leaves."""
        return None if self.is_leaf else read(self).op

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Make this tensor a variable, or stop it from being one."""
        track = self._resolved()[1]
        if not requires_grad:
            if track.mode == GRAPH:
                raise GradientError(
                    "only a leaf tensor can stop requiring gradients",
                    help="use detach() to get a tensor without a gradient",
                )
            track.mode = CUT if track.mode == LEAF else track.mode
            return self
        if not self.dtype.is_differentiable:
            raise GradientError(
                f"only floating tensors can require gradients, this one is {self.dtype.name}",
                help="convert it first, such as with .float()",
            )
        if track.mode >= GRAPH:
            return self
        if self._steps:  # the view alone is a variable, not the memory under it
            self._track = track = Track(PLAIN, modes.capture)
        track.mode = LEAF
        details = rare(track)
        details.owner, details.key, details.steps = weakref.ref(self), None, self._steps
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward() left, or None."""
        if modes.capture is not None:
            return modes.capture.read_grad(self)
        return self._extra.grad if self._extra is not None else None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise GradientError(f"a gradient is a tensor or None, not {type(value).__name__}")
            if value.shape != self.shape or value.dtype is not self.dtype:
                raise GradientError(
                    f"the gradient of {self._type} cannot be {value._type}",
                    help="shapes and element types must be equal",
                )
        if modes.capture is not None:
            modes.capture.write_grad(self, value)
        elif value is not None or self._extra is not None:
            self._details().grad = value

    def _details(self) -> Extra:
        if self._extra is None:
            self._extra = Extra()
        return self._extra

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf."""
        if not self.requires_grad:
            raise GradientError("retain_grad() needs a tensor that requires gradients")
        if not self.is_leaf:
            self._details().retains = True
            observe(self)

    @property
    def retains_grad(self) -> bool:
        """True where backward() keeps the gradient of a tensor that is not a leaf."""
        return self._extra is not None and self._extra.retains

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call `hook(gradient)` in every backward pass; what it returns replaces the gradient."""
        from ridgeline.autograd.engine import HookHandle

        if not self.requires_grad:
            raise GradientError("a hook needs a tensor that requires gradients")
        if not self.is_leaf:
            observe(self)
        return HookHandle(self._details().hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call `hook(tensor)` whenever a backward pass has added to the `.grad` of this leaf."""
        from ridgeline.autograd.engine import HookHandle

        if not (self.is_leaf and self.requires_grad):
            raise GradientError("this hook needs a leaf that requires gradients")
        return HookHandle(self._details().after, hook)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this tensor to the `.grad` of the leaves it depends on."""
        from ridgeline.autograd.engine import backward

        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def detach(self) -> Tensor:
        """The same memory, through which no gradient passes."""
        self._resolved()  # raises for a tensor that a trace left behind
        return alias(self, Track(CUT, modes.capture))

    def detach_(self: T) -> T:
        """Cut this tensor off from the graph it came from."""
        if modes.capture is not None and self._track.capture is None:
            raise RidgelineError(
                "a tensor from outside cannot be cut off inside jit", help="use detach()"
            )
        self._track = Track(CUT, modes.capture)
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without gradients; assigning puts other memory in its place."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise RidgelineError(f".data needs a tensor, not {type(value).__name__}")
        if modes.capture is not None:
            raise RidgelineError(
                "memory cannot be exchanged inside jit", help="use copy_() to write the values"
            )
        mode, owned = self._track.mode, self._track.rare
        guards.bump()
        rare(self._cell).left = guards.epoch.value  # compiled code that reads the old memory ends
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
        return execute.shared_array(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = execute.shared_array(self.detach())
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
        return python_values(execute.read_array(self, "item()").reshape(()), self.dtype)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return python_values(execute.read_array(self, "tolist()"), self.dtype)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"the truth of a tensor with {self.numel()} elements is not defined",
                help="use any() or all()",
            )
        return bool(execute.read_array(self, "bool()").reshape(()) != 0)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.is_differentiable:
            raise DTypeError(f"an index is an integer, not {self.dtype.name}")
        return int(self.item())

    def __len__(self) -> int:
        if not self._type.shape:
            raise ShapeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._type.shape:
            raise ShapeError("a 0-d tensor cannot be iterated over", help="use item()")
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

    # ---- indexing and writing -------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        if not is_basic(index):
            from ridgeline.tensors.subscripts import pick

            return pick(self, index)
        source = read(self)
        try:
            picked = getitem(source, index)
        except RidgelineError as error:
            raise _annotated(error, "indexing", self) from None
        return as_view(self, source, picked)

    def __setitem__(self, index: Any, value: Any) -> None:
        if is_basic(index):
            view = self[index]
            if isinstance(value, Tensor) and value.dim() > view.dim():
                value = value.squeeze(tuple(range(value.dim() - view.dim())))
            view.copy_(value)
        else:
            from ridgeline.tensors.subscripts import assign

            assign(self, index, value)

    def copy_(self: T, src: Any, non_blocking: bool = False) -> T:
        """Write other values, broadcast and converted, into this memory."""
        if not isinstance(src, Tensor):
            src = tensor(src, dtype=None if isinstance(src, np.ndarray) else self.dtype)
        value = cast(read(src), self.dtype)
        try:
            return write(self, value, src._resolved()[1].mode, "copy_")
        except RidgelineError as error:
            raise _annotated(error, "copy_", self, src) from None

    def zero_(self: T) -> T:
        """Write zeros."""
        return write(self, as_node(0, self.dtype), PLAIN, "zero_")

    def fill_(self: T, value: Any) -> T:
        """Write one value everywhere."""
        mode = PLAIN
        if isinstance(value, Tensor):
            mode, value = value._resolved()[1].mode, read(value)
        return write(self, as_node(value, self.dtype), mode, "fill_")

    def clone(self) -> Tensor:
        """The same values in memory of their own."""
        mode = _result_mode(self._resolved()[1].mode)
        return wrap(tag(read(self)) if mode == GRAPH else owned(read(self)), mode)

    def contiguous(self) -> Tensor:
        """This tensor if its memory is in row-major order, else a copy that is."""
        return self if self.is_contiguous() else self.clone()

    # ---- element types and devices --------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """In another element type or on another device, or like another tensor in both."""
        dtype, place = kwargs.get("dtype"), kwargs.get("device")
        for value in args:
            if isinstance(value, DType):
                dtype = value
            elif isinstance(value, Tensor):
                dtype, place = value.dtype, value.device
            elif isinstance(value, str | int) and not isinstance(value, bool):
                place = value
        made = self if dtype is None or dtype is self.dtype else self.type(dtype)
        if place is not None and check_device(place) != made._cell.node.types[0].device:
            made = _transferred(made, check_device(place))
        return self.clone() if made is self and kwargs.get("copy") else made

    def as_subclass(self, cls: type[T]) -> T:
        """A handle of another class on the same memory."""
        made = object.__new__(cls)
        made._cell, made._track, made._steps = self._cell, self._track, self._steps
        made._seen, made._extra = None, None
        return made

    def cpu(self) -> Tensor:
        """This tensor if its memory is the host's, else a copy that is."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        """This tensor if it is on that GPU (the current one, if none is named), else a copy."""
        return self.to("cuda" if device is None else device)

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
        made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
        return made

    def __copy__(self: T) -> T:
        return alias(self).as_subclass(type(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise GradientError("only leaf tensors can be pickled", help="detach() it first")
        array = np.ascontiguousarray(execute.read_array(self.detach(), "pickle"))
        state = (
            type(self), array.tobytes(), self.dtype, tuple(self.shape), self.requires_grad,
            self.device,
        )  # fmt: skip
        return (_unpickle, state)

    @property
    def _base(self) -> Node:
        """The node whose type all of the memory has; symbolic sizes are those of the trace."""
        cell, capture = self._cell, modes.capture
        if capture is None or cell.capture is capture or not capture.symbolic:
            return cell.node
        return capture.cell(cell).node

    def _resolved(self) -> tuple[Cell, Track]:
        """The cell and the track; inside a capture, what stands for them there."""
        cell, track, capture = self._cell, self._track, modes.capture
        if cell.capture is capture and track.capture is capture:
            return cell, track
        return execute.foreign(cell, track, capture)


def _unpickle(
    cls: type[T],
    values: bytes,
    dtype: DType,
    shape: tuple[int, ...],
    requires_grad: bool,
    place: str = CPU,
) -> T:
    array = np.frombuffer(values, dtype.numpy).reshape(shape).copy()
    return from_array(array, dtype, place).as_subclass(cls).requires_grad_(requires_grad)


def python_values(array: Array, dtype: DType) -> Any:
    """An array as Python numbers; NumPy has no `tolist` for the small floating types."""
    if dtype.kind == "float" and dtype.itemsize < 4:
        return array.astype(np.float32).tolist()
    return array.tolist()


def check_device(name: Any) -> device:
    """The device under a name; an error where this machine does not have it."""
    return CPU if name is None or name == CPU else require(name)


def _transferred(source: Tensor, place: device) -> Tensor:
    """The values on another device, through which gradients flow back."""
    made = transfer(read(source), place)
    stamp(made, here(3))
    return wrap(made, _result_mode(source._resolved()[1].mode))


def narrow_gradient(source: Tensor, dtype: DType) -> Tensor:
    """The same values, whose gradient is rounded to a narrower type on its way back."""
    return wrap(narrowed(read(source), dtype), _result_mode(source._resolved()[1].mode))


# ---- reading, wrapping, writing ------------------------------------------------------------------


def read(source: Tensor) -> Node:
    """The node that stands for a tensor's value now."""
    cell, track, capture = source._cell, source._track, modes.capture
    if cell.capture is not capture or track.capture is not capture:
        cell, track = execute.foreign(cell, track, capture)
    base = cell.node if cell.rare is None and track.rare is None else _special(cell, track)
    steps = source._steps
    if steps and track.mode == LEAF:
        steps = steps[len(rare(track).steps) :]  # the base is the variable, itself a view
    if not steps:
        return base
    seen = source._seen
    if seen is not None and seen[0] is base:
        return seen[1]
    result = apply_steps(base, steps)
    if capture is None or cell is source._cell or not capture.symbolic:
        source._seen = (base, result)
    return result


def _special(cell: Cell, track: Track) -> Node:
    """The base node of a variable, or of memory that others may write to."""
    if cell.rare is not None and cell.rare.shared is not None:
        execute.refresh(cell)
    if track.mode != LEAF:
        return cell.node
    details = rare(track)
    if details.key is None or details.key_version != cell.version:
        value = apply_steps(cell.node, details.steps)
        if value.buffer is not None:
            details.key = filled_leaf(value.types[0], value.buffer)
            if cell.rare is not None and cell.rare.shared is not None:
                cell.rare.shared.leaves.add(details.key)
        else:
            details.key = variable(value)
        details.key_version = cell.version
        details.key.origins = value.origins
        details.key.owner = details.owner  # backward() finds the leaves of a graph by this
    return details.key


def _result_mode(highest: int) -> int:
    """How a result stands to differentiation, given the highest mode of its operands."""
    if highest >= GRAPH:
        return GRAPH if modes.gradients else CUT
    return highest


def owned(node: Node) -> Node:
    """A node for a cell of its own: memory that another cell or NumPy sees is copied."""
    if node.buffer is None or modes.capture is not None:
        return node
    made = filled_leaf(node.types[0], space(node.types[0].device).copy(node.buffer))
    execute.hold(node.buffer.nbytes)
    made.origins = node.origins
    return made


def wrap(node: Node, mode: int) -> Tensor:
    """A new tensor whose value is `node`."""
    capture = modes.capture
    cell = Cell(node, mode, capture)
    made = object.__new__(Tensor)
    made._cell = made._track = cell
    made._steps = ()
    made._seen = made._extra = None
    if capture is not None:
        capture.made.append(weakref.ref(cell))
    elif node.buffer is None:
        execute.record(cell)
    return made


def filled(type: TensorType, buffer: Any) -> Tensor:
    """A new tensor over memory that nobody else has, outside of captures."""
    made = object.__new__(Tensor)
    made._cell = made._track = Cell(filled_leaf(type, buffer), PLAIN, None)
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
        return wrap(result, _result_mode(source._resolved()[1].mode))
    track = source._track
    if source._resolved()[1].mode >= GRAPH:
        if not modes.gradients:
            track = Track(CUT, modes.capture)
        elif not steps:
            steps = (no_step(len(result.shape)),)
    made = alias(source, track)
    made._steps = source._steps + steps
    made._seen = None
    if not result.origins:
        stamp(result, here(3))
    return made


def write(target: T, value: Node, mode: int, what: str) -> T:
    """Write a value (broadcast to the target's shape) through to the target's cell."""
    cell, track = target._resolved()
    if track.mode == LEAF and modes.gradients:
        raise GradientError(
            f"{what} would overwrite a leaf tensor that requires gradients",
            help="wrap it in `with no_grad():`, or write to x.data",
        )
    shape = target._type.shape
    if value.shape != shape:
        if not _fits(value.shape, shape):
            raise ShapeError(
                f"{what}: a value of shape {list(value.shape)} does not fit into {list(shape)}",
                help="sizes, aligned from the right, must be equal or 1 in the value",
            )
        value = stretch(value, shape)
    tracked = modes.gradients and (mode >= GRAPH or track.mode == GRAPH)
    base = cell.node if cell.rare is None else _special(cell, cell)
    value = placed(value, base.types[0].device)
    if tracked:  # what must not let gradients pass is cut off before it is mixed in
        value = stop_gradient(value) if mode == CUT else value
        base = stop_gradient(base) if track.mode == CUT else base
    if target._steps:
        written = write_steps(base, target._steps, value)
    else:
        written = value if tracked else owned(value)
    stamp(written, here(3))
    cell.set(written)
    if tracked:
        track.mode = GRAPH
    elif track.mode == PLAIN and mode > PLAIN:
        track.mode = CUT
    if track is not cell and cell.mode == PLAIN and mode > PLAIN:
        cell.mode = CUT
    execute.written(cell)
    return target


def _fits(shape: tuple[Any, ...], into: tuple[Any, ...]) -> bool:
    """True where a value of a shape can be repeated into another, which stays as it is."""
    try:
        return broadcast_shapes(shape, into) == into
    except ShapeError:
        return False


def _annotated(error: RidgelineError, name: str, *tensors: Tensor) -> RidgelineError:
    from ridgeline.tensors.dispatch import annotated

    return annotated(error, name, tensors)


def observe(source: Tensor) -> None:
    """Let backward() report the gradient of a tensor inside the graph."""
    watching = observed.setdefault(read(source), [])
    if not any(known() is source for known in watching):
        watching.append(weakref.ref(source))


# ---- making tensors from Python and NumPy values -------------------------------------------------


def from_array(array: Array, dtype: DType, place: str = CPU) -> Tensor:
    """A tensor over an array that nobody else will write to."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    node = filled_leaf(TensorType(array.shape, dtype, place), execute.adopt(contiguous, place))
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
    place = None if device is None else check_device(device)
    if isinstance(data, Tensor):
        wanted = data.detach().to(dtype=dtype, device=place)
        made = wanted.clone() if wanted._cell is data._cell else wanted
    else:
        array, found = execute.array_from(data, dtype)
        traced = _traced_array(data, found)
        if traced is None:
            made = from_array(array, found, place or CPU)
        else:
            made = traced if place is None else traced.to(place)
    return made.requires_grad_() if requires_grad else made


def _traced_array(data: Any, dtype: DType) -> Tensor | None:
    """Inside jit, a large array that later calls read again; None for all else."""
    if modes.capture is None or not isinstance(data, np.ndarray):
        return None
    node = modes.capture.array(data, dtype)
    if node is None:
        return None
    stamp(node, here(3))
    return wrap(node, PLAIN)


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor; arrays and tensors that fit already are not copied."""
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    if isinstance(data, np.ndarray):
        return from_numpy(data).to(dtype=dtype, device=device)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: Array) -> Tensor:
    """A tensor that shares memory with a NumPy array: each sees what the other writes."""
    if not isinstance(array, np.ndarray):
        raise RidgelineError(f"from_numpy needs a NumPy array, not {type(array).__name__}")
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise DTypeError(f"arrays of {array.dtype} have no element type here")
    traced = _traced_array(array, dtype)
    made = wrap(execute.leaf_over(array, dtype), PLAIN) if traced is None else traced
    if modes.capture is None:
        execute.share(made._cell, execute.Shared(TensorType(array.shape, dtype), array=array))
    return made


def wrap_operand(value: Operand, dtype: DType) -> Tensor:
    """A number as a 0-d tensor."""
    return wrap(as_node(value, dtype), PLAIN)
