"""A program as a sequence of kernel runs over buffers: what is live when, and reruns.

Kernels, values and pieces of memory are numbers here. A value that is not kept is written a second
time, into a piece of its own, by a second run of the kernel that made it: the same code over the
same operands, so it has the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One run of a kernel: which one, and the pieces that it reads and writes, in its order."""

    kernel: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """Facts about kernels and pieces that hold however often they run.

    `overwrites` has, for pieces that are inputs, the kernel that overwrites them: nothing may read
    such a piece after it.
    """

    seconds: Sequence[float]  # by kernel
    repeatable: Sequence[bool]  # by kernel
    nbytes: Sequence[int]  # by piece that a program has from the beginning
    overwrites: Mapping[int, int] = field(default_factory=dict)
    needs: Sequence[Set[int]] = ()  # by kernel: those that must have run before it
    # by kernel: places (written, read) of pieces that may be one memory, if nobody else reads it
    overlays: Sequence[Sequence[tuple[int, int]]] = ()


class Overwritten(Exception):
    """Raised if a kernel would run again after its operand was overwritten."""

    def __init__(self, kernel: int) -> None:
        super().__init__(kernel)
        self.kernel = kernel


@dataclass(frozen=True)
class Timeline:
    """Runs in order. A piece that exists all the time (an input or a result) has size 0."""

    costs: KernelCosts
    runs: tuple[KernelRun, ...]
    sizes: tuple[int, ...]  # bytes, by piece
    copies: tuple[int, ...]  # which piece each shows, or itself

    @cached_property
    def seconds(self) -> float:
        """The time of all runs."""
        return sum(self.costs.seconds[run.kernel] for run in self.runs)

    @cached_property
    def repeats(self) -> int:
        """How many runs are repetitions."""
        return len(self.runs) - len({run.kernel for run in self.runs})

    @cached_property
    def lives(self) -> dict[int, tuple[int, int]]:
        """The first and the last run that touch each piece."""
        found: dict[int, tuple[int, int]] = {}
        for step, run in enumerate(self.runs):
            for piece in (*run.reads, *run.writes):
                found[piece] = (found.get(piece, (step, 0))[0], step)
        return found

    @cached_property
    def alive(self) -> list[int]:
        """Bytes in use during each run."""
        change = [0] * (len(self.runs) + 1)
        for piece, (first, last) in self.lives.items():
            change[first] += self.sizes[piece]
            change[last + 1] -= self.sizes[piece]
        now, found = 0, []
        for step, more in enumerate(change[:-1]):
            now += more
            found.append(now - self._shared(step))
        return found

    def _shared(self, step: int) -> int:
        """Bytes that a run writes over operands that it is the last to read."""
        run, saved, taken = self.runs[step], 0, set[int]()
        overlays = self.costs.overlays
        for target, source in overlays[run.kernel] if overlays else ():
            written, read = run.writes[target], run.reads[source]
            ends = self.lives[read][1] == step and self.sizes[read] == self.sizes[written]
            if ends and not taken & {written, read}:
                taken |= {written, read}
                saved += self.sizes[written]
        return saved

    @cached_property
    def peak(self) -> int:
        """The most bytes in use at once."""
        return max(self.alive, default=0)

    @cached_property
    def fullest(self) -> int:
        """The run at the memory peak."""
        return self.alive.index(self.peak) if self.runs else 0

    @cached_property
    def writer(self) -> dict[int, int]:
        """The run that writes each piece."""
        return {piece: step for step, run in enumerate(self.runs) for piece in run.writes}

    def sooner(self) -> Timeline:
        """The same runs, reordered greedily so that least memory is live; each kernel once.

        A program's own order leaves to the end what nothing waits for, such as gradients of
        weights, and keeps everything that this work reads.
        """
        readers = Counter(piece for run in self.runs for piece in set(run.reads))
        waiting = {run.kernel: set(self.costs.needs[run.kernel]) for run in self.runs}
        position = {run.kernel: step for step, run in enumerate(self.runs)}
        users: dict[int, list[int]] = {kernel: [] for kernel in waiting}
        for kernel, needed in waiting.items():
            for other in needed:
                users[other].append(kernel)

        def growth(kernel: int) -> int:
            """Bytes that are in use more after a kernel than before it."""
            run = self.runs[position[kernel]]
            freed = sum(self.sizes[piece] for piece in set(run.reads) if readers[piece] == 1)
            return sum(self.sizes[p] for p in run.writes if readers[p]) - freed

        ready = [kernel for kernel, needed in waiting.items() if not needed]
        order: list[KernelRun] = []
        while ready:
            kernel = min(ready, key=lambda k: (growth(k), position[k]))
            ready.remove(kernel)
            run = self.runs[position[kernel]]
            order.append(run)
            readers.subtract(set(run.reads))
            for user in users[kernel]:
                waiting[user].discard(kernel)
                if not waiting[user]:
                    ready.append(user)
        assert len(order) == len(self.runs), "kernels do not wait for each other in a circle"
        return replace(self, runs=tuple(order))

    def without(self, at: int, again: Set[int]) -> Timeline:
        """The timeline in which nothing that the runs `again` made is kept across run `at`.

        They are repeated when a later run needs them. Those whose results nobody reads before `at`
        are only delayed.
        """
        early = {piece for run in self.runs[: at + 1] for piece in run.reads}
        moved = {
            step for step in again if early.isdisjoint(self.runs[step].writes)
            and all(self.sizes[piece] for piece in self.runs[step].writes)
        }  # fmt: skip
        kept = [run for step, run in enumerate(self.runs[: at + 1]) if step not in moved]
        later = _Later(self, again, kept)
        for run in self.runs[at + 1 :]:
            later.add(run.kernel, run.reads, run.writes)
        return replace(
            self, runs=tuple(later.runs), sizes=tuple(later.sizes), copies=tuple(later.copies)
        )


