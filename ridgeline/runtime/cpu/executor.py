"""Plans: a list of kernel calls that runs as one native call, without Python or the GIL.

A kernel is `void kernel(ptr args, i64 begin, i64 end)`: `args` points to one pointer for each of
its parameters, and it runs tasks `begin` to `end` of its parallel loop (a serial one has the
single task 0). A plan names pointers by slot: first the addresses given to `run`, then temporaries,
which lie in an arena that the call has for itself, so that calls may overlap.

In the main thread a plan that is not known to be quick runs *watched*: signals are handled between
its steps, and what a handler raises ends it. A quick one is over before anybody notices.

The pool has a state and one setting, the number of threads. Its memory is mapped for good and
belongs to no Python object: workers go on reading it while the interpreter ends. There is one pool
in a process; the code that works on it is in `pool_ir`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter_ns
from typing import cast

from ridgeline.atomic import at_fork
from ridgeline.codegen.llvm.machine_code import Library, compile_cached, python_function, target
from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import dict_versions
from ridgeline.runtime.cpu.control_words import Address, Await, Control, Loop, check
from ridgeline.runtime.cpu.executor_ir import executor_ir
from ridgeline.runtime.cpu.pool_ir import CALLS, LIMIT, STARTED, STATE_BYTES
from ridgeline.runtime.cpu.support_ir import PORTABLE, Head, prepare
from ridgeline.runtime.memory import map_pages

_WIPE_ON_FORK = getattr(mmap, "MADV_WIPEONFORK", 18)


@dataclass(frozen=True, slots=True)
class NativeStep:
    """One kernel call: `tasks` tasks, handed out `grain` at a time where that makes several."""

    function: Address
    args: tuple[int, ...]
    tasks: int = 1
    grain: int = 1
    code: object = None  # what keeps the function's machine code mapped


class _Scratch(threading.local):
    """Memory of the calling thread for small arenas: a run neither takes nor returns a block."""

    def __init__(self) -> None:
        self._memory = HostBuffer.allocate(SCRATCH_BYTES)
        self.address = self._memory.address


SCRATCH_BYTES = 1 << 18
QUICK_NS = 5_000_000  # a plan that took less has no need to be interrupted
_scratch = _Scratch()


class NativePlan:
    """Steps over slots, ready to run. `run` may be called by several threads at once."""

    __slots__ = (
        "_exact", "_words", "address", "arena_bytes", "lasting", "quick", "slots", "steps", "takes",
    )  # fmt: skip

    def __init__(
        self,
        steps: Sequence[NativeStep | Control],
        slots: int,
        arena: Sequence[tuple[int, int]] = (),
        arena_bytes: int = 0,
        exact: bool = False,
    ) -> None:
        """`exact`: the arena is a block that is no larger than it has to be."""
        self.steps = tuple(steps)
        self._exact = exact
        self.slots = slots
        self.takes = slots - len(arena)  # the addresses `run` wants
        self.arena_bytes = arena_bytes
        check_plan(self.steps, slots, arena, arena_bytes)
        # all of it is in this process: no address is a name
        self._words = array("q", cast("list[int]", plan_words(self.steps, slots, arena, state())))
        self.address: int = self._words.buffer_info()[0]
        self.lasting = any(map(lasts, self.steps))  # how long it takes depends on the data
        self.quick = False

    def run(self, addresses: Sequence[int]) -> None:
        """Run all steps over these addresses: one native call."""
        if config.epoch != _epoch:
            follow_settings()
        if not self.quick:
            self.run_watched(addresses, self.arena())
        elif self.arena_bytes <= SCRATCH_BYTES:
            _run(self.address, _scratch.address, *addresses)
        else:
            arena = HostBuffer.allocate(self.arena_bytes, self._exact)
            _run(self.address, arena.address, *addresses)

    def arena(self) -> HostBuffer:
        """Memory for the temporaries of a run; a handler's own plans use the thread's."""
        return HostBuffer.allocate(self.arena_bytes, self._exact)

    def run_watched(self, addresses: Sequence[int], arena: HostBuffer) -> None:
        """Run all steps; in the main thread signals are handled between them."""
        follow_settings()
        run = _watched if threading.get_ident() == threading.main_thread().ident else _run
        begin = perf_counter_ns()
        run(self.address, arena.address, *addresses)
        self.took(perf_counter_ns() - begin)

    def took(self, nanoseconds: int) -> None:
        """A run of all steps took so long."""
        self.quick = nanoseconds < QUICK_NS and not self.lasting

    def prepared(self, addresses: Sequence[int], arena: HostBuffer | None) -> Callable[[], None]:
        """A run as one call of C code, which no signal interrupts."""
        follow_settings()
        memory = _scratch.address if arena is None else arena.address
        return partial(_run, self.address, memory, *addresses)

    def profile(self, addresses: Sequence[int], arena: HostBuffer | None = None) -> list[float]:
        """Run all steps, and return the seconds that each one took."""
        follow_settings()
        times = array("q", bytes(8 * len(self.steps)))
        arena = self.arena() if arena is None else arena
        _profile(self.address, arena.address, times.buffer_info()[0], *addresses)
        return [nanoseconds * 1e-9 for nanoseconds in times]

    @property
    def parallel(self) -> int:
        """How many kernel calls may use several threads, those of sub-plans included."""
        return self._words[Head.PARALLEL]


def check_plan(
    steps: tuple[NativeStep | Control, ...],
    slots: int,
    arena: Sequence[tuple[int, int]],
    arena_bytes: int,
) -> None:
    """Refuse a plan that would make native code access memory out of bounds."""
    takes = slots - len(arena)
    if takes < 0 or sorted(slot for slot, _ in arena) != list(range(takes, slots)):
        raise ValueError(f"the arena must place each of the last slots of {slots} once")
    for slot, offset in arena:
        if not 0 <= offset <= arena_bytes or offset % 64:
            raise ValueError(f"slot {slot} at offset {offset} of an arena of {arena_bytes} bytes")
    for number, step in enumerate(steps):
        if not isinstance(step, NativeStep):
            check(step, slots)
            continue
        if not step.function or step.tasks < 0 or step.grain < 1:
            raise ValueError(f"step {number} cannot run: {step}")
        if any(not 0 <= slot < slots for slot in step.args):
            raise ValueError(f"step {number} names a slot outside 0 to {slots - 1}: {step.args}")


def plan_words(
    steps: Sequence[NativeStep | Control],
    slots: int,
    arena: Sequence[tuple[int, int]],
    pool: Address,
) -> list[Address]:
    """A plan as native code reads it, for the threads whose state is `pool`."""
    head: list[Address] = [0] * Head.WORDS
    head[Head.POOL] = pool
    head[Head.STEPS] = len(steps)
    head[Head.SLOTS] = slots
    head[Head.ADDRESSES] = slots - len(arena)
    head[Head.ARENA] = len(arena)
    head[Head.WIDEST] = max((len(s.args) for s in steps if isinstance(s, NativeStep)), default=0)
    head[Head.PARALLEL] = sum(map(parallel_calls, steps))
    words = head
    for slot, offset in arena:
        words.extend((slot, offset))
    for step in steps:
        if isinstance(step, NativeStep):
            words.extend((step.function, step.tasks, step.grain, len(step.args), *step.args))
        else:
            words.extend(step.words())
    return words


def parallel_calls(step: NativeStep | Control) -> int:
    """How many kernel calls of a step may use several threads."""
    if isinstance(step, NativeStep):
        return int(step.tasks > step.grain)
    return sum(plan.parallel for plan in step.plans)


def lasts(step: NativeStep | Control) -> bool:
    """True where a test, not a count, ends a loop of the step, or other ranks have to come."""
    if isinstance(step, NativeStep | Await):
        return isinstance(step, Await)
    tested = isinstance(step, Loop) and step.test is not None
    return tested or any(plan.lasting for plan in step.plans)


@lru_cache(maxsize=1)
def machine_code() -> Library:
    """The executor's own code, compiled once on a machine."""
    return Library.load(compile_cached(executor_ir()))


