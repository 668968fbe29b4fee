"""The backend of a mesh: programs are those of the ranks' own devices (`program.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ridgeline.compiler.backend import Backend
from ridgeline.graph.graph import Graph
from ridgeline.sharding.program import MeshProgram


class MeshBackend(Backend):
    """What the compiler asks of a mesh: to be given the whole graph."""

    def __init__(self, number: int = 0) -> None:
        """One for every shape of mesh."""

    def program(self, graph: Graph, pairs: Sequence[tuple[int, int]]) -> MeshProgram:
        """A graph that ranks share out among themselves."""
        return MeshProgram(graph, pairs)

    def _none(self, *given: Any, **named: Any) -> NoReturn:
        raise AssertionError("a mesh has no kernels of its own")

    facts = roofline = fingerprint = schedule = launch = compile = load = source = _none
    executable = _none
