"""`jit(memory=)`: parsing a budget, and what a call holds beyond its plan.

A plan counts on results that lie over the state they replace. Where somebody else holds some of
that state, a call needs memory of its own for it: that is looked at in every call, before anything
runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ridgeline.compiler.memory_plan import Layout, bytes_text
from ridgeline.errors import ArgumentError, MemoryBudgetError
from ridgeline.graph.origins import user_line
from ridgeline.runtime.memory import block_bytes, exact_bytes

_UNITS = {
    "": 1, "b": 1, "byte": 1, "bytes": 1,
    **{f"{p}b": 1000**n for n, p in enumerate("kmgtp", 1)},
    **{f"{p}ib": 1024**n for n, p in enumerate("kmgtp", 1)},
}  # fmt: skip
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def budget_bytes(memory: Any) -> int:
    """A budget in bytes, from a whole number or a text such as "6 GiB"; 0 for None."""
    if memory is None:
        return 0
    found = memory
    if isinstance(memory, str):
        parts = _WRITTEN.fullmatch(memory)
        unit = None if parts is None else _UNITS.get(parts[2].lower())
        if parts is None or unit is None:
            raise _bad(memory)
        found = int(float(parts[1]) * unit) if "." in parts[1] else int(parts[1]) * unit
    if isinstance(found, bool) or not hasattr(found, "__index__"):
        raise _bad(memory)
    found = int(found)
    if found <= 0:
        raise _bad(memory)
    return found


def _bad(memory: Any) -> ArgumentError:
    return ArgumentError(
        f"jit: memory is a number of bytes above 0, or a text such as '6 GiB', not {memory!r:.60}",
        help='units are KB, MB, GB (powers of 1000) and KiB, MiB, GiB (of 1024): "1.5 GB"',
    )


def keep_budget(
    budget: int, planned: int, layout: Layout, lent: Iterable[int], besides: Iterable[Any]
) -> None:
    """Raise if a call would hold more than its budget.

    `lent` are the numbers of results that overwrite what they replace; `besides` is memory that the
    call replaces but neither reads nor overwrites.
    """
    there = set(lent)
    fresh = [layout.made[number] for number, _ in layout.in_place if number not in there]
    held = {id(memory): memory.nbytes for memory in besides if memory is not None}
    more = sum(map(exact_bytes, fresh)) + sum(map(block_bytes, held.values()))
    if more and planned + more > budget:
        line = user_line()
        raise MemoryBudgetError(
            f"this call cannot be made within {bytes_text(budget)}: it would hold "
            f"{bytes_text(planned + more)}",
            smallest=planned + more,
            note=(f"called at {line}\n" if line else "")
            + f"{bytes_text(more)} of it are for state that cannot be overwritten, since something "
            "else holds it: another tensor, a graph, an array of NumPy",
            help="let go of what shares memory with parameters, gradients and optimizer state, or "
            "set gradients to None before the call",
        )