@lru_cache(maxsize=1)
def unchanged() -> Callable[[int], bool] | None:
    """The function that says of a table of dictionaries' versions, by its address, whether all are
    as they were; None for a Python that counts none."""
    if not dict_versions.are_counted():
        return None
    made: Callable[[int], bool] = python_function(
        "unchanged", machine_code().address("ridgeline_unchanged")
    )
    return made


_epoch = -1  # the settings that the native side follows; none before the first run
_run: Callable[..., None]
_watched: Callable[..., None]
_profile: Callable[..., None]


def follow_settings() -> None:
    """Load the native code if this is the first run, and give the pool its number of threads."""
    global _epoch, _run, _watched, _profile
    epoch = config.epoch
    if epoch == _epoch:
        return
    if _epoch < 0:
        _run = python_function("run", machine_code().address("ridgeline_run"))
        _watched = python_function("watched", machine_code().address("ridgeline_watched"))
        _profile = python_function("profile", machine_code().address("ridgeline_profile"))
    set_limit(threads(), machine_code().address("ridgeline_pool_wake"))
    _epoch = epoch


def map_state(nbytes: int) -> int:
    """Zeroed memory that stays until the process ends; a forked child finds page one zeroed."""
    address, mapping = map_pages(nbytes)
    wiped = False
    if not PORTABLE:
        with suppress(OSError):  # an old kernel
            mapping.madvise(_WIPE_ON_FORK, 0, mmap.PAGESIZE)
            wiped = True
    if not wiped:
        prepare(address)
        at_fork(after_in_child=partial(prepare, address))  # Python sees only forks made by Python
    return address


@lru_cache(maxsize=1)
def state() -> int:
    """The address of the pool's two pages."""
    address = map_state(STATE_BYTES)
    ctypes.c_int64.from_address(address + LIMIT).value = 1
    return address


def threads() -> int:
    """How many threads a parallel step may use, the calling one included."""
    return config.threads or target().threads


def set_limit(wanted: int, wake: int) -> None:
    """Set how many threads work; workers now too many are woken, by `wake`, so that they end."""
    limit = ctypes.c_int64.from_address(state() + LIMIT)
    shrinks = wanted < limit.value
    limit.value = wanted
    if shrinks:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(wake)(state(), 0x7FFFFFFF)


def workers() -> int:
    """How many worker threads exist now; they start with the first parallel step."""
    return ctypes.c_int32.from_address(state() + STARTED).value


def calls() -> int:
    """How many native calls have run a plan since the process began."""
    return ctypes.c_int64.from_address(state() + CALLS).value
