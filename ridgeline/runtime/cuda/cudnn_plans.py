"""How cuDNN computes a graph: the best engine that it ranks, and a step that runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from ctypes import addressof, c_float, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ridgeline.runtime.cuda.cudnn_api import (
    Attribute,
    Descriptor,
    Descriptors,
    Type,
    check,
    handle,
    library,
)
from ridgeline.runtime.cuda.steps import ArgumentWords

_BEST_FIRST, _LAST_RESORT = 3, 2  # heuristics: those that rank engines, those that always have one
_MOST_ENGINES = 16
_MOST_NOTES = 16
_MOST_WORKSPACE = 1 << 30
_executing = threading.Lock()  # a handle serves one thread at a time


class Note(IntEnum):
    """Numerical notes of an engine (cudnnBackendNumericalNote_t)."""

    TENSOR_CORE = 0
    DOWN_CONVERT = 1
    NONDETERMINISTIC = 4


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How the library computes a graph."""

    descriptor: Descriptor
    workspace: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """Memory of a tensor: a slot, and bytes behind its address."""

    slot: int
    offset: int = 0


class GraphStep:
    """One call of the library; memory and numbers are by the numbers of their tensors."""

    waits = False

    def __init__(
        self,
        device: int,
        plan: EnginePlan,
        memory: Mapping[int, Pointer],
        workspace_slot: int,
        words: ArgumentWords,
        values: Mapping[int, float] | None = None,
    ) -> None:
        self.slots = frozenset((*(at.slot for at in memory.values()), workspace_slot))
        self._values = [c_float(value) for value in (values or {}).values()]
        self._ids = [*memory, *(values or {})]
        self._places = list(memory.values())
        self._workspace, self._words = workspace_slot, words
        self._handle, self._plan = handle(device), plan.descriptor
        self._packed: tuple[list[int], Descriptor] | None = None

    def enqueue(self, stream: Any) -> None:
        """Put the call onto a stream, with the addresses as they are now."""
        pack = self._pack()
        with _executing:
            check(library().cudnnSetStream(self._handle, c_void_p(int(stream))), "cudnnSetStream")
            status = library().cudnnBackendExecute(self._handle, self._plan.raw, pack.raw)
        check(status, "a call of a graph")

    def _pack(self) -> Descriptor:
        """The addresses as the library takes them; those of the last call are kept."""
        words = self._words
        pointers = [words[at.slot] + at.offset for at in self._places]
        pointers += [*map(addressof, self._values), words[self._workspace]]
        if self._packed is not None and self._packed[0] == pointers:
            return self._packed[1]
        pack = Descriptor(Descriptors.VARIANT_PACK)
        pack.set(Attribute.PACK_IDS, Type.INT64, self._ids)
        pack.set(Attribute.PACK_POINTERS, Type.POINTER, pointers[:-1])
        pack.set(Attribute.PACK_WORKSPACE, Type.POINTER, pointers[-1:])
        self._packed = pointers, pack.finalize()
        return pack


def best_plan(
    device: int, graph: Descriptor, refused: Set[Note] = frozenset()
) -> EnginePlan | None:
    """The first engine of the library's ranking of which none of these is noted, if any."""
    for config in _configurations(graph):
        if refused and not refused.isdisjoint(_notes(config)):
            continue
        made = Descriptor(Descriptors.PLAN)
        made.set(Attribute.PLAN_HANDLE, Type.HANDLE, [handle(device)])
        made.set(Attribute.PLAN_CONFIG, Type.DESCRIPTOR, [config])
        if made.status():
            continue
        (workspace,) = made.get(Attribute.PLAN_WORKSPACE, Type.INT64, 1)
        if workspace <= _MOST_WORKSPACE:
            return EnginePlan(made, workspace)
    return None


def _notes(config: Descriptor) -> list[int]:
    (engine,) = config.parts(Attribute.CONFIG_ENGINE, Descriptors.ENGINE, 1)
    return engine.get(Attribute.ENGINE_NOTES, Type.NUMERICAL_NOTE, _MOST_NOTES)


def graph_of(device: int, operations: Sequence[Descriptor]) -> Descriptor:
    """Operations as one graph for a device."""
    graph = Descriptor(Descriptors.GRAPH)
    graph.set(Attribute.GRAPH_OPERATIONS, Type.DESCRIPTOR, operations)
    return graph.set(Attribute.GRAPH_HANDLE, Type.HANDLE, [handle(device)]).finalize()


def _configurations(graph: Descriptor) -> Iterator[Descriptor]:
    """Engines with their settings, best first."""
    for mode in (_BEST_FIRST, _LAST_RESORT):
        ranking = Descriptor(Descriptors.HEURISTICS)
        ranking.set(Attribute.HEURISTICS_GRAPH, Type.DESCRIPTOR, [graph])
        ranking.set(Attribute.HEURISTICS_MODE, Type.HEURISTIC_MODE, [mode])
        if not ranking.status():
            yield from ranking.parts(
                Attribute.HEURISTICS_RESULTS, Descriptors.ENGINE_CONFIG, _MOST_ENGINES
            )
