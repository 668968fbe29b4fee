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

from ridgeline.devices import CPU, device
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Sym
from ridgeline.ops.differentiate import reverse
from ridgeline.torch_backend.capture import CapturedGraph
from ridgeline.torch_backend.forms import TensorForm, torch_dtype, usable
from ridgeline.torch_backend.inference import (
    InferenceCode,
    copied_places,
    dense,
    increment_version,
    places_of,
    random_key,
    rebuilt,
)
from ridgeline.torch_backend.program import Compiled, NodesToCompute, Places
from ridgeline.torch_backend.results import ComputedValue, Results, ValueItself
from ridgeline.torch_backend.tensor_programs import Result, TensorProgram, over_tensors


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


class TrainingCode:
    """A captured graph with gradients, and the programs of its two passes."""

    def __init__(
        self, captured: CapturedGraph, results: Results, unknowns: Sequence[Sym] = ()
    ) -> None:
        self.results, self.forms = results, [None if i is None else i.form for i in captured.inputs]
        self.draws = captured.frame.key is not None
        with captured.frame.inside():  # the user's own backward passes are recorded here
            self.graph = _differentiated(captured, results.values)
        stored = [value.stored for value in results.values]
        forward = [*stored, *self.graph.saved]
        self.forward = NodesToCompute(forward, places_of(captured), captured.state, unknowns)
        self.kept, places = _read_by_backward(captured, results, self.graph)
        wanted = [node for node in self.graph.gradients if node is not None]
        self.backward = NodesToCompute(wanted, places, captured.state, unknowns)

    @property
    def is_open(self) -> bool:
        """True where it is compiled for unknown sizes."""
        return self.forward.is_open

    def runner(self) -> Training:
        """What runs it, where all sizes are known."""
        return Training(self, self.results, self.forms, None)

    def at(
        self, settled: Settled, forms: Sequence[TensorForm | None], own: bool = False
    ) -> Training:
        """What runs it for tensors of these forms; with `own` by programs for their sizes alone."""
        return Training(self, self.results.at(settled), forms, settled, own)


def code_of(
    captured: CapturedGraph, results: Results, unknowns: Sequence[Sym] = ()
) -> InferenceCode | TrainingCode:
    """A captured graph with what runs it: with gradients where a result has some."""
    tracked = any(value.tracked for value in results.values)
    return (TrainingCode if tracked else InferenceCode)(captured, results, unknowns)


def _read_by_backward(
    captured: CapturedGraph, results: Results, graph: _Backward
) -> tuple[tuple[list[int], list[int]], Places]:
    """Which arguments and which values a backward pass reads, and where it finds all it reads.

    Its tensors are those that autograd keeps, then a cotangent for each value, then the key.
    """
    leaves = {i.leaf: i.owner for i in captured.inputs if i is not None}
    numbers = {v.node: n for n, v in enumerate(results.values) if v.stored is v.node}
    wanted = [node for node in graph.gradients if node is not None]
    stop = {*graph.saved, *graph.cotangents, *leaves, *numbers}
    stop |= set() if captured.frame.key is None else {captured.frame.key}
    below = Graph.below(wanted, lambda n: n in stop or n.buffer is not None)
    read = [n for n in below.order if below.is_input(n)]
    saved = set(graph.saved)
    args = [leaves[n] for n in read if n in leaves and n not in saved]
    values = [numbers[n] for n in read if n in numbers and n not in saved and n not in leaves]
    leaf_of = {place: node for node, place in leaves.items()}
    kept = [*(leaf_of[place] for place in args), *(results.values[n].node for n in values)]
    tensors = {node: number for number, node in enumerate(kept)}
    tensors |= {node: len(kept) + number for node, number in graph.cotangents.items()}
    if captured.frame.key is not None:
        tensors[captured.frame.key] = len(kept) + len(results.values)
    held = {node: number for number, node in enumerate(graph.saved)}
    return (args, values), Places(tensors, held)


