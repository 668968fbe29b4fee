"""Which constants of a program must stay on the host: those from which shapes are computed."""

from __future__ import annotations

from ridgeline.onnx.operators import host
from ridgeline.onnx.program import GraphProgram, NodeStep
from ridgeline.onnx.rows import OperatorRow

_ASKED = {"Shape", "Size"}  # they read no elements


def needed_on_host(program: GraphProgram) -> set[tuple[int, str]]:
    """Names, each with the program it is of, whose values some step needs on the host."""
    found: set[tuple[int, str]] = set()
    _visit(program, set(), found)
    return found


def _visit(program: GraphProgram, results: set[str], found: set[tuple[int, str]]) -> set[str]:
    """Mark what a program needs, if some of its results are needed; all names of it that are."""
    needed = set(results)
    for step in reversed(program.steps):
        needed |= _wanted(step, needed)
        for inner in step.subprograms:
            outer = _visit(inner, set(), found)
            needed |= set() if inner.closed else outer
            if inner is step.body:
                places = {inner.inputs.index(name) for name in outer if name in inner.inputs}
                needed |= {step.inputs[place] for place in places if place < len(step.inputs)}
    found |= {(id(program), name) for name in needed if name in program.constants}
    return needed


def _wanted(step: NodeStep, needed: set[str]) -> set[str]:
    """The inputs that a step needs on the host."""
    if not isinstance(step.body, OperatorRow):
        return set()
    names = {name for place, name in enumerate(step.inputs) if step.body.wants_host(place)}
    if needed & set(step.outputs) and host.folds(step.name) and step.name not in _ASKED:
        names |= set(step.inputs)
    return names - {""}
