"""Atomic changes: no signal handler and no other thread sees half of them.

CPython runs signal handlers, raises what they raise, and lets another thread go on in three places:
where a Python function begins, where a loop turns back, and where a call returns. A call of C code
has none of these inside. So what must happen as a whole is prepared as an iterator over C code,
such as `starmap(setattr, ...)`, and `apply` walks it in one call. An exception handler whose first
call is `apply` is as sure: nothing can be raised between the exception and that call.

What is changed for a while, too, must come back. In a function, a plain store before a `try` and
one that begins its `finally` are sure, since a store is no call. A `with` statement is sure where
entering is a call of C code and leaving is one that begins a `sealed` function: a `Block`. Of plain
functions an interrupt can end an `__exit__` where it begins.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dis import opmap
from functools import lru_cache
from itertools import chain, repeat, starmap
from operator import attrgetter, call, itemgetter, methodcaller
from types import FunctionType
from typing import Any, ClassVar, TypeAlias, TypeVar

# New values of attributes: object, name, value. The object's class sets them by C code alone.
Change: TypeAlias = tuple[Any, str, Any]

apply: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend

# as `os.register_at_fork`, where the system has forks
at_fork: Callable[..., object] = getattr(os, "register_at_fork", dict)


def steps(calls: Iterable[Callable[[], Any]], changes: Iterable[Change]) -> Iterator[Any]:
    """Calls of C functions and then changes, for `apply`: what a call raises leaves all unmade."""
    return chain(map(call, calls), starmap(setattr, changes))


F = TypeVar("F", bound=Callable[..., Any])
_RESUME, _INSIDE_YIELD_FROM = opmap["RESUME"], 2


def sealed(function: F) -> F:
    """The function itself, and no handler of a signal runs where a call of it begins.

    The instruction that begins a function looks for signals, unless its argument says that this is
    a generator that goes on inside `yield from`.
    """
    assert isinstance(function, FunctionType)
    code = bytearray(function.__code__.co_code)
    code[2 * code[::2].index(_RESUME) + 1] = _INSIDE_YIELD_FROM
    function.__code__ = function.__code__.replace(co_code=bytes(code))
    return function


def young(objects: Iterable[Any]) -> set[int]:
    """The identities of those objects that no collection has seen, found in one call.

    The collector hands out everything, such as tuples that other threads are building, and CPython
    refuses to finish a tuple to which others refer: no thread may run before those are let go. So
    not `id`, of which hooks of `sys.addaudithook` are told.
    """
    identities = {object.__hash__(value): id(value) for value in objects}
    seen = chain.from_iterable(map(gc.get_objects, (0,)))
    found = set(filter(identities.__contains__, map(object.__hash__, seen)))
    return {identities[each] for each in found}


def young_identities() -> set[int]:
    """What `object.__hash__` gives for the objects that no collection has seen, as `young`."""
    return set(map(object.__hash__, chain.from_iterable(map(gc.get_objects, (0,)))))


class Block:
    """A context manager that an interrupt finds entered or left, never between.

    It is entered by `next(entering)`, whose result `as` names, and left by `next(leaving)`: a `map`
    is a call that each `next` makes once more, a `zip` several of them.
    """

    __slots__ = ("entering", "leaving")

    def __init__(self, entering: Iterator[Any], leaving: Iterator[Any]) -> None:
        self.entering, self.leaving = entering, leaving

    # C code throughout, for a handler may run where a call returns, and nobody leaves what was not
    # entered: the wrapper of `lru_cache` makes methods of functions
    __enter__: ClassVar[Callable[..., Any]] = lru_cache(maxsize=0)(methodcaller("_entered"))
    _entered = property(attrgetter("entering.__next__"))

    @sealed
    def __exit__(self, *raised: object) -> None:
        next(self.leaving)


def kept(target: Any, name: str) -> tuple[map[None], map[None]]:
    """The calls that keep the value of an attribute, and that give it back."""
    before: list[Any] = []  # the last value that was kept is the first to come back
    targets, names = repeat(target), repeat(name)
    keep = map(before.append, map(getattr, targets, names))
    return keep, map(setattr, targets, names, map(list.pop, repeat(before)))


class Switch(Block):
    """Inside, attributes have other values, which their object's class sets by C code alone."""

    __slots__ = ()

    def __init__(self, target: Any, **values: Any) -> None:
        keep, back = zip(*[kept(target, name) for name in values])
        names, new = map(repeat, values), map(repeat, values.values())
        change = [map(setattr, repeat(target), n, v) for n, v in zip(names, new)]
        super().__init__(map(itemgetter(0), zip(*keep, *change)), zip(*back))
