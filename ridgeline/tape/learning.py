"""What is looked at when a call is learnt or matched: what came of it, what it left as it was."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from types import FrameType
from typing import Any

from ridgeline.graph.origins import here, running
from ridgeline.record.cells import GRAPH, LEAF, Cell
from ridgeline.record.modes import modes
from ridgeline.record.recorder import RanRule
from ridgeline.tape import varying
from ridgeline.tape.copies import is_foreign
from ridgeline.tape.entries import (
    BLOCK,
    MADE,
    MOST_TRIED,
    Entry,
    Gradient,
    Look,
    Many,
    NotTaped,
    Place,
    Ref,
    Shown,
    Spent,
    Write,
    numbers_in,
)
from ridgeline.tape.memory import is_closed, is_joint, is_resident
from ridgeline.tape.run import Run
from ridgeline.tape.ways import note_way
from ridgeline.tensors.differentiable import Extra
from ridgeline.tensors.tensor import Tensor

MOST_CALLS = 1 << 12  # of one tape
MOST_ALIKE = 8  # calls of a line that differ in something else than whole numbers and lengths
MOST_NEXT = 512  # all that may come from there, at a place


def may_learn(run: Run, function: Any, args: Any, named: Any, frame: FrameType) -> bool:
    """True where there is room for one more call of a line at this place of the tape."""
    if run.calls > MOST_CALLS:
        return False
    place = run.at
    if len(place.next.get(function, ())) < MOST_TRIED:
        return True
    at_line = place.at_line(function, (frame.f_code, frame.f_lasti), here())
    alike = at_line.get(numbers_in((*args, *named.values())), ())
    return len(alike) < MOST_ALIKE and len(at_line) < MOST_NEXT


def described(
    run: Run, function: Any, args: tuple[Any, ...], named: Any, tensors: list[Tensor],
    frame: FrameType, writers: set[Any],
) -> Entry:  # fmt: skip
    """A call as an entry, without what comes of it."""
    run.forget_trial()
    count = run.count
    blocks = function not in writers
    numbers = varying.described(run, function, args, named)
    values = [
        numbers.get(place) or run.describe(value, tensors, blocks)
        for place, value in enumerate((*args, *named.values()))
    ]
    return Entry(
        function, tuple(values), tuple(named), here(3), (frame.f_code, frame.f_lasti),
        modes.gradients, modes.autocast, bound=count,
        numbers=tuple([(place, number.index) for place, number in numbers.items()]),
    )  # fmt: skip


def is_transparent(run: Run, made: Any, tensors: list[Tensor], before: list[Any]) -> bool:
    """True where a call only showed memory from outside, or copied it."""
    results: list[Tensor] = []
    collect((made,), results)
    if any(tensor._cell.run is run for tensor in (*tensors, *results)):
        return False
    if not all(map(is_settled, results)):
        return False
    writes = any(tensor._cell.version != state[1] for tensor, state in zip(tensors, before))
    return writes or all(tensor._track.mode != LEAF for tensor in tensors)


def shown_alike(place: Place, entry: Entry) -> list[Entry]:
    """The transparent calls of the same line that came here under the same modes."""
    at_line = place.at_line(entry.function, entry.caller, entry.mark)
    modes_of = attrgetter("gradients", "autocast")
    return [
        e for known in at_line.values() for e in known
        if e.transparent and modes_of(e) == modes_of(entry)
    ]  # fmt: skip


def looked_at(run: Run, looks: list[Any]) -> tuple[Look, ...]:
    """What a call asked about memory from outside; what it made itself is always the same."""
    if not looks:
        return ()
    numbers = {id(found.node): number for number, found in run.outside.items()}
    found: list[Look] = []
    for node, question, answer in looks:
        number = numbers.get(id(node))
        if number is not None:
            found.append(Look(number, question, answer))
        elif not run.made_of_constants(node.buffer):
            raise NotTaped("values that may come from a tensor")
    return tuple(found)


def is_settled(value: Any) -> bool:
    """True for arguments without tensors that the tape made or that have no plain memory."""
    if isinstance(value, Tensor):
        cell, track = value._cell, value._track
        return cell.types is None and (is_foreign(cell, track) or is_resident(cell, track))
    return all(map(is_settled, value)) if type(value) in (list, tuple) else True


def is_spent(cell: Cell | None) -> bool:
    return cell is not None and cell.mode == GRAPH and cell.rare is not None and cell.rare.spent


def let_go(run: Run, number: int) -> Spent:
    """How much of the graph of a tensor was let go."""
    cell = run.cell(number)
    details = None if cell is None else cell.rare
    if details is None or details.behind is None:
        raise NotTaped("a graph that leads to something else")
    references, lost = details.behind
    owners = [reference() for reference in references]
    numbers = [None if o is None else run.numbers.get(id(o._cell)) for o in owners]
    known = tuple([n for n, o in zip(numbers, owners) if n is not None and run.owner(n) is o])
    if len(known) != len(owners):
        raise NotTaped("a graph that leads to something else")
    return Spent(number, lost, known)


def alike(result: Any, other: Any) -> bool:
    """True where two results of a call are of the same kinds."""
    if type(result) is Shown and type(other) is Shown:
        parts = (result.number, result.new, result.type, result.mode, result.track, result.steps)
        return parts == (other.number, other.new, other.type, other.mode, other.track, other.steps)
    if type(result) is Many and type(other) is Many:
        return len(result.parts) == len(other.parts) and all(map(alike, result.parts, other.parts))
    return bool(result == other)


def refs(values: Any) -> list[Ref]:
    """The tensors among the arguments of an entry, in order."""
    found: list[Ref] = []
    for value in values:
        if type(value) is Ref:
            found.append(value)
        elif type(value) is Many:
            found += refs(value.parts)
    return found


def collect(values: Any, tensors: list[Tensor]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            collect(value, tensors)


def accumulates(run: Run, entry: Entry) -> bool:
    """True where the variables of a backward pass have gradients, or none, as they had."""
    for gradient in entry.grads:
        owner = run.owner(gradient.owner)
        if owner is None:
            return False
        extra: Extra | None = owner._extra
        grad = None if extra is None else extra.grad
        if extra is not None and (extra.hooks or extra.after):
            return False
        if gradient.before is None:
            if grad is not None:
                return False
        elif grad is None or not run.is_at(grad, gradient.before):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a call while it was recorded."""

    tensors: list[Tensor]  # that it was given
    before: list[Any]  # their cells, versions and modes before it
    gradients: list[tuple[Tensor, Ref | None]]  # that it added to, with what was there
    draws: list[tuple[Any, int]]
    rules: tuple[RanRule, ...]  # of users, that it ran
    writers: set[Any]  # functions that write through views of memory, which grows


