"""A model read from ONNX, as a module: its weights are parameters, its call runs the program."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.onnx.host_needs import needed_on_host
from ridgeline.onnx.interpreter import Runner
from ridgeline.onnx.model import Model
from ridgeline.onnx.program import GraphProgram
from ridgeline.onnx.values import NARROW, SMALL, Array, OnnxError, Value, as_tensor, is_text
from ridgeline.tensors.tensor import Tensor


class OnnxModule(Module):
    """Computes what an ONNX graph says. Arguments are its inputs, in order or by name.

    Weights (floating initializers with an axis) are parameters, other constants of that kind and
    large ones are buffers, and numbers and small integers are part of the program. One result is
    returned as it is, several are a tuple.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.input_names = [port.name for port in model.inputs]
        self.output_names = [port.name for port in model.outputs]
        needed = needed_on_host(model.program)
        for program in model.program.walk():
            self._hold(program, needed)

    def _hold(self, program: GraphProgram, needed: set[tuple[int, str]]) -> None:
        """Take over the constants of a program that are weights, or too large to fold."""
        for name, array in list(program.constants.items()):
            if (id(program), name) in needed or is_text(array) or array.dtype in NARROW:
                continue
            kind = dtypes.from_numpy(array.dtype)
            is_data = array.ndim > 0 and kind is not None and kind.is_floating_point
            if is_data or array.size > SMALL:
                is_weight = is_data and name in program.initializers
                program.tensors[name] = self._register(name, array, is_weight)
                del program.constants[name]

    def _register(self, name: str, array: Array, is_weight: bool) -> str:
        plain = re.sub(r"\W+", "_", name) or "weight"
        own = plain
        while hasattr(self, own):
            own = f"{plain}_{len(self._parameters) + len(self._buffers)}"
        tensor = rl.tensor(array)  # memory of its own: what NumPy shares may change in any call
        if is_weight:
            self.register_parameter(own, Parameter(tensor))
        else:
            self.register_buffer(own, tensor)
        return own

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the graph."""
        results = self.run(self._inputs(args, kwargs))
        made = tuple(_as_result(value) for value in results)
        return made[0] if len(made) == 1 else made

    def run(self, inputs: list[Value]) -> list[Value]:
        """The outputs as the program has them: what is host-known as arrays."""
        held: dict[str, Any] = {**self._parameters, **self._buffers}
        return Runner(held).run(self.model.program, inputs)

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Value]:
        if len(args) > len(self.input_names):
            raise OnnxError(f"the model has {len(self.input_names)} inputs, not {len(args)}")
        given = dict(zip(self.input_names, args)) | kwargs
        unknown = [name for name in kwargs if name not in self.input_names]
        if unknown:
            raise OnnxError(f"the model has no input {unknown[0]!r}: {self.input_names}")
        missing = [name for name in self.input_names if name not in given]
        if missing:
            raise OnnxError(f"the input {missing[0]!r} is not given")
        return [_as_value(given[name]) for name in self.input_names]


def _as_value(given: Any) -> Value:
    """What a caller gives, as values are inside."""
    if isinstance(given, Tensor) or given is None or isinstance(given, dict):
        return given
    if isinstance(given, list | tuple):
        return [_as_value(each) for each in given]
    array = np.asarray(given)
    if array.dtype.kind in "USO":
        return array.astype(object)
    return array if array.dtype in NARROW else as_tensor(array)


def _as_result(value: Value) -> Any:
    """A value inside as callers see it: what was host-known is a tensor too."""
    if isinstance(value, list):
        return [_as_result(each) for each in value]
    if isinstance(value, np.ndarray) and not is_text(value) and value.dtype not in NARROW:
        return as_tensor(value)
    return value