class Training:
    """A captured graph that is run with gradients."""

    def __init__(
        self,
        code: TrainingCode,
        results: Results,
        forms: Sequence[TensorForm | None],
        settled: Settled | None,
        own: bool = False,
    ) -> None:
        self._code, self._settled, self._own = code, settled, own
        self._values, self._written = results.values, results.written
        self._forms, self._copied = forms, copied_places(forms)
        # what autograd watches: it has nothing to do with the others
        self._watched = [n for n, form in enumerate(forms) if form and form.requires_grad]
        shown = [value.shown for value in results.values]
        saved = [None] * len(code.graph.saved)
        self._forward = over_tensors(self._program(code.forward), [*shown, *saved])
        self._plain = [n for n, value in enumerate(results.values) if not value.tracked]
        self._recipes = results.recipes
        self._is_whole = results.recipes == [ValueItself(n) for n in range(len(results.values))]
        self._backward: _GradientProgram | None = None
        self._lock = Lock()

    def _program(self, nodes: NodesToCompute) -> Compiled:
        if self._own and self._settled is not None:
            return nodes.own(self._settled)
        return nodes.program(self._settled)

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        """The results for the arguments of a call."""
        if torch.is_grad_enabled():
            return self._applied(args)
        with torch.enable_grad():
            return self._applied(args)

    def _applied(self, args: Sequence[Any]) -> Sequence[Any]:
        apply = _Step.apply if transforms_active() else _apply
        values = apply(self, args, *[args[place] for place in self._watched])
        for written in self._written:
            if self._values[written.number].tracked:
                form = self._forms[written.place]
                assert form is not None
                value, view = values[written.number], form.view
                args[written.place].copy_(value if view is None else value.permute(view))
        if self._is_whole:
            return values  # type: ignore[no-any-return]  # what autograd gives
        return [rebuilt(recipe, values, args) for recipe in self._recipes]

    def forward(self, ctx: Any, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Run the forward program, and keep for the backward one what it reads."""
        given = dense(args, self._copied, self._forms) if self._copied else args
        ctx.key = random_key() if self._code.draws else None
        made = self._forward(given if ctx.key is None else [*given, ctx.key], ())
        count = len(self._values)
        ctx.held, values = made[count:], made[:count]
        for written in self._written:
            if not self._values[written.number].tracked:
                self._write(args[written.place], written.place, values[written.number])
        places, numbers = self._code.kept
        ctx.save_for_backward(*[given[p] for p in places], *[values[n] for n in numbers])
        if self._plain:
            ctx.mark_non_differentiable(*[values[n] for n in self._plain])
        return tuple(values)

    def _write(self, tensor: torch.Tensor, place: int, value: torch.Tensor) -> None:
        form = self._forms[place]
        assert form is not None
        if form.order is None or form.device != CPU:
            tensor.copy_(value if form.view is None else value.permute(form.view))
        else:
            ctypes.memmove(tensor.data_ptr(), value.data_ptr(), value.nbytes)
            increment_version(tensor)

    def backward(self, ctx: Any, cotangents: Sequence[Any]) -> list[Any]:
        """The gradients of the tensors that are watched."""
        run = self._backward or self.prepare()
        return run(ctx, cotangents)

    def prepare(self) -> _GradientProgram:
        """Have the backward pass compiled, which else is when it is first needed."""
        with self._lock:
            if self._backward is None:
                self._backward = self._gradients()
            return self._backward

    def _gradients(self) -> _GradientProgram:
        made = self._program(self._code.backward)
        wanted = [n for n, node in enumerate(self._code.graph.gradients) if node is not None]
        results = [self._gradient_of(place) for place in wanted]
        numbers = self._code.graph.cotangents.values()
        kinds = [value.shown for value in self._values]
        read = {place for node, place in made.places.tensors.items() if node in {*made.inputs}}
        return _GradientProgram(
            over_tensors(made, results),
            {n: kinds[n] for n in numbers if sum(map(len, self._code.kept)) + n in read},
            len(self._values),
            [wanted.index(place) if place in wanted else None for place in self._watched],
        )

    def _gradient_of(self, place: int) -> Result:
        """How a gradient lies: as the tensor does that it belongs to."""
        form = self._forms[place]
        assert form is not None
        return Result(TensorType(form.memory_shape, form.dtype, str(form.device)), form.view)


class _GradientProgram:
    """The backward program of a graph, over what autograd has kept and gradients that it gives."""

    def __init__(
        self,
        run: TensorProgram,
        read: dict[int, Result],
        count: int,
        order: Sequence[int | None],
    ) -> None:
        """`read` are the values whose gradients it reads, of so many.

        For each tensor that autograd watches `order` says which result is its gradient.
        """
        self._run, self._read, self._none = run, read, [None] * count
        self._order = None if list(order) == list(range(len(order))) else list(order)

    def __call__(self, ctx: Any, cotangents: Sequence[Any]) -> list[Any]:
        """The gradients of the tensors that autograd watches."""
        given: list[Any] = self._none.copy()
        for number, shown in self._read.items():
            given[number] = _cotangent(cotangents[number], shown)
        found = self._run([*ctx.saved_tensors, *given, ctx.key], ctx.held)
        if self._order is None:
            return found
        return [None if number is None else found[number] for number in self._order]


def _cotangent(given: torch.Tensor | None, shown: Result) -> torch.Tensor:
    """A gradient of a value as the program reads it; zeros where nobody asks for one."""
    kind = shown.kind
    if given is not None:
        return usable(given, device(kind.device))
    shape = kind.shape if shown.view is None else [kind.shape[axis] for axis in shown.view]
    return torch.zeros(shape, dtype=torch_dtype(kind.dtype), device=kind.device)


class _Step(torch.autograd.Function):  # type: ignore[misc]  # torch is seen without types
    """One compiled graph, for autograd."""

    @staticmethod
    def forward(ctx: Any, step: Training, args: Sequence[Any], *tensors: Any) -> Any:
        """The values of the forward program."""
        ctx.step = step
        ctx.set_materialize_grads(False)
        return step.forward(ctx, args)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of the arguments."""
        if not torch.is_grad_enabled():
            return (None, None, *ctx.step.backward(ctx, cotangents))
        with torch.no_grad():
            found = ctx.step.backward(ctx, cotangents)
        return (None, None, *_only_once(found))


def _only_once(gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
    """Gradients of which nobody can take a derivative: who tries is told."""
    refuse = torch._C._functions.DelayedError(
        b"a function that ridgeline has compiled is differentiated twice: leave it, or the part of "
        b"it that needs this, uncompiled (torch.compiler.disable)",
        len(gradients),
    )
    made: Sequence[torch.Tensor | None] = refuse(
        *[None if g is None else g.detach().requires_grad_() for g in gradients]
    )
    return made


# Python's part of `apply` is for transforms of torch.func only, and takes longer than a small graph
_apply = super(torch.autograd.Function, _Step).apply
transforms_active = torch._C._are_functorch_transforms_active
