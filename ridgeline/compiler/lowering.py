"""The passes from a graph to scheduled kernels.

Each fills in a part of `Stages`; `pipeline.py` has their order. The two longer ones stand last.

`overlay` gives values the memory of what their kernel reads, where a program needs most memory. The
step at which most is alive is looked for. Where its kernel reads a temporary for the last time and
writes another of the same size, and may do so in place, the two are one memory; then the next such
step is looked for. Elsewhere nothing would be won: the arena is as large as its fullest moment.

`Joiner` makes one launch of kernels that wait for none of each other, as the updates of all
parameters: starting a kernel takes longer than a small one runs. In the order of the program, a
kernel that may be joined is put off until something needs it; those that are put off together, and
that the backend can start as one, are, and with them those of the next kernels that could run then
too, as the products of one operand that are each followed by work of their own. What a kernel reads
stays in memory while it is put off, and what it makes if it runs early, so one that would keep much
of it runs in its turn: no more than could be moved in the time of a start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ridgeline.compiler.background import background
from ridgeline.compiler.memory_plan import LiveRange, live_ranges
from ridgeline.compiler.passes import Compilation
from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.fusion.groups import Fuser, FusionGroup, Roofline
from ridgeline.fusion.in_place import Replacing
from ridgeline.fusion.materialize import Values, choose_values
from ridgeline.fusion.overlap import overlapped
from ridgeline.fusion.recompute import copies_for_late_readers, recompute_in_readers
from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import Node, Op
from ridgeline.loops.analysis.aliasing import in_place
from ridgeline.loops.build import raising
from ridgeline.loops.ir import Kernel, named
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import LeftOut, Step as ScheduleStep, noted, replay
from ridgeline.ops.contract import PRODUCTS

Slots = tuple[tuple[int, int], ...]
_NO_STEPS: list[ScheduleStep] = []
LEAST_OVERLAID = 64 << 20  # bytes that are worth a kernel whose loads and stores keep their order
LEAST_TIGHT = 1 << 16  # the same where memory counts more than time
_MOST_OVERLAID = 8  # kernels that are changed
_LOOKED_AHEAD = 32  # kernels among which there may be some to run early


def _values(stages: Stages) -> Values:
    assert stages.values is not None, "which values lie in memory is decided first"
    return stages.values


def materialize(stages: Stages, setting: Compilation) -> Stages:
    """Choose which values are written to memory."""
    graph = stages.graph
    views = partial(setting.library_views, graph=graph)
    values = choose_values(graph, setting.reads_narrow_operands, views)
    return replace(stages, order=graph.order, values=values)


def rematerialize(stages: Stages, setting: Compilation) -> Stages:
    """Give late readers of a value a copy that is recomputed from what is kept anyway."""
    graph = stages.graph
    several = [node for node in graph.order if node.op in PRODUCTS][1:]  # that may read one value
    late = copies_for_late_readers(graph, _values(stages)) if several else None
    if late is None:
        return stages
    now = dict(zip(graph.order, late[0]))
    graph = graph.giving([now[n] for n in graph.outputs])
    views = partial(setting.library_views, graph=graph)
    values = choose_values(graph, setting.reads_narrow_operands, views, late[1])
    # library calls go by place, so the order stays that of the graph without copies
    return replace(stages, graph=graph, order=tuple(late[0]), values=values)


def overwrite(stages: Stages, setting: Compilation) -> Stages:
    """Choose the results that may reuse the memory of the inputs that they replace."""
    replacing = Replacing.of(_values(stages).graph, setting.pairs, setting.checked)
    return replace(stages, replacing=replacing)


def group(stages: Stages, setting: Compilation) -> Stages:
    """Make a kernel of every stored value."""
    views = partial(setting.library_views, graph=stages.graph)
    fuser = Fuser(
        _values(stages), setting.roofline, views, stages.replacing, setting.reason_to_split,
        setting.crossing,
    )  # fmt: skip
    return replace(stages, fuser=fuser)


def fuse(stages: Stages, setting: Compilation) -> Stages:
    """Merge kernels while that saves time."""
    assert stages.fuser is not None
    stages.fuser.merge()
    return stages


def recompute(stages: Stages, setting: Compilation) -> Stages:
    """Drop stored values that their readers recompute in less time than they read them."""
    assert stages.fuser is not None
    recompute_in_readers(stages.fuser)
    return stages


def order_kernels(stages: Stages, setting: Compilation) -> Stages:
    """Order the kernels so that each finds what it reads, and may overwrite what it replaces."""
    assert stages.fuser is not None
    fusion = stages.fuser.fusion()
    return replace(stages, fuser=None, fusion=fusion, in_place=dict(fusion.in_place))


def overlap(stages: Stages, setting: Compilation) -> Stages:
    """Move other kernels between the start of a collective and its wait."""
    fusion = stages.fusion
    overwriting = {*stages.in_place, *stages.replacing.others}
    groups = overlapped(fusion.groups, fusion.needs, overwriting)
    return replace(stages, fusion=replace(fusion, groups=groups))


def schedule(stages: Stages, setting: Compilation) -> Stages:
    """Give every kernel its default schedule; repeated layers share one."""
    return _scheduled(stages, setting, scheduled)


def leave_unscheduled(stages: Stages, setting: Compilation) -> Stages:
    """Keep the loops of every kernel as lowering made them."""
    return _scheduled(stages, setting, _no_schedule)


def join_launches(stages: Stages, setting: Compilation) -> Stages:
    """Put kernels that can share a launch next to each other."""
    kernels = {compiled.group.number: compiled for compiled in stages.kernels}
    together, fusion = setting.target.horizontal_fusion(), stages.fusion
    assert together is not None, "the pass has work where there is this capability"

    def key(group: FusionGroup) -> Hashable | None:
        return together.key(kernels[group.number]) if group.number in kernels else None

    def fits(groups: Sequence[FusionGroup]) -> bool:
        return together.fits([kernels[group.number] for group in groups])

    ahead = 0 if setting.budget or stages.tight else _LOOKED_AHEAD  # what is early is kept longer
    joiner = Joiner(fusion.needs, key, fits, most_bytes(setting.roofline), ahead)
    joiner.run(fusion.groups, set(stages.results))
    ordered = tuple(kernels[g.number] for g in joiner.order if g.number in kernels)
    fusion = replace(fusion, groups=joiner.order)
    return replace(stages, fusion=fusion, kernels=ordered, joined=tuple(joiner.joined))


def reuse_memory(stages: Stages, setting: Compilation) -> Stages:
    """At the memory peak, let results reuse the buffers of operands that die there."""
    least = LEAST_TIGHT if stages.tight else LEAST_OVERLAID
    if all(nbytes(value) < least for g in stages.groups for value in g.values):
        return stages
    kernels = list(stages.kernels)
    fixed = {*stages.results, *stages.graph.inputs}
    most = len(kernels) if stages.tight else _MOST_OVERLAID
    over = overlay(stages.fusion.groups, stages.joined, kernels, fixed, least, most)
    return replace(stages, kernels=tuple(kernels), over=over)


# ---- schedules -----------------------------------------------------------------------------------


def scheduled(group: FusionGroup, lowered: Lowered, setting: Compilation) -> CompiledKernel:
    """A kernel with its default schedule."""
    left_out: dict[LeftOut, None] = {}
    with noted(left_out):
        steps = setting.target.schedule(lowered, setting.facts)
    kernel = named(replay(lowered.kernel, steps))
    return CompiledKernel(group, steps, kernel, lowered.slots, tuple(left_out))


def _no_schedule(group: FusionGroup, lowered: Lowered, setting: Compilation) -> CompiledKernel:
    return CompiledKernel(group, _NO_STEPS, named(lowered.kernel), lowered.slots)


def _scheduled(stages: Stages, setting: Compilation, make: Any) -> Stages:
    """Every kernel by `make`, with its stores ordered so that it may overwrite in place.

    A kernel that shares no launch is compiled in parallel as soon as its loops are known.
    """
    target, groups = setting.target, stages.fusion.groups
    known: dict[tuple[Kernel, Op | None], CompiledKernel] = {}
    done: dict[Lowered, CompiledKernel] = {}
    placing = _Placing(stages.in_place, dict(stages.in_place))
    kernels: list[CompiledKernel] = []
    begun: dict[str, Any] = {}
    for group in groups if setting.ahead else ():
        if group.views is not None:
            begun.update(target.compile_ahead(group, None))
    flag = stages.results[-1] if setting.checked and target.shares_flag else None
    waits, most = temporaries(groups, set(stages.results)), most_bytes(setting.roofline)
    for group in groups:
        background.checkpoint()
        if group.lowered is None:
            placing.apart(group)
            continue
        shared = group.lowered.model or group.lowered
        if shared not in done:  # layers of a model give the same loops again and again
            key = (shared.kernel, shared.anchor)
            if key not in known:
                known[key] = make(group, group.lowered, setting)
            done[shared] = known[key]
        made = placing.kernel(group, done[shared])
        if flag in made.values and flag not in group.reads:
            made, flag = _raising(made, flag), None
        kernels.append(made)
        if setting.ahead and made.kernel.name not in begun and kept_bytes(group, waits) > most:
            begun.update(target.compile_ahead(group, made))
    raises = setting.checked and target.shares_flag and flag is None
    return replace(
        stages, kernels=tuple(kernels), in_place=placing.kept, begun=begun, raises=raises
    )


def _raising(made: CompiledKernel, flag: Node) -> CompiledKernel:
    """A kernel that stores a flag only where it is true."""
    slot = made.kernel.params[made.values.index(flag)].slot
    kernel = raising(replace(made.kernel, name=made.group.name), slot)
    return replace(made, kernel=named(kernel))


@dataclass(slots=True)
class _Placing:
    """Assigns outputs to the memory of the inputs they replace, where the loops allow it."""

    wanted: Mapping[Node, Node]
    kept: dict[Node, Node]  # what was found possible
    known: dict[tuple[str, str, Slots], tuple[Kernel, dict[int, int]]] = field(default_factory=dict)

    def kernel(self, group: FusionGroup, made: CompiledKernel) -> CompiledKernel:
        """The kernel of a group; equal kernels may differ in what they overwrite."""
        slots = group.loops.slots
        wanted = _overwritten(group, self.wanted)
        key = (made.kernel.name, group.name, wanted)
        if key not in self.known:
            kernel, found = made.kernel, dict(wanted)
            if wanted:
                kernel, found = in_place(kernel, found)
            self.known[key] = (named(replace(kernel, name=group.name)) if found else kernel, found)
        kernel, found = self.known[key]
        for written, _ in wanted:
            if written not in found:
                del self.kept[slots[written]]
        values = tuple(slots[b.slot] for b in made.kernel.params)
        return replace(made, group=group, kernel=kernel, values=values)

    def apart(self, group: FusionGroup) -> None:
        """A body or a library call may read its operands at any time."""
        for value in group.values:
            if self.kept.get(value) in group.reads:
                del self.kept[value]


def _overwritten(group: FusionGroup, in_place: Mapping[Node, Node]) -> Slots:
    """Pairs of slots (written, read) that would share a buffer."""
    slots, reads = group.loops.slots, group.loops.reads
    slot = {node: number for number, node in enumerate(slots[:reads])}
    return tuple(
        (number, slot[in_place[value]])
        for number, value in enumerate(slots[reads:], reads)
        if value in in_place and in_place[value] in slot
    )


def overlay(
    groups: Sequence[FusionGroup],
    joined: Sequence[Sequence[int]],
    kernels: list[CompiledKernel],
    fixed: Collection[Node],
    least: int = LEAST_OVERLAID,
    most: int = _MOST_OVERLAID,
) -> dict[Node, Node]:
    """For some values the one whose buffer they reuse; replaces their kernels in the list.

    `fixed` values keep buffers of their own, and `joined` kernels stay as they are. Only values of
    at least `least` bytes are considered, and at most `most` kernels are changed.
    """
    number_of = {id(compiled.group): number for number, compiled in enumerate(kernels)}
    over: dict[Node, Node] = {}
    seen = {step for members in joined for step in members}
    while len(over) < most:
        lives = {
            v: life for v, life in live_ranges(groups, joined, {}, over).items() if v not in fixed
        }
        step = _fullest(lives)
        number = None if step is None or step in seen else number_of.get(id(groups[step]))
        if step is None or number is None:
            break
        seen.add(step)
        compiled = kernels[number]
        kernel, found = in_place(compiled.kernel, _pairs(compiled, lives, step, least))
        if not found:
            break
        kernel = named(replace(kernel, name=compiled.group.name))
        kernels[number] = replace(compiled, kernel=kernel)
        slots = compiled.group.loops.slots
        over.update({slots[written]: slots[read] for written, read in found.items()})
    return over


def _fullest(lives: Mapping[Node, LiveRange]) -> int | None:
    """The step at which most bytes are live."""
    if not lives:
        return None
    change = [0] * (max(life.last for life in lives.values()) + 2)
    for life in lives.values():
        change[life.first] += life.nbytes
        change[life.last + 1] -= life.nbytes
    alive, best, step = 0, -1, 0
    for number, more in enumerate(change):
        alive += more
        if alive > best:
            best, step = alive, number
    return step


def _pairs(
    compiled: CompiledKernel, lives: Mapping[Node, LiveRange], step: int, least: int
) -> dict[int, int]:
    """Slots (written: read) of a kernel that would share a buffer."""
    slots, reads = compiled.group.loops.slots, compiled.group.loops.reads
    ending = [
        number for number, value in enumerate(slots[:reads])
        if value in lives and lives[value].last == step and _has_known_size(value)
    ]  # fmt: skip
    found: dict[int, int] = {}
    for number, value in enumerate(slots[reads:], reads):
        life = lives.get(value)
        if life is None or life.nbytes < least or not _has_known_size(value):
            continue
        for source in ending:
            if lives[slots[source]].nbytes == life.nbytes and may_share(compiled, number, source):
                found[number] = source
                ending.remove(source)
                break
    return found


def may_share(compiled: CompiledKernel, written: int, read: int) -> bool:
    """True if a kernel may write one slot over another that it reads."""
    return bool(in_place(compiled.kernel, {written: read})[1])


def _has_known_size(value: Node) -> bool:
    return all(isinstance(size, int) for size in value.shape)


@dataclass(slots=True)
class Joiner:
    """Orders the kernels of a program, and chooses which of them share a launch.

    Kernels with equal `key` may share one; `fits` says whether some still fit into one.
    """

    needs: Mapping[int, Set[int]]  # the kernels that must have run before each, by number
    key: Callable[[FusionGroup], Hashable | None]
    fits: Callable[[Sequence[FusionGroup]], bool]
    most_bytes: float
    looked_ahead: int = _LOOKED_AHEAD
    order: list[FusionGroup] = field(default_factory=list)
    joined: list[tuple[int, ...]] = field(default_factory=list)  # places in the order
    _waiting: dict[Hashable, list[FusionGroup]] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def run(self, groups: Sequence[FusionGroup], results: Set[Node]) -> None:
        """Fill `order` and `joined`."""
        made = temporaries(groups, results)
        early: set[int] = set()  # that were started with others, before their turn
        for place, group in enumerate(groups):
            if group.number in early:
                continue
            needed = self.needs[group.number]
            for key, members in list(self._waiting.items()):
                if any(member.number in needed for member in members):
                    ahead = groups[place : place + self.looked_ahead]
                    early |= self._start(key, [g for g in ahead if g.number not in early], made)
            if group.number in early:
                continue
            own = self.key(group) if kept_bytes(group, made) <= self.most_bytes else None
            if own is None:
                self._put([group])
                continue
            if not self.fits([*self._waiting.get(own, ()), group]):
                self._start(own)
            self._waiting.setdefault(own, []).append(group)
        for key in list(self._waiting):
            self._start(key)

    def _start(
        self, key: Hashable, ahead: Sequence[FusionGroup] = (), made: Set[Node] = frozenset()
    ) -> set[int]:
        """Start what waits, and what of the kernels `ahead` can run with it: their numbers."""
        members = self._waiting.pop(key, [])
        early: set[int] = set()
        for group in ahead:
            if not self._done.issuperset(self.needs[group.number]) or self.key(group) != key:
                continue
            kept = kept_bytes(group, made) + sum(nbytes(v) for v in group.values if v in made)
            if kept <= self.most_bytes and self.fits([*members, group]):
                members.append(group)
                early.add(group.number)
        numbers = range(len(self.order), len(self.order) + len(members))
        self._put(members)
        if len(members) > 1:
            self.joined.append(tuple(numbers))
        return early

    def _put(self, groups: Sequence[FusionGroup]) -> None:
        self.order += groups
        self._done.update(group.number for group in groups)


def temporaries(groups: Sequence[FusionGroup], results: Set[Node]) -> Set[Node]:
    """Values that kernels make for each other alone."""
    return {value for group in groups for value in group.values} - results


def kept_bytes(group: FusionGroup, made: Set[Node]) -> int:
    """The bytes that stay live while a kernel is put off."""
    return sum(nbytes(value) for value in group.reads if value in made)


def most_bytes(roofline: Roofline) -> float:
    """The bytes that could be moved in the time of one launch."""
    return roofline.launch_seconds * roofline.bytes_per_second
