"""What each statement does to the threads that carry it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline.simt.ir import (
    ArrayFill,
    Assertion,
    Assign,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Breakpoint,
    ElementRead,
    ElementWrite,
    Fence,
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    PrintOut,
    SourcePlace,
    ThreadStmt,
    VectorRead,
    VectorWrite,
)
from ridgeline.simt.simulator.accessors import BLOCK_ATOMIC, DEVICE_ATOMIC, VOLATILE
from ridgeline.simt.simulator.async_copies import AsyncCopies
from ridgeline.simt.simulator.atomics import bits
from ridgeline.simt.simulator.clocks import SyncLocation
from ridgeline.simt.simulator.debug import KernelDebugger
from ridgeline.simt.simulator.fragments import Fragments
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes, spread
from ridgeline.simt.simulator.storage import HeldArray, MemoryChecks
from ridgeline.simt.simulator.values import Evaluator, Evaluators

Action = Callable[[Lanes], None]


class Actions:
    """Makes a function of each statement; `synchronises` where fences carry order to others."""

    def __init__(
        self, stored: dict[str, HeldArray], accesses: MemoryChecks, variables: dict[str, AnyArray],
        everyone: int, synchronises: bool, printed: list[str], builtins: Any, extents: Any,
        sync: dict[Any, SyncLocation], quiet: bool, debugger: KernelDebugger | None,
        flags: set[str], steering: set[str],
    ) -> None:  # fmt: skip
        self.stored, self.accesses, self.variables = stored, accesses, variables
        self.everyone, self.synchronises, self.printed = everyone, synchronises, printed
        self.sync, self.quiet, self.debugger = sync, quiet, debugger
        self.flags, self.steering = flags, steering
        self.evaluators = Evaluators(variables, builtins, extents, self.reader, everyone)
        self.copies = AsyncCopies(accesses)
        self.fragments = Fragments(accesses, stored, self.evaluators)

    def parts(self, index: tuple[Any, ...]) -> Callable[[Lanes], list[Any]]:
        """The indices of an element as a function."""
        found = [self.evaluators.of(part) for part in index]
        return lambda lanes: [part(lanes) for part in found]

    def reader(self, read: ElementRead, evaluators: Evaluators) -> Evaluator:
        """The function that reads an element."""
        stored, site = self.stored[read.array.name], self.accesses.site(read.place)
        index = [evaluators.of(part) for part in read.index]
        accesses = self.accesses
        if read.peer is not None:
            return self._peer_reader(read, stored, index, site)
        if read.default is None:
            return lambda lanes: accesses.read(stored, [part(lanes) for part in index], lanes, site)
        default = evaluators.of(read.default)

        def guarded(lanes: Lanes) -> AnyArray:
            at, inside = accesses.locate(stored, [part(lanes) for part in index], lanes)
            if inside is None:
                return accesses.read_at(stored, at, lanes, site)
            found = np.array(spread(default(lanes), lanes.count))
            kept = lanes.where(inside, -1)
            if kept.count:
                found[inside] = accesses.read_at(stored, at[inside], kept, site)
            return found

        return guarded

    def _peer_reader(
        self, read: ElementRead, stored: HeldArray, index: list[Evaluator], site: int
    ) -> Evaluator:
        """Shared memory of another block of the cluster."""
        assert read.peer is not None
        rank = self.evaluators.of(read.peer)
        accesses = self.accesses

        def remote(lanes: Lanes) -> AnyArray:
            parts = [part(lanes) for part in index]
            at, inside = self._in_peer(stored, parts, lanes, rank, site, "reads")
            found = np.zeros(lanes.count, stored.data.dtype)
            kept = lanes.where(inside, -1)
            if kept.count:
                found[inside] = accesses.read_at(stored, at[inside], kept, site)
            return found

        return remote

    def _in_peer(
        self, stored: HeldArray, parts: list[Any], lanes: Lanes, rank: Evaluator, site: int,
        did: str,
    ) -> tuple[IntArray, AnyArray]:  # fmt: skip
        """Places in the copies of other blocks of the cluster, and which there are."""
        accesses, clocks = self.accesses, self.accesses.clocks
        at, within = accesses.locate(stored, parts, lanes)
        inside = np.ones(lanes.count, bool) if within is None else within
        if within is not None:
            accesses.out_of_bounds(stored, parts, lanes, ~within, site, did)
        ranks = spread(rank(lanes), lanes.count)
        known = (ranks >= 0) & (ranks < clocks.cluster)
        if not known.all():
            first = int(np.flatnonzero(~known)[0])
            accesses.add(
                "out of bounds", site, lanes, first,
                f"{did} {stored.array.name} of block {int(ranks[first])} of its cluster, which has "
                f"{clocks.cluster}", "launch with cluster=, and choose a rank below its size",
                int((~known).sum()),
            )  # fmt: skip
        block = lanes.ids // clocks.padded
        peer = block - block % clocks.cluster + np.where(known, ranks, 0)
        return np.asarray(at + (peer - block) * stored.size), inside & known

    def of(self, statement: ThreadStmt) -> Action:
        """The function that carries a statement out."""
        match statement:
            case Assign():
                return self._assign(statement)
            case ElementWrite():
                return self._write(statement)
            case VectorRead():
                return self._vector_read(statement)
            case VectorWrite():
                return self._vector_write(statement)
            case ArrayFill():
                return self._fill(statement)
            case Atomic():
                return self._atomic(statement)
            case Fence():
                clocks, scope = self.accesses.clocks, statement.scope
                return lambda lanes: clocks.fence(lanes.ids, scope)
            case PrintOut():
                return self._print(statement)
            case Assertion():
                return self._assertion(statement)
            case Breakpoint():
                if self.quiet:
                    return lambda lanes: None
                return lambda lanes: self.pause(lanes, statement.place)
            case AsyncCopy():
                there, here = self.parts(statement.target_index), self.parts(statement.source_index)
                target, source = (self.stored[a.name] for a in (statement.target, statement.source))
                site = self.accesses.site(statement.place)
                return lambda lanes: self.copies.issue(
                    lanes, target, there(lanes), source, here(lanes), statement.count, site
                )
            case AsyncCommit():
                return self.copies.commit
            case AsyncWait():
                pending = statement.pending
                return lambda lanes: self.copies.wait(lanes, pending)
            case FragmentFill() | FragmentLoad() | FragmentMultiply() | FragmentStore():
                return self.fragments.of(statement)
        raise AssertionError(statement)

    def pause(self, lanes: Lanes, place: SourcePlace) -> None:
        """Stop in the debugger."""
        assert self.debugger is not None
        accesses = self.accesses
        self.debugger.pause(lanes, place, self.variables, self.stored, accesses.log,
                            accesses.clocks.first)  # fmt: skip

    def _assign(self, statement: Assign) -> Action:
        value, accesses = self.evaluators.of(statement.value), self.accesses
        target = self.variables[statement.target.name]
        steers = statement.target.name in self.steering or "." in statement.target.name

        def assign(lanes: Lanes) -> None:
            found = value(lanes)
            if accesses.watch and steers and np.any(target[lanes.select] != found):
                accesses.changes += 1
            target[lanes.select] = found

        return assign

    def _write(self, statement: ElementWrite) -> Action:
        stored, accesses = self.stored[statement.array.name], self.accesses
        index, value = self.parts(statement.index), self.evaluators.of(statement.value)
        site, guarded = accesses.site(statement.place), statement.guarded
        if statement.peer is None:
            return lambda lanes: accesses.write(
                stored, index(lanes), value(lanes), lanes, site, guarded
            )
        rank = self.evaluators.of(statement.peer)

        def remote(lanes: Lanes) -> None:
            at, inside = self._in_peer(stored, index(lanes), lanes, rank, site, "writes")
            kept, values = lanes.where(inside, -1), spread(value(lanes), lanes.count)
            if kept.count:
                accesses.write_at(stored, at[inside], values[inside], kept, site)

        return remote

    def _aligned(
        self, stored: HeldArray, parts: list[Any], lanes: Lanes, width: int, site: int
    ) -> tuple[IntArray, Lanes, AnyArray | None]:
        """Places of the first elements of vectors, of threads whose vectors are inside."""
        accesses = self.accesses
        last = [*parts[:-1], np.asarray(parts[-1]) + (width - 1)]
        _, ends = accesses.locate(stored, last, lanes)
        at, inside = accesses.locate(stored, parts, lanes)
        flat = at - stored.starts(lanes)
        crooked = flat % width != 0
        if crooked.any():
            accesses.add(
                "misaligned vector", site, lanes, int(np.flatnonzero(crooked)[0]),
                f"accesses {width} elements from {int(flat[crooked][0])} on",
                f"begin at a multiple of {width}", int(crooked.sum()),
            )  # fmt: skip
        if inside is None and ends is None:
            return at, lanes, None
        both = np.ones(lanes.count, bool)
        for part in (inside, ends):
            both &= True if part is None else part
        accesses.out_of_bounds(stored, last, lanes, ~both, site, "accesses")
        return at[both], lanes.where(both, -1), both

    def _vector_read(self, statement: VectorRead) -> Action:
        stored, accesses = self.stored[statement.array.name], self.accesses
        index, site = self.parts(statement.index), accesses.site(statement.place)
        targets = [self.variables[target.name] for target in statement.targets]

        def read(lanes: Lanes) -> None:
            at, kept, _ = self._aligned(stored, index(lanes), lanes, len(targets), site)
            with accesses.as_one(site, stored, at, kept, "read", len(targets)):
                for place, target in enumerate(targets):
                    target[kept.select] = accesses.read_at(stored, at + place, kept, site)

        return read

    def _vector_write(self, statement: VectorWrite) -> Action:
        stored, accesses = self.stored[statement.array.name], self.accesses
        index, site = self.parts(statement.index), accesses.site(statement.place)
        values = [self.evaluators.of(value) for value in statement.values]

        def write(lanes: Lanes) -> None:
            at, kept, inside = self._aligned(stored, index(lanes), lanes, len(values), site)
            with accesses.as_one(site, stored, at, kept, "write", len(values)):
                for place, value in enumerate(values):
                    found = value(lanes)
                    if inside is not None:
                        found = spread(found, lanes.count)[inside]
                    accesses.write_at(stored, at + place, found, kept, site)

        return write

    def _fill(self, statement: ArrayFill) -> Action:
        stored, value = self.stored[statement.array.name], statement.value.value
        columns = np.arange(stored.size)

        def fill(lanes: Lanes) -> None:
            assert stored.start is not None
            at = stored.start[lanes.select][:, None] + columns
            stored.data[at] = value
            if stored.written is not None:
                stored.written[at] = 1

        return fill

    def _atomic(self, op: Atomic) -> Action:
        stored, accesses = self.stored[op.array.name], self.accesses
        index, site = self.parts(op.index), accesses.site(op.place)
        value = None if op.value is None else self.evaluators.of(op.value)
        compare = None if op.compare is None else self.evaluators.of(op.compare)
        target = None if op.target is None else self.variables[op.target.name]
        kind = self._kind(op)

        def run(lanes: Lanes) -> None:
            parts = index(lanes)
            values = None if value is None else spread(value(lanes), lanes.count)
            other = None if compare is None else spread(compare(lanes), lanes.count)
            at, inside = accesses.locate(stored, parts, lanes)
            if inside is not None:
                accesses.out_of_bounds(stored, parts, lanes, ~inside, site, "updates")
                lanes, at = lanes.where(inside, -1), at[inside]
                values = None if values is None else values[inside]
                other = None if other is None else other[inside]
            if kind == VOLATILE and op.name == "load":
                accesses.clocks.complete_acquires(lanes.ids)
            found = accesses.atomic(op, stored, at, lanes, site, kind, values, other)
            if self.synchronises and lanes.count and kind != VOLATILE:
                wrote: Any = op.name != "load"
                if other is not None:
                    wrote = bits(found) == bits(other)
                self._carry(op, at, lanes, np.broadcast_to(wrote, (lanes.count,)))
            if target is not None:
                target[lanes.select] = found

        return run

    def _kind(self, op: Atomic) -> int:
        if op.volatile and op.array.name not in self.flags:
            return VOLATILE
        return BLOCK_ATOMIC if op.scope == "block" else DEVICE_ATOMIC

    def _carry(self, op: Atomic, at: IntArray, lanes: Lanes, wrote: AnyArray) -> None:
        """Order that fences before and after atomics carry from thread to thread."""
        clocks = self.accesses.clocks
        name = self.stored[op.array.name].memory or op.array.name
        places, rows = np.unique(at, return_inverse=True)
        known = [self.sync.get((name, place)) for place in places.tolist()]
        versions = np.array([-1 if one is None else one.version for one in known])[rows]
        # a thread that looks again at what it has seen before learns nothing
        element = at + (list(self.stored).index(name) << 40)
        news = (versions >= 0) & ~clocks.has_seen(lanes.ids, element, versions)
        tells = wrote & ((clocks.fenced["block"][lanes.ids] >= 0) | (versions >= 0) | op.releases)
        beside = np.isin(rows, rows[tells])  # who comes after a release of this same instruction
        order = np.flatnonzero(news | beside).tolist()
        for row in reversed(order) if self.accesses.order == "last" else order:
            thread, key = int(lanes.ids[row]), (name, int(at[row]))
            place = self.sync.get(key)
            if op.name != "store" and place is not None:
                clocks.acquire(thread, place, key, op)
            if tells[row]:
                place = self.sync.setdefault(key, SyncLocation())
                clocks.release(thread, place, op)

    def _print(self, statement: PrintOut) -> Action:
        parts = [p if isinstance(p, str) else self.evaluators.of(p) for p in statement.parts]

        def show(lanes: Lanes) -> None:
            columns = [p if isinstance(p, str) else spread(p(lanes), lanes.count) for p in parts]
            for place in range(lanes.count):
                line = "".join(c if isinstance(c, str) else str(c[place]) for c in columns)
                self.printed.append(line)
                if not self.quiet:
                    print(line)

        return show

    def _assertion(self, statement: Assertion) -> Action:
        condition, accesses = self.evaluators.of(statement.condition), self.accesses
        site, message = accesses.site(statement.place), statement.message

        def check(lanes: Lanes) -> None:
            fails = ~spread(condition(lanes), lanes.count)
            if fails.any():
                first = int(np.flatnonzero(fails)[0])
                text = f"does not hold: {message}" if message else "does not hold"
                accesses.add("assertion", site, lanes, first, f"stops: the assertion {text}",
                             "print the values, or breakpoint() in the simulator",
                             int(fails.sum()))  # fmt: skip

        return check
