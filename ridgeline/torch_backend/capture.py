"""A graph of torch's public calls, run once on stand-ins: what it computes, as a graph of ours.

Every tensor that goes in is a cell over a leaf. So a call that writes to its input leaves another
node in that cell, and a result that is a view of an input, or of another result, shows in whose
cell it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node as FxNode

from ridgeline import dtypes
from ridgeline.atomic import Switch
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import constant
from ridgeline.ops.tracking import tag
from ridgeline.record.cells import GRAPH, PLAIN, Cell
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.torch_backend.aliases import SharedMemory
from ridgeline.torch_backend.forms import TensorForm
from ridgeline.torch_backend.names import called, function_for, method_for, name_of
from ridgeline.torch_backend.scalars import is_number, shown
from ridgeline.torch_backend.special import MODES
from ridgeline.torch_backend.state import TorchState
from ridgeline.torch_backend.strided import counts_elements, is_reshaped_later, on_memory
from ridgeline.torch_backend.symbols import Symbols
from ridgeline.torch_backend.translation import translated
from ridgeline.tracing.subtrace import Enclosure

if TYPE_CHECKING:
    from ridgeline.functions.random import Generator

_WORD = TensorType((), dtypes.uint64)


class CallError(Exception):
    """A call of the graph that cannot be made here."""

    def __init__(self, node: FxNode, reason: str) -> None:
        super().__init__(f"{called(node)}: {reason}")
        self.node, self.reason = node, reason


class GraphFrame(Enclosure):
    """The capture of one graph; its random numbers are of a stream that every call chooses anew."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "torch.compile"
        self.key: Node | None = None
        self._drawn: Size = 0

    def element(self, kind: TensorType) -> Node:
        """A leaf that stands for a value that goes in."""
        made = leaf(kind)
        self.own.add(made)
        return made

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """The key and the offset of the next blocks of the stream."""
        if self.key is None:
            self.key = self.element(_WORD)
        start = constant(self._drawn, dtypes.uint64)
        self._drawn = self._drawn + count
        return self.key, start


@dataclass(slots=True, eq=False)
class Input:
    """A tensor that goes in: its memory as a leaf, and the tensor that stands for it."""

    form: TensorForm
    owner: int  # the place of the tensor with which its memory begins
    leaf: Node  # its memory
    variable: Node  # the same, as what derivatives are taken by
    tensor: Tensor

    @property
    def cell(self) -> Cell:
        return self.tensor._cell

    @property
    def is_written(self) -> bool:
        """True where the graph has written to it."""
        return self.cell.node is not self.variable


@dataclass(slots=True, eq=False)
class CapturedGraph:
    """What a graph computes: its inputs as they are after it, and its outputs."""

    frame: GraphFrame
    inputs: list[Input | None]  # None for an argument that is no tensor
    outputs: list[tuple[Any, FxNode | None]]  # values, and the nodes of torch's graph
    symbols: Symbols
    placeholders: list[FxNode]
    state: TorchState

    @property
    def written(self) -> set[int]:
        """The places of tensors that it writes to."""
        return {n for n, given in enumerate(self.inputs) if given is not None and given.is_written}


def capture(
    module: GraphModule,
    args: Sequence[Any],
    forms: Sequence[TensorForm | None],
    state: TorchState,
    shared: Sequence[SharedMemory] = (),
) -> CapturedGraph:
    """Run a graph on stand-ins for its arguments, where gradients may be asked for derivatives too.

    `shared` is memory that several arguments show.
    """
    frame, symbols, track = GraphFrame(), Symbols(), _tracks(module, state)
    # what the graph switches is set back in any case
    with frame.inside(), Switch(modes, gradients=state.gradients, autocast=state.autocast):
        inputs = [
            None if form is None else _input(frame, place, form, track)
            for place, form in enumerate(forms)
        ]
        for span in shared:
            for member, given in zip(span.members, _members(frame, span)):
                inputs[member.place] = given
        values = [arg if i is None else i.tensor for arg, i in zip(args, inputs)]
        outputs = _Interpreter(module, symbols).run(values)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return CapturedGraph(frame, inputs, outputs, symbols, placeholders, state)


def _tracks(module: GraphModule, state: TorchState) -> bool:
    """True where a graph may compute with gradients: they are on, or it switches them on."""
    return state.gradients or any(
        node.op == "call_function" and name_of(node.target) in MODES for node in module.graph.nodes
    )


def _input(frame: GraphFrame, place: int, form: TensorForm, track: bool) -> Input:
    made = frame.element(TensorType(form.memory_shape, form.dtype, form.device))
    variable, mode = made, PLAIN
    if track and form.requires_grad:
        variable, mode = tag(made), GRAPH
    tensor = wrap(variable, mode)
    view = form.view
    return Input(form, place, made, variable, tensor if view is None else tensor.permute(view))


def _members(frame: GraphFrame, span: SharedMemory) -> list[Input]:
    """Tensors that share memory, as views of one cell."""
    form = TensorForm(span.dtype, (span.elements,), (0,), False, is_leaf=True, device=span.device)
    whole = _input(frame, span.members[0].place, form, track=False)
    return [
        replace(whole, tensor=whole.tensor.as_strided(m.size, m.stride, m.offset))
        for m in span.members
    ]


