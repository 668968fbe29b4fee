"""Runs programs with public functions: what is host-known folds, all else is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ridgeline as rl
from ridgeline.errors import RidgelineError
from ridgeline.onnx.operators import host
from ridgeline.onnx.program import GraphProgram, NodeStep
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import DAMAGE, OnnxError, Value, is_host
from ridgeline.tensors.tensor import Tensor


class NameScope:
    """The named values of a run, over those of the graph around it."""

    def __init__(self, outer: NameScope | None = None) -> None:
        self.values: dict[str, Value] = {}
        self.outer = outer

    def __getitem__(self, name: str) -> Value:
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise OnnxError(f"nothing gives {name!r}")


@dataclass(frozen=True)
class Subgraph:
    """A graph among the attributes of a node, as a function of its inputs."""

    runner: Runner
    program: GraphProgram
    scope: NameScope

    def __call__(self, *inputs: Value) -> list[Value]:
        return self.runner.run(self.program, inputs, self.scope)


@dataclass(frozen=True)
class Runner:
    """Runs the programs of one model, whose weights are `tensors`."""

    tensors: Mapping[str, Tensor]

    def run(
        self, program: GraphProgram, inputs: Sequence[Value], outer: NameScope | None = None
    ) -> list[Value]:
        """The outputs of a program."""
        scope = NameScope(None if program.closed else outer)
        self.fill(program, scope)
        scope.values.update(zip(program.inputs, inputs))
        for name in program.inputs[len(inputs) :]:
            scope.values.setdefault(name, None)
        for step in program.steps:
            self.step(step, program, scope)
        if program.closed:
            return [scope.values.get(name) for name in program.outputs]
        return [scope[name] for name in program.outputs]

    def fill(self, program: GraphProgram, scope: NameScope) -> None:
        """Put the constants of a program into a scope."""
        scope.values.update(program.constants)
        scope.values.update({name: self.tensors[at] for name, at in program.tensors.items()})

    def step(self, step: NodeStep, program: GraphProgram, scope: NameScope) -> None:
        """Compute one step, and put its results into the scope."""
        inputs = [scope[name] if name else None for name in step.inputs]
        try:
            results = self._results(step, inputs, program, scope)
        except OnnxError as error:
            if error.note:  # said by a step inside
                raise
            raise OnnxError(error.message, note=f"at {step.label}", help=error.help) from None
        except RidgelineError as error:
            error.note = error.note or f"at {step.label}"
            raise
        except DAMAGE as error:
            what = str(error).partition("\n")[0]
            raise OnnxError(f"cannot compute: {what}", note=f"at {step.label}") from error
        for name, value in zip(step.outputs, results):
            if name:
                scope.values[name] = value

    def _results(
        self, step: NodeStep, inputs: list[Value], program: GraphProgram, scope: NameScope
    ) -> Sequence[Value]:
        body = step.body
        if not isinstance(body, OperatorRow):
            inner = body if isinstance(body, GraphProgram) else body(inputs)
            return self.run(inner, inputs)
        if step.name == "Gradient":
            return self._gradient(step, inputs, program)
        if all(map(is_host, filter(_is_given, inputs))):
            folded = host.fold(step, inputs)
            if folded is not None:
                return folded
        attributes = step.attributes
        if any(isinstance(each, GraphProgram) for each in attributes.values()):
            attributes = {
                name: Subgraph(self, each, scope) if isinstance(each, GraphProgram) else each
                for name, each in attributes.items()
            }
        result = body.call(inputs, attributes, len(step.outputs), step.opset)
        return result if isinstance(result, tuple) else (result,)

    def _gradient(
        self, step: NodeStep, inputs: list[Value], program: GraphProgram
    ) -> Sequence[Value]:
        """The operator Gradient: a value of this graph differentiated by others of it."""
        names = step.attributes["xs"]
        rest = step.attributes.get("zs", [])

        def total(*xs: Tensor) -> Tensor:
            scope = NameScope()
            self.fill(program, scope)
            scope.values.update(zip(rest, inputs[len(names) :]))
            scope.values.update(zip(names, xs))
            for each in program.steps:
                if each is step:
                    break
                missing = [name for name in each.inputs if name and name not in scope.values]
                if not missing and not set(each.outputs) <= scope.values.keys():
                    self.step(each, program, scope)
            result: Tensor = scope[step.attributes["y"]]
            return result.sum()

        places = tuple(range(len(names)))
        found = rl.grad(total, argnums=places)(*inputs[: len(names)])
        return tuple(found)


def _is_given(value: Any) -> bool:
    return value is not None
