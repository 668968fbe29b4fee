"""Changes that are made together: no signal handler and no other thread finds half of them made.

CPython runs signal handlers, raises what they raise, and lets another thread go on in three places:
where a Python function begins, where a loop turns back, and where a call returns. A call of C code
has none of these inside. So what must happen as a whole is prepared as an iterator over C code,
such as `starmap(setattr, ...)`, and `apply` walks it in one call. An exception handler whose first
call is `apply` is as sure: nothing can be raised between the exception and that call.

What is changed for a while, too, must come back. In a function, a plain store before a `try` and
one that begins its `finally` are sure, since a store is no call. A `with` statement is sure where
entering and leaving are calls of C code: a `Block`. An `__exit__` written in Python is a function
that an interrupt can end where it begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, repeat, starmap
from operator import attrgetter, call, itemgetter, methodcaller
from typing import Any, ClassVar, TypeAlias

# New values of attributes: object, name, value. The object's class sets them by C code alone.
Change: TypeAlias = tuple[Any, str, Any]

apply: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend


def steps(calls: Iterable[Callable[[], Any]], changes: Iterable[Change]) -> Iterator[Any]:
    """Calls of C functions and then changes, for `apply`: what a call raises leaves all unmade."""
    return chain(map(call, calls), starmap(setattr, changes))


class Call(map):  # type: ignore[type-arg]
    """`Call(function, *arguments)`: the call of a C function that each `next` makes once more.

    Its arguments are iterators: `repeat(value)`, or a `Call` for what is to be found out then.
    """

    __slots__ = ()
    made = property(next)


class Calls(zip):  # type: ignore[type-arg]
    """Several calls, one after the other, that each `next` makes once more."""

    __slots__ = ()
    made = property(next)


class Block:
    """A context manager that an interrupt finds entered or left, never between.

    It is entered by `next(entering)`, whose result `as` names, and left by `next(leaving)`.
    """

    __slots__ = ("entering", "leaving")

    def __init__(self, entering: Iterator[Any], leaving: Call | Calls) -> None:
        self.entering, self.leaving = entering, leaving

    # C code throughout: the wrapper of `lru_cache` makes methods of functions. `str.format` takes
    # what there is to know of an exception, and with the precision 0 its result is false.
    __enter__: ClassVar[Callable[..., Any]] = lru_cache(maxsize=0)(methodcaller("_entered"))
    __exit__: ClassVar[Callable[..., Any]] = lru_cache(maxsize=0)("{0.leaving.made!s:.0}".format)
    _entered = property(attrgetter("entering.__next__"))


def kept(target: Any, name: str) -> tuple[map[None], Call]:
    """The calls that keep the value of an attribute, and that give it back."""
    before: list[Any] = []  # the last value that was kept is the first to come back
    targets, names = repeat(target), repeat(name)
    keep = map(before.append, map(getattr, targets, names))
    return keep, Call(setattr, targets, names, map(list.pop, repeat(before)))


class Switch(Block):
    """Inside, attributes have other values, which their object's class sets by C code alone."""

    __slots__ = ()

    def __init__(self, target: Any, **values: Any) -> None:
        keep, back = zip(*[kept(target, name) for name in values])
        names, new = map(repeat, values), map(repeat, values.values())
        change = [map(setattr, repeat(target), n, v) for n, v in zip(names, new)]
        super().__init__(Call(itemgetter(0), zip(*keep, *change)), Calls(*back))
