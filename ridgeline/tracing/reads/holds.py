"""Guard checks: one generated function per trace says whether all that the trace read is unchanged.

The function compares by identity what it can, in one expression; keys of dictionaries only where
one of these has changed since. Only where it says no are reads looked at one by one: a container
that was replaced by an equal one is put in its place, and for anything else the first difference is
named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from ridgeline.runtime.cpu.dict_versions import DictVersions
from ridgeline.runtime.cpu.executor import unchanged
from ridgeline.tracing.reads.notes import (
    ALL,
    CONTAINERS,
    LOOKS,
    MISSING,
    SCALARS,
    Read,
    own_table,
    same,
    same_all,
    same_table,
)

_SOME_KEYS = 4  # of dictionaries, from which on asking whether any has changed takes less time
_INLINE = 8  # elements that are compared one by one in the generated expression
_ERRORS = "(KeyError, IndexError, AttributeError, TypeError, ValueError, NameError)"
_ALWAYS_ONE = (bool, type(None), type(Ellipsis))  # equal values are one object


class Guards:
    """The reads of a trace; `broken()` says which of them finds something else now."""

    def __init__(self, reads: Sequence[Read]) -> None:
        self._reads = _gathered(reads)
        self._names: dict[str, Any] = {
            "same": same, "same_all": same_all, "same_table": same_table, "MISSING": MISSING,
            **{f"look_{look.replace(' ', '_')}": how for look, how in LOOKS.items()},
        }  # fmt: skip
        terms = {number: self._term(number, read) for number, read in enumerate(self._reads)}
        counted = self._count_changes()
        keys = _conjunction([terms.pop(number) for number in counted])
        text = _conjunction(
            [*["(unchanged(table) or compared())"] * bool(counted), *terms.values()]
        )
        source = (
            f"def holds():\n    try:\n        return ({text})\n"
            f"    except {_ERRORS}:\n        return False\n"
            "def compared():\n    found = versions.now()\n"
            f"    if ({keys}):\n        versions.expect(found)\n        return True\n"
            "    return False\n"
        )
        exec(compile(source, "<guards>", "exec"), self._names)
        # true while everything is the same; where it is not, `broken` looks closer
        self.holds: Callable[[], bool] = self._names["holds"]

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def values(self) -> Iterable[Any]:
        """What was found by the reads."""
        for read in self._reads:
            if read.look in ALL:
                yield from read.value
            else:
                yield read.value

    def broken(self) -> str | None:
        """What changed, in words; None while everything is as it was."""
        return None if self.holds() else self._compared()

    # ---- the generated expression ---------------------------------------------------------------

    def _count_changes(self) -> list[int]:
        """The reads of dictionaries' keys, which are looked at where a dictionary has changed."""
        reads = enumerate(self._reads)
        looks = [(n, read.look) for n, read in reads if type(read.owner) is dict]
        keys = [number for number, look in looks if look in ("key", "table")]
        many = len(keys) >= _SOME_KEYS or any(look == "table" for _, look in looks)
        compare = unchanged() if many else None
        if compare is None:
            return []
        owners = {id(owner): owner for owner in (self._reads[n].owner for n in keys)}
        versions = DictVersions(list(owners.values()))
        self._names |= {"unchanged": compare, "versions": versions, "table": versions.address}
        return keys

    def _term(self, number: int, read: Read) -> str:
        owner, key, value = f"o{number}", f"k{number}", f"v{number}"
        self._names[owner], self._names[key], self._names[value] = read.owner, read.key, read.value
        shown = repr(read.key) if type(read.key) in (str, int) else key
        if read.look == "key":
            if read.value is MISSING:
                return f"{shown} not in {owner}"
            return self._is(f"{owner}[{shown}]", value, read.value)
        if read.look == "item":
            return self._is(f"{owner}[{shown}]", value, read.value)
        if read.look == "attribute" and read.value is not MISSING and read.key.isidentifier():
            return self._is(f"{owner}.{read.key}", value, read.value)
        if read.look == "own" and read.value is MISSING and _has_table(read.owner):
            return f"{shown} not in {owner}.__dict__"
        if read.look == "class entry" and read.value is not MISSING:
            return self._class_entry(number, read, shown)
        if read.look == "type":
            return f"type({owner}) is {value}"
        if read.look == "cell" and read.value is not MISSING:
            return self._is(f"{owner}.cell_contents", value, read.value)
        if read.look == "length":
            return f"len({owner}) == {read.value}"
        if read.look == "elements" and type(read.owner) is list and len(read.value) <= _INLINE:
            return self._elements(number, read)
        if read.look == "table":
            return f"same_table({owner}, {value})"
        call = f"look_{read.look.replace(' ', '_')}({owner}, {key})"
        if read.look in ALL:
            return f"same_all({call if read.look == 'values' else owner}, {value})"
        if read.look == "memory":
            return f"{call} == {value}"
        return self._is(call, value, read.value)

    def _is(self, found: str, name: str, value: Any) -> str:
        kind = type(value)
        if kind in SCALARS and kind not in _ALWAYS_ONE:
            return f"({found} is {name} or same({found}, {name}))"
        return f"{found} is {name}"

    def _elements(self, number: int, read: Read) -> str:
        terms = [f"len(o{number}) == {len(read.value)}"]
        for index, value in enumerate(read.value):
            name = f"e{number}_{index}"
            self._names[name] = value
            terms.append(self._is(f"o{number}[{index}]", name, value))
        return " and ".join(terms)

    def _class_entry(self, number: int, read: Read, shown: str) -> str:
        """The class that has the entry, those that come before it, and their order."""
        terms = [f"o{number}.__mro__ is m{number}"]
        self._names[f"m{number}"] = mro = read.owner.__mro__
        for depth, base in enumerate(mro):
            self._names[f"d{number}_{depth}"] = base.__dict__
            if read.key in base.__dict__:
                terms.append(self._is(f"d{number}_{depth}[{shown}]", f"v{number}", read.value))
                break
            terms.append(f"{shown} not in d{number}_{depth}")
        return " and ".join(terms)

    # ---- one by one -----------------------------------------------------------------------------

    def _compared(self) -> str | None:
        """Look at every read: containers that were replaced by equal ones are taken over."""
        taken: dict[int, Any] = {}  # what is now where a container was, by the container's id
        fixed = {id(read.owner) for read in self._reads if read.look == "identity"}
        for read in self._reads:
            if read.look == "identity":
                continue
            now = read.now(taken.get(id(read.owner), read.owner))
            if read.look in ALL and type(now) is tuple and len(now) == len(read.value):
                pairs = list(zip(now, read.value))
            elif read.look == "table":
                pairs = [] if same_table(read.owner, read.value) else [(now, read.value)]
            elif read.look in ("memory", "length"):
                pairs = [] if now == read.value else [(now, read.value)]
            else:
                pairs = [(now, read.value)]
            if not all(_taken_over(new, old, taken, fixed) for new, old in pairs):
                return f"{read.text} changed"
        self._take_over(taken)
        return None

    def _take_over(self, taken: dict[int, Any]) -> None:
        for number, read in enumerate(self._reads):
            read.owner = taken.get(id(read.owner), read.owner)
            if read.look in ALL:
                read.value = tuple([taken.get(id(v), v) for v in read.value])
            else:
                read.value = taken.get(id(read.value), read.value)
            self._term(number, read)
        self._count_changes()