def note_effects(run: Run, entry: Entry, made: Any, seen: Observed) -> None:
    """Note what a call did besides giving its result, and that."""
    writes: dict[int, Write] = {}
    tracks: list[tuple[int, int]] = []
    kinds = [ref.kind for ref in refs(entry.args)]
    for place, (tensor, (cell, version, mode, track)) in enumerate(zip(seen.tensors, seen.before)):
        if tensor._cell is not cell:
            raise NotTaped("a tensor was given other memory")
        own = tensor._track is cell or tensor._track.mode == LEAF
        if cell.version != version and not own and tensor._track.rare is not None:
            raise NotTaped("a write to what was a variable")
        if cell.version != version and kinds[place] == BLOCK:
            seen.writers.add(entry.function)
            raise NotTaped("a write through a block")
        number = cell.slot if cell.run is run else run.numbers.get(id(cell))
        if cell.version != version or cell.mode != mode:
            if mode == GRAPH and cell.run is not run:
                known = None if number is None else run.outside.get(number)
                if known is None or not is_joint(known.node):
                    raise NotTaped("a write to what keeps a graph")
            if number is None or cell.node.buffer is not None:
                raise NotTaped("a write that has its value")
            writes[number] = Write(number, cell.version - version, cell.mode)
        if tensor._track is not cell and tensor._track.mode != track:
            tracks.append((place, tensor._track.mode))
    entry.bound = run.count
    entry.result = run.template(made, seen.tensors)
    if _carries_graph(entry.result) and any(_leads_back(run, ref) for ref in refs(entry.args)):
        raise NotTaped("an operand with a graph of before the last flush")
    gradients = _learnt_gradients(run, seen, writes)
    entry.writes, entry.tracks = tuple(writes.values()), tuple(tracks)
    entry.draws, entry.grads, entry.rules = tuple(seen.draws), gradients, seen.rules
    for number in writes:
        if number in run.outside:
            run.wrote(number)
    if run.let_go == running.let_go:  # most calls are no backward passes, and made are many
        entry.spent = ()
        return
    run.let_go = running.let_go
    spent = [n for n, ref in run.made.items() if n not in run.spent and is_spent(ref())]
    entry.spent = tuple([let_go(run, number) for number in spent])
    run.spent.update(spent)


