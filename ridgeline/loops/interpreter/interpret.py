"""The loop interpreter, which defines the IR: statement by statement, in NumPy.

Iterations of concurrent loops, and of spatial loops that are plainly independent, run in lock step
as lanes; all other loops run one iteration after another. Every access is checked: indices against
shapes, reads of allocated memory against what was written, and concurrent iterations against each
other. With `order="shuffled"` nothing is vectorised and spatial iterations run in random order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import numpy as np

from ridgeline.loops import ir
from ridgeline.loops.analysis.independence import independent
from ridgeline.loops.interpreter.counters import Counters, accumulator, operations, values_of
from ridgeline.loops.interpreter.evaluate import Evaluation
from ridgeline.loops.interpreter.storage import (
    JOIN,
    READ,
    WRITE,
    Binding,
    FlatMemory,
    Integers,
    Level,
)
from ridgeline.scalars import Array

_MOST_LANES = 1 << 16
_CONCURRENT = ("parallel", "vector", "grid", "thread")


class LoopError(Exception):
    """A kernel breaks a rule of the IR."""


class OutOfBounds(LoopError):
    """An index outside its buffer."""


class UninitialisedRead(LoopError):
    """A read of allocated memory that nothing has written."""


class Race(LoopError):
    """Two iterations of a concurrent loop touch one element, and one of them writes."""


def interpret(
    kernel: ir.Kernel,
    arrays: Mapping[int, Array],
    sizes: Mapping[str, int] | None = None,
    *,
    order: Literal["program", "shuffled"] = "program",
    seed: int = 0,
    counters: Counters | None = None,
) -> None:
    """Run a kernel on the arrays of its slots, in place."""
    missing = set(kernel.sizes) - set(sizes or {})
    if missing:
        raise LoopError(f"no value for the sizes {sorted(missing)} of kernel {kernel.name}")
    variables = {name: np.array([value]) for name, value in (sizes or {}).items()}
    interpreter = _Interpreter(order == "shuffled", seed, counters)
    lanes = _Lanes(1, variables, {}, [])
    storages: dict[int, FlatMemory] = {}
    for param in kernel.params:
        lanes.bindings[param.name] = interpreter.bind(
            param, arrays.get(param.slot), storages, lanes
        )
    interpreter.run(kernel.body, lanes)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Iterations that run in lock step: the values of variables and the buffers in each."""

    count: int
    variables: dict[str, Integers]
    bindings: dict[str, Binding]
    levels: list[Level]

    def of(self, chosen: Array) -> _Lanes:
        """A selection of lanes, possibly with repetitions."""
        return _Lanes(
            len(chosen),
            {name: values[chosen] for name, values in self.variables.items()},
            {name: binding.of(chosen) for name, binding in self.bindings.items()},
            [level.of(chosen) for level in self.levels],
        )

    def having(self, name: str, values: Integers) -> _Lanes:
        """The same lanes with a loop variable."""
        return replace(self, variables={**self.variables, name: values})


