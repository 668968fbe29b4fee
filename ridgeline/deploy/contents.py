"""The contents of a program file: inputs, outputs, state and weights of a recorded call.

Tensor arguments are inputs, and returned tensors outputs. Tensors of the outside that a call writes
to are *state*: the file has their first values, and every opened program memory of its own for
them. So are the numbers that a training step reads (a learning rate) and the places of random
streams. Tensors that are only read are weights. Anything else would need Python, and is refused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.deploy.names import StateNames
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import TensorType
from ridgeline.record.cells import GRAPH
from ridgeline.tensors.pytree import unflatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import (
    ArgumentInput,
    ArrayInput,
    CellInput,
    GradientInput,
    NumberInput,
    RandomInput,
    Source,
)
from ridgeline.tracing.in_place_state import place_key
from ridgeline.tracing.recording import Recording
from ridgeline.tracing.side_effects import Fresh, Given, live_buffer


class ExportError(RidgelineError):
    """A function that no program file can stand for."""

    code = "RL0810"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a program's interface."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A tensor of the state: its first value, and how many blocks a run draws where it counts."""

    name: str
    type: TensorType
    value: bytes
    source: Source


@dataclass(slots=True)
class Contents:
    """The interface of a program, and where each value of a recording lies."""

    name: str
    inputs: list[TensorInfo] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    state: list[StateInfo] = field(default_factory=list)
    input_of: dict[int, int] = field(default_factory=dict)  # by place among the arguments' leaves
    state_of: dict[Hashable, int] = field(default_factory=dict)  # by `place_key`
    # for each output of the recording: outputs of the program, and state, that it is
    returned: dict[int, list[int]] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    counters: list[tuple[int, Any]] = field(default_factory=list)  # state, and what a run adds
    arguments: Any = None  # how arguments are nested, as data
    results: Any = None

    @property
    def changes_state(self) -> bool:
        """True where a run leaves something behind."""
        return bool(self.written or self.counters)


def contents(recording: Recording, leaves: Sequence[Any], function: Any) -> Contents:
    """The interface of a recorded call with these leaves of arguments."""
    name = getattr(function, "__name__", type(function).__name__)
    made = Contents(re.sub(r"\W+", "_", name).strip("_") or "program")
    _refuse(recording)
    _add_inputs(made, recording, leaves, function)
    _add_outputs(made, recording)
    _add_state(made, recording, StateNames(function, leaves))
    return made


def _refuse(recording: Recording) -> None:
    """Raise for what a program file cannot do."""
    if recording.stores or recording.held:
        raise ExportError(
            f"{recording.name} keeps tensors in an object from call to call",
            help="return them and give them back as arguments, or write to a tensor in place",
        )
    for write in recording.effects.writes:
        if isinstance(write.source, ArgumentInput):
            raise ExportError(
                f"{recording.name} writes to argument {write.source.index + 1}",
                help="return the new value instead",
            )
    for source in recording.inputs.values():
        kinds = (ArgumentInput, CellInput, NumberInput, RandomInput, ArrayInput, GradientInput)
        if not isinstance(source, kinds):
            raise ExportError(f"{recording.name} reads a {type(source).__name__}")
    devices = {node.types[0].device for node in recording.outputs} - {"cpu"}
    if devices:
        raise ExportError(
            f"{recording.name} computes on {', '.join(map(str, devices))}",
            help="a program file runs on a CPU: move the model and the arguments there",
        )


def _add_inputs(made: Contents, recording: Recording, leaves: Sequence[Any], function: Any) -> None:
    names = list(_leaf_names(recording, leaves, function))
    signature = recording.signature if recording.pattern is None else recording.pattern.signature
    described: list[Any] = []
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            described.append({"is": _plain(leaf, names[place])})
            continue
        made.input_of[place] = len(made.inputs)
        described.append({"input": len(made.inputs)})
        made.inputs.append(TensorInfo(names[place], signature.leaves[place].type))
    made.arguments = _nested(unflatten(recording.signature.structure, described))


def _leaf_names(recording: Recording, leaves: Sequence[Any], function: Any) -> Iterator[str]:
    """The names of arguments, with places inside for those that are nested."""
    args, kwargs = unflatten(recording.signature.structure, list(range(len(leaves))))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named: dict[int, str] = {}
    for number, value in enumerate(args):
        given = parameters[number].name if number < len(parameters) else ""
        variadic = number < len(parameters) and parameters[number].kind == 2
        _name(value, given if given and not variadic else f"argument_{number}", named)
    for key, value in kwargs.items():
        _name(value, key, named)
    for place in range(len(leaves)):
        yield named[place]


