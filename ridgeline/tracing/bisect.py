"""`jit(f).bisect(x)`: find the compiler pass that makes a wrong result.

The recorded graph of a call runs with ever more passes and is compared with the interpreter, which
takes the graph as it was recorded. Nothing outside sees it: no parameter or gradient changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import PIPELINE, prepare
from ridgeline.compiler.show import Walk, file_of
from ridgeline.config import config
from ridgeline.dtypes import DType
from ridgeline.execution.tiers import as_buffer, program_for
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.tracing.side_effects import live_buffer
from ridgeline.tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The graph of a call, how it was recorded, and the memory that its inputs have now."""

    graph: Graph
    how: Recorded
    memory: Mapping[Node, Any]

    @classmethod
    def of(cls, trace: Trace, leaves: Sequence[Any]) -> RecordedCall:
        """The inputs that a trace would read for a call with these arguments."""
        graph, how = trace.executable.captured
        sources = trace.recording.inputs
        memory = {
            node: live_buffer(sources[node], leaves) if node in sources else node.buffer
            for node in graph.inputs
        }
        return cls(graph, how, memory)

    def interpreted(self, nodes: Sequence[Node]) -> list[Any]:
        """Values of nodes as recorded, by the interpreter, in memory of their devices.

        Not by `Interpreted`, which shares a pass with the compiler, so that tiers agree.
        """
        given = {n: memory.array(n.dtype, n.shape) for n, memory in self.memory.items()}
        arrays = evaluate(nodes, given)
        return [as_buffer(array, n.type.device) for n, array in zip(nodes, arrays)]

    def compiled(self, until: str) -> list[Any]:
        """The outputs of compiled code, with the passes after `until` left out."""
        with config.override(tier="compiled", passes_until=until):
            prepared = prepare(self.graph, replace(self.how, packed=set()))
            hoisted = prepared.inputs[len(self.graph.inputs) :]
            memory = [self.memory[node] for node in self.graph.inputs]
            return program_for(prepared).run(memory + self.interpreted(hoisted))

    def difference(self, wanted: Sequence[Any], got: Sequence[Any]) -> str:
        """Where results differ by more than the order of summation explains; "" if nowhere."""
        for number, node in enumerate(self.graph.outputs):
            right, found = (
                np.asarray(results[number].array(node.dtype, node.shape), _wide(node.dtype))
                for results in (wanted, got)
            )
            near = float(ml_dtypes.finfo(node.dtype.numpy).eps) ** 0.5 if _rounds(node.dtype) else 0
            size = np.abs(right[np.isfinite(right)]).max(initial=0) if near else 0
            same = np.isclose(found, right, rtol=near, atol=near * size, equal_nan=True)
            if not same.all():
                index = tuple(np.argwhere(~same)[0].tolist())
                here = f"output {number}, element {list(index)}" if index else f"output {number}"
                return f"{here}: {found[index]} instead of {right[index]}"
        return ""


def bisect(trace: Trace, leaves: Sequence[Any]) -> str:
    """Say which pass makes the first wrong result, if one does."""
    recording = RecordedCall.of(trace, leaves)
    wanted = recording.interpreted(recording.graph.outputs)
    worst = recording.difference(wanted, recording.compiled(""))
    if not worst:
        return "compiled and interpreted results agree: no pass makes a wrong one"
    walk = Walk(recording.graph)
    trace.executable.walk(walk)
    changed = {each.name for each, has_changed in walk.rows if has_changed}
    right = ""
    for each in PIPELINE:
        if right and each.name not in changed:
            continue
        if recording.difference(wanted, recording.compiled(each.name)):
            break
        right = each.name
    if not right:
        needed = ", ".join(each.name for each in PIPELINE if each.required)
        return f"wrong in code for which no more passes ran than have to: {needed}\n{worst}"
    return (
        f"right after {right}, wrong after {each.name} ({file_of(each)}): {each.doc}\n{worst}\n"
        f'compare explain(after="{right}") and explain(after="{each.name}")'
    )


def _rounds(dtype: DType) -> bool:
    return dtype.kind in ("float", "complex")


def _wide(dtype: DType) -> str:
    """A NumPy type that represents every value of a type."""
    return {"float": "float64", "complex": "complex128"}.get(dtype.kind, dtype.numpy.str)
