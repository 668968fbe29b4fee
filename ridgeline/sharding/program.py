"""Programs over a mesh: a graph of whole values, run as each rank's share of it.

What a rank computes depends on how the inputs lie, so its share is written down for the placements
that come, and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

from ridgeline.compiler.passes import Observer
from ridgeline.config import config
from ridgeline.devices import device
from ridgeline.errors import PlacementError
from ridgeline.execution.device_copies import OwnedResults
from ridgeline.execution.tiers import Runnable
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, products
from ridgeline.ops.collectives import GroupName
from ridgeline.ops.contract import CONTRACT
from ridgeline.record.modes import modes
from ridgeline.runtime.buffer import space
from ridgeline.sharding.memory import (
    MeshBuffer,
    RankOnMesh,
    elements_bytes,
    on_mesh,
    spec_of,
    stages_of,
)
from ridgeline.sharding.mesh_shapes import Spec, Stages, shape_of
from ridgeline.sharding.microbatches import (
    MicrobatchedGraph,
    has_microbatches,
    in_microbatches,
)
from ridgeline.sharding.ordering import in_order
from ridgeline.sharding.partition import LocalGraph, partition
from ridgeline.sharding.pipeline import StagePasses, pipeline_steps
from ridgeline.sharding.pipeline_levels import Level, is_one_step, levels
from ridgeline.sharding.pipeline_program import PipelineProgram, runnable


class RankProgram:
    """One rank's share of a graph, for inputs that lie in one way."""

    def __init__(
        self, local: LocalGraph, outputs: Sequence[Node], name: str, passes: StagePasses | None
    ) -> None:
        self.local, self.name = local, name
        self._sizes = [elements_bytes(n.dtype, n.shape) for n in outputs]  # type: ignore[arg-type]
        self._flops = product_flops(local.graph)
        self._program: Runnable | None = None
        self.passes = passes
        self.communicates = bool(local.collectives)

    def run(self, here: RankOnMesh, inputs: Sequence[Any]) -> list[MeshBuffer]:
        """The results on this rank."""
        here.flops += self._flops
        own = self.local
        made = self.program().run([inputs[number] for number in own.given])
        memory = dict(zip(own.graph.outputs, made))
        taken: set[int] = {id(buffer) for buffer in inputs}
        results = []
        for made_by, spec, home, nbytes in zip(own.results, own.specs, own.stages, self._sizes):
            local = None if made_by is None else _own(memory[made_by], taken)
            results.append(MeshBuffer(self.name, local, spec, nbytes, home))
        return results

    def program(self) -> Runnable:
        """What runs on this rank's own device."""
        own = self.local
        if self.passes is not None:
            if self._program is None:
                results = {node for node in own.results if node is not None}
                steps = pipeline_steps(own.graph, own.collectives, own.levels, self.passes, results)
                self._program = PipelineProgram(own.graph, steps, self.passes)
            return self._program
        if config.tier == "interpreter" or modes.eager:
            return runnable(in_order(own.graph, own.collectives))
        if self._program is None:
            self._program = runnable(in_order(own.graph, own.collectives))
        return self._program

    def explain(self, detail: str) -> str:
        """Products, and what the program of this rank says of itself."""
        return f"{self._flops:,} FLOPs of products\n{self.program().explain(detail)}"


def product_flops(graph: Graph) -> int:
    """Floating-point operations of contractions and attention in a graph."""
    total = 0
    for node in graph.computed:
        if node.op is CONTRACT:
            total += 2 * prod(int(extent) for extent in node.attrs.extents)
        elif node.op in (ATTENTION, ATTENTION_GRADIENT):
            total += 2 * products(node)
    return total


def _own(buffer: Any, taken: set[int]) -> Any:
    """Memory of a result's own: what is an input, or another result, is copied."""
    if id(buffer) in taken or buffer.borrowed:
        buffer = space(buffer.device).copy(buffer)
    taken.add(id(buffer))
    return buffer


class MeshProgram(OwnedResults):
    """A graph over a mesh, for all ranks and placements that come."""

    def __init__(self, graph: Graph, pairs: Sequence[tuple[int, int]]) -> None:
        self.graph, self._pairs = graph.on_fresh_leaves(), tuple(pairs)
        self.name = next(n.type.device for n in self.graph.outputs)
        number = device(self.name).index
        assert number is not None
        self._number, self.shape = number, shape_of(self.name)
        self._known: dict[tuple[Any, ...], RankProgram] = {}
        self._microbatched: MicrobatchedGraph | None = None
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, in memory of their own."""
        here = on_mesh(self._number)
        specs = tuple(spec_of(memory, self.shape) for memory in inputs)
        stages = tuple(map(stages_of, inputs))
        local = [m.local if isinstance(m, MeshBuffer) else m for m in inputs]
        share = self.of_rank(here, specs, stages)
        if modes.reading and share.communicates:
            self._refuse_read()
        return list(share.run(here, local))

    def _refuse_read(self) -> None:
        """Ranks may read what they like when they like, so a read waits for no other rank."""
        raise PlacementError(
            "a value on a mesh that is not computed yet was read; computing it takes all ranks, "
            "and a read never communicates",
            help="dist.full_tensor(x) on all ranks computes it and brings it together; read that",
        )

    def of_rank(
        self, here: RankOnMesh, specs: tuple[Spec, ...], stages: tuple[Stages, ...]
    ) -> RankProgram:
        """A rank's share, for inputs that lie in some way."""
        settings = here.device, config.passes_until, config.deterministic
        groups = dict(zip(here.shape.names, map(GroupName.of, here.groups)))
        key = (specs, here.place, stages, tuple(groups.values()), *settings)
        found = self._known.get(key)
        if found is None:
            graph, levels, passes = self._passes(here)
            local = partition(
                graph, self.shape, here.place, here.device, specs, self._pairs, stages, groups,
                levels,
            )  # fmt: skip
            made = RankProgram(local, self.graph.outputs, self.name, passes)
            with self._lock:
                found = self._known.setdefault(key, made)
        return found

    def _passes(self, here: RankOnMesh) -> tuple[Graph, dict[Node, Level], StagePasses | None]:
        """The graph of whole values; of a step in microbatches with levels and this rank's row."""
        shape = self.shape
        if shape.microbatches == 1 or not has_microbatches(self.graph):
            return self.graph, {}, None
        with self._lock:
            if self._microbatched is None:
                self._microbatched = in_microbatches(self.graph, shape.microbatches, self._pairs)
        stage, made = here.place[shape.names.index("pp")], self._microbatched
        found = levels(made.graph, made.begins, shape.parts)
        if not is_one_step(made.graph, found):
            return self.graph, {}, None
        passes = StagePasses(stage, len(shape.schedule), shape.parts, shape.schedule[stage])
        return made.graph, found, passes

    def walk(self, observe: Observer) -> None:
        """Passes go over the ranks' shares."""

    def explain(self, detail: str = "summary") -> str:
        """Every share that was written down, with its collectives and what hides them."""
        lines = []
        for (_, place, *_), share in self._known.items():
            where = ", ".join(f"{n}={c}" for n, c in zip(self.shape.names, place))
            lines.append(f"rank at {where}: {share.explain(detail)}")
        return "\n".join(lines) or "not run yet: a share is written down for how inputs lie"
