"""The pass that keeps a memory budget: kernels run again until a call holds no more than it.

The program is a timeline (`timeline.py`); the points on the way to less memory (`frontier.py`) are
made into programs again and laid out, and the first that fits is taken. What is laid out is what a
call holds, to the byte: the budget is kept, or an error names the least that can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from ridgeline.compiler.budget.frontier import points
from ridgeline.compiler.budget.timeline import KernelCosts, KernelRun, Timeline
from ridgeline.compiler.explain import inner_rows, library_row
from ridgeline.compiler.lowering import LEAST_TIGHT, may_share
from ridgeline.compiler.memory_plan import ALIGNMENT, HeldBytes, bytes_at, bytes_text, written
from ridgeline.compiler.passes import Compilation
from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.errors import MemoryBudgetError
from ridgeline.fusion.groups import FusionGroup, Roofline
from ridgeline.fusion.kept_memory import Crossing
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe, inherit, user_line
from ridgeline.ops.tracking import tag

LayOut = Callable[[Stages], HeldBytes]
MergeAgain = Callable[[Crossing], Stages]  # the program by kernels that hold less
_SHOWN = 3  # lines that hold most memory
_NO_SIZES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A way to run a program: the bytes that a call holds, and its predicted seconds."""

    nbytes: int
    seconds: float
    repeats: int  # kernels that run again


def fit(
    stages: Stages,
    to: Compilation,
    lay_out: LayOut,
    merge_again: MergeAgain | None = None,
    sizes: Mapping[str, int] = _NO_SIZES,
) -> Stages:
    """The program as it is, or with kernels that run again so that a call keeps the budget."""
    fixed = lay_out(stages)
    if fixed.total <= to.budget:
        return stages
    found: list[_Way] = []
    for way in _ways(stages, to, merge_again, sizes):
        found.append(way)
        if fixed.least(way.timeline.peak) <= to.budget:
            made = way.form.stages(way.timeline)
            if lay_out(made).total <= to.budget:
                return made
    raise _too_small(found, to.budget, lay_out)


def frontier(
    stages: Stages,
    to: Compilation,
    lay_out: LayOut,
    merge_again: MergeAgain | None = None,
    sizes: Mapping[str, int] = _NO_SIZES,
) -> list[FrontierPoint]:
    """Bytes against seconds, from the program as it is to the least memory."""
    found: list[FrontierPoint] = []
    for form, timeline in _ways(stages, to, merge_again, sizes):
        held = lay_out(form.stages(timeline)).total
        if not found or held < found[-1].nbytes:
            found.append(FrontierPoint(held, timeline.seconds, timeline.repeats))
    return found


class _Way(NamedTuple):
    """A way to run a program."""

    form: _Form
    timeline: Timeline


def _ways(
    stages: Stages, to: Compilation, merge_again: MergeAgain | None, sizes: Mapping[str, int]
) -> Iterator[_Way]:
    """The program as it is, in a better order, and then with recomputation.

    From there on kernels are merged with the memory peak in view; where they cannot be merged
    again, those that exist are rerun.
    """
    form = _Form(replace(stages, tight=True), to.roofline, sizes)
    yield _Way(form, form.timeline)
    sooner = form.timeline.sooner()
    yield _Way(form, sooner)
    if merge_again is not None:
        parted = merge_again(form.crossing(sooner))
        form = _Form(replace(parted, tight=True), to.roofline, sizes)
    for timeline in points(form.timeline):
        yield _Way(form, timeline)


def _too_small(found: Sequence[_Way], budget: int, lay_out: LayOut) -> MemoryBudgetError:
    """The error if nothing fits: it names the least budget that would."""
    best: HeldBytes | None = None
    at = found[0]
    for way in sorted(found, key=lambda way: way.timeline.peak):
        if best is not None and best.least(way.timeline.peak) >= best.total:
            break
        held = lay_out(way.form.stages(way.timeline))
        if best is None or held.total < best.total:
            best, at = held, way
    assert best is not None, "the program as it is, is a point"
    line = user_line()
    where = f"called at {line}\n" if line else ""
    lines = ", ".join(at.form.largest(at.timeline)) or "nothing else"
    return MemoryBudgetError(
        f"a call cannot be made within {bytes_text(budget)}: the smallest budget that fits is "
        f"{bytes_text(best.total)}",
        smallest=best.total,
        note=f"{where}of these, {bytes_text(best.arguments)} are arguments and state, "
        f"{bytes_text(best.results)} results, {bytes_text(best.temporaries)} between kernels;"
        f" the largest of these, where they are the most, are from {lines}",
        help="a smaller batch, narrower types, or fewer results take less",
    )


