"""One schedule of a launch: memory, vector clocks, who goes next, and what is wrong with it."""

from __future__ import annotations

import ast
import itertools
import math
import random
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from tests.simt.reference.parts import (
    Access,
    Axes,
    Launch,
    Memory,
    Message,
    NumberType,
    empty_memory,
    narrower,
    new_value,
    place_of,
    source_lane,
    vote_of,
)
from tests.simt.reference.text import BARRIERS, LANES, Op, ThreadText, Unsupported, signature

Thread = Generator[Any, Any, None]
LONGEST = 300_000  # operations of a run
SPINS = 40  # times that a thread may look at what did not change


class Hung(Exception):
    """Threads wait for what never comes."""


def _is_device(value: Any) -> bool:
    return getattr(value, "is_device_function", False) is True


def _joined(parts: list[ast.Module]) -> ast.Module:
    return ast.Module([statement for part in parts for statement in part.body], [])


class Reference:
    """A kernel's text, to be run as often as wanted in different orders of its threads."""

    def __init__(
        self, text: str, grid: Any, block: Any, arguments: Any, keywords: Any,
        outside: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        tree = ast.parse(text)
        self.launch = Launch.of(grid, block)
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
        self.arrays, self.scalars = signature(function, arguments, keywords)
        functions = {name for name, value in outside.items() if _is_device(value)}
        parts = [ThreadText(function, functions).compiled()]
        for name in functions & {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
            text = ast.unparse(outside[name].captured.tree)
            inner = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
            parts.append(ThreadText(inner, functions, device=True).compiled())
        code = compile(_joined(parts), "<reference>", "exec")
        self.functions = [part for part in code.co_consts if isinstance(part, CodeType)]
        self.outside = {name: value for name, value in outside.items() if isinstance(value, int)}
        self.name = function.name

    def run(self, seed: int | None = None, choices: list[int] | None = None) -> Outcome:
        """One schedule: threads in order, shuffled by a seed, or by recorded choices."""
        return _Run(self, seed, choices).outcome()


@dataclass
class Outcome:
    """What one schedule showed."""

    kinds: set[str]
    notes: dict[str, str]
    outputs: dict[str, list[Any]]
    branches: list[int]  # of each choice, how many threads could have gone on


class _View:
    """An array as a thread's code sees it: a name with sizes."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.shape = memory, memory.shape


class _Run:
    """One schedule of a launch."""

    def __init__(self, reference: Reference, seed: int | None, choices: list[int] | None) -> None:
        self.reference, self.choices = reference, choices
        self.random = None if seed is None else random.Random(seed)
        launch = reference.launch
        self.block_size = math.prod(launch.block)
        self.blocks = math.prod(launch.grid)
        self.total = self.block_size * self.blocks
        self.kinds: set[str] = set()
        self.notes: dict[str, str] = {}
        self.branches: list[int] = []
        self.clock = [np.zeros(self.total, np.int64) for _ in range(self.total)]
        for t in range(self.total):
            self.clock[t][t] = 1
        self.released: list[dict[str, Any]] = [{} for _ in range(self.total)]
        self.pending: list[list[Message]] = [[] for _ in range(self.total)]
        self.version = 0
        self.rests: dict[int, tuple[Any, int, int]] = {}
        self.globals = {
            name: Memory(name, value.shape, value.reshape(-1).tolist(), [known] * value.size,
                         "global", NumberType(kind))
            for name, (value, kind, known) in reference.arrays.items()
        }  # fmt: skip
        self.shared: dict[tuple[int, str], Memory] = {}
        self.scopes: list[dict[str, Any]] = []
        self.threads = [self._thread(number) for number in range(self.total)]
        self.wants: list[Op | None] = [None] * self.total
        self.left: dict[int, int] = {}
        self.operations = 0

    def _thread(self, number: int) -> Thread:
        launch, reference = self.reference.launch, self.reference
        block, inner = divmod(number, self.block_size)

        def shared(shape: Any, kind: Any, name: str) -> _View:
            key = (block, name)
            if key not in self.shared:
                self.shared[key] = empty_memory(name, shape, kind, "shared")
            return _View(self.shared[key])

        def local(shape: Any, kind: Any, name: str, fill: Any = None) -> _View:
            made = empty_memory(name, shape, kind, "local")
            if fill is not None:
                made.data, made.known = [fill] * len(made.data), [True] * len(made.data)
            return _View(made)

        names: dict[str, Any] = {
            "_Op": Op, "_turns": {}, "_turn": _turn, "shared": shared, "local": local,
            "threadIdx": place_of(inner, launch.block), "blockIdx": place_of(block, launch.grid),
            "blockDim": Axes(*launch.block), "gridDim": Axes(*launch.grid),
            "lane": inner % 32, "warp": inner // 32,
            "grid": lambda axes: _place_in_grid(launch, block, inner, axes),
            "grid_stride": lambda n: range(block * self.block_size + inner, n, self.total),
            **_PURE,
        }  # fmt: skip
        names["simt"] = SimpleNamespace(**names)
        names |= self.reference.outside
        for function in reference.functions:
            names[function.co_name] = FunctionType(function, names)
        self.scopes.append(names)
        arguments = {name: _View(memory) for name, memory in self.globals.items()}
        thread: Thread = names[reference.name](**arguments, **reference.scalars)
        return thread

    # -- scheduling

    def outcome(self) -> Outcome:
        try:
            self._schedule()
        except Hung as hung:
            self._report(str(hung), "threads wait for ever")
        outputs = {name: memory.data for name, memory in self.globals.items()}
        return Outcome(self.kinds, self.notes, outputs, self.branches)

    def _schedule(self) -> None:
        """Threads run alone up to what others can notice; then somebody is picked."""
        for thread in range(self.total):
            self._advance(thread, None)
        step = 0
        while True:
            able = [t for t in range(self.total) if self._is_able(t)]
            if not able:
                if not self._meet():
                    return
                continue
            quiet = [t for t in able if not self._is_noticed(t)]
            if quiet:  # their order makes no difference: clocks decide about plain accesses
                for thread in quiet:
                    self._carry_out(thread)
                continue
            self._carry_out(able[self._pick(len(able))])
            step += 1
            if step > 20_000:
                raise Hung("never ends")

    def _pick(self, many: int) -> int:
        turn = len(self.branches)
        self.branches.append(many)
        if self.choices is not None:
            return self.choices[turn] if turn < len(self.choices) else 0
        return 0 if self.random is None else self.random.randrange(many)

    def _is_noticed(self, thread: int) -> bool:
        want = self.wants[thread]
        return want is not None and want.name.startswith("atomic")

    def _is_able(self, thread: int) -> bool:
        want = self.wants[thread]
        if want is None or want.name in LANES | BARRIERS | {"syncwarp"}:
            return False
        rest = self.rests.get(thread)
        return not (rest is not None and rest[1] >= SPINS and rest[2] == self.version)

    def _meet(self) -> bool:
        """Nobody can go on alone: let groups meet whose members are all there."""
        waiting = [t for t in range(self.total) if self.wants[t] is not None]
        if not waiting:
            return False
        met = self._warps_meet(waiting)
        met = self._blocks_meet(waiting) or met
        if met:
            return True
        spinning = [t for t in waiting if t in self.rests and self.rests[t][1] >= SPINS]
        if spinning:
            raise Hung("never ends")
        lanes = [t for t in waiting if self._want(t).name in LANES | {"syncwarp"}]
        raise Hung("warp mask" if lanes else "divergent barrier")

    def _want(self, thread: int) -> Op:
        want = self.wants[thread]
        assert want is not None
        return want

    def _group(self, thread: int, size: int) -> range:
        block, inner = divmod(thread, self.block_size)
        first = block * self.block_size + inner // size * size
        return range(first, min(first + size, (block + 1) * self.block_size))

    def _warps_meet(self, waiting: list[int]) -> bool:
        met = False
        for first in sorted({self._group(t, 32).start for t in waiting}):
            warp = self._group(first, 32)
            there: dict[Any, list[int]] = {}
            for t in warp:
                want = self.wants[t]
                if want is not None and want.name in LANES | {"syncwarp"}:
                    key = "syncwarp" if want.name == "syncwarp" else (want.name, want.line)
                    there.setdefault(key, []).append(t)
            for members in there.values():
                met = self._lanes_meet(warp, members) or met
        return met

    def _lanes_meet(self, warp: range, members: list[int]) -> bool:
        """Lanes whose masks are complete: what they name has come or has left."""
        alive = {t for t in warp if t not in self.left}
        masks = {t: self._mask(t, warp) for t in members}
        if self._want(members[0]).name == "activemask":
            raise Unsupported("activemask")
        done = [t for t in members if masks[t] & alive <= set(members)]
        if not done:
            return False
        for t in done:
            if any(masks[other] != masks[t] for other in masks[t] & set(done)):
                self._report("warp mask", f"lanes meet at line {self._want(t).line} by two masks")
            if t not in masks[t]:
                self._report("warp mask", f"line {self._want(t).line}: own lane is not named")
            skipped = [o for o in masks[t] - alive if self.left[o] > self._want(t).line]
            if skipped:
                self._report("warp mask", f"lanes {skipped} went past line {self._want(t).line}")
        self._exchange(done, masks, warp.start)
        return True

    def _mask(self, thread: int, warp: range) -> set[int]:
        mask = self._want(thread).mask
        bits = 0xFFFFFFFF if mask is None else int(mask)
        return {t for t in warp if bits >> (t - warp.start) & 1}

    def _exchange(self, done: list[int], masks: dict[int, set[int]], first: int) -> None:
        values = {t: self._want(t).value for t in done}
        if self._want(done[0]).name == "syncwarp":
            before: dict[int, Any] = {}
            for t in done:
                self._fence_in(t, "device")
                before[t] = self.clock[t].copy()
            for t in done:
                for other in masks[t] & set(done):
                    self.clock[t] = np.maximum(self.clock[t], before[other])
            self._share_releases(done)
            for t in done:
                self._tick(t)
            for t in done:
                self._advance(t, None)
            return
        found: dict[int, Any] = {}
        for t in done:
            want, own = self._want(t), masks[t] & set(done)
            if want.name.startswith("shfl"):
                source = source_lane(want, t - first) + first
                if source not in own:
                    self._report("shuffle", f"lane {source - first} at line {want.line}")
                found[t] = values.get(source, values[t])
            else:
                found[t] = vote_of(want.name, {o - first: values[o] for o in own}, values[t])
        for t in done:
            self._advance(t, found[t])

    def _blocks_meet(self, waiting: list[int]) -> bool:
        met = False
        for block in sorted({t // self.block_size for t in waiting}):
            members = range(block * self.block_size, (block + 1) * self.block_size)
            met = self._barrier([t for t in members if t not in self.left], members, False) or met
        alive = [t for t in range(self.total) if t not in self.left]
        return self._barrier(alive, range(self.total), True) or met

    def _barrier(self, alive: list[int], members: range, grid: bool) -> bool:
        wants = {t: self._want(t) for t in alive if self.wants[t] is not None}
        names = {want.name for want in wants.values()}
        fits = names <= ({"grid_sync"} if grid else BARRIERS - {"grid_sync"})
        if not alive or len(wants) < len(alive) or not fits:
            return False
        places = {(want.line, want.turns) for want in wants.values()}
        if len(places) > 1:
            self._report("divergent barrier", f"at {sorted(places)}")
        line = max(want.line for want in wants.values())
        if any(self.left[t] > line for t in members if t in self.left):
            self._report("divergent barrier", f"line {line} was passed by")
        for t in alive:  # a barrier is where what was acquired is known, to all who meet there
            self._fence_in(t, "device")
        joined = np.maximum.reduce([self.clock[t] for t in alive])
        self._share_releases(alive)
        votes = [bool(wants[t].value) for t in alive]
        self.version += 1
        for t in alive:
            self.clock[t] = joined.copy()
            self._tick(t)
            name = wants[t].name
            vote = {"syncthreads_count": sum(votes), "syncthreads_or": any(votes),
                    "syncthreads_and": all(votes)}.get(name)  # fmt: skip
            self._advance(t, vote)
        return True

    def _share_releases(self, members: list[int]) -> None:
        """A fence counts for all who meet its thread afterwards: they pass on what it released."""
        for scope in {scope for t in members for scope in self.released[t]}:
            clocks = [self.released[t][scope] for t in members if scope in self.released[t]]
            joined = np.maximum.reduce(clocks)
            for t in members:
                self.released[t][scope] = joined

    def _advance(self, thread: int, answer: Any) -> None:
        """Let a thread compute up to the next thing that it wants."""
        self.wants[thread] = None
        try:
            want = self.threads[thread].send(answer)
        except StopIteration:
            self.left[thread] = self.scopes[thread]["_turns"].get("left", 1 << 30)
            return
        self.wants[thread] = want
        self.operations += 1
        if self.operations > LONGEST:
            raise Hung("never ends")

    def _tick(self, thread: int) -> None:
        self.clock[thread][thread] += 1

    # -- memory

    def _carry_out(self, thread: int) -> None:
        want = self._want(thread)
        if want.name == "fence":
            self._fence(thread, want.scope)
            self._advance(thread, None)
            return
        memory: Memory = want.array.memory
        flat = self._flat(thread, memory, want)
        if flat is None:
            self._advance(thread, want.value if want.guarded else 0)
        elif want.name == "read":
            self._known(memory, flat, want)
            self._visit(thread, memory, flat, "plain", False, None, want)
            self._advance(thread, memory.data[flat])
        elif want.name == "write":
            value = memory.wrap(want.value)
            self._visit(thread, memory, flat, "plain", True, value, want)
            if memory.data[flat] != value:
                self.version += 1
            memory.data[flat], memory.known[flat] = value, True
            self._advance(thread, None)
        else:
            self._advance(thread, self._atomic(thread, memory, flat, want))

    def _flat(self, thread: int, memory: Memory, want: Op) -> int | None:
        if len(want.index) != len(memory.shape):
            raise Unsupported("part of an index")
        flat = 0
        for part, size in zip(want.index, memory.shape):
            if not 0 <= part < size:
                if not want.guarded:
                    self._report("out of bounds", f"{memory.name}{want.index} at {want.line}")
                return None
            flat = flat * size + int(part)
        return flat

    def _known(self, memory: Memory, flat: int, want: Op) -> None:
        if not memory.known[flat]:
            self._report("uninitialised", f"{memory.name}[{flat}] at {want.line}")

    def _atomic(self, thread: int, memory: Memory, flat: int, want: Op) -> Any:
        op = want.name.removeprefix("atomic_")
        found = memory.data[flat]
        if op not in ("store", "exch"):
            self._known(memory, flat, want)
        wrote = op != "load" and (op != "cas" or found == want.compare)
        if want.order in ("release", "acq_rel", "seq_cst") and op != "load":
            self._fence_out(thread, want.scope)
        self._visit(thread, memory, flat, "atomic", wrote, None, want)
        if op != "store":
            self._acquire(thread, memory, flat, want)
        if wrote:
            kept = [] if op == "store" else memory.messages.get(flat, [])
            sent = [Message(clock, thread, narrower(scope, want.scope))
                    for scope, clock in self._carried(thread, want)]  # fmt: skip
            memory.messages[flat] = kept + sent
            value = memory.wrap(new_value(op, found, want.value))
            if value != found:
                self.version += 1
            memory.data[flat], memory.known[flat] = value, True
            self._tick(thread)
        key = (want.line, want.name, flat, found)
        rest = self.rests.get(thread)
        same = rest is not None and rest[0] == key and rest[2] == self.version
        self.rests[thread] = (key, rest[1] + 1 if same and rest else 0, self.version)
        return found

    def _carried(self, thread: int, want: Op) -> Iterator[tuple[str, Any]]:
        yield from self.released[thread].items()
        if want.order in ("release", "acq_rel", "seq_cst"):
            yield want.scope, self.clock[thread].copy()

    def _acquire(self, thread: int, memory: Memory, flat: int, want: Op) -> None:
        for message in memory.messages.get(flat, []):
            if self._holds(want.scope, thread, message.writer) and self._holds(
                message.scope, thread, message.writer
            ):
                self.pending[thread].append(message)
        if want.order in ("acquire", "acq_rel", "seq_cst"):
            self._fence_in(thread, want.scope)

    def _holds(self, scope: str, one: int, other: int) -> bool:
        return scope != "block" or one // self.block_size == other // self.block_size

    def _fence(self, thread: int, scope: str) -> None:
        self._fence_in(thread, scope)
        self._fence_out(thread, scope)

    def _fence_in(self, thread: int, scope: str) -> None:
        for message in self.pending[thread]:
            if self._holds(scope, thread, message.writer):
                self.clock[thread] = np.maximum(self.clock[thread], message.clock)

    def _fence_out(self, thread: int, scope: str) -> None:
        self.released[thread][scope] = self.clock[thread].copy()
        self._tick(thread)

    def _visit(
        self, thread: int, memory: Memory, flat: int, kind: str, writes: bool, value: Any, want: Op
    ) -> None:
        """Compare with every earlier access of the element by another thread."""
        if memory.space == "local":
            return
        scope = want.scope if kind == "atomic" else ""
        seen = memory.seen.setdefault(flat, {})
        for other in seen.values():
            if other.thread == thread or not (writes or other.writes):
                continue
            if kind == other.kind == "atomic" and (
                self._holds(scope, thread, other.thread)
                and self._holds(other.scope, thread, other.thread)
            ):
                continue
            if self.clock[thread][other.thread] >= other.epoch:
                continue
            plain = kind == other.kind == "plain" and writes and other.writes
            same = plain and other.value == value
            what = "same-value race" if same else f"{memory.space} race"
            self._report(what, f"{memory.name}[{flat}] of {other.thread} and {thread}, line "
                               f"{want.line}")  # fmt: skip
        key = (thread, kind, writes, scope, value if writes else None)
        epoch = int(self.clock[thread][thread])
        seen[key] = Access(thread, epoch, kind, writes, scope, value)

    def _report(self, kind: str, note: str) -> None:
        self.kinds.add(kind)
        self.notes.setdefault(kind, note)


def _place_in_grid(launch: Launch, block: int, inner: int, axes: int) -> Any:
    """Where a thread is in the whole grid, along the first axes."""
    there, here = place_of(block, launch.grid), place_of(inner, launch.block)
    found = (there.x * launch.block[0] + here.x, there.y * launch.block[1] + here.y,
             there.z * launch.block[2] + here.z)  # fmt: skip
    return found[0] if axes == 1 else found[:axes]


def _turn(turns: dict[int, int], loop: int) -> None:
    turns[loop] += 1
    if turns[loop] > 20_000:
        raise Hung("never ends")


def _unroll(*sizes: int) -> Any:
    if len(sizes) == 1:
        return range(sizes[0])
    return itertools.product(*map(range, sizes))


_PURE: dict[str, Any] = {
    "cdiv": lambda a, b: -(-a // b), "unroll": _unroll, "fma": lambda a, b, c: a * b + c,
    "popc": lambda v: int(v).bit_count(), "clz": lambda v: 32 - int(v).bit_length(),
    "ffs": lambda v: (v & -v).bit_length(),
    **{name: getattr(math, name) for name in ("exp", "log", "sqrt", "sin", "cos", "floor")},
    **{name: NumberType(name) for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64",
                                       "f16", "bf16", "f32", "f64", "bool_")},
}  # fmt: skip


def every_schedule(reference: Reference, most: int) -> Iterator[Outcome]:
    """All orders of what threads can notice of one another, one after another, at most so many."""
    choices: list[int] = []
    for _ in range(most):
        found = reference.run(choices=choices)
        yield found
        taken = choices + [0] * (len(found.branches) - len(choices))
        while taken and taken[-1] + 1 >= found.branches[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        taken[-1] += 1
        choices = taken
