"""Dispatch: bodies over nodes become functions, methods and operators over tensors.

A wrapper reads its tensor arguments as nodes, runs the body, and wraps the resulting nodes. It is
the one place that decides whether results require gradients, where they were made, and what an
error says about the operands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ridgeline import (
    dtypes,
    functions,  # noqa: F401  (fills the table)
)
from ridgeline.devices import CPU, is_mesh
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, DTypeError, RidgelineError, ShapeError
from ridgeline.functions.operands import defaults
from ridgeline.functions.registry import AUGMENTED, OPERATORS, SHARED, TABLE, UNARY_OPERATORS, Entry
from ridgeline.graph.node import Node
from ridgeline.graph.origins import Mark, here, stamp
from ridgeline.graph.placement import placed
from ridgeline.graph.sizes import SizeExpr
from ridgeline.ops.elementwise import stop_gradient
from ridgeline.ops.movement import RESHAPE, permute
from ridgeline.ops.tracking import apart, tracked
from ridgeline.record import recorder
from ridgeline.record.cells import CUT, GRAPH, PLAIN, apply_steps, steps_between, strides_of
from ridgeline.record.memory import may_change
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Lifted
from ridgeline.record.values import MOST_COPIED, operand, owned, read, write
from ridgeline.reference import described, sections
from ridgeline.runtime.buffer import check_device
from ridgeline.tensors import subscripts
from ridgeline.tensors.arguments import (
    SLIPS,
    annotated,
    blamed,
    check_sizes,
    check_strict,
    explained,
    strict_parameters,
)
from ridgeline.tensors.autocast import narrowed
from ridgeline.tensors.old_forms import in_todays_order, respelled
from ridgeline.tensors.overriding import HOOK, Overridden, overridden
from ridgeline.tensors.signatures import Face, method_signature, public_signature
from ridgeline.tensors.storage import SPARSE, TURNED, sparse_method, turning
from ridgeline.tensors.tensor import Tensor, as_shared, as_view, seen_through, tensor, wrap
from ridgeline.tensors.typed import typed
from ridgeline.tensors.written import fitted, kind_of, written_into

_NUMBERS = (bool, int, float, complex, Lifted, SizeExpr)
_SIMPLE = frozenset((bool, int, float, str, type(None)))  # surely no tensors, and holding none
_TYPES = (type, np.dtype)  # of Python's and NumPy's, where a body takes an element type


def _may_hold(value: Any) -> bool:
    """Whether an element of a list is a tensor, or of a class that decides as one does."""
    return isinstance(value, Tensor) or (type(value) not in _SIMPLE and hasattr(type(value), HOOK))


class Operands:
    """The nodes of a call's tensor arguments, and how the call stands to differentiation."""

    __slots__ = ("device", "mode", "shared", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.mode = PLAIN
        self.device: str = CPU  # of the first operand that is not on the host
        self.shared = False  # does an operand lie in memory that others may write to

    def take(self, value: Any) -> Any:
        """A tensor as its node; lists and tuples of tensors too; all else as it is."""
        if isinstance(value, Tensor):
            mode = value._resolved()[1].mode
            if mode > self.mode:
                self.mode = mode
            self.tensors.append(value)
            node = read(value)
            if self.device is CPU:
                self.device = node.types[0].device
            rare = value._cell.rare
            if rare is not None and rare.shared is not None and modes.capture is None:
                node = operand(value, MOST_COPIED)
                self.shared |= may_change(node)
            return node
        if type(value) in (list, tuple) and value and any(map(_may_hold, value)):
            return [self.take(v) for v in value]
        if isinstance(value, _TYPES):
            return dtypes.from_type(value) or value
        if hasattr(type(value), HOOK):
            raise Overridden
        return value

    def retake(self, value: Any) -> Any:
        """As `take`, with untracked operands of a tracked call cut off from the graph."""
        if isinstance(value, Tensor):
            node = read(value)
            return stop_gradient(node) if value._resolved()[1].mode == CUT else node
        if type(value) in (list, tuple) and value and any(isinstance(v, Tensor) for v in value):
            return [self.retake(v) for v in value]
        return self.take(value)

    def nodes(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with nodes in place of tensors."""
        values = [a if type(a) in _SIMPLE else self.take(a) for a in args]
        named = kwargs
        if kwargs:
            named = {k: v if type(v) in _SIMPLE else self.take(v) for k, v in kwargs.items()}
        if self.mode >= GRAPH:
            self.mode = GRAPH
            if not modes.gradients:
                self.mode = CUT
            elif any(t._resolved()[1].mode == CUT for t in self.tensors):
                values = [self.retake(a) for a in args]
                named = {k: self.retake(v) for k, v in kwargs.items()}
        if is_mesh(self.device):  # operands of the host are whole there, for every rank
            values = on_device(values, self.device)
            named = {k: on_device(v, self.device) for k, v in named.items()}
        return values, named


def on_device(result: Any, device: str) -> Any:
    """A result that only sizes and numbers went into, on the device of its operands."""
    if isinstance(result, Node):
        return placed(result, device)
    if isinstance(result, tuple):
        parts = [on_device(part, device) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return [on_device(part, device) for part in result] if isinstance(result, list) else result


def finish(
    result: Any, mode: int, mark: Mark | None, values: Sequence[Any] = (), at_once: bool = False
) -> Any:
    """Nodes as tensors, inside tuples and lists too; `values` are the body's arguments."""
    made = _finish(result, mode, mark, values)
    if at_once and modes.capture is None:  # foreign memory may change before the next flush
        recorder.flush()
        if any(is_mesh(value.types[0].device) for value in values if isinstance(value, Node)):
            recorder.flush_mesh()
    return made


def _finish(result: Any, mode: int, mark: Mark | None, values: Sequence[Any]) -> Any:
    if isinstance(result, Node):
        if mode == GRAPH:
            if not result.types[0].dtype.is_differentiable:
                mode = PLAIN
            elif result.origins:  # an equal expression exists: keep their gradients apart
                result = apart(result, values)
        stamp(result, mark)
        return wrap(result if mode == GRAPH else owned(result), mode)
    if isinstance(result, tuple):
        parts = [_finish(r, mode, mark, values) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, list):
        return [_finish(r, mode, mark, values) for r in result]
    return result


def _starred(body: Callable[..., Any]) -> str:
    """The name of a body's `*dims` or `*shape`, which callers may also pass by keyword."""
    code = body.__code__
    if not code.co_flags & inspect.CO_VARARGS:
        return ""
    return code.co_varnames[code.co_argcount + code.co_kwonlyargcount]


def _with_starred(
    body: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments with what was passed as `name=` in the place of `*name`."""
    if len(args) > body.__code__.co_argcount:
        raise ArgumentError(f"one argument is given twice: by its place and as {name}=")
    return (*args, kwargs.pop(name))


def _parameters(body: Callable[..., Any]) -> frozenset[str]:
    """The names of a body's parameters, read off its code: `signature` would slow the import."""
    code = body.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    return frozenset((*code.co_varnames[:named], _starred(body)))


def make_function(entry: Entry) -> Callable[..., Any]:
    """The public form of a body."""
    body, name = entry.body, entry.name
    names = _parameters(inspect.unwrap(body))
    starred = _starred(body)
    strict = () if _starred(inspect.unwrap(body)) else strict_parameters(body)
    shares = entry.shares

    def function(*args: Any, **kwargs: Any) -> Any:
        operands = Operands()
        if kwargs:
            kwargs = respelled(kwargs, names)
            if starred in kwargs:
                args = _with_starred(body, starred, args, kwargs)
            if "out" in kwargs and "out" not in names:
                return written_into(kwargs.pop("out"), function(*args, **kwargs), name)
        try:
            values, named = operands.nodes(args, kwargs)
        except Overridden:
            return overridden(public, args, kwargs)
        if strict:
            check_strict(name, strict, values, named)
        sources = _nodes_in((*values, *named.values())) if shares else []
        if modes.autocast:
            values, named = narrowed(name, operands.device, values, named)
        try:
            run = tracked(body) if operands.mode == GRAPH and not shares else body
            result = run(*values, **named)
            if operands.device != CPU:
                result = on_device(result, operands.device)
        except RidgelineError as error:
            found = blamed(body, name, values, named, error)
            raise annotated(found, name, operands.tensors) from None
        except SLIPS as error:
            if (today := in_todays_order(name, args, kwargs)) is not None:
                return function(*today[0], **today[1])
            raise explained(body, name, values, named, error) from error
        if shares:
            result = as_shared(result, [*zip(operands.tensors, sources)])
        return finish(result, operands.mode, here(), values, operands.shared)

    public = _dressed(function, entry)
    return public


def _nodes_in(values: Sequence[Any]) -> list[Node]:
    """The nodes among arguments, those of lists too, in the order of the tensors they are of."""
    found: list[Node] = []
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, list):
            found += _nodes_in(value)
    return found


def make_creation(entry: Entry) -> Callable[..., Any]:
    """The public form of a body that makes a new tensor."""
    body, name = entry.body, entry.name
    starred = _starred(body)

    def function(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if out is not None:
            return written_into(
                out, function(*args, **{"dtype": kind_of(out, name), **kwargs}), name
            )
        if starred in kwargs:
            args = _with_starred(body, starred, args, kwargs)
        wanted = kwargs.pop("device", None)
        requires_grad = kwargs.pop("requires_grad", False)
        if not isinstance(requires_grad, bool):
            raise ArgumentError(
                f"{name}: requires_grad= is True or False, not {requires_grad!r:.40}"
            )
        for ignored in ("layout", "pin_memory", "memory_format"):
            kwargs.pop(ignored, None)
        if "dtype" in kwargs:
            kwargs["dtype"] = dtypes.wanted(kwargs["dtype"])
        operands = Operands()
        try:
            values, named = operands.nodes(args, kwargs)
        except Overridden:
            return overridden(public, args, kwargs)
        try:
            made = body(*values, **named)
            if isinstance(made, Node):
                check_sizes(made.shape, body, name, values, named)
            device = operands.device if operands.tensors else defaults.device
            if wanted is not None:
                device = check_device(wanted)
            result = finish(on_device(made, device), PLAIN, here())
        except RidgelineError as error:
            found = blamed(body, name, values, named, error)
            raise annotated(found, name, operands.tensors) from None
        except SLIPS as error:
            raise explained(body, name, values, named, error) from error
        return result._require_grad() if requires_grad else result

    public = _dressed(function, entry)
    return public


def make_view(entry: Entry) -> Callable[..., Any]:
    """The public form of a body whose result shares memory with its first argument."""
    body, name = entry.body, entry.name
    names = _parameters(body)
    starred = _starred(body)
    must_view = name in ("view", "view_as")
    owns_memory = name == "as_strided"
    may_copy = must_view or name in ("reshape", "reshape_as", "flatten", "ravel", "unflatten")

    def viewed(source: Tensor, base: Node, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(viewed(source, base, part) for part in result)
        steps = steps_between(result, base)
        if may_copy and steps and source._steps and any(op is RESHAPE for op, _ in steps):
            shape = source._memory.shape
            if strides_of(shape, source._steps + steps) is None:
                if must_view:
                    raise ShapeError(
                        f"view: shape {list(base.shape)} with strides {source.stride()} cannot be "
                        f"seen as {list(result.shape)} without a copy",
                        help="use reshape(), or contiguous() first",
                    )
                mode = source._resolved()[1].mode
                own = mode if modes.gradients else min(mode, CUT)
                return finish(result, min(own, GRAPH), here(3), [base])
        return as_view(source, base, result)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Tensor):
            if hasattr(type(input), HOOK):
                return overridden(public, (input, *args), kwargs)
            raise DTypeError(f"{name} needs a tensor, not {type(input).__name__}")
        if owns_memory and any(op is not RESHAPE for op, _ in input._steps):
            raise RidgelineError(
                f"{name} needs a tensor that is not a view of a part of another",
                help="clone() it first, or use slices and permute()",
            )
        base = read(input)
        others = Operands()
        if starred in kwargs:
            args = _with_starred(body, starred, (input, *args), kwargs)[1:]
        values = [others.take(a) for a in args]
        named = {k: others.take(v) for k, v in respelled(kwargs, names).items()}
        try:
            if entry.steps is not None:
                steps = entry.steps(base, *values, **named)
                return seen_through(input, apply_steps(base, steps), steps)
            result = body(base, *values, **named)
            return input if entry.shares and result is base else viewed(input, base, result)
        except RidgelineError as error:
            found = blamed(body, name, [base, *values], named, error)
            raise annotated(found, name, [input, *others.tensors]) from None
        except SLIPS as error:
            raise explained(body, name, [base, *values], named, error) from error

    public = _dressed(function, entry)
    return public


def make_inplace(entry: Entry) -> Callable[..., Any]:
    """The method that writes a body's result into its first argument."""
    body, name = entry.body, entry.name + "_"

    def function(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        operands = Operands()
        try:
            values, named = operands.nodes((self, *args), kwargs)
        except Overridden:
            return cast(Tensor, overridden(raw, (self, *args), kwargs))
        try:
            run = tracked(body) if operands.mode == GRAPH else body
            result = fitted(run(*values, **named), self, name)
            if operands.mode == GRAPH and result.origins:
                result = apart(result, values)
            write(self, result, operands.mode, name)
            if operands.shared and modes.capture is None:
                recorder.flush()
                if is_mesh(operands.device):
                    recorder.flush_mesh()
            return self
        except RidgelineError as error:
            raise annotated(error, name, operands.tensors) from None
        except SLIPS as error:
            if (today := in_todays_order(name, (self, *args), kwargs)) is not None:
                return raw(*today[0], **today[1])
            raise explained(body, name, values, named, error) from error

    raw = function
    function.__name__ = function.__qualname__ = name
    function = recorder.taped(function)
    summary = f"{(entry.body.__doc__ or '').splitlines()[0]} Written into this tensor."
    own = f"Tensor.{name}"
    function.__doc__ = described(own if own in sections() else "Tensor.add_", summary)
    function.__module__ = "ridgeline"
    function.__wrapped__ = Face(entry, method_signature)  # type: ignore[attr-defined]
    return function


def _dressed(function: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = entry.name
    function = recorder.taped(function)
    function.__doc__ = described(entry.key, entry.body.__doc__)
    function.__module__ = f"ridgeline.{entry.namespace}" if entry.namespace else "ridgeline"
    function.__wrapped__ = Face(entry, public_signature)  # type: ignore[attr-defined]
    return function


def make_operator(entry: Entry, swapped: bool) -> Callable[[Tensor, Any], Any]:
    """A binary operator method; operands that are no tensors or numbers are left to others."""
    body, name = entry.body, entry.name

    def method(self: Tensor, other: Any) -> Any:
        a, b, mode = _ordinary(self, other)
        if mode < 0:
            return slow(self, other)
        try:
            run = tracked(body) if mode == GRAPH else body
            result = run(b, a) if swapped else run(a, b)
        except RidgelineError as error:
            tensors = [t for t in (self, other) if isinstance(t, Tensor)]
            raise annotated(error, name, tensors) from None
        return _finish(result, mode, here(), (a, b))

    def slow(self: Tensor, other: Any) -> Any:
        if not isinstance(other, Tensor) and not isinstance(other, _NUMBERS):
            other = _from_array(other)
            if other is NotImplemented:
                return NotImplemented
        operands = Operands()
        (a, b), _ = operands.nodes((self, other), {})
        if modes.autocast:
            (a, b), _ = narrowed(name, operands.device, (a, b), {})
        try:
            run = tracked(body) if operands.mode == GRAPH else body
            result = run(b, a) if swapped else run(a, b)
        except RidgelineError as error:
            raise annotated(error, name, operands.tensors) from None
        return finish(result, operands.mode, here(3), (a, b), operands.shared)

    method.__name__ = name
    return recorder.taped(method)


def _ordinary(first: Tensor, second: Any) -> tuple[Any, Any, int]:
    """Two operands as the body takes them, and the result's mode; a mode of -1 where it is not
    as simple as that: variables, detached handles, foreign memory, other kinds of values."""
    capture, cell = modes.capture, first._cell
    if (
        modes.autocast
        or first._track is not cell
        or cell.rare is not None
        or cell.capture is not capture
    ):
        return None, None, -1
    mode = cell.mode
    kind = type(second)
    other: Any = second
    if kind is Tensor:
        cell2 = second._cell
        if second._track is not cell2 or cell2.rare is not None or cell2.capture is not capture:
            return None, None, -1
        if cell2.mode != mode:
            highest = max(mode, cell2.mode)
            if highest == GRAPH and CUT in (mode, cell2.mode):  # one of them is to be cut off
                return None, None, -1
            mode = highest
        other = read(second) if second._steps else cell2.node
    elif kind is not float and kind is not int:
        return None, None, -1
    if mode == GRAPH and not modes.gradients:
        mode = CUT
    return (read(first) if first._steps else cell.node), other, mode


def _from_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tensor(value)
    return NotImplemented


def make_unary(entry: Entry) -> Callable[[Tensor], Any]:
    """A unary operator method."""
    function = make_function(entry)
    return lambda self: function(self)


FUNCTIONS: dict[str, Callable[..., Any]] = {}
NAMESPACES: dict[str, dict[str, Callable[..., Any]]] = {}  # functions of linalg, fft, special, …


def namespace(name: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module such as `linalg`: its own, and those it shares with the top."""
    shared = {key: FUNCTIONS[key] for key in SHARED.get(name, ()) if key in FUNCTIONS}
    return shared | NAMESPACES.get(name, {})


# methods that convert to an element type, and properties that are views
CASTS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "long": dtypes.int64, "int": dtypes.int32,
    "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_,
}  # fmt: skip
WRITABLE = ("real", "imag")
PROPERTIES = ("T", "mT", "H", "mH", *WRITABLE)


def _cast_method(name: str, dtype: DType) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return self.to(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"The values as {dtype.name}."
    return method


@recorder.taped
def _all_axes_reversed(self: Tensor) -> Tensor:
    """All axes in reverse order."""
    base = read(self)
    order = tuple(reversed(range(len(base.shape))))
    return as_view(self, base, permute(base, order))


def _matrix_transpose(self: Tensor) -> Tensor:
    """The last two axes exchanged."""
    if self.dim() < 2:
        raise ShapeError(f".mT needs at least 2 axes, got shape {list(self.shape)}")
    return cast_away(self.transpose(-2, -1))


def _adjoint(self: Tensor) -> Tensor:
    """The last two axes exchanged, and conjugated."""
    turned = _matrix_transpose(self) if self.dim() else self
    return turned.conj() if self.dtype.is_complex else turned


def _assigned(name: str) -> Callable[[Tensor, Any], None]:
    """What `x.real = value` does: the values are written through the view."""

    def write_part(self: Tensor, value: Any) -> None:
        getattr(self, name).copy_(value)

    return write_part


def cast_away(value: Any) -> Tensor:
    """A generated method's result, for the type checker."""
    assert isinstance(value, Tensor)
    return value


def install() -> None:
    """Fill the namespace of functions and the methods of Tensor from the table."""
    for entry in TABLE.values():
        make = make_view if entry.view else make_creation if entry.creation else make_function
        function = make(entry)
        for name in (entry.name, *entry.aliases):
            if entry.namespace:
                NAMESPACES.setdefault(entry.namespace, {})[name] = function
            elif entry.function:
                FUNCTIONS[name] = function
            if entry.method and not hasattr(Tensor, name):
                setattr(Tensor, name, function)
        if entry.inplace:
            inplace = make_inplace(entry)
            for name in (entry.name, *entry.aliases):
                setattr(Tensor, name + "_", inplace)
    for operator, (name, swapped) in OPERATORS.items():
        entry = TABLE[name]
        if operator in UNARY_OPERATORS:
            setattr(Tensor, operator, make_unary(entry))
        else:
            setattr(Tensor, operator, make_operator(entry, swapped))
    for name, dtype in CASTS.items():
        setattr(Tensor, name, _cast_method(name, dtype))
    for name, method in subscripts.METHODS.items():
        setattr(Tensor, name, method)
    for name in TURNED:
        setattr(Tensor, f"{name}_", turning(name))
    for name in SPARSE:
        setattr(Tensor, name, sparse_method(name))
    Tensor.type = typed  # type: ignore[assignment, method-assign]
    Tensor.T = property(_all_axes_reversed)  # type: ignore[assignment]
    Tensor.mT = property(_matrix_transpose)  # type: ignore[assignment]
    Tensor.mH = property(_adjoint)  # type: ignore[assignment]
    Tensor.H = property(_adjoint)  # type: ignore[assignment]
    for name in WRITABLE:
        setattr(Tensor, name, property(FUNCTIONS[name], _assigned(name)))
    for operator, name in AUGMENTED.items():
        setattr(Tensor, operator, make_inplace(TABLE[name]))


install()