class _Form:
    """Converts a program to a timeline and back."""

    def __init__(self, stages: Stages, roofline: Roofline, sizes: Mapping[str, int]) -> None:
        self._stages, self._sizes = stages, sizes
        groups = stages.fusion.groups
        self._pieces = list(dict.fromkeys(v for g in groups for v in (*g.reads, *written(g))))
        self._number = {value: number for number, value in enumerate(self._pieces)}
        self._reads = [tuple(sorted(map(self._number.__getitem__, g.reads))) for g in groups]
        self.timeline = self._made(roofline)

    def _made(self, roofline: Roofline) -> Timeline:
        stages, number = self._stages, self._number
        groups = stages.fusion.groups
        nbytes = [-(-bytes_at(v, self._sizes) // ALIGNMENT) * ALIGNMENT for v in self._pieces]
        lasting = {*stages.graph.inputs, *stages.results}
        writer = {value: kernel for kernel, g in enumerate(groups) for value in written(g)}
        overwrites = {
            number[given]: writer[result]
            for result, given in stages.in_place.items() if given in number
        }  # fmt: skip
        seconds = [_seconds(g, stages, roofline) for g in groups]
        repeatable = [self._may_repeat(g) for g in groups]
        overlays = self._overlays(lasting)
        costs = KernelCosts(seconds, repeatable, nbytes, overwrites, self._order(), overlays)
        runs = [
            KernelRun(kernel, self._reads[kernel], tuple(number[v] for v in written(g)))
            for kernel, g in enumerate(groups)
        ]
        sizes = [0 if v in lasting else size for v, size in zip(self._pieces, nbytes)]
        return Timeline(costs, tuple(runs), tuple(sizes), tuple(range(len(sizes))))

    def _overlays(self, lasting: Set[Node]) -> list[list[tuple[int, int]]]:
        """For each kernel, which of its pieces may be written over which."""
        compiled = {kernel.group.number: kernel for kernel in self._stages.kernels}
        known: dict[str, list[tuple[int, int]]] = {}  # layers that repeat share kernels
        found: list[list[tuple[int, int]]] = []
        for kernel, group in enumerate(self._stages.fusion.groups):
            own = compiled.get(group.number)
            if own is None or self._sizes:
                found.append([])
                continue
            slots, reads = group.loops.slots, group.loops.reads
            pairs = [
                (w, r) for w in range(reads, len(slots)) for r in range(reads)
                if bytes_at(slots[w], self._sizes) == bytes_at(slots[r], self._sizes)
                and bytes_at(slots[w], self._sizes) >= LEAST_TIGHT
                and slots[w] not in lasting and slots[r] not in lasting
            ]  # fmt: skip
            key = f"{own.kernel.name} {pairs}"
            if key not in known:
                known[key] = [pair for pair in pairs if may_share(own, *pair)]
            at = {self._pieces[piece]: n for n, piece in enumerate(self._reads[kernel])}
            found.append([(w - reads, at[slots[r]]) for w, r in known[key]])
        return found

    def _order(self) -> list[set[int]]:
        """The kernels that must run before each, also those that may fail before an overwrite."""
        stages, groups = self._stages, self._stages.fusion.groups
        kernel_of = {group.number: kernel for kernel, group in enumerate(groups)}
        needs = _needs(groups, stages)
        found = [{kernel_of[number] for number in needs[group.number]} for group in groups]
        flag = stages.replacing.flag
        replaced = {*stages.in_place, *stages.replacing.others}
        failing = {
            kernel for kernel, g in enumerate(groups)
            if (g.lowered is None and not self._may_repeat(g)) or flag in written(g)
        }  # fmt: skip
        for kernel, group in enumerate(groups):
            if not replaced.isdisjoint(written(group)):
                found[kernel] |= {other for other in failing if other < kernel}
        return found

    def _may_repeat(self, group: FusionGroup) -> bool:
        """False for NumPy calls, and for kernels that overwrite an input."""
        on_host = group.apart is not None and group.apart not in self._stages.inner
        if on_host and group.views is None:
            return False
        return self._stages.in_place.keys().isdisjoint(written(group))

    def stages(self, timeline: Timeline) -> Stages:
        """The program that runs as a timeline says."""
        stages = self._stages
        groups = stages.fusion.groups
        compiled = {kernel.group.number: kernel for kernel in stages.kernels}
        values = self._values(timeline)
        fresh = max((g.number for g in groups), default=0) + 1
        order: list[FusionGroup] = []
        kernels: list[CompiledKernel] = []
        seen: set[int] = set()
        for step, run in enumerate(timeline.runs):
            group = groups[run.kernel]
            own = compiled.get(group.number)
            now = dict(zip((self._pieces[p] for p in self._reads[run.kernel]), run.reads))
            now.update(zip(written(group), run.writes))
            shown = {value: values[piece] for value, piece in now.items()}
            shown = {value: copy for value, copy in shown.items() if copy is not value}
            if shown or run.kernel in seen:
                number = fresh + step if run.kernel in seen else group.number
                group = _over(group, number, shown)
                if own is not None:
                    renamed = tuple([shown.get(v, v) for v in own.values])
                    own = replace(own, group=group, values=renamed)
            seen.add(run.kernel)
            order.append(group)
            if own is not None:
                kernels.append(own)
        fusion = replace(stages.fusion, groups=order, needs=_needs(order, stages))
        return replace(stages, fusion=fusion, kernels=tuple(kernels))

    def _values(self, timeline: Timeline) -> list[Node]:
        """The node of each piece: that of the program, or a new one for a copy."""
        found = list(self._pieces)
        for shown in timeline.copies[len(found) :]:
            copy = tag(self._pieces[shown])
            inherit(copy, self._pieces[shown].origins)
            found.append(copy)
        return found

    def crossing(self, timeline: Timeline) -> Crossing:
        """What is live across the memory peak, and what is computed after it."""
        at, kept, later = timeline.fullest, set[Node](), set[Node]()
        for piece, (first, last) in timeline.lives.items():
            value = self._pieces[timeline.copies[piece]]
            if first < at < last and timeline.sizes[piece]:
                kept.add(value)
            if first > at and piece in timeline.writer:
                later.add(value)
        return Crossing(frozenset(kept), frozenset(later))

    def largest(self, timeline: Timeline) -> list[str]:
        """The source lines whose values hold most memory at the peak."""
        at, held = timeline.fullest, dict[str, int]()
        for piece, (first, last) in timeline.lives.items():
            if first <= at <= last and timeline.sizes[piece]:
                line = describe(self._pieces[timeline.copies[piece]]) or "an unknown line"
                held[line] = held.get(line, 0) + timeline.sizes[piece]
        most = sorted(held, key=held.__getitem__, reverse=True)[:_SHOWN]
        return [f"{line} ({bytes_text(held[line])})" for line in most]


def _over(group: FusionGroup, number: int, shown: Mapping[Node, Node]) -> FusionGroup:
    """The same kernel over other buffers."""

    def renamed(values: Sequence[Node]) -> tuple[Node, ...]:
        return tuple([shown.get(value, value) for value in values])

    lowered = group.lowered
    return replace(
        group,
        number=number,
        values=renamed(group.values),
        reads=frozenset(renamed(tuple(group.reads))),
        lowered=None if lowered is None else lowered.over(renamed(lowered.slots)),
        shown=shown,
    )


def _needs(order: Sequence[FusionGroup], stages: Stages) -> dict[int, frozenset[int]]:
    """The kernels that must have run before each: those whose values it reads or overwrites."""
    writer = {value: group.number for group in order for value in written(group)}
    readers: dict[Node, set[int]] = {}
    for group in order:
        for value in group.reads:
            readers.setdefault(value, set()).add(group.number)
    known, found = stages.fusion.needs, dict[int, frozenset[int]]()
    for group in order:
        needed = {writer[value] for value in group.reads if value in writer}
        needed |= known.get(group.number, frozenset())
        for value in written(group):
            if value in stages.in_place:
                needed |= readers.get(stages.in_place[value], set())
        found[group.number] = frozenset(needed - {group.number})
    return found


def _seconds(group: FusionGroup, stages: Stages, roofline: Roofline) -> float:
    """Predicted time of a kernel: its exact counts under the roofline."""
    if group.apart is None:
        return group.seconds
    called = group.views is not None
    rows = [library_row(group.apart)] if called else inner_rows(stages, group.apart)
    moved = sum(row.nbytes for row in rows) / roofline.bytes_per_second
    return roofline.launch_seconds + max(
        moved, sum(row.flops for row in rows) / roofline.flops_per_second
    )
