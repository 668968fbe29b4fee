"""Programs of matched calls over unknown sizes.

They are programs like those that `generalize.py` guesses from samples, and known there by their
form: recorded work of this form finds them too. Since the graph itself was traced over unknowns,
what was decided about these then and in compiling says for which values it stands, and whoever
knows the values looks at no graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ridgeline.compiler.background import background, report_defect
from ridgeline.config import config
from ridgeline.errors import RidgelineError
from ridgeline.execution import flush_log
from ridgeline.execution.generalize import Form, General, NotGeneral, came, is_for_each_size
from ridgeline.execution.tiers import Runnable, on_mesh, prepared, settings_of_programs
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, Node, has_value, topological
from ridgeline.graph.passes.autodiff.backward_pass import to_write_out, written_out
from ridgeline.runtime.buffer import space


def may_open() -> bool:
    """True if the settings allow background compilation of such programs."""
    return config.tier == "auto" and config.background and not config.deterministic


def open_graph(roots: Sequence[Node]) -> Graph:
    """Recorded work over leaves of unknown sizes as a graph; memory that is there is an input."""
    outputs = list(written_out(roots)) if to_write_out() else list(roots)
    order = topological(outputs, has_value)
    return Graph(outputs, [node for node in order if node.op is LEAF or node.buffer is not None])


class OpenProgram:
    """The program of some recorded work whose types have unknown sizes."""

    def __init__(self, graph: Graph, values: Mapping[str, int]) -> None:
        """Have it compiled; questions that sizes leave open are answered by some values."""
        self.devices = tuple([node.type.device for node in graph.outputs])
        self.ops = len(graph.order)
        self._settings = settings_of_programs()
        each = on_mesh(graph) or is_for_each_size(graph)
        found = None if each else came(graph, self._settings)
        if found is None:
            raise NotGeneral("work that is compiled for each size")
        self._general = General(found.numbers, values)
        apart, form = graph.on_fresh_leaves(), found.form
        form.making = True
        # many sizes wait for it, and for each of those that wait there is one
        if not background.submit(lambda: self._compile(apart, form), next=True):
            form.making, self._general.failed = False, True

    def _compile(self, graph: Graph, form: Form) -> None:
        try:
            if settings_of_programs() != self._settings:
                raise NotGeneral("the settings changed meanwhile")
            self._general.compile(lambda: graph, prepared)
            form.took(self._general)
        except Exception as error:
            self._general.failed = True
            if not isinstance(error, NotGeneral | RidgelineError):
                report_defect("a known sequence of calls whose sizes change", error)
        form.making = False

    @property
    def failed(self) -> bool:
        """True if there is no such program, and none is coming."""
        return self._general.failed

    def ready(self) -> bool:
        """True if it is compiled, for the present settings."""
        return self._general.ready() and settings_of_programs() == self._settings

    def stands_for(self, values: Mapping[str, int]) -> bool:
        """True if every decision made in compiling it is the same at these values."""
        return self._general.holds_at(values)

    def at(self, values: Mapping[str, int]) -> Runnable:
        """What runs at some values of all unknowns."""
        found: Runnable = self._general.at(values)
        return found


@dataclass(frozen=True, slots=True)
class KnownAtSizes:
    """Such work at some values, as known work is run."""

    program: OpenProgram
    values: Mapping[str, int]

    def ready(self) -> bool:
        """True where there is a program for it."""
        return self.program.ready()

    def run(self, inputs: Sequence[Any], reason: str) -> list[Any] | None:
        """The memory of the results, for that of the inputs; None where there is no program."""
        began = perf_counter()
        if not self.program.ready():
            return None
        results = self.program.at(self.values).run(inputs)
        devices = self.program.devices
        for index, (device, buffer) in enumerate(zip(devices, results)):
            if buffer.borrowed:  # results have memory of their own
                results[index] = space(device).copy(buffer)
        flush_log.note(reason, devices[0], self.program.ops, "matched", began, began)
        return results
