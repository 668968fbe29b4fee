"""Calls without gradients: one run of a program over the tensors of a call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from ridgeline.runtime.buffer import HostBuffer
from ridgeline.torch_backend.capture import CapturedGraph
from ridgeline.torch_backend.forms import TensorForm, maker, memory_at
from ridgeline.torch_backend.program import compiled
from ridgeline.torch_backend.results import (
    Constant,
    InputItself,
    PartOfInput,
    PartOfValue,
    Recipe,
    Results,
    Several,
    ValueItself,
    Written,
    type_of,
)

increment_version = torch.autograd.graph.increment_version


class CallMemory:
    """The memory of the tensors of a call, by place; looked up again only where it has moved."""

    def __init__(self, places: Sequence[int], forms: Sequence[TensorForm | None]) -> None:
        self._places = list(places)
        self._forms = [forms[place] for place in places]
        self._copied = {p for p, form in zip(places, self._forms) if form and form.order is None}
        self._last: tuple[list[int], list[HostBuffer]] = ([], [])

    def buffers(self, args: Sequence[Any]) -> tuple[list[HostBuffer], Sequence[Any]]:
        """The memory that a program reads, and the tensors that must be held while it does.

        What does not lie densely is copied.
        """
        if self._copied:
            args = list(args)
            for place in self._copied:
                args[place] = args[place].contiguous().resolve_conj().resolve_neg()
        addresses = [args[place].data_ptr() for place in self._places]
        known, buffers = self._last
        if addresses != known:
            sizes = [form.nbytes for form in self._forms if form is not None]
            buffers = [memory_at(a, n) for a, n in zip(addresses, sizes)]
            self._last = addresses, buffers
        return buffers, args


def random_key() -> torch.Tensor:
    """Where the stream of a call begins, drawn from torch's generator."""
    return torch.empty((), dtype=torch.int64).random_()


class Inference:
    """A captured graph that is run without gradients."""

    def __init__(self, captured: CapturedGraph, results: Results) -> None:
        leaves = {i.leaf: i.owner for i in captured.inputs if i is not None}
        key = captured.frame.key
        self._forms = [None if i is None else i.form for i in captured.inputs]
        made = compiled([v.stored for v in results.values], captured.frame.own)
        self._program = None if made is None else made.program
        self._fixed = [] if made is None else made.fixed
        inputs = [] if made is None else made.inputs
        self._slots = [n for n, node in enumerate(inputs) if node in leaves]
        self._memory = CallMemory([leaves[inputs[n]] for n in self._slots], self._forms)
        self._key_slots = [n for n, node in enumerate(inputs) if node is key]
        self._makers = [maker(type_of(v)) for v in results.values]
        self._views = [value.view for value in results.values]
        self._written, self._recipes = results.written, results.recipes
        fresh = {w.number for w in results.written if self._is_dense(w)}
        self._returned = [n for n in range(len(results.values)) if n not in fresh]

    def _is_dense(self, written: Written) -> bool:
        form = self._forms[written.place]
        return form is not None and form.order is not None

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results for the arguments of a call."""
        buffers = self.run(args)
        values: list[Any] = [None] * len(buffers)
        for number in self._returned:
            values[number] = self._value(number, buffers[number])
        for written in self._written:
            self._write(args[written.place], written, buffers, values)
        return [rebuilt(recipe, values, args) for recipe in self._recipes]

    def run(self, args: Sequence[Any]) -> list[HostBuffer]:
        """Run the program: the memory of its values."""
        if self._program is None:
            return []
        inputs = self._fixed.copy()
        buffers, held = self._memory.buffers(args)
        for slot, buffer in zip(self._slots, buffers):
            inputs[slot] = buffer
        if self._key_slots:
            key = random_key()
            for slot in self._key_slots:
                inputs[slot] = memory_at(key.data_ptr(), 8)
            return self._program.run(inputs)
        made = self._program.run(inputs)
        del held
        return made

    def _value(self, number: int, buffer: HostBuffer) -> torch.Tensor:
        made = self._makers[number](buffer)
        view = self._views[number]
        return made if view is None else made.permute(view)

    def _write(
        self, tensor: torch.Tensor, written: Written, buffers: list[HostBuffer], values: list[Any]
    ) -> None:
        """Put what the graph has written into the memory of a tensor that went in."""
        buffer = buffers[written.number]
        if values[written.number] is None:
            ctypes.memmove(tensor.data_ptr(), buffer.address, buffer.nbytes)
            if not tensor.is_inference():
                increment_version(tensor)
            return
        with torch.no_grad():
            tensor.copy_(values[written.number])


def rebuilt(recipe: Recipe, values: Sequence[Any], args: Sequence[Any]) -> Any:
    """A result of the values that were computed and the tensors that went in."""
    if isinstance(recipe, ValueItself):
        return values[recipe.number]
    if isinstance(recipe, PartOfValue):
        return values[recipe.number].as_strided(recipe.size, recipe.stride, recipe.offset)
    if isinstance(recipe, InputItself):
        return args[recipe.place]
    if isinstance(recipe, PartOfInput):
        base = args[recipe.place]
        base = base.detach() if recipe.detached else base
        return base.as_strided(recipe.size, recipe.stride, base.storage_offset() + recipe.offset)
    if isinstance(recipe, Constant):
        return recipe.value
    assert isinstance(recipe, Several)
    return recipe.kind([rebuilt(part, values, args) for part in recipe.parts])
