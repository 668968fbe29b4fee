"""Guards on dictionaries: CPython's version tags of many dicts, compared by one native call.

CPython gives a dictionary a new version whenever it changes, a number that none had before
(`ma_version_tag`; CPython 3.14 has none, and `are_counted` says so). Native code compares many of
them in the time in which Python looks up a key.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

_OFFSET = 24  # of the version in a dictionary, after two words of any object and the count of keys
_WORD = 8

# a function of one integer, the address of a table: how many pairs of an address and its version
DICT_VERSIONS_IR = """
define ptr @ridgeline_unchanged(ptr %self, ptr %objects, i64 %count) {
entry:
  %object = load ptr, ptr %objects
  %address = call i64 @PyLong_AsUnsignedLongLong(ptr %object)
  %table = inttoptr i64 %address to ptr
  %pairs = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  br label %head
head:
  %index = phi i64 [ 0, %entry ], [ %next, %look ]
  %more = icmp slt i64 %index, %pairs
  br i1 %more, label %look, label %done
look:
  %word = shl i64 %index, 1
  %place.at = getelementptr i64, ptr %first, i64 %word
  %version.at = getelementptr i64, ptr %place.at, i64 1
  %place = load ptr, ptr %place.at
  %now = load i64, ptr %place
  %before = load i64, ptr %version.at
  %same = icmp eq i64 %now, %before
  %next = add i64 %index, 1
  br i1 %same, label %head, label %done
done:
  %all = icmp sge i64 %index, %pairs
  %truth = zext i1 %all to i64
  %result = call ptr @PyBool_FromLong(i64 %truth)
  ret ptr %result
}
"""


class DictVersions:
    """The versions that some dictionaries had when somebody looked; at first none that fits."""

    __slots__ = ("_dicts", "_now", "_table", "address")

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        self._dicts = tuple(dicts)  # which stay where they are as long as somebody holds them
        addresses = [id(found) + _OFFSET for found in dicts]
        self._now = [ctypes.c_uint64.from_address(address) for address in addresses]
        self._table = array(
            "Q", [len(addresses), *(word for address in addresses for word in (address, 0))]
        )
        self.address: int = self._table.buffer_info()[0]

    def now(self) -> list[int]:
        """The versions as they are."""
        return [version.value for version in self._now]

    def expect(self, versions: Sequence[int]) -> None:
        """Take these for the versions at which everything was found right.

        They were read before that was looked at, so that a change in between is not overlooked.
        """
        self._table[2::2] = array("Q", versions)


def are_counted() -> bool:
    """Whether this Python counts the changes of a dictionary where they are looked for."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14) or not gil():
        return False
    return ctypes.sizeof(ctypes.c_void_p) == _WORD and all(map(_is_noticed, _CHANGES))


class _Owner:
    """An object whose attributes lie in a dictionary."""

    kept: object = None


def _stored(owner: _Owner, value: object) -> None:
    owner.kept = value


def _is_noticed(change: Callable[[_Owner, dict[str, Any]], object]) -> bool:
    """True where a change gives a dictionary another version, again and again, and nothing else."""
    owner = _Owner()
    owner.kept = 0
    versions = DictVersions([vars(owner)])
    for _ in range(32):  # the interpreter finds quicker ways for what happens often
        vars(owner)["gone"] = owner.kept
        before = versions.now()
        _ = owner.kept, vars(owner).get("kept"), len(vars(owner))
        if versions.now() != before:
            return False
        change(owner, vars(owner))
        if versions.now() == before:
            return False
    return True


_CHANGES: tuple[Callable[[_Owner, dict[str, Any]], object], ...] = (
    lambda owner, found: _stored(owner, object()),
    lambda owner, found: object.__setattr__(owner, "kept", object()),
    lambda owner, found: found.__setitem__("kept", object()),
    lambda owner, found: found.update(kept=object()),
    lambda owner, found: found.pop("gone"),
    lambda owner, found: found.setdefault(object(), 1),  # type: ignore[call-overload]
    lambda owner, found: found.popitem(),
    lambda owner, found: delattr(owner, "gone"),
)
