"""The front half of the compiler: a graph to scheduled kernels, before machine code."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ridgeline.compiler.backend import Backend, backend
from ridgeline.compiler.graph import arranged
from ridgeline.compiler.joining import Joiner, kept, most_bytes, temporaries
from ridgeline.compiler.overlaid import overlay
from ridgeline.fusion.groups import Fusion, Group, Roofline, fuse
from ridgeline.fusion.late import compute_late
from ridgeline.fusion.replacing import Replacing
from ridgeline.fusion.values import choose_values
from ridgeline.graph.body import bodies
from ridgeline.graph.node import Node, Op, topological
from ridgeline.graph.strides import View
from ridgeline.loops.in_place import in_place
from ridgeline.loops.ir import Kernel
from ridgeline.loops.lowered import Lowered
from ridgeline.loops.printer import named, print_kernel
from ridgeline.loops.schedule import Step as ScheduleStep, replay
from ridgeline.schedules.attempts import LeftOut, noted

Slots = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class CompiledKernel:
    """A kernel through its stages, kept for `explain` and for profiles."""

    group: Group
    steps: list[ScheduleStep]
    kernel: Kernel
    values: tuple[Node, ...]  # what each parameter holds
    left_out: tuple[LeftOut, ...] = ()  # steps that would have saved time but do not apply


@dataclass(slots=True)
class Stages:
    """Fusion and scheduled loops; `inner` are those of the bodies of native control flow."""

    fusion: Fusion
    kernels: list[CompiledKernel]
    results: tuple[Node, ...]
    order: tuple[Node, ...]
    inner: dict[Node, tuple[Stages, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)  # values of symbolic sizes
    replacing: Replacing = field(default_factory=Replacing)
    in_place: Mapping[Node, Node] = field(default_factory=dict)  # results over inputs' memory
    joined: tuple[tuple[int, ...], ...] = ()  # places of groups that are started as one
    over: Mapping[Node, Node] = field(default_factory=dict)  # temporaries over others' memory
    begun: Mapping[str, Any] = field(default_factory=dict)  # code that is being compiled

    @property
    def whole(self) -> list[Group]:
        """The nodes that the backend computes whole."""
        return [group for group in self.fusion.groups if group.views is not None]

    @property
    def together(self) -> list[list[CompiledKernel]]:
        """The kernels that are started as one."""
        own = {kernel.group.number: kernel for kernel in self.kernels}
        groups = self.fusion.groups
        return [[own[groups[place].number] for place in places] for places in self.joined]

    def all_kernels(self) -> Iterator[CompiledKernel]:
        """Every kernel, those of bodies included."""
        yield from self.kernels
        for parts in self.inner.values():
            for part in parts:
                yield from part.all_kernels()


def lower_graph(
    outputs: Sequence[Node],
    inputs: Sequence[Node],
    facts: Any = None,
    target: Backend | None = None,
    pairs: Sequence[tuple[int, int]] = (),
    checked: bool = False,
    ahead: bool = False,
) -> Stages:
    """Graph to scheduled kernels, for this machine unless told otherwise.

    `pairs` are outputs and the inputs whose memory they may take (see `Replacing.of`); `checked`
    says that the last output is the index flag, `ahead` that code will be wanted, so that its
    compilation begins while other kernels are scheduled.
    """
    target = target or backend(device_of(outputs, inputs))
    is_input = set(inputs).__contains__
    simple = arranged(outputs, is_input, target.arrange)

    def whole(node: Node) -> Sequence[View] | None:
        return target.operands(node, is_input) if target.computes(node) else None

    facts = facts or target.facts()
    converts = partial(target.converts, facts=facts)
    values = choose_values(simple, is_input, converts, whole)
    order = topological(simple, is_input)
    late = compute_late(order, values, is_input)
    if late is not None:
        # library calls go by place, so the order stays that of the graph without copies
        order, now = late[0], dict(zip(order, late[0]))
        simple = [now[n] for n in simple]
        values = choose_values(simple, is_input, converts, whole, late[1])
    replacing = Replacing.of(values.results, inputs, pairs, checked)
    parts = partial(target.parts, facts=facts)
    roofline = target.roofline(facts)
    fusion = fuse(values, is_input, roofline, target.apart, whole, replacing, parts)
    known: dict[tuple[str, Op | None], CompiledKernel] = {}
    scheduled: dict[Lowered, CompiledKernel] = {}
    placing = _Placing(fusion.in_place, dict(fusion.in_place))
    kernels: dict[int, CompiledKernel] = {}
    inner: dict[Node, tuple[Stages, ...]] = {}
    begun: dict[str, Any] = {}
    for group in fusion.groups if ahead else ():
        if group.views is not None:
            begun.update(target.begin(group, None))
    waits, most = temporaries(fusion.groups, set(values.results)), most_bytes(roofline)
    for group in fusion.groups:
        if group.lowered is not None:
            shared = group.lowered.model or group.lowered
            if shared not in scheduled:  # layers of a model give the same loops again and again
                key = (print_kernel(shared.kernel), shared.anchor)
                if key not in known:
                    known[key] = _scheduled(group, group.lowered, target, facts)
                scheduled[shared] = known[key]
            made = kernels[group.number] = placing.kernel(group, scheduled[shared])
            if ahead and made.kernel.name not in begun and kept(group, waits) > most:
                begun.update(target.begin(group, made))
        elif group.apart is not None:
            placing.apart(group)
            if target.runs(group.apart):
                inner[group.apart] = tuple(
                    lower_graph(b.outputs, b.inputs, facts, target) for b in bodies(group.apart)
                )
    joined = _join(fusion, kernels, set(values.results), target, roofline)
    ordered = [kernels[g.number] for g in fusion.groups if g.number in kernels]
    over = overlay(fusion.groups, joined, ordered, {*values.results, *inputs})
    return Stages(
        fusion, ordered, values.results, tuple(order), inner, replacing=replacing,
        in_place=placing.kept, joined=joined, over=over, begun=begun,
    )  # fmt: skip


@dataclass(slots=True)
class _Placing:
    """Kernels whose results lie over what they replace, where their loops allow it."""

    wanted: Mapping[Node, Node]
    kept: dict[Node, Node]  # what was found possible
    known: dict[tuple[str, str, Slots], tuple[Kernel, dict[int, int]]] = field(default_factory=dict)

    def kernel(self, group: Group, made: CompiledKernel) -> CompiledKernel:
        """The kernel of a group; those of one text differ in what they may overwrite."""
        slots = group.loops.slots
        wanted = _overwritten(group, self.wanted)
        key = (made.kernel.name, group.name, wanted)
        if key not in self.known:
            kernel, found = in_place(made.kernel, dict(wanted))
            self.known[key] = (named(replace(kernel, name=group.name)) if found else kernel, found)
        kernel, found = self.known[key]
        for written, _ in wanted:
            if written not in found:
                del self.kept[slots[written]]
        values = tuple(slots[b.slot] for b in made.kernel.params)
        return replace(made, group=group, kernel=kernel, values=values)

    def apart(self, group: Group) -> None:
        """A body or a library call may read its operands at any time."""
        for value in group.values:
            if self.kept.get(value) in group.reads:
                del self.kept[value]


def _join(
    fusion: Fusion,
    kernels: Mapping[int, CompiledKernel],
    results: Set[Node],
    target: Backend,
    roofline: Roofline,
) -> tuple[tuple[int, ...], ...]:
    """Put kernels that can be started as one next to each other."""

    def key(group: Group) -> Hashable | None:
        return target.join_key(kernels[group.number]) if group.number in kernels else None

    def fits(groups: Sequence[Group]) -> bool:
        return target.join_fits([kernels[group.number] for group in groups])

    joiner = Joiner(fusion.needs, key, fits, most_bytes(roofline))
    joiner.run(fusion.groups, results)
    fusion.groups = joiner.order
    return tuple(joiner.joined)


def _scheduled(group: Group, lowered: Lowered, target: Backend, facts: Any) -> CompiledKernel:
    with noted() as left_out:
        steps = target.schedule(lowered, facts)
    kernel = named(replay(lowered.kernel, steps))
    return CompiledKernel(group, steps, kernel, lowered.slots, tuple(left_out))


def _overwritten(group: Group, in_place: Mapping[Node, Node]) -> Slots:
    """Slots (written, read) of a kernel that would be one memory."""
    slots, reads = group.loops.slots, group.loops.reads
    place = {node: number for number, node in enumerate(slots[:reads])}
    return tuple(
        (number, place[in_place[value]])
        for number, value in enumerate(slots[reads:], reads)
        if value in in_place and in_place[value] in place
    )


def device_of(outputs: Sequence[Node], inputs: Sequence[Node]) -> str:
    """The one device that a graph computes on."""
    return (*outputs, *inputs)[0].type.device if outputs or inputs else "cpu"