def _name(value: Any, name: str, named: dict[int, str]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _name(inner, f"{name}_{key}", named)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            _name(inner, f"{name}_{number}", named)
    elif isinstance(value, int):
        named[value] = name
    else:
        raise ExportError(f"argument {name} is a {type(value).__name__}")


def _plain(value: Any, what: str) -> Any:
    """A value that is no tensor as a file can hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ExportError(
        f"{what} is a {type(value).__name__}, which a program file cannot hold",
        help="tensors, numbers, strings and None can be arguments and results, nested in tuples, "
        "lists and dicts",
    )


def _nested(tree: Any) -> Any:
    """Containers as data; a leaf is a dict with one of its own keys already."""
    if isinstance(tree, dict):
        if set(tree) in ({"input"}, {"output"}, {"is"}):
            return tree
        if not all(isinstance(key, str) for key in tree):
            raise ExportError("keys of dicts among arguments and results must be strings")
        return {"dict": {key: _nested(inner) for key, inner in tree.items()}}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_nested(inner) for inner in tree]}
    raise ExportError(f"a {type(tree).__name__} among arguments or results cannot be exported")


def _add_outputs(made: Contents, recording: Recording) -> None:
    described: list[Any] = []
    numbers: dict[int, int] = {}  # one tensor that is returned twice is one output
    for spec in recording.returns:
        if isinstance(spec, Fresh):
            if spec.output not in numbers:
                numbers[spec.output] = len(made.outputs)
                made.returned.setdefault(spec.output, []).append(len(made.outputs))
                made.outputs.append(TensorInfo(f"output_{len(made.outputs)}", spec.type))
            described.append({"output": numbers[spec.output]})
        elif isinstance(spec, Given) and spec.argument is not None:
            described.append({"input": made.input_of[spec.argument]})
        elif isinstance(spec, Given):
            raise ExportError(
                f"{recording.name} returns a tensor that was there before the call",
                help="return a copy of it, with clone()",
            )
        else:
            described.append({"is": _plain(spec, "a result")})
    made.results = (
        _nested(unflatten(recording.result_structure, described)) if described else ({"is": None})
    )


def _add_state(made: Contents, recording: Recording, names: StateNames) -> None:
    effects = recording.effects
    trains = bool(effects.writes or effects.drawn)

    def add(source: Source, kind: TensorType) -> int:
        key = place_key(source) if not isinstance(source, RandomInput) else _stream(source)
        if key not in made.state_of:
            made.state_of[key] = len(made.state)
            value = value_of(source, kind)
            made.state.append(StateInfo(names.of(source), kind, value, source))
        return made.state_of[key]

    for write in effects.writes:
        assert isinstance(write.source, CellInput | GradientInput)
        if write.mode == GRAPH:
            raise ExportError(f"{recording.name} leaves a tensor with a history behind")
        made.written[write.output] = add(write.source, write.type)
    read = {id(s.owner): s for s in recording.inputs.values() if isinstance(s, GradientInput)}
    for change in effects.gradients:
        gradient = read.get(id(change.owner))
        if gradient is None:
            continue  # a gradient that nobody reads again is no part of the program
        if not isinstance(change.value, Fresh):
            raise ExportError(
                f"{recording.name} reads gradients of the call before and then drops them",
                help="call zero_grad() before backward() in the step that is exported",
            )
        made.written[change.value.output] = add(gradient, change.value.type)
    for node, source in recording.inputs.items():
        if isinstance(source, RandomInput) or (trains and isinstance(source, NumberInput)):
            number = add(source, node.types[0])
            if isinstance(source, RandomInput) and source.part == "offset":
                drawn = [count for g, count in effects.drawn if g is source.generator]
                made.counters += [(number, count) for count in drawn]


def _stream(source: RandomInput) -> Hashable:
    return id(source.generator), source.part


def source_key(source: Source) -> Hashable:
    """What `Contents.state_of` goes by."""
    return _stream(source) if isinstance(source, RandomInput) else place_key(source)


def value_of(source: Source, kind: TensorType) -> bytes:
    """The bytes of a value of the outside as it is now."""
    array = live_buffer(source, ()).array(kind.dtype, kind.shape)  # type: ignore[arg-type]
    return np.ascontiguousarray(array).tobytes()