def _conjunction(terms: Sequence[str]) -> str:
    return " and\n        ".join(terms) or "True"


def _taken_over(now: Any, before: Any, taken: dict[int, Any], fixed: set[int]) -> bool:
    """True for the same value, and for a container of the same kind, whose reads follow."""
    known = taken.get(id(before), before)
    if same(now, known):
        return True
    if id(before) in taken or id(before) in fixed or type(now) is not type(before):
        return False
    if not issubclass(type(before), CONTAINERS):
        return False
    if isinstance(before, tuple | frozenset):  # nothing reads these: they cannot change
        taken[id(before)] = now
        plain = not hasattr(now, "__dict__") and len(now) == len(before)
        return plain and all(_taken_over(n, b, taken, fixed) for n, b in zip(now, before))
    taken[id(before)] = now
    return True


def _has_table(owner: Any) -> bool:
    """True where `owner.__dict__` is its table of attributes, and no code of its class."""
    plain = not isinstance(type(owner).__getattribute__, FunctionType)
    return plain and own_table(owner) is not None


def _gathered(reads: Sequence[Read]) -> list[Read]:
    """Many items of one list as all of its elements: one read in place of many."""
    count: dict[int, int] = {}
    for read in reads:
        if read.look == "item":
            count[id(read.owner)] = count.get(id(read.owner), 0) + 1
    gathered: dict[int, Read] = {}
    kept: list[Read] = []
    for read in reads:
        many = read.look == "item" and count[id(read.owner)] > 4 * _INLINE
        if not many or type(read.owner) is not list:
            kept.append(read)
        elif id(read.owner) not in gathered:
            whole = Read(read.owner, "elements", None, tuple(read.owner), read.text)
            gathered[id(read.owner)] = whole
            kept.append(whole)
    return kept
