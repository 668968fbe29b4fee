"""Changes that are made together: no signal handler and no other thread finds half of them made.

CPython runs signal handlers, raises what they raise, and lets another thread go on in three places:
where a Python function begins, where a loop turns back, and where a call returns. A call of C code
has none of these inside. So what must happen as a whole is prepared as an iterator over C code,
such as `starmap(setattr, ...)`, and `apply` walks it in one call. An exception handler whose first
call is `apply` is as sure: nothing can be raised between the exception and that call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, starmap
from operator import call
from typing import Any, TypeAlias

# New values of attributes: object, name, value. The object's class sets them by C code alone.
Change: TypeAlias = tuple[Any, str, Any]

apply: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend


def steps(calls: Iterable[Callable[[], Any]], changes: Iterable[Change]) -> Iterator[Any]:
    """Calls of C functions and then changes, for `apply`: what a call raises leaves all unmade."""
    return chain(map(call, calls), starmap(setattr, changes))
