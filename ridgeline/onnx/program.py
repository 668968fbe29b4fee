"""A graph of ONNX as a program: steps in order, each bound to what computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, Value

# gives the program of an operator that is known by a function of others, for inputs of some types
Expansion = Callable[[list[Value]], "GraphProgram"]


@dataclass(frozen=True, eq=False)
class NodeStep:
    """One node: a row of the table, or a program in its place; "" names an input left out."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: OperatorRow | GraphProgram | Expansion
    attributes: Mapping[str, Any]  # a graph is a `GraphProgram` here
    opset: int
    label: str = ""

    @property
    def subprograms(self) -> list[GraphProgram]:
        """The graphs among the attributes, and the body where it is one."""
        found = [each for each in self.attributes.values() if isinstance(each, GraphProgram)]
        return [*found, self.body] if isinstance(self.body, GraphProgram) else found


@dataclass(eq=False)
class GraphProgram:
    """What a graph or a function computes: named results of named inputs and constants."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    steps: list[NodeStep] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    initializers: set[str] = field(default_factory=set)  # those constants that are weights
    tensors: dict[str, str] = field(default_factory=dict)  # constants that a module holds, by name
    closed: bool = False  # a function: names outside of it mean nothing inside
    cost: int = 1  # how many steps a run takes, loops not counted

    def walk(self) -> Iterator[GraphProgram]:
        """This program and all inside, each once."""
        seen: set[int] = set()
        todo = [self]
        while todo:
            program = todo.pop()
            if id(program) not in seen:
                seen.add(id(program))
                yield program
                todo += [inner for step in program.steps for inner in step.subprograms]
