"""Graphs for changing sizes: captured once over unknowns, and run for the sizes of each call.

Code for all sizes is there at once for new ones, and slower than code that is made for one. So
sizes that come again and again get their own, which is compiled beside the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule

from ridgeline.compiler.background import background, report_defect
from ridgeline.config import config
from ridgeline.errors import RidgelineError
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Size, evaluate
from ridgeline.torch_backend.capture import CallError, capture
from ridgeline.torch_backend.forms import TensorForm
from ridgeline.torch_backend.inference import Inference, InferenceCode
from ridgeline.torch_backend.results import results_of
from ridgeline.torch_backend.scalars import as_key, shown
from ridgeline.torch_backend.state import TorchState
from ridgeline.torch_backend.symbols import Symbols, Unknowns, unknowns_of
from ridgeline.torch_backend.training import Training, TrainingCode, code_of

MOST_KINDS = 8  # of sizes, for which a graph is captured by itself
# calls with the same sizes after which code of their own is begun; so many later it is used
OFTEN = 32
SHARE = 8  # for sizes to which at least one in so many calls belongs

Forms: TypeAlias = Sequence[TensorForm | None]


class OpenGraph:
    """A graph whose sizes change, and what it was captured as."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._captured: list[OpenCapture] = []
        self._refused: set[Any] = set()  # what cannot be captured so
        self.calls = 0  # at all sizes

    def at(self, args: Sequence[Any], forms: Forms) -> RunAtSizes | None:
        """What runs it for arguments like these; None where each size needs a capture."""
        unknowns = unknowns_of(self._module, args) if config.tier != "interpreter" else None
        if unknowns is None or _key(unknowns, args, forms) in self._refused:
            return None
        found = next((c for c in self._captured if c.holds_at(unknowns, args, forms)), None)
        if found is None and len(self._captured) < MOST_KINDS:
            found = self._capture(args, forms, unknowns)
        if found is None:
            self._refused.add(_key(unknowns, args, forms))
            return None
        return RunAtSizes(self, found, Settled(unknowns.values(args)), forms)

    def _capture(self, args: Sequence[Any], forms: Forms, unknowns: Unknowns) -> OpenCapture | None:
        try:
            made = OpenCapture(self._module, args, forms, unknowns)
        except (CallError, RidgelineError):  # what needs a number is captured for each
            return None
        if made.facts.pinned:
            return None
        self._captured.append(made)
        return made


class OpenCapture:
    """A graph, captured over unknown sizes."""

    def __init__(
        self, module: GraphModule, args: Sequence[Any], forms: Forms, unknowns: Unknowns
    ) -> None:
        self._unknowns, self._key = unknowns, _key(unknowns, args, forms)
        self._shapes = _shapes(module, unknowns)
        self.facts = SizeFacts(unknowns.values(args))
        with self.facts.deciding():
            captured = capture(
                module,
                [unknowns.numbers.get(place, arg) for place, arg in enumerate(args)],
                [
                    None if form is None else replace(form, shape=shape)
                    for form, shape in zip(forms, self._shapes)
                ],
                TorchState.now(),
            )
            self.code = code_of(captured, results_of(captured), unknowns.own)
        self.written = captured.written

    def holds_at(self, unknowns: Unknowns, args: Sequence[Any], forms: Forms) -> bool:
        """True for tensors that lie in the same way, and sizes that answer all questions so."""
        if unknowns != self._unknowns or _key(unknowns, args, forms) != self._key:
            return False
        values = unknowns.values(args)
        return self.facts.broken(values) is None and all(
            form is None or form.shape == tuple(evaluate(size, values) for size in shape)
            for form, shape in zip(forms, self._shapes)
        )


def _key(unknowns: Unknowns, args: Sequence[Any], forms: Forms) -> Any:
    """What a capture is made for besides sizes: how tensors lie, and numbers that are none."""
    numbers = unknowns.numbers
    return tuple(
        replace(form, shape=()) if form is not None else None if place in numbers else as_key(arg)
        for place, (form, arg) in enumerate(zip(forms, args))
    )


def _shapes(module: GraphModule, unknowns: Unknowns) -> list[tuple[Size, ...]]:
    """The shapes of arguments over unknowns; of what is no tensor none."""
    known = Symbols(dict(unknowns.sizes))
    made = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            theirs = shown(node)
            sizes = known.sizes(theirs.shape) if isinstance(theirs, torch.Tensor) else []
            if None in sizes:
                raise RidgelineError("a shape that follows from no argument")
            made.append(tuple(sizes))
    return made  # type: ignore[return-value]  # no None is among them


class RunAtSizes:
    """A graph at some sizes: by code for all sizes, and by code of their own if they come often."""

    def __init__(
        self, graph: OpenGraph, captured: OpenCapture, settled: Settled, forms: Forms
    ) -> None:
        self.written = captured.written
        self._graph, self._code = graph, captured.code
        self._settled, self._forms = settled, forms
        self._run: Inference | Training = self._code.at(settled, forms)
        self._calls = 0
        self._own: _OwnCode | None = None  # until it is used
        self._is_own = False

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        """The results for the arguments of a call."""
        self._graph.calls += 1
        self._calls += 1
        if self._calls % OFTEN == 0:
            self._look()
        return self._run(args)

    def _look(self) -> None:
        """Begin code for these sizes, or use it: after as many calls in every run of a program."""
        if self._is_own or config.deterministic or not self._code.is_open:
            return
        own = self._own
        if own is not None:
            self._run, self._own, self._is_own = own.made() or self._run, None, True
        elif self._calls * SHARE >= self._graph.calls:
            self._own = _OwnCode(self._code, self._settled, self._forms)


class _OwnCode:
    """Code for some sizes, which is compiled beside the program."""

    def __init__(self, code: InferenceCode | TrainingCode, settled: Settled, forms: Forms) -> None:
        self._code, self._settled, self._forms = code, settled, forms
        self._done = Event()
        self._made: Inference | Training | None = None
        if not (config.background and background.submit(self._make)):
            self._make()

    def made(self) -> Inference | Training | None:
        """What runs it, as soon as it is there; None where it could not be compiled."""
        self._done.wait()
        return self._made

    def _make(self) -> None:
        try:
            self._made = self._code.at(self._settled, self._forms, own=True)
            self._made.prepare()
        except Exception as error:
            report_defect("a graph of torch's, for sizes that come often,", error)
        self._done.set()
