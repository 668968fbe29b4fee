"""The executable of a pipeline stage: its passes, one after the other.

What a pass needs of other stages is asked for while the pass before it runs, and what it gives away
is on its way while those after it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline.communicators.interface import Work
from ridgeline.compiler.kernel_profile import quantity
from ridgeline.compiler.passes import Observer, Recorded
from ridgeline.compiler.pipeline import prepare
from ridgeline.config import config
from ridgeline.execution.device_copies import OwnedResults
from ridgeline.execution.tiers import Interpreted, Runnable, is_library_call, program_for
from ridgeline.graph.graph import Graph, nbytes
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe
from ridgeline.graph.passes.legalize.decompose import strip_autograd
from ridgeline.ops.collectives import started
from ridgeline.record.modes import modes
from ridgeline.runtime.buffer import space
from ridgeline.sharding.pipeline import PipelineStep, StagePasses, peak_activations


def runnable(graph: Graph) -> Runnable:
    """A program of a rank's own device."""
    if config.tier == "interpreter" or modes.eager:
        return Interpreted(strip_autograd(graph))
    return program_for(prepare(graph, Recorded("deferred", is_library_call)))


class PipelineProgram(OwnedResults):
    """The passes of one rank's stage, behind the interface of a program."""

    def __init__(self, graph: Graph, steps: Sequence[PipelineStep], passes: StagePasses) -> None:
        self.graph, self.steps, self.passes = graph, tuple(steps), passes
        self._programs: dict[int, Runnable] = {}

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results; None in the place of a message's token."""
        memory: dict[Node, Any] = dict(zip(self.graph.inputs, inputs))
        sent: list[tuple[Work, Any]] = []
        arriving = self._ask_for(0)
        for place, step in enumerate(self.steps):
            now, arriving = arriving, self._ask_for(place + 1)
            for node, work in now.items():
                memory[node] = space(node.type.device).take_in(work.wait())
            if step.results:
                given = [memory[node] for node in step.graph.inputs]
                memory.update(zip(step.results, self._program(place).run(given)))
            for node in step.sends:
                buffer = memory[node.inputs[0]]
                array = buffer.array(node.inputs[0].dtype, node.inputs[0].shape)
                sent.append((started(node, node.op, array), buffer))
            for node in step.last_uses:
                memory.pop(node, None)
            sent = [each for each in sent if not each[0].done()]
        for work, _ in sent:
            work.wait()
        return [memory.get(node) for node in self.graph.outputs]

    def _ask_for(self, place: int) -> dict[Node, Work]:
        """Start to receive what a pass needs."""
        if place >= len(self.steps):
            return {}
        nothing = np.empty(0, np.uint8)
        return {n: started(n, n.op, nothing) for n in self.steps[place].receives}

    def _program(self, place: int) -> Runnable:
        if config.tier == "interpreter" or modes.eager:
            return runnable(self.steps[place].graph)
        if place not in self._programs:
            self._programs[place] = runnable(self.steps[place].graph)
        return self._programs[place]

    def walk(self, observe: Observer) -> None:
        """Passes of the compiler go over the programs of the stage's passes."""

    def explain(self, detail: str = "summary") -> str:
        """The passes in order, with the messages between stages."""
        held = peak_activations(self.steps, self.passes)
        lines = [
            f"stage {self.passes.stage} of {self.passes.stages}: {len(self.passes.row)} passes, "
            f"activations of at most {held} kept"
        ]
        for place, step in enumerate(self.steps):
            lines.append(f"  {step.name}")
            lines += [f"    {_words(node)}" for node in (*step.receives, *step.sends)]
            if detail != "summary" and step.results:
                lines.append(self._program(place).explain(detail))
        return "\n".join(lines)


def _words(node: Node) -> str:
    size = max(nbytes(node), nbytes(node.inputs[0]))
    way = "to" if nbytes(node) == 0 else "from"
    return (
        f"{node.op.name:<8} pp {quantity(size, 'B'):>8}  {way} stage {node.attrs.root}  "
        f"{describe(node)}"
    ).rstrip()
