"""What is looked at when a call is learnt or matched: what came of it, what it left as it was."""

from __future__ import annotations

from typing import Any

from ridgeline.record.cells import GRAPH, LEAF, Cell
from ridgeline.tape.entries import Entry, Look, Many, NotTaped, Ref, Shown, Spent
from ridgeline.tape.run import Run, is_resident
from ridgeline.tensors.differentiable import Extra
from ridgeline.tensors.tensor import Tensor


def is_transparent(run: Run, made: Any, tensors: list[Tensor], before: list[Any]) -> bool:
    """True where a call only showed memory from outside, or copied it."""
    results: list[Tensor] = []
    collect((made,), results)
    if any(tensor._cell.run is run for tensor in (*tensors, *results)):
        return False
    if not all(is_resident(tensor._cell, tensor._track) for tensor in results):
        return False
    writes = any(tensor._cell.version != state[1] for tensor, state in zip(tensors, before))
    return writes or all(tensor._track.mode != LEAF for tensor in tensors)


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
        return value._cell.types is None and is_resident(value._cell, value._track)
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
