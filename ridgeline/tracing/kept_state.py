"""Tensors that a function stores in objects and reads there again, such as `self.last = y`.

While a function is traced, assignments of new tensors to attributes and entries of dicts that lie
outside are noted as `StateWrite`s, and so is what `list.append` adds. A replay does them again with
the tensors of its own call. What was there before is no condition of the trace, unless the function
reads it: then it is an input, found anew in every call (`StateInput`), as long as it is of the same
kind. Anything else that changes such a place makes the function open.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ridgeline.graph.node import TensorType
from ridgeline.record.cells import CUT, LEAF, Cell
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.guards import snapshot
from ridgeline.tracing.reads.notes import MISSING, SCALARS, Read

if TYPE_CHECKING:
    from ridgeline.tracing.capture import Capture


_ATTRIBUTES = ("attribute", "own")
_SINGLE = (*_ATTRIBUTES, "key", "item")  # looks at one value


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """An attribute in an object's own table, an entry of a dict, or the end of a list."""

    owner: Any
    key: Any  # None for the end of a list
    attribute: bool

    def __str__(self) -> str:
        if self.key is None:
            return f"the end of list {id(self.owner):x}"
        return f"{self.key!r} of {type(self.owner).__name__} {id(self.owner):x}"

    @property
    def table(self) -> Any:
        """The dict or the list that holds the value now."""
        return vars(self.owner) if self.attribute else self.owner

    def now(self) -> Any:
        """The value that is there now."""
        return self.table.get(self.key, MISSING)

    def kept(self) -> Any:
        """What `restore` needs to undo later changes."""
        return len(self.owner) if self.key is None else self.now()

    def restore(self, kept: Any) -> None:
        """Undo the changes since `kept`."""
        if self.key is None:
            del self.owner[kept:]
        elif kept is MISSING:
            self.table.pop(self.key, None)
        else:
            self.table[self.key] = kept

    def put(self, value: Any) -> Callable[[], object]:
        """The C call that stores a value there."""
        if self.key is None:
            return partial(list.append, self.owner, value)
        return partial(dict.__setitem__, self.table, self.key, value)


@dataclass(frozen=True, slots=True)
class StateWrite:
    """What a call stored at a location, and what was there when it began."""

    location: Location
    value: Any
    before: Any


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store as a replay makes it: nested leaves that are results of the call or plain values."""

    location: Location
    structure: Hashable
    leaves: tuple[Any, ...]

    @property
    def adds(self) -> bool:
        """True for what is appended to a list."""
        return self.location.key is None

    def call(self, made: Sequence[Any]) -> Callable[[], object]:
        """The C call that stores these leaves."""
        return self.location.put(unflatten(self.structure, list(made)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a tensor must be like to replace the one that was traced."""

    type: TensorType
    mode: int
    steps: Any

    @classmethod
    def of(cls, tensor: Tensor) -> _Kind:
        mode = max(tensor._track.mode, CUT)  # plain or cut off: no gradient flows either way
        return cls(tensor._cell.node.types[0], mode, tensor._steps)


class Held:
    """Tensors that the function found at a location to which it also stores."""

    def __init__(self, location: Location, found: Any) -> None:
        leaves: list[Any] = []
        self._location, self._structure = location, flatten(found, leaves)
        self.tensors: tuple[Tensor, ...] = tuple(leaves)  # for the call that is traced
        self._thread = get_ident()
        self._kinds = [_Kind.of(tensor) for tensor in leaves]

    def __str__(self) -> str:
        return f"what is at {self._location}"

    def _leaves(self) -> tuple[Hashable, list[Any]]:
        leaves: list[Any] = []
        return flatten(self._location.now(), leaves), leaves

    def fits(self) -> bool:
        """True while there are tensors of the same kind, each a distinct tensor."""
        structure, leaves = self._leaves()
        if structure != self._structure or not all(isinstance(leaf, Tensor) for leaf in leaves):
            return False
        distinct = len({id(leaf._cell) for leaf in leaves}) == len(leaves)
        return distinct and [_Kind.of(leaf) for leaf in leaves] == self._kinds

    def is_like(self, value: Any) -> bool:
        """True for tensors of the same kind and nesting, as results of a call are."""
        leaves: list[Any] = []
        if flatten(value, leaves) != self._structure:
            return False
        kinds = [_Kind(leaf._type, max(leaf._resolved()[1].mode, CUT), ()) for leaf in leaves]
        return kinds == self._kinds

    def cell(self, number: int) -> Cell:
        """The cell of a tensor that is there now."""
        if self.tensors and self._thread == get_ident():  # Python has stored the next ones
            return self.tensors[number]._cell
        found: Cell = self._leaves()[1][number]._cell
        return found

    def forget_traced(self) -> None:
        """The traced call is over: from now on what is there counts."""
        self.tensors = ()


