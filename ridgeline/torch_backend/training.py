"""Calls with gradients: forward and backward pass as two programs behind one node of autograd.

The forward program also gives what the backward one reads of it, which a minimum cut decides. The
backward program is compiled when it is first needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.ops.differentiate import reverse
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.torch_backend.capture import CapturedGraph
from ridgeline.torch_backend.forms import maker, memory_at, torch_dtype
from ridgeline.torch_backend.inference import (
    CallMemory,
    increment_version,
    random_key,
    rebuilt,
)
from ridgeline.torch_backend.program import Compiled, compiled
from ridgeline.torch_backend.results import ComputedValue, Results, type_of


@dataclass(frozen=True, slots=True, eq=False)
class _Backward:
    """The gradients of inputs as a graph, and what it reads of the forward pass."""

    gradients: list[Node | None]  # by argument
    cotangents: dict[Node, int]  # by the value that they belong to
    saved: list[Node]  # further outputs of the forward program


def _differentiated(captured: CapturedGraph, values: Sequence[ComputedValue]) -> _Backward:
    tracked = [n for n, value in enumerate(values) if value.tracked]
    cotangents = {leaf(values[n].node.types[0]): n for n in tracked}
    wanted = [i for i in captured.inputs if i is not None and i.variable is not i.leaf]
    roots = [values[n].node for n in tracked]
    found = reverse(roots, list(cotangents), [i.variable for i in wanted])
    by_variable = dict(zip([i.variable for i in wanted], found))
    gradients = [None if i is None else by_variable.get(i.variable) for i in captured.inputs]
    known = _known(captured, values)
    saved = saved_for_backward(roots, lambda n: n in known or n.buffer is not None)
    return _Backward(gradients, cotangents, saved)


def _known(captured: CapturedGraph, values: Sequence[ComputedValue]) -> set[Node]:
    """What is there when the backward pass runs: inputs that stay as they are, and results."""
    known = {v.node for v in values if v.stored is v.node}
    for given in captured.inputs:
        if given is not None and not given.is_written:
            known |= {given.leaf, given.variable}
    if captured.frame.key is not None:
        known.add(captured.frame.key)
    return known


class Training:
    """A captured graph that is run with gradients."""

    def __init__(self, captured: CapturedGraph, results: Results) -> None:
        self.values, self.recipes, self.written = results.values, results.recipes, results.written
        self.forms = [None if i is None else i.form for i in captured.inputs]
        self.key = captured.frame.key
        self.leaves = {i.leaf: i.owner for i in captured.inputs if i is not None}
        self._tensors = [place for place, form in enumerate(self.forms) if form is not None]
        self._graph = _differentiated(captured, self.values)
        stored = [value.stored for value in self.values]
        self._forward = compiled([*stored, *self._graph.saved], captured.frame.own)
        self._inputs = _Inputs(self._forward, self)
        self._makers = [maker(type_of(v)) for v in self.values]
        self._plain = [n for n, value in enumerate(self.values) if not value.tracked]
        # what backward reads of tensors that autograd watches: arguments, then values
        self._kept = self._read_by_backward()
        self._plan: _Plan | None = None
        self._lock = Lock()

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results for the arguments of a call."""
        with torch.enable_grad():
            values = _Step.apply(self, args, *[args[place] for place in self._tensors])
            for written in self.written:
                if self.values[written.number].tracked:
                    form = self.forms[written.place]
                    assert form is not None
                    value, view = values[written.number], form.view
                    args[written.place].copy_(value if view is None else value.permute(view))
            return [rebuilt(recipe, values, args) for recipe in self.recipes]

    def _read_by_backward(self) -> tuple[list[int], list[int]]:
        """Which arguments and which values a backward pass reads."""
        wanted = [node for node in self._graph.gradients if node is not None]
        stop = {*self._graph.saved, *self._graph.cotangents, *self.leaves}
        numbers = {v.node: n for n, v in enumerate(self.values) if v.stored is v.node}
        stop |= {*numbers} if self.key is None else {*numbers, self.key}
        below = Graph.below(wanted, lambda n: n in stop or n.buffer is not None)
        read = [n for n in below.order if below.is_input(n)]
        saved = set(self._graph.saved)
        args = [self.leaves[n] for n in read if n in self.leaves and n not in saved]
        return args, [numbers[n] for n in read if n in numbers and n not in saved]

    def forward(self, ctx: Any, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Run the forward program, and keep for the backward one what it reads."""
        assert self._forward is not None
        key = None if self.key is None else random_key()
        inputs, held = self._inputs.of(args, key)  # held while the program reads their memory
        buffers = self._forward.program.run(inputs)
        count = len(self.values)
        ctx.kept = buffers[count:]
        made = [self._value(n, buffers[n]) for n in range(count)]
        for written in self.written:
            if not self.values[written.number].tracked:
                self._write(args[written.place], written.place, buffers[written.number])
        places, numbers = self._kept
        ctx.key = key
        ctx.save_for_backward(*[held[p] for p in places], *[made[n] for n in numbers])
        ctx.mark_non_differentiable(*[made[n] for n in self._plain])
        return tuple(made)

    def _value(self, number: int, buffer: HostBuffer) -> torch.Tensor:
        made, view = self._makers[number](buffer), self.values[number].view
        return made if view is None else made.permute(view)

    def _write(self, tensor: torch.Tensor, place: int, buffer: HostBuffer) -> None:
        form = self.forms[place]
        assert form is not None
        if form.order is None:
            tensor.copy_(maker(TensorType(form.shape, form.dtype))(buffer))
        else:
            ctypes.memmove(tensor.data_ptr(), buffer.address, buffer.nbytes)
            increment_version(tensor)

    def backward(self, ctx: Any, cotangents: Sequence[Any]) -> list[Any]:
        """The gradients of the tensors that went in."""
        plan = self._plan
        if plan is None:
            with self._lock:
                if self._plan is None:
                    self._plan = _Plan(self, self._graph, self._kept)
            plan = self._plan
        return plan.run(ctx, cotangents, self._tensors)


class _Inputs:
    """Brings the memory of a call to a program."""

    def __init__(self, made: Compiled | None, step: Training) -> None:
        assert made is not None
        self._fixed = made.fixed
        self._slots = [n for n, node in enumerate(made.inputs) if node in step.leaves]
        places = [step.leaves[made.inputs[n]] for n in self._slots]
        self._memory = CallMemory(places, step.forms)
        self._keys = [n for n, node in enumerate(made.inputs) if node is step.key]

    def of(self, args: Sequence[Any], key: torch.Tensor | None) -> tuple[list[Any], Sequence[Any]]:
        """The memory of the program's inputs, and the tensors whose memory it is."""
        inputs = self._fixed.copy()
        buffers, held = self._memory.buffers(args)
        for slot, buffer in zip(self._slots, buffers):
            inputs[slot] = buffer
        for slot in self._keys:
            assert key is not None
            inputs[slot] = memory_at(key.data_ptr(), 8)
        return inputs, held


class _Plan:
    """The backward program, and where each of its inputs comes from."""

    def __init__(self, step: Training, graph: _Backward, kept: tuple[list[int], list[int]]) -> None:
        self._wanted = [n for n, node in enumerate(graph.gradients) if node is not None]
        outputs = [node for node in graph.gradients if node is not None]
        args, numbers = kept
        sources: dict[Node, tuple[str, int]] = {}
        leaves = {place: node for node, place in step.leaves.items()}
        sources |= {leaves[place]: ("kept", n) for n, place in enumerate(args)}
        sources |= {
            step.values[number].node: ("kept", len(args) + n) for n, number in enumerate(numbers)
        }
        sources |= {node: ("saved", n) for n, node in enumerate(graph.saved)}
        sources |= {node: ("cotangent", number) for node, number in graph.cotangents.items()}
        if step.key is not None:
            sources[step.key] = ("key", 0)
        made = compiled(outputs, set(sources))
        assert made is not None, "there are gradients, or no backward pass would run"
        self._program, self._fixed = made.program, made.fixed
        self._sources = [
            (slot, *sources[node]) for slot, node in enumerate(made.inputs) if node in sources
        ]
        self._makers = []
        for place, node in zip(self._wanted, outputs):
            form = step.forms[place]
            assert form is not None
            self._makers.append((maker(node.types[0]), form.view))
        self._types = [value.node.types[0] for value in step.values]

    def run(self, ctx: Any, cotangents: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """Run the program over what the forward pass kept."""
        inputs, held, kept = self._fixed.copy(), [], ctx.saved_tensors
        for slot, kind, number in self._sources:
            if kind == "saved":
                inputs[slot] = ctx.kept[number]
                continue
            if kind == "kept":
                tensor = kept[number]
            elif kind == "key":
                tensor = ctx.key
            else:
                tensor = self._cotangent(cotangents[number], number)
                held.append(tensor)
            inputs[slot] = memory_at(tensor.data_ptr(), tensor.nbytes)
        buffers = self._program.run(inputs)
        found: dict[int, torch.Tensor] = {}
        for place, (make, view), buffer in zip(self._wanted, self._makers, buffers):
            made = make(buffer)
            found[place] = made if view is None else made.permute(view)
        return [found.get(place) for place in places]

    def _cotangent(self, given: torch.Tensor | None, number: int) -> torch.Tensor:
        kind = self._types[number]
        if given is None:
            return torch.zeros(kind.shape, dtype=torch_dtype(kind.dtype))
        return given.contiguous().resolve_conj().resolve_neg()


class _Step(torch.autograd.Function):  # type: ignore[misc]  # torch is seen without types
    """One compiled graph, for autograd."""

    @staticmethod
    def forward(ctx: Any, step: Training, args: Sequence[Any], *tensors: Any) -> Any:
        """The values of the forward program."""
        ctx.step = step
        ctx.set_materialize_grads(False)
        return step.forward(ctx, args)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of the arguments."""
        return (None, None, *ctx.step.backward(ctx, cotangents))
