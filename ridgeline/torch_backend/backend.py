"""The backend: what Dynamo hands over, compiled at the first call for its arguments."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ridgeline.torch_backend.aliases import WritingGraph, overlapping, spans
from ridgeline.torch_backend.capture import CallError, CapturedGraph, called, capture
from ridgeline.torch_backend.forms import UnsupportedTensorError, form_of
from ridgeline.torch_backend.inference import Inference
from ridgeline.torch_backend.names import UnmappedError, function_for, method_for, name_of
from ridgeline.torch_backend.pieces import Piece, calls, cut, lifted
from ridgeline.torch_backend.report import GraphReport, add_report
from ridgeline.torch_backend.results import results_of
from ridgeline.torch_backend.special import MODES
from ridgeline.torch_backend.training import Training
from ridgeline.weak import Recent

MOST_SIZES = 16  # programs of one graph, for the sizes that came last
Runner = Callable[[Sequence[Any]], Sequence[Any]]


def ridgeline(module: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
    """The backend `torch.compile(model, backend="ridgeline")` names."""
    return CompiledGraph(module)


class CompiledGraph:
    """A graph of Dynamo's: a program for the sizes of each call."""

    def __init__(self, module: GraphModule) -> None:
        self._module, self._attributes = lifted(module)
        self._plans: Recent[Any, Runner] = Recent(MOST_SIZES)
        self._only: Runner | None = None  # the plan of a graph without sizes among its arguments
        self._report = GraphReport(len(calls(module)))
        add_report(self._report)

    def __call__(self, *args: Any) -> Any:
        only = self._only
        if only is not None:
            return only([*args, *self._attributes] if self._attributes else args)
        numbers = tuple([arg for arg in args if not isinstance(arg, torch.Tensor)])
        plan = self._plans.get(numbers)
        if plan is None:
            plan = GraphPart(self._module, self._report)
            self._plans.keep(numbers, plan)
            if not numbers:
                self._only = plan
        return plan([*args, *self._attributes])


class GraphPart:
    """A graph, or a piece of one, for one set of sizes; its first call says how it runs."""

    def __init__(self, module: GraphModule, report: GraphReport, alone: bool = False) -> None:
        """`alone` says that all calls overlap in memory as the first one does."""
        self._module, self._report, self._alone = module, report, alone
        self._run: Runner | None = None

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        if self._run is None:
            self._run = self._made(args)
        return self._run(args)

    def _made(self, args: Sequence[Any]) -> Runner:
        refused = unmapped(self._module)
        if not refused:
            try:
                return self._compiled(args)
            except CallError as error:
                refused = {error.node: error.reason}
            except UnsupportedTensorError as error:
                return self._by_torch(str(error))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".split("\n")[0]
                count = len(calls(self._module))
                text = f"a graph of {count} calls that ridgeline compiles is run by torch: {reason}"
                warnings.warn(text, stacklevel=2)
                return self._by_torch(reason)
        for node, reason in refused.items():
            self._report.by_torch.append((called(node), reason))
        pieces = cut(self._module, refused.keys())
        return CutGraph(self._module, pieces, self._report)

    def _compiled(self, args: Sequence[Any]) -> Runner:
        forms = [form_of(arg) if isinstance(arg, torch.Tensor) else None for arg in args]
        if not all(isinstance(a, int | float | torch.Tensor) for a in args):
            raise UnsupportedTensorError("an argument is neither a tensor nor a number")
        captured = capture(self._module, args, forms, _tracks(self._module))
        written = {n for n, i in enumerate(captured.inputs) if i is not None and i.is_written}
        if not written:
            return _program(captured)
        groups = overlapping(args)
        shared = [group for group in groups if not written.isdisjoint(place for place, _ in group)]
        if shared:
            found = spans(args, shared)
            captured = capture(self._module, args, forms, _tracks(self._module), found)
        made = _program(captured)
        if self._alone:
            return made
        return WritingGraph(groups, made, partial(GraphPart, self._module, self._report, True))

    def _by_torch(self, reason: str) -> Runner:
        self._report.by_torch += [(called(node), reason) for node in calls(self._module)]
        return partial(_forward, self._module)


def _program(captured: CapturedGraph) -> Runner:
    results = results_of(captured)
    if any(value.tracked for value in results.values):
        return Training(captured, results)
    return Inference(captured, results)


def _forward(module: GraphModule, args: Sequence[Any]) -> Sequence[Any]:
    found: Sequence[Any] = module(*args)
    return found


def _tracks(module: GraphModule) -> bool:
    """True where a graph may compute with gradients: they are on, or it switches them on."""
    return torch.is_grad_enabled() or any(
        node.op == "call_function" and name_of(node.target) in MODES for node in module.graph.nodes
    )


def unmapped(module: GraphModule) -> dict[Node, str]:
    """The calls of a graph that have no counterpart here, and why."""
    found = {}
    for node in calls(module):
        try:
            if node.op == "call_method":
                method_for(str(node.target))
            elif node.op == "call_function":
                function_for(node.target)
            else:
                raise UnmappedError("a module inside a graph")
        except UnmappedError as error:
            found[node] = str(error)
    return found


class CutGraph:
    """A graph in pieces, some of which torch runs."""

    def __init__(self, module: GraphModule, pieces: Sequence[Piece], report: GraphReport) -> None:
        self._inputs = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        (output,) = [n for n in module.graph.nodes if n.op == "output"]
        self._outputs = output.args[0]
        self._steps = [
            (
                partial(_forward, piece.module)
                if piece.by_torch
                else GraphPart(piece.module, report),
                operator.itemgetter(*piece.reads) if piece.reads else None,
                len(piece.reads),
                piece.gives,
            )
            for piece in pieces
        ]

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        values = dict(zip(self._inputs, args))
        for run, read, count, gives in self._steps:
            found = () if read is None else read(values)
            made = run(found if count != 1 else (found,))
            values.update(zip(gives, made))
        kept = self._outputs
        return [values[o.name] if isinstance(o, Node) else o for o in kept]
