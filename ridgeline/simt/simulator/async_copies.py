"""cp.async: copies that threads issue, commit in groups, and wait for.

Elements arrive when the thread waits for their group; until then shared memory is as it was, every
access to them is a race, and so is a write to what they are copied from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes
from ridgeline.simt.simulator.storage import HeldArray, MemoryChecks


@dataclass
class _Copy:
    target: HeldArray
    source: HeldArray
    ids: IntArray
    at: IntArray
    taken: IntArray  # places of the source
    values: AnyArray
    group: IntArray
    site: int


class AsyncCopies:
    """Copies under way, by the thread that issued them and its group."""

    def __init__(self, accesses: MemoryChecks) -> None:
        self.accesses = accesses
        self.under_way: list[_Copy] = []
        self.commits = np.zeros(len(accesses.clocks.stamp), np.int64)

    def issue(
        self, lanes: Lanes, target: HeldArray, there: list[Any], source: HeldArray, here: list[Any],
        count: int, site: int,
    ) -> None:  # fmt: skip
        """Threads issue copies of consecutive elements."""
        for place in range(count):
            accesses, copying = self.accesses, lanes
            step = [*here[:-1], np.asarray(here[-1]) + place]
            values = accesses.read(source, step, lanes, site)
            taken, _ = accesses.locate(source, step, lanes)
            to = [*there[:-1], np.asarray(there[-1]) + place]
            at, inside = accesses.locate(target, to, lanes)
            if inside is not None:
                accesses.out_of_bounds(target, to, lanes, ~inside, site, "writes")
                copying, at = lanes.where(inside, -1), at[inside]
                values, taken = values[inside], taken[inside]
            accesses.issue_copy(target, at, source, taken, copying, site)
            group = self.commits[copying.ids].copy()
            self.under_way.append(
                _Copy(target, source, copying.ids, at, taken, values, group, site)
            )

    def commit(self, lanes: Lanes) -> None:
        """Threads close a group."""
        self.commits[lanes.ids] += 1

    def wait(self, lanes: Lanes, pending: int) -> None:
        """Copies of all but the newest groups of the threads arrive."""
        left = []
        for copy in self.under_way:
            waits = np.isin(copy.ids, lanes.ids)
            done = waits & (copy.group < self.commits[copy.ids] - pending)
            if done.any():
                arrived = Lanes(copy.ids[done], -1)
                self.accesses.copy_arrives(
                    copy.target, copy.at[done], copy.values[done], copy.source, copy.taken[done],
                    arrived, copy.site,
                )  # fmt: skip
            if not done.all():
                rest = ~done
                left.append(
                    _Copy(copy.target, copy.source, copy.ids[rest], copy.at[rest],
                          copy.taken[rest], copy.values[rest], copy.group[rest], copy.site)
                )  # fmt: skip
        self.under_way = left

    def report_unwaited(self) -> None:
        """Copies that threads issued and ended without waiting for."""
        for copy in self.under_way:
            if len(copy.ids):
                self.accesses.add(
                    "copy not waited for", copy.site, Lanes(copy.ids, -1), 0,
                    f"ends while its copy into {copy.target.array.name} is under way",
                    "cp_async_commit() and cp_async_wait(0) before the kernel ends, or no copy",
                    len(copy.ids),
                )  # fmt: skip