class _Later:
    """The runs after a point, each preceded by the repetitions that it needs."""

    def __init__(self, timeline: Timeline, again: Set[int], before: list[KernelRun]) -> None:
        self._old, self._again, self.runs = timeline, again, before
        self.sizes, self.copies = list(timeline.sizes), list(timeline.copies)
        self._now: dict[int, int] = {}  # the piece that stands for another one from here on
        self._ran = {run.kernel for run in before}

    def add(self, kernel: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Append a run, and before it the repetitions that it needs."""
        for piece in reads:
            self._provide(piece)
        reads = tuple([self._now.get(piece, piece) for piece in reads])
        over = self._old.costs.overwrites
        if any(over[piece] in self._ran - {kernel} for piece in reads if piece in over):
            raise Overwritten(kernel)
        self._ran.add(kernel)
        self.runs.append(KernelRun(kernel, reads, tuple(writes)))

    def _provide(self, piece: int) -> None:
        """Recompute a piece, and everything that it depends on, if it is not kept."""
        stack = [piece]
        while stack:
            current = stack[-1]
            if not self._is_due(current):
                stack.pop()
                continue
            run = self._old.runs[self._old.writer[current]]
            waits = [p for p in run.reads if self._is_due(p)]
            if waits:
                stack += waits
                continue
            stack.pop()
            made = tuple([self._copy(p) for p in run.writes])
            self.add(run.kernel, run.reads, made)
            self._now.update((p, q) for p, q in zip(run.writes, made) if self._old.sizes[p])

    def _is_due(self, piece: int) -> bool:
        step = self._old.writer.get(piece)
        return step in self._again and piece not in self._now and self._old.sizes[piece] > 0

    def _copy(self, piece: int) -> int:
        """A new piece of the same kind; a copy of a result is a temporary."""
        shown = self.copies[piece]
        self.sizes.append(self._old.costs.nbytes[shown])
        self.copies.append(shown)
        return len(self.sizes) - 1
