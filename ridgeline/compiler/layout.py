"""A program as data: slots, calls and the arena: what the disk cache keeps beside the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ridgeline.fusion.groups import Group
from ridgeline.fusion.values import in_memory, nbytes
from ridgeline.graph.node import Node, proj
from ridgeline.loops.ir import Kernel
from ridgeline.runtime.arena import LiveRange, plan_arena

if TYPE_CHECKING:
    from ridgeline.compiler.stages import Stages

Launch = Callable[[Group, Kernel], tuple[Any, ...] | None]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One step of a program: which kernel, over which slots, started how (the backend's data)."""

    symbol: str
    slots: tuple[int, ...]
    launch: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """A library call between kernels: which node (by place in the graph), over which slots."""

    node: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Slots are the inputs, then buffers made for each run (results first), then the arena's."""

    calls: tuple[KernelCall | HostCall, ...]
    inputs: int
    made: tuple[int, ...]  # bytes of every buffer made for a run
    returns: tuple[int, ...]  # for each output: a slot among the inputs or the buffers made
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    peak_live: int
    checked: bool = False  # the last output is a flag: an index was out of range


def lay_out(stages: Stages, inputs: Sequence[Node], launch: Launch) -> Layout:
    """Slots, arena and launches for scheduled kernels."""
    slot_of: dict[Node, int] = {}
    for number, node in enumerate(inputs):
        slot_of.setdefault(node, number)
    lives = _live_ranges(stages)
    calls = [step for step, g in enumerate(stages.fusion.groups) if g.host]
    kept = [v for v, life in lives.items() if any(life.first <= c <= life.last for c in calls)]
    made = [v for v in dict.fromkeys((*stages.results, *kept)) if v not in slot_of]
    for number, node in enumerate(made, len(inputs)):
        slot_of[node] = number
    temporary = [v for v in lives if v not in slot_of]
    arena = plan_arena([lives[v] for v in temporary])
    first = len(inputs) + len(made)
    for number, value in enumerate(temporary, first):
        slot_of[value] = number
    return Layout(
        tuple(_calls(stages, slot_of, launch)),
        len(inputs),
        tuple(map(nbytes, made)),
        tuple(slot_of[r] for r in stages.results),
        tuple((first + i, offset) for i, offset in enumerate(arena.offsets)),
        arena.nbytes,
        arena.peak_live,
    )


def _stored(group: Group) -> tuple[Node, ...]:
    return group.values if group.host else group.loops.slots[group.loops.reads :]


def _calls(
    stages: Stages, slot_of: dict[Node, int], launch: Launch
) -> Iterator[KernelCall | HostCall]:
    place = {node: i for i, node in enumerate(stages.order)}
    kernels = iter(stages.kernels)
    for group in stages.fusion.groups:
        if group.host is not None:
            node = group.host
            sources = tuple(slot_of[in_memory(i, slot_of.__contains__)] for i in node.inputs)
            outputs = tuple(slot_of.get(proj(node, i), -1) for i in range(len(node.types)))
            yield HostCall(place[node], sources, outputs)
            continue
        compiled = next(kernels)
        slots = tuple(slot_of[group.loops.slots[b.slot]] for b in compiled.kernel.params)
        started = launch(group, compiled.kernel)
        if started is not None:
            yield KernelCall(compiled.kernel.name, slots, started)


def _live_ranges(stages: Stages) -> dict[Node, LiveRange]:
    """When each written value is in use, by step."""
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, group in enumerate(stages.fusion.groups):
        for value in _stored(group):
            first[value] = last[value] = step
        for value in group.reads:
            last[value] = step
    return {v: LiveRange(nbytes(v), first[v], last[v]) for v in first}


def layout_data(layout: Layout) -> dict[str, object]:
    """A layout as lists and numbers."""
    calls = [
        ["kernel", c.symbol, c.slots, c.launch] if isinstance(c, KernelCall)
        else ["host", c.node, c.inputs, c.outputs]
        for c in layout.calls
    ]  # fmt: skip
    return {**{f.name: getattr(layout, f.name) for f in fields(Layout)}, "calls": calls}


def layout_from(data: dict[str, Any]) -> Layout:
    """The layout that `layout_data` wrote down."""
    calls = tuple(
        (KernelCall if kind == "kernel" else HostCall)(first, _tuples(second), _tuples(third))
        for kind, first, second, third in data.pop("calls")
    )
    data["arena"] = _tuples(data["arena"])
    data["made"], data["returns"] = tuple(data["made"]), tuple(data["returns"])
    return Layout(calls, **data)


def _tuples(data: Any) -> Any:
    return tuple(map(_tuples, data)) if isinstance(data, list) else data
