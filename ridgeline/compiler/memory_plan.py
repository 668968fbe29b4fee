"""The layout of a program, as data: kernels over slots, and the arena of temporaries.

Temporaries lie in an arena, at offsets such that values alive at different times share memory.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.compiler.posted_calls import (
    CONTEXT_BYTES,
    AwaitCall,
    PostCall,
    posted_call,
    posted_steps,
)
from ridgeline.config import config
from ridgeline.fusion.groups import FusionGroup
from ridgeline.fusion.materialize import sources
from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import Node, proj
from ridgeline.graph.sizes import evaluate, never_shrinks
from ridgeline.graph.verify import require
from ridgeline.loops.ir import Const
from ridgeline.ops.started import WAIT
from ridgeline.weak import fingerprint

if TYPE_CHECKING:
    from ridgeline.compiler.backend import Backend
    from ridgeline.compiler.stages import CompiledKernel, Stages


ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One step of a program: a kernel, its slots, and how it is launched (the backend's data).

    The slots of a library call are its inputs and outputs; -1 stands for an output that nobody
    reads.
    """

    symbol: str
    slots: tuple[int, ...]
    launch: Any


@dataclass(frozen=True, slots=True)
class JoinedCall:
    """Several kernels in one launch, over all the slots that they use."""

    symbol: str
    parts: tuple[str, ...]  # the kernels
    slots: tuple[int, ...]
    launch: Any


@dataclass(frozen=True, slots=True)
class HostCall:
    """A NumPy call between kernels: which node (by position in the graph), over which slots."""

    node: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class BodyCall(ABC):
    """Control flow that runs natively, in the terms of a backend."""

    __slots__ = ()
    node: int  # which one, by place in the graph

    @abstractmethod
    def bodies(self) -> tuple[Layout, ...]:
        """The layouts of its bodies."""


Call = KernelCall | JoinedCall | HostCall | PostCall | AwaitCall | BodyCall


@dataclass(frozen=True, slots=True)
class Layout:
    """A program as data: what the disk cache keeps beside the machine code.

    Slots are the inputs, then symbolic sizes, then buffers made for each run (results first), then
    the arena's.
    """

    calls: tuple[Call, ...]
    inputs: int
    made: tuple[int, ...]  # bytes of every buffer made for a run
    returns: tuple[int, ...]  # for each output: a slot among the inputs or the buffers made
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    peak_live: int
    checked: bool = False  # the last output is a flag: an index was out of range
    sizes: tuple[int, ...] = ()  # values of symbolic sizes, whose slots follow the inputs
    in_place: tuple[tuple[int, int], ...] = ()  # buffers made that may be an input's memory
    reusable: tuple[int, ...] = ()  # buffers made that may be other memory that a run is given
    check: int = -1  # before this call the flag is looked at, as long as nothing is overwritten
    exact: bool = False  # memory is taken in blocks of its own size: a budget is kept
    raises: bool = False  # the flag is stored only where it is true
    context: int = -1  # the slot of what a run has of its rank's mailbox, if it posts collectives

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self.inputs + len(self.sizes) + len(self.made) + len(self.arena)

    @property
    def results(self) -> tuple[int, ...]:
        """The slots of a run's results, without the index flag."""
        return self.returns[:-1] if self.checked else self.returns

    def not_their_own(self) -> Iterator[int]:
        """The results that are an input passed through, or a result listed before."""
        seen: set[int] = set()
        for index, slot in enumerate(self.results):
            if slot < self.inputs or slot in seen:
                yield index
            seen.add(slot)

    def symbols(self) -> Iterator[str]:
        """The kernels that it calls, including those of bodies."""
        for call in self.calls:
            if isinstance(call, KernelCall):
                yield call.symbol
            elif isinstance(call, JoinedCall):
                yield from call.parts
            elif isinstance(call, BodyCall):
                for part in call.bodies():
                    yield from part.symbols()


