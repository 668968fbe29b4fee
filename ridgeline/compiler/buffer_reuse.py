"""Values that take the memory of what their kernel reads, where a program needs most memory.

The step at which most is alive is looked for. Where its kernel reads a temporary for the last time
and writes another of the same size, and may do so in place, the two are one memory; then the next
such step is looked for. Elsewhere nothing would be won: the arena is as large as it has to be at
its fullest moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.compiler.memory_plan import live_ranges
from ridgeline.fusion.groups import Group
from ridgeline.graph.node import Node
from ridgeline.loops.analysis.aliasing import in_place
from ridgeline.loops.text.printer import named
from ridgeline.runtime.arena import LiveRange

if TYPE_CHECKING:
    from ridgeline.compiler.stages import CompiledKernel

LEAST = 64 << 20  # bytes that are worth a kernel whose loads and stores keep their order
_MOST = 8  # kernels that are changed


def overlay(
    groups: Sequence[Group],
    joined: Sequence[Sequence[int]],
    kernels: list[CompiledKernel],
    fixed: Collection[Node],
) -> dict[Node, Node]:
    """For some values the one whose memory they take; their kernels are replaced in the list.

    Values that are `fixed` have memory of their own. Kernels that are `joined` stay as they are.
    """
    place = {id(compiled.group): number for number, compiled in enumerate(kernels)}
    over: dict[Node, Node] = {}
    seen = {step for members in joined for step in members}
    while len(over) < _MOST:
        lives = {
            v: life for v, life in live_ranges(groups, joined, {}, over).items() if v not in fixed
        }
        step = _fullest(lives)
        number = None if step is None or step in seen else place.get(id(groups[step]))
        if step is None or number is None:
            break
        seen.add(step)
        compiled = kernels[number]
        kernel, found = in_place(compiled.kernel, _pairs(compiled.group, lives, step))
        if not found:
            break
        kernel = named(replace(kernel, name=compiled.group.name))
        kernels[number] = replace(compiled, kernel=kernel)
        slots = compiled.group.loops.slots
        over.update({slots[written]: slots[read] for written, read in found.items()})
    return over


def _fullest(lives: Mapping[Node, LiveRange]) -> int | None:
    """The step at which most bytes are alive."""
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


def _pairs(group: Group, lives: Mapping[Node, LiveRange], step: int) -> dict[int, int]:
    """Slots (written: read) of a kernel that would be one memory."""
    slots, reads = group.loops.slots, group.loops.reads
    ending = [
        number for number, value in enumerate(slots[:reads])
        if value in lives and lives[value].last == step and _known(value)
    ]  # fmt: skip
    found: dict[int, int] = {}
    for number, value in enumerate(slots[reads:], reads):
        life = lives.get(value)
        if life is None or life.nbytes < LEAST or not _known(value):
            continue
        same = [r for r in ending if lives[slots[r]].nbytes == life.nbytes]
        if same:
            found[number] = same[0]
            ending.remove(same[0])
    return found


def _known(value: Node) -> bool:
    return all(isinstance(size, int) for size in value.shape)
