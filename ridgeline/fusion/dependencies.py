"""Which kernels must run before which, kept while kernels merge.

Every kernel has the set of all that come before it, as the bits of one number: whether a third
kernel stands between two is then a few operations on bits, however large the program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Precedence:
    """The kernels before each kernel, directly or not."""

    def __init__(self, sources: Mapping[int, Collection[int]]) -> None:
        """`sources` are the kernels that each one reads from."""
        self._before: dict[int, int] = {}
        for number in sources:
            stack = [number]
            while stack:
                waiting = [s for s in sources[stack[-1]] if s not in self._before]
                if waiting:
                    stack += waiting
                    continue
                current = stack.pop()
                before = 0
                for source in sources[current]:
                    before |= self._before[source] | 1 << source
                self._before[current] = before

    def comes_before(self, a: int, b: int) -> bool:
        """True if kernel b needs kernel a, directly or not."""
        return bool(self._before[b] >> a & 1)

    def merge(self, a: int, b: int, merged: int) -> None:
        """Kernels a and b are one from now on."""
        before = (self._before.pop(a) | self._before.pop(b)) & ~(1 << a | 1 << b)
        either = 1 << a | 1 << b
        for number, held in self._before.items():
            if held & either:
                self._before[number] = held | before | 1 << merged
        self._before[merged] = before
