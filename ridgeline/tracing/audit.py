"""Audits of jit: calls that would be replayed are traced again and compared.

With `config.audit` the 2nd, 4th, 8th… call of every trace is traced in the foreground instead of
replayed. A difference is something that the function depends on and that no guard saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.graph.printer import format_graph
from ridgeline.tracing.capture import (
    ArgumentInput,
    CellInput,
    GradientInput,
    NumberInput,
    RandomInput,
    Source,
    StateInput,
)
from ridgeline.tracing.reads.notes import SCALARS
from ridgeline.tracing.side_effects import Argument, Fresh, Given

if TYPE_CHECKING:
    from ridgeline.tracing.trace import Trace


class AuditError(RidgelineError):
    """A function depends on something that changed and that no guard noticed."""

    code = "RL0411"


def compare_traces(before: Trace, after: Trace) -> None:
    """Raise for the first difference between two traces of the same call."""
    for old, new in zip(_described(before), _described(after)):
        if old != new:
            name = before.recording.name
            raise AuditError(
                f"{name}: tracing it again gives another program, and no guard noticed why",
                note=f"was: {old:.300}\nis:  {new:.300}",
                help="report this with the function: something that it reads is not guarded",
            )


def _described(trace: Trace) -> Iterator[str]:
    """What a trace computes, line by line: inputs, graph, constants, results."""
    yield f"inputs {[_origin(source) for _, source in trace.executable.readers]}"
    yield from format_graph(trace.executable.graph.outputs, origins=False).splitlines()
    for node in trace.executable.graph.order:
        if node.buffer is not None:
            array = node.buffer.array(node.dtype, node.shape)
            yield f"constant {node.types[0]} {array.tolist()!r:.2000}"
    yield f"nested {trace.recording.result_structure!r}"
    for spec in trace.recording.returns:
        yield f"returns {_result(spec)}"
    for store in trace.recording.stores:
        yield f"stores {[*map(_result, store.leaves)]} at {store.location}"
    yield "end"


def _origin(source: Source) -> str:
    """Where an input comes from, in words that are equal for equal sources."""
    if isinstance(source, ArgumentInput):
        return f"argument {source.index}"
    if isinstance(source, NumberInput):
        return f"number {source.dtype.name}"
    if isinstance(source, RandomInput):
        return f"{source.part} of a generator {id(source.generator):x}"
    if isinstance(source, StateInput):
        return f"{source.held}, {source.number}"
    held = source.cell if isinstance(source, CellInput) else None
    if isinstance(source, GradientInput):
        return f"gradient of {id(source.owner):x}"
    return f"{type(source).__name__} {id(held or getattr(source, 'array', None)):x}"


def _result(spec: Any) -> str:
    if isinstance(spec, Fresh):
        return f"output {spec.output} {spec.type} {spec.tracked}"
    if isinstance(spec, Given):
        source = None if spec.source is None else _origin(spec.source)
        return f"given {source} {spec.argument} {spec.mode} {spec.tensor._type}"
    if isinstance(spec, (*SCALARS, Argument)):
        return repr(spec)
    return f"{type(spec).__name__} {id(spec):x}"
