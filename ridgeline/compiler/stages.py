"""A program in the making: what the lowering passes fill in, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.fusion.groups import Fuser, Fusion, FusionGroup
from ridgeline.fusion.in_place import Replacing
from ridgeline.fusion.materialize import Values
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.loops.ir import Kernel
from ridgeline.loops.schedule import LeftOut, Step as ScheduleStep


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel with its earlier stages, kept for `explain` and for profiles."""

    group: FusionGroup
    steps: list[ScheduleStep]
    kernel: Kernel
    values: tuple[Node, ...]  # what each parameter holds
    left_out: tuple[LeftOut, ...] = ()  # steps that would have saved time but do not apply


@dataclass(frozen=True, slots=True)
class Stages:
    """Fusion and scheduled loops of a graph; `inner` are those of control-flow bodies.

    A field that no pass has set yet is empty.
    """

    graph: Graph
    order: tuple[Node, ...] = ()  # the nodes by whose places library calls go
    values: Values | None = None  # which of them lie in memory
    fuser: Fuser | None = None  # while kernels are merged
    fusion: Fusion = field(default_factory=lambda: Fusion([], []))
    kernels: tuple[CompiledKernel, ...] = ()
    inner: Mapping[Node, tuple[Stages, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)  # values of symbolic sizes
    replacing: Replacing = field(default_factory=Replacing)
    in_place: Mapping[Node, Node] = field(default_factory=dict)  # results over inputs' memory
    joined: tuple[tuple[int, ...], ...] = ()  # places of groups that are started as one
    over: Mapping[Node, Node] = field(default_factory=dict)  # temporaries over others' memory
    begun: Mapping[str, Any] = field(default_factory=dict)  # code that is being compiled
    raises: bool = False  # the index flag is stored only where it is true
    tight: bool = False  # memory counts more than time: a budget would not be kept otherwise

    @property
    def results(self) -> tuple[Node, ...]:
        """The value that holds each output."""
        return self.graph.outputs if self.values is None else self.values.results

    @property
    def groups(self) -> list[FusionGroup]:
        """The kernels; in execution order once `order_kernels` has run."""
        return self.fusion.groups if self.fuser is None else list(self.fuser.groups.values())

    @property
    def library_calls(self) -> list[FusionGroup]:
        """The library calls that are steps of the device, without NumPy calls."""
        return [group for group in self.fusion.groups if group.views is not None]

    @property
    def together(self) -> list[list[CompiledKernel]]:
        """The kernels that share launches."""
        own = {kernel.group.number: kernel for kernel in self.kernels}
        groups = self.fusion.groups
        return [[own[groups[index].number] for index in launch] for launch in self.joined]

    def everywhere(self) -> Iterator[Stages]:
        """This program and those of its bodies."""
        yield self
        for parts in self.inner.values():
            for part in parts:
                yield from part.everywhere()

    def all_kernels(self) -> Iterator[CompiledKernel]:
        """Every kernel, including those of bodies."""
        for part in self.everywhere():
            yield from part.kernels