class _Interpreter:
    def __init__(self, shuffled: bool, seed: int, counters: Counters | None) -> None:
        self._random = np.random.default_rng(seed) if shuffled else None
        self._counters = counters
        self._executions = 0
        self._independent: dict[int, bool] = {}

    def bind(
        self, param: ir.Buffer, array: Array | None, storages: dict[int, FlatMemory], lanes: _Lanes
    ) -> Binding:
        """A parameter on the memory of its slot; views of one slot share the storage."""
        if array is None:
            raise LoopError(f"no array for slot {param.slot} of parameter {param.name}")
        shape = tuple(int(n[0]) for n in self._evaluate(param.shape, lanes))
        if array.dtype != param.dtype.numpy or not array.flags.c_contiguous:
            raise LoopError(f"{param.name} needs a contiguous array of {param.dtype.name}")
        if array.size < np.prod(shape, dtype=int):
            raise LoopError(f"the array of {param.name} is smaller than {shape}")
        if param.slot not in storages:
            storages[param.slot] = FlatMemory(array.reshape(-1))
            if self._counters is not None:
                storages[param.slot].track()
        return Binding(param, storages[param.slot], shape, np.zeros(1, np.int64))

    def run(self, statement: ir.Stmt, lanes: _Lanes) -> None:
        """Execute a statement in all lanes."""
        if isinstance(statement, ir.Seq):
            for inner in statement.body:
                self.run(inner, lanes)
        elif isinstance(statement, ir.For):
            self._loop(statement, lanes)
        elif isinstance(statement, ir.If):
            (guard,) = self._evaluate((statement.guard,), lanes)
            if guard.any():
                inside = lanes if guard.all() else lanes.of(np.flatnonzero(guard))
                self.run(statement.body, inside)
        elif isinstance(statement, ir.Alloc):
            self._alloc(statement, lanes)
        elif isinstance(statement, (ir.Mma, ir.Pipe)):
            self.run(statement.body, lanes)
        else:
            self._write(statement, lanes)

    def _loop(self, loop: ir.For, lanes: _Lanes) -> None:
        (extents,) = self._evaluate((loop.extent,), lanes)
        most = int(extents.max(initial=0))
        concurrent = loop.kind in _CONCURRENT
        executions = np.arange(self._executions, self._executions + lanes.count)
        self._executions += lanes.count
        if self._lock_step(loop, concurrent):
            step = max(1, _MOST_LANES // lanes.count)
            order = np.arange(most)
        else:
            step = 1
            order = self._order(loop, most)
        for first in range(0, most, step):
            values = order[first : first + step]
            lane, value = np.nonzero(values[None, :] < extents[:, None])
            if not len(lane):
                continue
            everywhere = step == 1 and len(lane) == lanes.count
            inside = (lanes if everywhere else lanes.of(lane)).having(loop.name, values[value])
            if concurrent:
                level = Level(loop.name, loop.axis, executions[lane], values[value])
                inside = replace(inside, levels=[*inside.levels, level])
            self.run(loop.body, inside)

    def _lock_step(self, loop: ir.For, concurrent: bool) -> bool:
        if self._random is not None or loop.axis != "spatial":
            return False
        if id(loop) not in self._independent:
            self._independent[id(loop)] = concurrent or independent(loop)
        return self._independent[id(loop)]

    def _order(self, loop: ir.For, extent: int) -> Integers:
        if self._random is not None and loop.axis == "spatial":
            return self._random.permutation(extent)
        return np.arange(extent)

    def _alloc(self, statement: ir.Alloc, lanes: _Lanes) -> None:
        """Every lane gets memory of its own; lanes with other sizes run separately."""
        buffer = statement.buffer
        shapes = np.array(self._evaluate(buffer.shape, lanes)).reshape(
            len(buffer.shape), lanes.count
        )
        for shape in np.unique(shapes, axis=1).T if len(shapes) else [()]:
            chosen = np.flatnonzero(np.all(shape == shapes.T, axis=1))
            part = lanes if len(chosen) == lanes.count else lanes.of(chosen)
            size = int(np.prod(shape, dtype=int))
            storage = FlatMemory.uninitialised(size * part.count, buffer.dtype, len(lanes.levels))
            origins = np.arange(part.count) * size
            binding = Binding(buffer, storage, tuple(map(int, shape)), origins)
            self.run(
                statement.body, replace(part, bindings={**part.bindings, buffer.name: binding})
            )

    def _write(self, statement: ir.Store | ir.Reduce, lanes: _Lanes) -> None:
        buffers = (statement.buffer,) if isinstance(statement, ir.Store) else statement.buffers
        old: dict[ir.Expr, Array] = {}
        evaluation = self._evaluation(lanes, old)
        index = [evaluation.value(i) for i in statement.index]
        targets = [self._locate(buffer, index, lanes) for buffer in buffers]
        if isinstance(statement, ir.Reduce):
            for position, (buffer, (binding, elements)) in enumerate(zip(buffers, targets)):
                old[accumulator(position, buffer)] = self._read(binding, elements, lanes, JOIN)
        values = values_of(statement)
        results = [evaluation.value(value) for value in values]
        for (binding, elements), result in zip(targets, results):
            self._store(binding, elements, result, lanes, isinstance(statement, ir.Store))
        if self._counters is not None:
            for cost, count in operations(values).items():
                self._counters.operations[cost] += count * lanes.count

    def _evaluate(self, roots: tuple[ir.Expr, ...], lanes: _Lanes) -> list[Array]:
        evaluation = self._evaluation(lanes, {})
        return [evaluation.value(root) for root in roots]

    def _evaluation(self, lanes: _Lanes, old: dict[ir.Expr, Array]) -> Evaluation:
        def leaf(node: ir.Expr, operands: list[Array], region: Array | None) -> Array:
            if isinstance(node, ir.Load):
                inside = lanes if region is None else lanes.of(region)
                index = [np.broadcast_to(i, (inside.count,)) for i in operands]
                binding, elements = self._locate(node.buffer, index, inside)
                return self._read(binding, elements, inside, READ)
            if isinstance(node, ir.Var):
                if node.name not in lanes.variables:
                    raise LoopError(f"variable {node.name} has no value here")
                values: Array = lanes.variables[node.name]
            else:
                assert isinstance(node, ir.Hole)
                values = old[node]
            return values if region is None else values[region]

        return Evaluation(lanes.count, leaf)

    def _locate(
        self, buffer: ir.Buffer, index: list[Array], lanes: _Lanes
    ) -> tuple[Binding, Integers]:
        binding = lanes.bindings.get(buffer.name)
        if binding is None or binding.buffer != buffer:
            raise LoopError(f"buffer {buffer.name} is not in scope")
        if len(index) != len(binding.shape):
            raise LoopError(f"{len(index)} indices for {len(binding.shape)} axes of {buffer.name}")
        offset = np.zeros(lanes.count, np.int64)
        for position, size in zip(index, binding.shape):
            outside = np.flatnonzero((position < 0) | (position >= size))
            if len(outside):
                lane = outside[0]
                where = ", ".join(str(int(i[lane])) for i in index)
                self._fail(
                    OutOfBounds, f"{buffer.name}[{where}] of shape {binding.shape}", lanes, lane
                )
            offset = offset * size + position
        return binding, binding.origins + offset

    def _read(self, binding: Binding, elements: Integers, lanes: _Lanes, kind: int) -> Array:
        storage = binding.storage
        if storage.initialised is not None and not storage.initialised[elements].all():
            lane = np.flatnonzero(~storage.initialised[elements])[0]
            self._fail(UninitialisedRead, binding.buffer.name, lanes, lane)
        self._touch(binding, elements, lanes, kind)
        if self._counters is not None:
            size = binding.buffer.dtype.itemsize
            self._counters.loaded[binding.buffer.name] += size * lanes.count
            if storage.fetched is not None and storage.produced is not None:
                news = np.unique(elements[~(storage.fetched | storage.produced)[elements]])
                storage.fetched[news] = True
                self._counters.fetched[binding.buffer.name] += size * len(news)
        return storage.data[elements]

    def _store(
        self, binding: Binding, elements: Integers, values: Array, lanes: _Lanes, plain: bool
    ) -> None:
        storage = binding.storage
        if plain:
            self._touch(binding, elements, lanes, WRITE)
        storage.data[elements] = values
        if storage.initialised is not None:
            storage.initialised[elements] = True
        if self._counters is not None:
            size = binding.buffer.dtype.itemsize
            self._counters.stored[binding.buffer.name] += size * lanes.count
            if storage.produced is not None:
                news = np.unique(elements[~storage.produced[elements]])
                storage.produced[news] = True
                self._counters.produced[binding.buffer.name] += size * len(news)

    def _touch(self, binding: Binding, elements: Integers, lanes: _Lanes, kind: int) -> None:
        clash = binding.storage.clash(elements, kind, lanes.levels)
        if clash is not None:
            lane, level = clash
            message = f"iterations of {level.name} share {binding.buffer.name}"
            self._fail(Race, message, lanes, lane)

    def _fail(self, error: type[LoopError], what: str, lanes: _Lanes, lane: int) -> NoReturn:
        loops = ", ".join(f"{name}={int(v[lane])}" for name, v in lanes.variables.items())
        raise error(f"{what} at {loops}" if loops else what)
