"""A graph of ours as a program over memory of torch's."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from ridgeline.collector import paused
from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import prepare
from ridgeline.config import config
from ridgeline.execution.tiers import Runnable, is_library_call, program_for
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node


@dataclass(slots=True, eq=False)
class Compiled:
    """A program, and what it reads: for each of its inputs a node, or memory that stays."""

    program: Runnable
    inputs: list[Node]
    fixed: list[Any]  # the memory of constants, by input; None for what a call brings


def compiled(outputs: Sequence[Node], given: Set[Node]) -> Compiled | None:
    """The program that computes some nodes over what is given; None where there is nothing to do.

    It uses as many threads as torch does.
    """
    if not outputs:
        return None
    recorded = Graph.below(outputs, lambda node: node in given or node.buffer is not None)
    with paused, config.override(threads=torch.get_num_threads()):
        prepared = prepare(recorded, Recorded("jit", is_library_call))
        read = [node for node in prepared.order if recorded.is_input(node)]
        graph = Graph(prepared.outputs, read)
        program = program_for(graph)
    return Compiled(program, read, [None if n in given else n.buffer for n in read])