Block = Callable[[int, bool], int]  # what memory of so many bytes takes; exact or by size class


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The bytes that a call of a program holds, in blocks of its device.

    Results that overwrite inputs take no memory of their own.
    """

    arguments: int
    results: int
    temporaries: int
    block: Block
    workspace: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        return self.arguments + self.results + self.temporaries

    def least(self, alive: int) -> int:
        """The same for a program whose temporaries take `alive` bytes at the peak."""
        return self.arguments + self.results + self.block(alive + self.workspace, True)


def held_by(layout: Layout, inputs: Sequence[int], block: Block, workspace: int) -> HeldBytes:
    """What a call holds, given the bytes of its inputs and of its workspace."""
    first = layout.inputs + len(layout.sizes)
    results = {slot - first for slot in layout.returns if slot >= first}
    over = {number for number, _ in layout.in_place}
    copied = [layout.results[which] for which in layout.not_their_own()]
    again = [inputs[slot] if slot < first else layout.made[slot - first] for slot in copied]
    exact = layout.exact
    made = [
        (n in results, block(size, exact)) for n, size in enumerate(layout.made) if n not in over
    ]
    arena = block(layout.arena_bytes + workspace, exact)
    return HeldBytes(
        sum(block(size, False) for size in inputs),
        sum(size for result, size in made if result) + sum(block(size, exact) for size in again),
        sum(size for result, size in made if not result) + arena,
        block,
        workspace,
    )


def bytes_text(nbytes: int) -> str:
    """A number of bytes as a budget is written, rounded up."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{-(-nbytes * 100 // size) / 100:.2f} {unit}"
    return f"{nbytes} bytes"


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that a loop needs while it runs: which step, and which piece."""

    step: int
    number: int
    nbytes: int


SlotOf = Mapping[Node | Scratch | str, int]


class BodyPlan(Protocol):
    """Control flow in the making: the memory that it needs, and its call once slots are known."""

    scratch: list[Scratch]

    def call(
        self, number: int, sources: Sequence[int], outputs: Sequence[int], slot_of: SlotOf
    ) -> BodyCall:
        """The step of the program."""


def lay_out(
    stages: Stages, target: Backend, sizes: Mapping[str, int] = MappingProxyType({})
) -> Layout:
    """Assign slots, arena offsets and launches to scheduled kernels, at given symbolic sizes."""
    inputs = stages.graph.inputs
    slot_of: dict[Node | Scratch | str, int] = {}
    for number, node in enumerate(inputs):
        slot_of.setdefault(node, number)
    slot_of.update({name: len(inputs) + i for i, name in enumerate(sizes)})
    inner = _bodies(stages, target) if stages.inner else {}
    between = live_ranges(stages.fusion.groups, stages.joined, sizes, stages.over)
    lives: dict[Node | Scratch, LiveRange] = dict(between.items())
    for held in inner.values():
        for piece in held.scratch:
            lives[piece] = LiveRange(piece.nbytes, piece.step, piece.step)
    calls_ranks = any(g.apart is not None and g.apart.op is WAIT for g in stages.fusion.groups)
    posted = posted_steps(stages) if calls_ranks and target.posts_collectives else {}
    calls = [
        step
        for step, g in enumerate(stages.fusion.groups)
        if _on_host(g, stages) and step not in posted
    ]
    kept = [v for v, life in lives.items() if any(life.first <= c <= life.last for c in calls)]
    context = [Scratch(-1, 0, CONTEXT_BYTES)] if posted else []
    made = [v for v in dict.fromkeys((*made_results(stages), *kept, *context)) if v not in slot_of]
    for number, value in enumerate(made, len(inputs) + len(sizes)):
        slot_of[value] = number
    temporary = [v for v in lives if v not in slot_of]
    arena = plan_arena([lives[v] for v in temporary])
    first = len(inputs) + len(sizes) + len(made)
    for number, value in enumerate(temporary, first):
        slot_of[value] = number
    for value in stages.over:
        slot_of[value] = slot_of[lowest(value, stages.over)]
    steps = list(_calls(stages, slot_of, inner, target, posted))
    late = _late(stages, [*calls, *posted]) if stages.in_place or stages.replacing.others else set()
    number_of = {value: number for number, value in enumerate(made)}
    layout = Layout(
        tuple(call for _, call in steps),
        len(inputs),
        tuple([v.nbytes if isinstance(v, Scratch) else bytes_at(v, sizes) for v in made]),
        tuple(slot_of[r] for r in stages.results),
        tuple((first + i, offset) for i, offset in enumerate(arena.offsets)),
        arena.nbytes,
        arena.peak_live,
        sizes=tuple(sizes.values()),
        in_place=tuple(
            (number_of[v], slot_of[i]) for v, i in stages.in_place.items() if v in late
        ),
        reusable=tuple(number_of[v] for v in stages.replacing.others if v in late),
        check=_check(stages, [step for step, _ in steps], posted) if late else -1,
        raises=stages.raises,
        context=slot_of[context[0]] if context else -1,
    )  # fmt: skip
    if config.verify:
        verify_layout(stages, layout)
    return layout


def _bodies(stages: Stages, target: Backend) -> dict[int, BodyPlan]:
    """What is known of each native control-flow step before slots are assigned, by step."""
    found: dict[int, BodyPlan] = {}
    native = target.control_flow()
    for step, group in enumerate(stages.fusion.groups):
        if group.apart is not None and group.apart in stages.inner:
            assert native is not None, "bodies are lowered for a backend that runs them"
            parts = [lay_out(part, target) for part in stages.inner[group.apart]]
            found[step] = native.plan(step, group, parts)
    return found


def _flag_step(stages: Stages) -> int:
    """The step after which the index flag is known; -1 if before all."""
    flag = stages.replacing.flag
    steps = [s for s, g in enumerate(stages.fusion.groups) if flag is not None and flag in g.values]
    return steps[0] if steps else -1


def _check(stages: Stages, steps: Sequence[int], posted: Collection[int]) -> int:
    """The number of the first call after the index flag is known; -1 if there is none.

    Collectives come before: other ranks wait for them.
    """
    flag = _flag_step(stages)
    last = max((flag, *posted))
    return -1 if flag < 0 else sum(step <= last for step in steps)


def _late(stages: Stages, library_calls: Sequence[int]) -> set[Node]:
    """Values written after everything that may raise: they may overwrite what they replace."""
    replacing = stages.replacing
    last = max([_flag_step(stages), *library_calls])
    if replacing.flag is not None and last < 0:
        return set()  # a flag that is no kernel's result
    return {
        value
        for step, group in enumerate(stages.fusion.groups)
        if step > last
        for value in written(group)
        if value in stages.in_place or value in replacing.others
    }


def library_call_name(node: Node) -> str:
    """The name of a library call: its op, and a hash of its settings and operands."""
    text = repr((node.attrs, [operand.type for operand in node.inputs]))
    return f"{node.op.name}_{fingerprint(text, 8)}"


def made_results(stages: Stages) -> list[Node]:
    """The results with buffers of their own, none of them an input, in memory order."""
    given = set(stages.graph.inputs)
    return [value for value in dict.fromkeys(stages.results) if value not in given]


def bytes_at(value: Node, sizes: Mapping[str, int]) -> int:
    """The bytes of a value at given symbolic sizes."""
    if not sizes:
        return nbytes(value)
    return prod([evaluate(size, sizes) for size in value.shape]) * value.dtype.itemsize


def grows_with_sizes(stages: Stages) -> bool:
    """True if memory grows monotonically with the sizes, and there is no NumPy call."""
    groups = stages.fusion.groups
    values = {*stages.results, *(value for group in groups for value in written(group))}
    grow = all(never_shrinks(size) for value in values for size in value.shape)
    return grow and not any(_on_host(group, stages) for group in groups)


def _on_host(group: FusionGroup, stages: Stages) -> bool:
    """True for a NumPy call, which runs between native plans."""
    node = group.apart
    return node is not None and node not in stages.inner and group.views is None


def written(group: FusionGroup) -> tuple[Node, ...]:
    """The values that a kernel or a call writes to memory."""
    return group.values if group.apart is not None else group.loops.slots[group.loops.reads :]


def _calls(
    stages: Stages,
    slot_of: SlotOf,
    inner: Mapping[int, BodyPlan],
    target: Backend,
    posted: Mapping[int, int],
) -> Iterator[tuple[int, Call]]:
    """The calls, each with the number of its group; steps that are `posted` have their starts."""
    position = {node: i for i, node in enumerate(stages.order)}
    context = slot_of[Scratch(-1, 0, CONTEXT_BYTES)] if posted else -1
    kernels = iter(stages.kernels)
    last_of = {step: members[-1] for members in stages.joined for step in members}
    together: list[CompiledKernel] = []
    for step, group in enumerate(stages.fusion.groups):
        if group.apart is not None:
            node = group.apart
            read = sources(node, stages.graph, group.views)
            now = group.shown
            given = tuple(slot_of[now.get(source, source)] for source in read)
            made = [proj(node, i) for i in range(len(node.types))]
            outputs = tuple(slot_of.get(now.get(value, value), -1) for value in made)
            if step in posted:
                yield step, posted_call(step, posted, context, stages, position, slot_of)
            elif step in inner:
                yield step, inner[step].call(position[node], given, outputs, slot_of)
            elif group.views is not None:
                library_op = target.library_op(node)
                assert library_op is not None, "what has views is a library call"
                started = library_op.launch(group)
                if started is not None:
                    yield step, KernelCall(library_call_name(node), (*given, *outputs), started)
            else:
                yield step, HostCall(position[node], given, outputs)
            continue
        compiled = next(kernels)
        if step in last_of:
            together.append(compiled)
            if step == last_of[step]:
                yield step, _joined(together, slot_of, target)
                together = []
            continue
        kernel = compiled.kernel
        slots = tuple(slot_of[value] for value in compiled.values)
        slots += tuple(slot_of[name] for name in kernel.sizes)
        started = target.launch(group, kernel)
        if started is not None:
            yield step, KernelCall(kernel.name, slots, started)


def _joined(parts: Sequence[CompiledKernel], slot_of: SlotOf, target: Backend) -> JoinedCall:
    together = target.horizontal_fusion()
    assert together is not None, "kernels are joined for a backend that starts them as one"
    symbol, started = together.join(parts)
    slots = tuple(slot_of[value] for value in shared_values(parts))
    return JoinedCall(symbol, tuple(part.kernel.name for part in parts), slots, started)


def shared_values(parts: Sequence[CompiledKernel]) -> list[Node]:
    """The distinct values that some kernels read and write."""
    return list(dict.fromkeys(value for part in parts for value in part.values))


def live_ranges(
    groups: Sequence[FusionGroup],
    joined: Sequence[Sequence[int]],
    sizes: Mapping[str, int],
    over: Mapping[Node, Node],
) -> dict[Node, LiveRange]:
    """When each written value is live, by step; one that lies `over` another extends it.

    Steps that are `joined` count as one.
    """
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    together = {step: members for members in joined for step in members}
    started: dict[Node, int] = {}  # collectives, which write from then on
    for step, group in enumerate(groups):
        members = together.get(step, (step,))
        begin, end = members[0], members[-1]
        if group.apart is not None and group.apart.op is WAIT:
            begin = started.get(group.apart.inputs[0], begin)
        elif group.apart is not None:
            started[group.apart] = begin
        for value in written(group):
            memory = lowest(value, over)
            first.setdefault(memory, begin)
            last[memory] = end
        for value in group.reads:
            last[lowest(value, over)] = end
    return {v: LiveRange(bytes_at(v, sizes), first[v], last[v]) for v in first}


def lowest(value: Node, over: Mapping[Node, Node]) -> Node:
    """The value whose buffer another one reuses, or the value itself."""
    while value in over:
        value = over[value]
    return value


# ---- the form on disk ----------------------------------------------------------------------------


def to_text(layout: Layout) -> str:
    """A layout as one line of JSON: objects are lists that begin with the name of their class."""
    return json.dumps(_data(layout))


def from_text(text: str | bytes, launch_types: Iterable[type]) -> Layout:
    """The layout that `to_text` wrote, with launches of these types."""
    known = (KernelCall, JoinedCall, HostCall, PostCall, AwaitCall, Layout, *launch_types)
    layout = _value(json.loads(text), {kind.__name__: kind for kind in known})
    assert isinstance(layout, Layout)
    return layout


def _data(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, *(_data(getattr(value, f.name)) for f in fields(value))]
    return ["", *map(_data, value)] if isinstance(value, tuple) else value


def _value(data: Any, known: Mapping[str, type]) -> Any:
    if not isinstance(data, list):
        return data
    name, *parts = data
    values = tuple(_value(part, known) for part in parts)
    return known[name](*values) if name else values


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A value's size in bytes, and the first and last step at which it is live."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """The offset of each value, the size of the arena, and the lower bound on that size."""

    offsets: tuple[int, ...]
    nbytes: int
    peak_live: int


def plan_arena(ranges: Sequence[LiveRange]) -> ArenaPlan:
    """Place the largest values first, each at the lowest offset that is free while it is live."""
    sizes = [-(-r.nbytes // ALIGNMENT) * ALIGNMENT for r in ranges]
    order = sorted(range(len(ranges)), key=lambda i: (-sizes[i], ranges[i].first))
    offsets = [0] * len(ranges)
    placed: list[int] = []
    for current in order:
        own = ranges[current]
        taken = sorted(
            (offsets[i], offsets[i] + sizes[i])
            for i in placed
            if ranges[i].first <= own.last and own.first <= ranges[i].last
        )
        offset = 0
        for start, end in taken:
            if start - offset >= sizes[current]:
                break
            offset = max(offset, end)
        offsets[current] = offset
        placed.append(current)
    total = max((offsets[i] + sizes[i] for i in placed), default=0)
    return ArenaPlan(tuple(offsets), total, _peak_live(ranges, sizes))


def _peak_live(ranges: Sequence[LiveRange], sizes: Sequence[int]) -> int:
    steps = range(max((r.last for r in ranges), default=-1) + 1)
    live = [0] * (len(steps) + 1)
    for own, size in zip(ranges, sizes):
        live[own.first] += size
        live[own.last + 1] -= size
    peak = running = 0
    for change in live:
        running += change
        peak = max(peak, running)
    return peak


# ---- what every layout is, as checks -------------------------------------------------------------


def verify_layout(stages: Stages, layout: Layout) -> None:
    """Check that temporaries that share memory are never live together and fit the arena."""
    alive, sizes = lives(layout), _sizes(stages, layout)
    # what has no bytes shares none
    placed = sorted((offset, slot) for slot, offset in layout.arena if sizes.get(slot, 0))
    for number, (offset, slot) in enumerate(placed):
        end = offset + sizes[slot]
        require(end <= layout.arena_bytes, "a temporary lies in the arena", slot, offset, end)
        for other, at in ((s, o) for o, s in placed[number + 1 :]):
            if at >= end:
                break
            first, second = alive[slot], alive[other]
            apart = first[1] < second[0] or second[1] < first[0]
            require(apart, "what shares memory is not alive at one time", slot, other)


def lives(layout: Layout) -> dict[int, tuple[int, int]]:
    """The first and the last call that touch each slot."""
    found: dict[int, tuple[int, int]] = {}
    for number, call in enumerate(layout.calls):
        for slot in _touched(call):
            found[slot] = (found.get(slot, (number, 0))[0], number)
    return found


def _touched(call: Any) -> Sequence[int]:
    if isinstance(call, (KernelCall, JoinedCall)):
        return [slot for slot in call.slots if slot >= 0]
    if isinstance(call, (PostCall, AwaitCall)):
        return [s for s in (call.context, call.ticket, call.result, *call.operands) if s >= 0]
    return (*call.inputs, *call.outputs) if isinstance(call, HostCall) else ()


def _sizes(stages: Stages, layout: Layout) -> Mapping[int, int]:
    """The bytes of the slots of kernels with a launch of their own."""
    values = {k.kernel.name: k for k in stages.kernels}
    found: dict[int, int] = {}
    for call in layout.calls:
        if isinstance(call, KernelCall) and call.symbol in values:
            kernel = values[call.symbol].kernel
            for slot, buffer in zip(call.slots, kernel.params):
                sizes = [int(s.value) for s in buffer.shape if isinstance(s, Const)]
                held = prod(sizes) * buffer.dtype.itemsize
                found[slot] = max(found.get(slot, 0), held)
    return found