def note_kind(entry: Entry) -> None:
    """Note whether a call does nothing but to give its result, or one new tensor."""
    entry.plain = not (entry.writes or entry.tracks or entry.draws or entry.grads or entry.spent)
    result = entry.result
    new = type(result) is Shown and result.new and not result.steps and result.track == -1
    entry.single = result if entry.plain and new else None
    note_way(entry)


def does_the_same(run: Run, entry: Entry, made: Any, seen: Observed) -> None:
    """Number the tensors that a known call gave; raises where it did not do what it did before."""
    again = Entry(
        entry.function, entry.args, entry.names, entry.mark, entry.caller, entry.gradients,
        entry.autocast,
    )  # fmt: skip
    note_effects(run, again, made, seen)
    effects = again.writes, again.tracks, again.draws, len(again.grads), again.rules
    known = entry.writes, entry.tracks, entry.draws, len(entry.grads), entry.rules
    if effects != known or not alike(again.result, entry.result):
        raise NotTaped("a call that does something else")
    entry.spent = again.spent
    note_kind(entry)


def _leads_back(run: Run, ref: Ref) -> bool:
    """True for a tensor with a graph of before the last flush, which is none of the tape's."""
    outside = None if ref.kind == MADE else run.outside.get(ref.number)
    if ref.mode != GRAPH or outside is None:
        return False
    return not (is_closed(outside.node) or is_joint(outside.node))


def _learnt_gradients(run: Run, seen: Observed, writes: dict[int, Write]) -> tuple[Gradient, ...]:
    """The gradients that a backward pass made or added to."""
    found: list[Gradient] = []
    for owner, before in seen.gradients:
        cell, grad = owner._cell, owner._details().grad
        number = run.numbers.get(id(cell)) if cell.run is not run else cell.slot
        if number is None or grad is None or run.owner(number) is not owner:
            raise NotTaped("a gradient of something else")
        if before is None:
            own = grad._cell
            if grad._steps or grad._track is not own or own.rare is not None:
                raise NotTaped("a gradient that is a view")
            if own.node.buffer is not None or own.run is run:
                raise NotTaped("a gradient that has its value")
            kind = own.node.types[0]
            found.append(Gradient(number, None, run.adopt(own), kind, own.mode))
        else:
            target = grad._cell
            if target.node.buffer is not None:
                raise NotTaped("a gradient that has its value")
            writes[before.number] = Write(before.number, 1, target.mode)
            kind = target.node.types[0]
            found.append(Gradient(number, before, before.number, kind, target.mode))
    return tuple(found)


def _carries_graph(result: Any) -> bool:
    """True where gradients flow through a result of a call."""
    if type(result) is Many:
        return any(map(_carries_graph, result.parts))
    return type(result) is Shown and result.mode == GRAPH
