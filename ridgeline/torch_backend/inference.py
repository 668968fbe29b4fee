"""Calls without gradients: one run of a program over the tensors of a call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ridgeline.devices import CPU
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Sym
from ridgeline.torch_backend.capture import CapturedGraph
from ridgeline.torch_backend.forms import TensorForm, usable
from ridgeline.torch_backend.program import Compiled, NodesToCompute, Places
from ridgeline.torch_backend.results import (
    Constant,
    InputItself,
    PartOfInput,
    PartOfValue,
    Recipe,
    Results,
    Several,
    SpreadValue,
    ValueItself,
    Written,
)
from ridgeline.torch_backend.tensor_programs import TensorProgram, over_tensors

increment_version = torch.autograd.graph.increment_version


def random_key() -> torch.Tensor:
    """Where the stream of a call begins, drawn from torch's generator."""
    return torch.empty((), dtype=torch.int64).random_()


def places_of(captured: CapturedGraph) -> Places:
    """Where a program finds what it reads: tensors by place, and the key behind them."""
    places = {i.leaf: i.owner for i in captured.inputs if i is not None}
    if captured.frame.key is not None:
        places[captured.frame.key] = len(captured.inputs)
    return Places(places, {})


class InferenceCode:
    """A captured graph without gradients, and its programs."""

    def __init__(
        self, captured: CapturedGraph, results: Results, unknowns: Sequence[Sym] = ()
    ) -> None:
        self.forms = [None if i is None else i.form for i in captured.inputs]
        self.draws = captured.frame.key is not None
        self.results = results
        stored = [value.stored for value in results.values]
        self.values = NodesToCompute(stored, places_of(captured), captured.state, unknowns)

    @property
    def is_open(self) -> bool:
        """True where it is compiled for unknown sizes."""
        return self.values.is_open

    def runner(self) -> Inference:
        """What runs it, where all sizes are known."""
        return Inference(self, self.results, self.forms, self.values.program)

    def at(
        self, settled: Settled, forms: Sequence[TensorForm | None], own: bool = False
    ) -> Inference:
        """What runs it for tensors of these forms; with `own` by code for their sizes alone."""
        find = self.values.own if own else self.values.program
        return Inference(self, self.results.at(settled), forms, partial(find, settled))


class Inference:
    """A captured graph that is run without gradients."""

    def __init__(
        self,
        code: InferenceCode,
        results: Results,
        forms: Sequence[TensorForm | None],
        find: Callable[[], Compiled],
    ) -> None:
        self._forms, self._draws = forms, code.draws
        self._written, self._recipes = results.written, results.recipes
        copied = {w.number for w in results.written if self._is_dense(w)}
        numbers = range(len(results.values))
        asked = [None if n in copied else results.values[n].shown for n in numbers]
        self._run: TensorProgram = over_tensors(find(), asked) if asked else _nothing
        self._copied = copied_places(forms)
        whole = results.recipes == [ValueItself(number) for number in numbers]
        self._is_plain = whole and not results.written

    def _is_dense(self, written: Written) -> bool:
        form = self._forms[written.place]
        return form is not None and form.order is not None and form.device == CPU

    def prepare(self) -> None:
        """All that it runs is compiled."""

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results for the arguments of a call."""
        values = self._run(self._given(args), ())
        if self._is_plain:
            return values
        for written in self._written:
            self._write(args[written.place], values[written.number])
        return [rebuilt(recipe, values, args) for recipe in self._recipes]

    def _given(self, args: Sequence[Any]) -> Sequence[Any]:
        """What the program reads: what does not lie densely is copied."""
        if self._copied:
            args = dense(args, self._copied, self._forms)
        return [*args, random_key()] if self._draws else args

    def _write(self, tensor: torch.Tensor, value: Any) -> None:
        """Put what the graph has written into the memory of a tensor that went in."""
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                tensor.copy_(value)
            return
        ctypes.memmove(tensor.data_ptr(), value.address, value.nbytes)
        if not tensor.is_inference():
            increment_version(tensor)


def _nothing(tensors: Sequence[Any], held: Sequence[Any]) -> list[Any]:
    """The program of a graph that computes nothing."""
    return []


def copied_places(forms: Sequence[TensorForm | None]) -> list[int]:
    """The tensors that do not lie densely."""
    return [place for place, form in enumerate(forms) if form is not None and form.order is None]


def dense(
    args: Sequence[Any], places: Sequence[int], forms: Sequence[TensorForm | None]
) -> list[Any]:
    """The arguments of a call, some of them copied."""
    made = list(args)
    for place in places:
        form = forms[place]
        assert form is not None, "only tensors are copied"
        made[place] = usable(made[place], form.device)
    return made


def rebuilt(recipe: Recipe, values: Sequence[Any], args: Sequence[Any]) -> Any:
    """A result of the values that were computed and the tensors that went in."""
    if isinstance(recipe, ValueItself):
        return values[recipe.number]
    if isinstance(recipe, PartOfValue):
        return values[recipe.number].as_strided(recipe.size, recipe.stride, recipe.offset)
    if isinstance(recipe, SpreadValue):
        value = values[recipe.number]
        made = torch.empty_strided(
            recipe.size, recipe.stride, dtype=value.dtype, device=value.device
        )
        return made.copy_(value)
    if isinstance(recipe, InputItself):
        return args[recipe.place]
    if isinstance(recipe, PartOfInput):
        base = args[recipe.place]
        base = base.detach() if recipe.detached else base
        base = base if recipe.dtype is None else base.view(recipe.dtype)
        return base.as_strided(recipe.size, recipe.stride, base.storage_offset() + recipe.offset)
    if isinstance(recipe, Constant):
        return recipe.value
    assert isinstance(recipe, Several)
    return recipe.kind([rebuilt(part, values, args) for part in recipe.parts])
