"""Loops of the graph that become kernels: those whose iteration is one, where rows run alone."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.compiler.lowering import scheduled
from ridgeline.compiler.passes import Compilation
from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.fusion.groups import FusionGroup
from ridgeline.fusion.materialize import sources
from ridgeline.loops.lowering.recurrence import IterationKernel, recurrence
from ridgeline.ops.control.loop import LOOP


def fuse_iterations(stages: Stages, setting: Compilation) -> Stages:
    """Run loops inside their kernel where the rows of an iteration need nothing of each other."""
    candidates = {group.number: _as_kernel(group, stages) for group in stages.fusion.groups}
    found = {number: group for number, group in candidates.items() if group is not None}
    if not found:
        return stages
    known = {k.group.number: k for k in stages.kernels}
    groups = [found.get(group.number, group) for group in stages.fusion.groups]
    kernels: list[CompiledKernel] = []
    for group in groups:
        if group.number in known:
            kernels.append(known[group.number])
        elif group.lowered is not None:
            compiled = scheduled(group, group.lowered, setting)
            values = tuple(group.lowered.slots[b.slot] for b in compiled.kernel.params)
            kernels.append(replace(compiled, values=values))
    apart = {group.apart for group in groups}
    inner = {flow: parts for flow, parts in stages.inner.items() if flow in apart}
    fusion = replace(stages.fusion, groups=groups)
    return replace(stages, fusion=fusion, kernels=tuple(kernels), inner=inner)


def _as_kernel(group: FusionGroup, stages: Stages) -> FusionGroup | None:
    """A loop as a kernel; None for what is no loop, runs again under a budget, or stays one."""
    loop = group.apart
    if loop is None or loop.op is not LOOP or loop not in stages.inner or group.shown:
        return None
    (part,) = stages.inner[loop]
    if len(part.fusion.groups) != 1 or part.fusion.groups[0].lowered is None:
        return None
    one = IterationKernel(part.fusion.groups[0].lowered, part.graph.inputs, part.results)
    read = [*sources(loop, stages.graph, None)]
    results = {0 if value is loop else value.attrs.output: value for value in group.values}
    made = recurrence(loop, one, read, results)
    if made is None:
        return None
    reads = frozenset(made.slots[: made.reads])
    return FusionGroup(group.number, group.values, reads, group.seconds, made)
