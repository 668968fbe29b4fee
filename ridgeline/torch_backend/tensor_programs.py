"""Programs as functions of tensors: where they read and write is memory of torch's.

A program of the host that is one native plan is called with the addresses of tensors, its results
made by torch beforehand: a small call is then little more than that. Any other one, and all on a
GPU, go by memory as the runtime knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import attrgetter, itemgetter
from typing import Any, Protocol, TypeAlias

import torch

from ridgeline.devices import CPU, device
from ridgeline.dtypes import bool_
from ridgeline.graph.node import Node, TensorType
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.torch_backend.forms import maker, memory_of, torch_dtype
from ridgeline.torch_backend.gpu import ALIGNED, aligned, torch_stream
from ridgeline.torch_backend.program import Compiled

# results as large are taken from our pool, where pages are that were used before
_LARGE = 1 << 20

_address = torch.Tensor.data_ptr
_address_of_buffer = attrgetter("address")


@dataclass(frozen=True, slots=True)
class Result:
    """What a program gives as a tensor: its memory, and how that is permuted to show it."""

    kind: TensorType
    view: tuple[int, ...] | None


class TensorProgram(Protocol):
    """A program over tensors and memory; both must be held until it returns.

    Its results are tensors, and memory where nobody asked for a tensor.
    """

    def __call__(self, tensors: Sequence[torch.Tensor], held: Sequence[Any]) -> list[Any]: ...


def over_tensors(made: Compiled, results: Sequence[Result | None]) -> TensorProgram:
    """A program as a function of tensors; None among the results stands for memory."""
    plain = getattr(getattr(made.program, "executable", None), "plain", lambda: None)()
    general = _ByMemory(made, results)
    if plain is None or not _shows_all(plain, results):
        return general
    return _ByAddress(made, results, plain, general)


def _shows_all(plain: Any, results: Sequence[Result | None]) -> bool:
    """True where all that is made is a result, and what is given several times is one tensor."""
    shown: dict[int, Result | None] = {}
    for number, result in zip(plain.results, results):
        if number in shown and (result is None or shown[number] != result):
            return False
        shown[number] = result
    return {*shown, *(() if plain.flag is None else (plain.flag,))} == {*range(len(plain.made))}


class _ByAddress:
    """One native call over addresses."""

    def __init__(
        self,
        made: Compiled,
        results: Sequence[Result | None],
        plain: Any,
        general: _ByMemory,
    ) -> None:
        self._general, self._plan = general, plain.plan
        self._constants = [memory for memory in made.fixed if memory is not None]
        tensors, held = _slots(made, made.places.tensors), _slots(made, made.places.held)
        fixed = [slot for slot, memory in enumerate(made.fixed) if memory is not None]
        self._tensors, self._held = _picked([p for _, p in tensors]), _picked([p for _, p in held])
        self._fixed = [memory.address for memory in self._constants]
        found = [*(slot for slot, _ in (*tensors, *held)), *fixed]
        self._sorted = _in_order([found.index(slot) for slot in range(len(found))])
        self._sizes = plain.sizes
        self._is_checked = plain.flag is not None
        # what is made: tensors, then memory, then a flag; each of them once
        wanted = list(zip(plain.results, results))
        shown = {number: result for number, result in wanted if result is not None}
        held = [number for number, result in wanted if result is None]
        self._new = [_new(result) for result in shown.values()]
        held += [] if plain.flag is None else [plain.flag]
        self._bytes = [plain.made[number] for number in held]
        order = [*shown, *held]
        self._order = _in_order([order.index(n) for n in range(len(plain.made))])
        self._gives = _in_order([order.index(n) for n in plain.results], len(order))
        given = plain.results
        self._again = [place for place, n in enumerate(given) if n in given[:place]]

    def __call__(self, tensors: Sequence[torch.Tensor], held: Sequence[Any]) -> list[Any]:
        """Run: the results."""
        addresses = list(map(_address, self._tensors(tensors)))
        addresses += map(_address_of_buffer, self._held(held))
        addresses += self._fixed
        if self._sorted is not None:
            addresses = list(self._sorted(addresses))
        addresses += self._sizes
        made: list[Any] = [new() for new in self._new]
        if not self._bytes and self._order is None:
            addresses += map(_address, made)
            self._plan.run(addresses)
        else:
            memory = [HostBuffer.allocate(count) for count in self._bytes]
            found = [*map(_address, made), *map(_address_of_buffer, memory)]
            addresses += found if self._order is None else self._order(found)
            self._plan.run(addresses)
            if self._is_checked and _flag(memory[-1]):
                return self._general(tensors, held)  # which says what is wrong
            made += memory
        if self._gives is not None:
            made = list(self._gives(made))
        for place in self._again:
            made[place] = made[place].clone()
        return made


Picked: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


def _picked(places: Sequence[int]) -> Picked:
    """What takes these of some values."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]