def _tensors(value: Any, fits: Callable[[Tensor], bool]) -> bool:
    """True for a tensor that fits, and for tuples of nothing else."""
    if type(value) is tuple:
        return bool(value) and all(_tensors(element, fits) for element in value)
    return type(value) is Tensor and fits(value)


@dataclass
class Stores:
    """The stores of one traced call, in order."""

    all: list[StateWrite] = field(default_factory=list)  # an owner lives as long as this
    _known: dict[tuple[int, Any], StateWrite] = field(default_factory=dict)  # the first at a place
    _owners: set[int] = field(default_factory=set)

    def add(self, location: Location, value: Any, capture: Any) -> bool:
        """A value is stored at a location; False if a replay cannot repeat that."""
        if not _tensors(value, lambda tensor: tensor._cell.capture is capture):
            return False
        at = (id(location.table), location.key)
        before = MISSING if location.key is None else location.now()
        first = self._known.get(at)
        store = StateWrite(location, value, before if first is None else first.before)
        self._known.setdefault(at, store)
        self._owners.add(id(location.table))
        self.all.append(store)
        return True

    def keep(self, is_outside: Callable[[Any], bool]) -> None:
        """Forget what was stored in objects that the function itself made."""
        self.all = [store for store in self.all if is_outside(store.location.owner)]

    def touches(self, table: Any) -> bool:
        """True for a container to which the function has stored."""
        return id(table) in self._owners

    def knows(self, table: Any, key: Any) -> bool:
        """True for a place to which the function has stored."""
        return (id(table), key) in self._known

    def stored(self, value: Any) -> bool:
        """True for the very object that the function has stored."""
        return any(store.value is value for store in self.all)

    def explain(self, obj: Any, before: Any) -> bool:
        """True if an object equals an image of it, apart from the stores."""
        return bool(self.all) and bool(snapshot(obj, self.as_before) == before)

    def as_before(self, container: Any) -> Any:
        """A container as it was before the stores."""
        if not self.touches(container):
            return container
        if isinstance(container, list):
            added = [store.value for store in self.all if store.location.owner is container]
            return container[: len(container) - len(added)]
        old = {key: self._known[id(container), key].before for key in container
               if self.knows(container, key)}  # fmt: skip
        merged = {key: old.get(key, value) for key, value in container.items()}
        return {key: value for key, value in merged.items() if value is not MISSING}

    def without(self, container: Any) -> Any:
        """A container without what the stores put there."""
        if not self.touches(container):
            return container
        if isinstance(container, list):
            return []
        return {k: v for k, v in container.items() if not self.knows(container, k)}

    def specs(self, spec_of: Callable[[Tensor], Any]) -> list[StoreSpec]:
        """The stores as replays make them: to each entry of a dict once, to a list every time."""
        last = {(id(s.location.table), s.location.key): s for s in self.all}
        found = []
        for store in self.all:
            key = store.location.key
            if key is None or last[id(store.location.table), key] is store:
                leaves: list[Any] = []
                structure = flatten(store.value, leaves)
                found.append(StoreSpec(store.location, structure, tuple(map(spec_of, leaves))))
        return found


def adopt(stores: Stores, reads: Sequence[Read], capture: Capture) -> list[Read]:
    """Make inputs of the tensors that the function found where it also stores; the other reads."""
    last = {(id(store.location.table), store.location.key): store.value for store in stores.all}
    kept = []
    for read in reads:
        owner = read.owner
        table = getattr(owner, "__dict__", None) if read.look in _ATTRIBUTES else owner
        key = (id(table), read.key) if read.look in _SINGLE and type(read.key) in SCALARS else None
        held = _held(read, last[key]) if key in last else None
        if held is None or not capture.hold(held):
            kept.append(read)
    return kept


def _held(read: Read, stored: Any) -> Held | None:
    """What was found, if the next call will find the same kind of thing."""
    if not _tensors(read.value, lambda tensor: tensor._track.mode != LEAF):
        return None
    location = Location(read.owner, read.key, read.look in _ATTRIBUTES)
    held = Held(location, read.value)
    return held if held.is_like(stored) else None
