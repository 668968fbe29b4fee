"""A launch in the simulator: arguments in, results and findings out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.float_errors import float_errors_ignored
from ridgeline.simt.ir import (
    AsyncCopy,
    Atomic,
    Barrier,
    Breakpoint,
    Builtin,
    ElementWrite,
    Extent,
    Fence,
    FragmentStore,
    ThreadArray,
    ThreadProgram,
    Variable,
    VectorWrite,
    WarpOp,
    constant_values,
)
from ridgeline.simt.launch import LaunchError, ThreadLaunch, shared_bytes
from ridgeline.simt.simulator.clocks import Clocks, SyncLocation
from ridgeline.simt.simulator.debug import KernelDebugger
from ridgeline.simt.simulator.findings import FindingLog, Simulation
from ridgeline.simt.simulator.flags import flag_arrays, steering
from ridgeline.simt.simulator.global_memory import place_arrays
from ridgeline.simt.simulator.instructions import instructions
from ridgeline.simt.simulator.lanes import AnyArray
from ridgeline.simt.simulator.machine import StepLimits, Stopped, ThreadMachine
from ridgeline.simt.simulator.ready import ThreadOrder
from ridgeline.simt.simulator.shadow import Ordering, Shadow
from ridgeline.simt.simulator.statements import Actions
from ridgeline.simt.simulator.storage import HeldArray, MemoryChecks
from ridgeline.simt.simulator.waits import Crew
from ridgeline.simt.traversal import walk

_BATCH_THREADS = 32_768  # of which the vectors still fit a core's cache
_MOST_TOGETHER = 1 << 20
_OTHER_ORDERS: tuple[ThreadOrder, ...] = ("last", "first")
_MOST_RANKED = 32  # orders of random ranks
_RANKED_OPERATIONS = 50_000  # lane operations that these may take together


@dataclass(frozen=True)
class SimulationOptions:
    """How to simulate: a seed shuffles the schedule, `order` says who goes first, `races` False
    leaves that check out, `blocks` runs only that many of the first ones."""

    seed: int | None = None
    limit: int = 400_000
    races: bool = True
    order: ThreadOrder = "source"
    blocks: int | None = None
    counter: Any = None


DEFAULT = SimulationOptions()


def simulate(
    program: ThreadProgram,
    launch: ThreadLaunch,
    arrays: Mapping[str, AnyArray],
    scalars: Mapping[str, int | float | bool],
    sizes: Mapping[str, int],
    options: SimulationOptions = DEFAULT,
) -> Simulation:
    """Run every thread of a launch. `arrays` are copied; `out` ones are made.

    Where threads see the atomics of others, who came first decides what is ordered and what they
    do: such a launch runs again with the last and with the first threads before all others, and if
    it is short in a few orders of random ranks, for the races that the first order hid.
    """
    found = _once(program, launch, arrays, scalars, sizes, options)
    if not options.races or options.order != "source" or not _depends_on_order(program):
        return found
    for again in _other_orders(options, found.lane_operations):
        if found.errors:
            break
        other = _once(program, launch, arrays, scalars, sizes, again, quiet=True)
        found = replace(found, findings=(*other.errors, *found.findings))
    return found


def _other_orders(options: SimulationOptions, operations: int) -> Iterator[SimulationOptions]:
    for order in _OTHER_ORDERS:
        yield replace(options, order=order, counter=None)
    for number in range(min(_MOST_RANKED, _RANKED_OPERATIONS // max(1, operations))):
        yield replace(options, order="ranked", seed=(options.seed or 0) + number, counter=None)


def _depends_on_order(program: ThreadProgram) -> bool:
    return any(
        isinstance(s, Fence) or (isinstance(s, Atomic) and s.target is not None)
        for s in walk(program.body)
    )


def _once(
    program: ThreadProgram, launch: ThreadLaunch, arrays: Mapping[str, AnyArray],
    scalars: Mapping[str, int | float | bool], sizes: Mapping[str, int],
    options: SimulationOptions, quiet: bool = False,
) -> Simulation:  # fmt: skip
    shared_bytes(program, launch)
    padded = -(-launch.threads // 32) * 32
    log = FindingLog(launch, padded)
    run = _Run(program, launch, padded, log, options, dict(scalars), dict(sizes))
    run.quiet = quiet
    globals_ = run.global_arrays(arrays)
    with float_errors_ignored():
        for first, count in run.batches():
            if not run.batch(globals_, first, count):
                break
    outputs = {
        array.name: globals_[array.name].values for array in program.arrays if array.access != "in"
    }
    return Simulation(outputs, log.ordered, tuple(run.printed), run.operations, options.counter)


class _Run:
    """State of a launch over its batches of blocks."""

    def __init__(
        self, program: ThreadProgram, launch: ThreadLaunch, padded: int, log: FindingLog,
        options: SimulationOptions, scalars: dict[str, Any], sizes: dict[str, int],
    ) -> None:  # fmt: skip
        self.program, self.launch, self.padded, self.log = program, launch, padded, log
        self.options, self.scalars, self.sizes = options, scalars, sizes
        self.printed: list[str] = []
        self.quiet = False  # prints nothing and stops at no breakpoint
        self.operations = 0
        self.sync: dict[Any, SyncLocation] = {}
        statements = list(walk(program.body))
        self.synchronises = any(
            isinstance(s, Fence) or (isinstance(s, Atomic) and s.order != "relaxed")
            for s in statements
        )
        warp_syncs = any(isinstance(s, WarpOp) and s.name == "sync" for s in statements)
        self.ordering: Ordering = (
            "flags" if self.synchronises else "lanes" if warp_syncs else "barriers"
        )
        self.together = self.synchronises or any(
            (isinstance(s, Barrier) and s.scope == "grid") or (isinstance(s, Atomic))
            for s in statements
        )
        self.written = _written_arrays(program)
        self.flags = flag_arrays(program)
        self.steering = steering(program)
        stops = any(isinstance(s, Breakpoint) for s in statements)
        self.debugger = KernelDebugger() if stops else None
        self.cluster = math.prod(launch.cluster)
        self.random = None if options.seed is None else np.random.default_rng(options.seed)

    def batches(self) -> list[tuple[int, int]]:
        """First block and number of blocks of each batch; blocks that talk run together."""
        blocks = self.launch.blocks
        if self.options.blocks is not None:
            blocks = min(blocks, max(self.options.blocks, self.cluster))
        most = max(1, (_MOST_TOGETHER if self.together else _BATCH_THREADS) // self.padded)
        most = max(self.cluster, most - most % self.cluster)
        return [(first, min(most, blocks - first)) for first in range(0, blocks, most)]

    def global_arrays(self, given: Mapping[str, AnyArray]) -> dict[str, HeldArray]:
        """Array parameters and constant arrays, in the GPU's memory."""
        found = place_arrays(self.program.arrays, given, self.sizes, self._shadow)
        for array in self.program.memories:
            if array.space == "constant":
                values = constant_values(array)
                found[array.name] = HeldArray(
                    array, values.shape, values.reshape(-1), None, None, None
                )
        return found

    def _shadow(self, arrays: list[ThreadArray], size: int) -> Shadow | None:
        watched = any(self._tracked(array) for array in arrays)
        return Shadow(size, False, self.ordering) if watched else None

    def _tracked(self, array: ThreadArray) -> bool:
        return self.options.races and array.name in self.written

    def batch(self, globals_: dict[str, HeldArray], first: int, count: int) -> bool:
        """Run blocks; false where the launch was stopped."""
        threads = count * self.padded
        clocks = Clocks(threads, self.padded, first * self.padded, self.cluster)
        options = self.options
        accesses = MemoryChecks(self.log, clocks, counter=options.counter, order=options.order)
        exists = np.tile(np.arange(self.padded) < self.launch.threads, count)
        everyone = threads if self.padded == self.launch.threads else -1
        stored = {**globals_, **self._own_arrays(threads, count)}
        _, hidden = instructions(self.program)
        variables = self._variables([*self.program.variables, *hidden], threads)
        builtins = _Builtins(self.launch, self.padded, first, count)
        actions = Actions(
            stored, accesses, variables, everyone, self.synchronises, self.printed, builtins,
            lambda extent: self._extent(extent, stored), self.sync, self.quiet, self.debugger,
            self.flags, self.steering,
        )  # fmt: skip
        crew = Crew(exists, self.padded, self.cluster)
        limits = StepLimits(self.options.limit)
        machine = ThreadMachine(self.program, actions, crew, everyone, limits, self.random)
        if self.options.counter is not None:
            self.options.counter.begin(machine, first)
        try:
            machine.run()
            actions.copies.report_unwaited()
        except Stopped:
            return False
        finally:
            self.operations += machine.lane_operations
        return True

    def _extent(self, extent: Extent, stored: Mapping[str, HeldArray]) -> int:
        return stored[extent.array.name].shape[extent.axis]

    def _own_arrays(self, threads: int, blocks: int) -> dict[str, HeldArray]:
        """Shared arrays of each block and local arrays of each thread."""
        found: dict[str, HeldArray] = {}
        offset = 0
        numbers = np.arange(threads, dtype=np.int64)
        for array in self.program.memories:
            if array.space == "constant":
                continue
            shape = self._own_shape(array)
            size, copies = math.prod(shape), blocks
            start = numbers // self.padded * size
            if array.space == "local":
                copies, start = threads, numbers * size
            shared = array.space == "shared" and self._tracked(array)
            shadow = Shadow(size * copies, self.cluster == 1, self.ordering) if shared else None
            data = np.zeros(size * copies, array.dtype.numpy)
            written = np.zeros(size * copies, np.uint8)
            found[array.name] = HeldArray(array, shape, data, start, written, shadow, offset)
            if array.space == "shared":
                offset += -(-size * array.dtype.itemsize // 16) * 16
        return found

    def _own_shape(self, array: ThreadArray) -> tuple[int, ...]:
        if array.shape != ("dynamic",):
            return tuple(int(size) for size in array.shape)
        length = self.launch.shared_bytes // array.dtype.itemsize
        if length == 0:
            raise LaunchError(
                f"{array.name} of {self.program.name} is dynamic shared memory, and the launch "
                "gives it no bytes",
                help=f"{self.program.name}[grid, block, bytes](…)",
            )
        return (length,)

    def _variables(self, every: list[Variable], threads: int) -> dict[str, AnyArray]:
        found = {v.name: np.zeros(threads, v.dtype.numpy) for v in every}
        for parameter in self.program.parameters:
            if isinstance(parameter, Variable):
                value = self.scalars[parameter.name]
                found[parameter.name] = np.full(threads, value, parameter.dtype.numpy)
        return found


class _Builtins:
    """threadIdx and the like for the threads of a batch."""

    def __init__(self, launch: ThreadLaunch, padded: int, first: int, count: int) -> None:
        self.launch, self.padded, self.first, self.count = launch, padded, first, count

    def __call__(self, builtin: Builtin) -> Any:
        launch, axis = self.launch, builtin.axis
        if builtin.name in ("blockDim", "gridDim"):
            sizes = launch.block if builtin.name == "blockDim" else launch.grid
            return np.int32(sizes[axis])
        inner = np.arange(self.padded)
        blocks = np.arange(self.first, self.first + self.count)
        if builtin.name == "threadIdx":
            return np.tile(_along(inner, launch.block, axis), self.count)
        if builtin.name == "laneid":
            return np.tile((inner % 32).astype(np.int32), self.count)
        if builtin.name == "warpid":
            return np.tile((inner // 32).astype(np.int32), self.count)
        if builtin.name == "cluster_rank":
            rank = blocks % math.prod(launch.cluster)
            return np.repeat(rank.astype(np.int32), self.padded)
        return np.repeat(_along(blocks, launch.grid, axis), self.padded)


def _along(numbers: AnyArray, sizes: tuple[int, int, int], axis: int) -> AnyArray:
    before = math.prod(sizes[:axis])
    return np.asarray(numbers // before % sizes[axis]).astype(dtypes.int32.numpy)


def _written_arrays(program: ThreadProgram) -> set[str]:
    """Arrays that some statement writes: only in these can threads race."""
    found: set[str] = set()
    for statement in walk(program.body):
        match statement:
            case ElementWrite() | VectorWrite() | FragmentStore():
                found.add(statement.array.name)
            case Atomic() if statement.name != "load":
                found.add(statement.array.name)
            case AsyncCopy():
                found.add(statement.target.name)
    return found