def _in_order(numbers: list[int], count: int | None = None) -> Picked | None:
    """The same; None for all of so many, as they come."""
    whole = list(range(len(numbers) if count is None else count))
    return None if numbers == whole else _picked(numbers)


def _flag(memory: HostBuffer) -> bool:
    return bool(memory.array(bool_, ()))


def _new(result: Result) -> Callable[[], torch.Tensor]:
    """What makes a tensor on the host for a result."""
    kind, view = result.kind, result.view
    shape = tuple(map(int, kind.shape))
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if prod(shape) * kind.dtype.itemsize >= _LARGE:
        make = maker(kind)
        return partial(_pooled, prod(shape) * kind.dtype.itemsize, make, view)
    order = range(len(shape)) if view is None else view
    size, stride = [shape[axis] for axis in order], [strides[axis] for axis in order]
    return partial(torch.empty_strided, size, stride, dtype=torch_dtype(kind.dtype))


def _pooled(nbytes: int, make: Callable[[Any], Any], view: Sequence[int] | None) -> torch.Tensor:
    made: torch.Tensor = make(HostBuffer.allocate(nbytes))
    return made if view is None else made.permute(view)


class _ByMemory:
    """A run over memory as the runtime knows it, on any device."""

    def __init__(self, made: Compiled, results: Sequence[Result | None]) -> None:
        self._run, self._fixed = made.run, made.fixed
        self._tensors = _slots(made, made.places.tensors)
        kinds = [made.inputs[slot].types[0] for slot, _ in self._tensors]
        self._homes = [device(kind.device) for kind in kinds]
        self._on_gpu = [
            place for (_, place), home in zip(self._tensors, self._homes) if home != CPU
        ]
        self._gpu = made.gpu or 0
        self._held = _slots(made, made.places.held)
        self._makers = [None if r is None else (maker(r.kind), r.view) for r in results]
        self._last: tuple[list[int], list[Any]] = ([], [])

    def __call__(self, tensors: Sequence[torch.Tensor], held: Sequence[Any]) -> list[Any]:
        """Run: the results."""
        inputs = self._fixed.copy()
        memory, kept = self._memory(tensors)
        for (slot, _), buffer in zip(self._tensors, memory):
            inputs[slot] = buffer
        for slot, place in self._held:
            inputs[slot] = held[place]
        buffers = self._run(inputs)
        del kept
        return list(map(_shown, buffers, self._makers))

    def _memory(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], Sequence[Any]]:
        """The memory of tensors, looked up again only where it has moved, and what holds it.

        On a GPU it is used in the order of torch's current stream.
        """
        addresses = [tensors[place].data_ptr() for _, place in self._tensors]
        if self._on_gpu:
            if any(tensors[place].data_ptr() % ALIGNED for place in self._on_gpu):
                tensors = list(tensors)
                for place in self._on_gpu:
                    tensors[place] = aligned(tensors[place])
                return self._looked_up(tensors), tensors
            addresses.append(id(torch_stream(self._gpu)))
        known, memory = self._last
        if addresses != known:
            memory = self._looked_up(tensors)
            self._last = addresses, memory
        return memory, tensors

    def _looked_up(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        found = zip(self._tensors, self._homes)
        return [
            memory_of(tensors[place], home, tensors[place].nbytes) for (_, place), home in found
        ]


def _shown(memory: Any, how: tuple[Callable[[Any], Any], Sequence[int] | None] | None) -> Any:
    """Memory as a tensor, or itself."""
    if how is None:
        return memory
    made = how[0](memory)
    return made if how[1] is None else made.permute(how[1])


def _slots(made: Compiled, places: Mapping[Node, int]) -> list[tuple[int, int]]:
    """The inputs of a program that are among some places."""
    return [(slot, places[node]) for slot, node in enumerate(made.inputs) if node in places]
