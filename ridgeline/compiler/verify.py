"""The verifier of programs: run after each lowering pass; an error names the pass.

Graphs are checked by `graph/verify.py`, kernels by `loops/verify.py`; here is what makes them a
program: what is read was written before, by one writer; what is overwritten is read no more; what
lies in the same memory is not alive at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph, nbytes
from ridgeline.graph.node import Node
from ridgeline.graph.verify import VerifyError, require, verify_graph, verify_step
from ridgeline.loops.ir import Const
from ridgeline.loops.verify import verify_kernel


def verify(name: str, before: Any, after: Any) -> None:
    """Raise if the result of a pass breaks a rule; only what the pass changed is checked."""
    try:
        if isinstance(after, Graph):
            if after is not before:
                verify_step(before, after)
                verify_graph(after)
        elif isinstance(after, Stages):
            _verify_stages(before, after)
    except VerifyError as error:
        error.note = f"after the pass {name!r}"
        raise


def _verify_stages(before: Stages, after: Stages) -> None:
    if after.graph is not before.graph:
        verify_graph(after.graph)
    if after.values is not None and after.values is not before.values:
        held = {*after.values.stored, *after.graph.inputs}
        require(held.issuperset(after.results), "results lie in memory")
    if after.fusion is not before.fusion:
        _verify_order(after, after.fusion.groups)
    if after.kernels is not before.kernels:
        _verify_kernels(after.kernels)
    if after.in_place is not before.in_place or after.fusion is not before.fusion:
        _verify_overwritten(after)
    if after.joined is not before.joined:
        _verify_joined(after)


def _written(group: FusionGroup) -> tuple[Node, ...]:
    return group.values if group.lowered is None else group.loops.slots[group.loops.reads :]


def _verify_order(stages: Stages, groups: Sequence[FusionGroup]) -> None:
    """Every value has one writer and is read after it; every result has a writer."""
    there = set(stages.graph.inputs)
    for group in groups:
        missing = group.reads - there
        require(not missing, "what a kernel reads was written before", group.name, *missing)
        for value in _written(group):
            require(value not in there, "a value has one writer", group.name, value)
            there.add(value)
    require(there.issuperset(stages.results), "every result is written")


def _verify_kernels(kernels: Sequence[CompiledKernel]) -> None:
    """Loops are well formed, and their parameters are views of the values they stand for."""
    for kernel in {id(k.kernel): k.kernel for k in kernels}.values():
        verify_kernel(kernel)
    for compiled in kernels:
        name, params = compiled.kernel.name, compiled.kernel.params
        require(len(params) == len(compiled.values), "a parameter for each value", name)
        for buffer, value in zip(params, compiled.values):
            sizes = [int(size.value) for size in buffer.shape if isinstance(size, Const)]
            if len(sizes) == len(buffer.shape) and all(isinstance(s, int) for s in value.shape):
                held = prod(sizes) * buffer.dtype.itemsize
                require(held <= nbytes(value), "a view fits into its value", name, buffer, value)


def _verify_overwritten(stages: Stages) -> None:
    """A result overwrites an input only after all readers of the input."""
    writer = {v: step for step, g in enumerate(stages.fusion.groups) for v in _written(g)}
    given, results = set(stages.graph.inputs), set(stages.results)
    taken = list(stages.in_place.values())
    require(len(set(taken)) == len(taken), "memory is taken once")
    for result, source in stages.in_place.items():
        fits = source in given and source not in results and source.types == result.types
        require(fits, "a result replaces an input of its type", result, source)
        readers = [step for step, g in enumerate(stages.fusion.groups) if source in g.reads]
        late = [step for step in readers if step > writer[result]]
        require(not late, "what is overwritten is read before", result, source)


def _verify_joined(stages: Stages) -> None:
    """Kernels in one launch are neighbours and independent of each other."""
    groups = stages.fusion.groups
    for launch in stages.joined:
        require(all(b == a + 1 for a, b in pairwise(launch)), "joined kernels are neighbours")
        made = {value for index in launch for value in _written(groups[index])}
        for index in launch:
            require(made.isdisjoint(groups[index].reads), "joined kernels are independent")