class _Interpreter:
    """Calls our functions in the order of a graph of torch's."""

    def __init__(self, module: GraphModule, symbols: Symbols) -> None:
        self._module, self._symbols = module, symbols
        self._values: dict[FxNode, Any] = {}

    def run(self, args: Sequence[Any]) -> list[tuple[Any, FxNode | None]]:
        """The outputs for these arguments, each with its node."""
        given = iter(args)
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                value = next(given)
                self._symbols.bind(shown(node), value)
                self._values[node] = value
            elif node.op == "output":
                found = node.args[0]
                outputs = found if isinstance(found, list | tuple) else (found,)
                for output in outputs:
                    self._refuse_number(output)
                return [(self._value(o), o if isinstance(o, FxNode) else None) for o in outputs]
            else:
                self._values[node] = self._called(node)
        raise AssertionError("a graph ends with its output")

    def _called(self, node: FxNode) -> Any:
        try:
            if node.op == "get_attr":
                return self._attribute(node)
            args, kwargs = self._value(node.args), self._value(_saying_something(node.kwargs))
            if isinstance(kwargs.get("beta"), Tensor):
                raise TypeError("a factor that leaves out what it multiplies where it is 0")
            function = self._function(node)
            if counts_elements(called(node)):
                function = on_memory(function, node, self._symbols)
            result = function(*args, **kwargs)
            if not is_reshaped_later(node):
                self._compare(result, shown(node))
            self._compare_rounding(node, result)
            result = _without_derivative(result, node.meta.get("example_value"))
        except CallError as error:  # of a call in a body
            raise CallError(node, str(error)) from error
        except Exception as error:
            raise CallError(node, _first_line(error)) from error
        return result

    def _function(self, node: FxNode) -> Callable[..., Any]:
        if node.op == "call_method":
            assert isinstance(node.target, str)
            return method_for(node.target)
        if node.op == "call_function":
            return function_for(node.target)
        raise NotImplementedError("a module inside a graph")

    def _attribute(self, node: FxNode) -> Any:
        """A body: tensors among attributes are arguments by now."""
        value: Any = self._module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, GraphModule):
            return self._body(value)
        raise NotImplementedError(f"an attribute that is a {type(value).__name__}")

    def _body(self, module: GraphModule) -> Callable[..., Any]:
        """A graph inside this one, as a function."""

        def run(*args: Any) -> Any:
            found = [value for value, _ in _Interpreter(module, self._symbols).run(args)]
            return tuple(found)

        return run

    def _value(self, value: Any) -> Any:
        """An argument as our functions take it."""
        if isinstance(value, FxNode):
            return self._values[value]
        if isinstance(value, tuple):
            parts = [self._value(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if isinstance(value, dict):
            return {key: self._value(part) for key, part in value.items()}
        if isinstance(value, slice):
            return slice(*map(self._value, (value.start, value.stop, value.step)))
        return translated(value)

    def _refuse_number(self, output: Any) -> None:
        """Raise for a number that the caller gets, and for which a tensor stands here."""
        known = isinstance(output, FxNode) and is_number(output)
        if known and isinstance(self._values[output], Tensor):
            raise CallError(output, "a number among the results")

    def _compare_rounding(self, node: FxNode, result: Any) -> None:
        """Refuse a tensor for a number where that would be rounded to a short type first."""
        if isinstance(result, Tensor) and result.dtype in (dtypes.bfloat16, dtypes.float16):
            for source in node.all_input_nodes:
                if is_number(source) and isinstance(self._values[source], Tensor):
                    raise TypeError("a number with values of half precision")

    def _compare(self, result: Any, theirs: Any) -> None:
        """Refuse what has another type or shape than torch's result."""
        if isinstance(theirs, torch.Tensor):
            if not isinstance(result, Tensor):
                raise TypeError(f"it gives a {type(result).__name__} and not a tensor")
            if theirs.dtype != _theirs(result.dtype):
                raise TypeError(f"it gives {result.dtype.name} and not {theirs.dtype}")
            shape = self._symbols.sizes(theirs.shape)
            if len(shape) != len(result.shape) or any(
                wanted not in (None, size) for wanted, size in zip(shape, result.shape)
            ):
                raise TypeError(f"it gives {tuple(result.shape)} and not {tuple(theirs.shape)}")
        elif isinstance(theirs, tuple | list) and isinstance(result, tuple | list):
            if len(theirs) != len(result):
                raise TypeError(f"it gives {len(result)} values and not {len(theirs)}")
            for one, other in zip(result, theirs):
                self._compare(one, other)


def _saying_something(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords without those that change nothing here: where memory is, whom warnings name."""
    plain = ("layout", torch.strided), ("layout", None)
    return {
        name: value
        for name, value in kwargs.items()
        if name not in ("_stacklevel", "pin_memory", "non_blocking") and (name, value) not in plain
    }


def _without_derivative(result: Any, theirs: Any) -> Any:
    """A result that has no derivative in torch, though it has one here, without it."""
    if isinstance(result, Tensor) and isinstance(theirs, torch.Tensor):
        return result.detach() if result.requires_grad and not theirs.requires_grad else result
    if type(result) is tuple and isinstance(theirs, tuple | list):
        return tuple(map(_without_derivative, result, theirs))
    return result


def _theirs(dtype: dtypes.DType) -> Any:
    return getattr(torch, dtype.name.removesuffix("_"), None)


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    return text or type(error).__name__
