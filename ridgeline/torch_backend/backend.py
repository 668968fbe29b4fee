"""The backend: what Dynamo hands over, compiled at the first call for its arguments."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ridgeline.errors import ArgumentError
from ridgeline.torch_backend.aliases import Groups, WritingGraph, overlapping, spans
from ridgeline.torch_backend.capture import CallError, capture
from ridgeline.torch_backend.decompose import decomposed, decomposed_throughout, reason_against
from ridgeline.torch_backend.forms import UnsupportedTensorError, form_of
from ridgeline.torch_backend.names import called
from ridgeline.torch_backend.open_graphs import OpenGraph
from ridgeline.torch_backend.pieces import Piece, calls, cut, lifted
from ridgeline.torch_backend.report import GraphReport, add_report
from ridgeline.torch_backend.results import results_of
from ridgeline.torch_backend.scalars import (
    NumberNeededError,
    as_key,
    numbers_for,
    with_numbers,
)
from ridgeline.torch_backend.state import TorchState
from ridgeline.torch_backend.strided import with_memory
from ridgeline.torch_backend.symbols import check_promises
from ridgeline.torch_backend.training import code_of
from ridgeline.torch_backend.transforms import has_transforms, written_out
from ridgeline.weak import Recent

MODES_OF_TORCH = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
MOST_SIZES = 64  # of one graph, that came last
Runner = Callable[[Sequence[Any]], Sequence[Any]]


def ridgeline(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The backend `torch.compile(model, backend="ridgeline")` names.

    `mode` may be any of torch's: there is one way to compile.
    """
    if mode not in (None, *MODES_OF_TORCH):
        known = ", ".join(MODES_OF_TORCH)
        raise ArgumentError(f"torch.compile has no mode {mode!r}", help=f"it has {known}")
    for name in options or ():
        raise ArgumentError(f"the backend ridgeline has no option {name!r}", help="it has none")
    if has_transforms(module):
        return written_out(module, example_inputs, CompiledGraph)
    return CompiledGraph(module)


class CompiledGraph:
    """A graph of Dynamo's: a program for the sizes of each call.

    It is called with its arguments, or as AOTAutograd does with a list of them, which it empties.
    """

    _boxed_call = True  # AOTAutograd may hand over a list

    def __init__(self, module: GraphModule) -> None:
        whole, self._attributes = lifted(module)
        whole, self._scalars = with_numbers(whole)
        whole = decomposed_throughout(whole)
        report = GraphReport(len(calls(module)))
        self._graph = SharedGraph(whole, report)
        self._known: frozenset[int] = frozenset()  # of these, whose numbers programs are made for
        self._plans: Recent[Any, Runner] = Recent(MOST_SIZES)
        self._only: Runner | None = None  # the plan of a graph without sizes among its arguments
        add_report(report)

    def __call__(self, *args: Any) -> Any:
        if len(args) == 1 and type(args[0]) is list:
            (boxed,) = args
            args = tuple(boxed)
            boxed.clear()
        only = self._only
        if only is not None:
            return only([*args, *self._attributes] if self._attributes else args)
        while True:
            try:
                return self._planned(args)
            except NumberNeededError as error:  # nothing has run by then
                self._known |= error.places

    def _planned(self, args: Sequence[Any]) -> Any:
        known = self._known
        given = [a.item() if n in known else a for n, a in enumerate(args)] if known else args
        numbers = tuple([as_key(a) for a in given if not isinstance(a, torch.Tensor)])
        plan = self._plans.get((known, numbers))
        if plan is None:
            plan = GraphPart(self._graph, scalars=self._scalars - known)
            self._plans.keep((known, numbers), plan)
            if not numbers and not self._scalars:
                self._only = plan
        return plan([*given, *self._attributes])


class SharedGraph:
    """A graph, or a piece of one, and what all sizes have in common."""

    def __init__(self, module: GraphModule, report: GraphReport) -> None:
        self.module, self.report = module, report
        self.unmapped = unmapped(module)
        self.open = OpenGraph(module)
        self._cuts: dict[frozenset[Node], Runner] = {}

    def cut(self, refused: Mapping[Node, str]) -> Runner:
        """The graph in pieces, of which torch runs some calls."""
        key = frozenset(refused)
        if key not in self._cuts:
            self.report.by_torch += [(called(node), reason) for node, reason in refused.items()]
            pieces = cut(self.module, refused.keys())
            self._cuts[key] = CutGraph(self.module, pieces, self.report)
        return self._cuts[key]

    def write_out(self, node: Node) -> bool:
        """Have a call stand as what torch composes it of; False where that is not known."""
        written = decomposed(self.module, [node], refused=True)
        if written is self.module:
            return False
        self.module, self.open = written, OpenGraph(written)
        return True


class GraphPart:
    """A graph, or a piece of one, for one set of sizes; its first call says how it runs."""

    def __init__(
        self, graph: SharedGraph, alone: bool = False, scalars: frozenset[int] = frozenset()
    ) -> None:
        """`alone` says that all calls overlap in memory as the first one does.

        `scalars` are the places of tensors that stand for numbers.
        """
        self._graph, self._alone, self._scalars = graph, alone, scalars
        self._run: Runner | None = None

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        if self._run is None:
            self._run = self._made(args)
        return self._run(args)

    def _made(self, args: Sequence[Any]) -> Runner:
        module, refused = self._graph.module, self._graph.unmapped
        if not refused:
            try:
                return self._compiled(args)
            except CallError as error:
                needed = numbers_for(module, error.node, self._scalars)
                if needed:
                    raise NumberNeededError(needed) from error
                node = _whole_call(error.node)
                if node.graph is not module.graph or node.op == "placeholder":
                    return self._by_torch(str(error))  # in a body, or it is all of the graph
                if self._graph.write_out(node):
                    return self._made(args)
                refused = dict.fromkeys(with_memory(node), error.reason)
            except UnsupportedTensorError as error:
                return self._by_torch(str(error))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".split("\n")[0]
                count = len(calls(module))
                text = f"a graph of {count} calls that ridgeline compiles is run by torch: {reason}"
                warnings.warn(text, stacklevel=2)
                return self._by_torch(reason)
        if self._scalars:  # torch takes numbers as such
            raise NumberNeededError(self._scalars)
        return self._graph.cut(refused)

    def _compiled(self, args: Sequence[Any]) -> Runner:
        forms = [form_of(arg) if isinstance(arg, torch.Tensor) else None for arg in args]
        if not all(isinstance(a, int | float | torch.Tensor) for a in args):
            raise UnsupportedTensorError("an argument is neither a tensor nor a number")
        found = None if self._alone else self._graph.open.at(args, forms)
        if found is not None:
            groups = overlapping(args) if found.written else ()
            if not _among(groups, found.written):
                return self._writing(groups, found) if found.written else found
        module, state = self._graph.module, TorchState.now()
        captured = capture(module, args, forms, state)
        groups = overlapping(args) if captured.written else ()
        shared = _among(groups, captured.written)
        if shared:
            captured = capture(module, args, forms, state, spans(args, shared))
        made = code_of(captured, results_of(captured)).runner()
        return self._writing(groups, made) if captured.written and not self._alone else made

    def _writing(self, groups: Groups, made: Runner) -> Runner:
        """What runs a graph that writes to its arguments, and looks whether these overlap."""
        again = partial(GraphPart, self._graph, True, self._scalars)
        return WritingGraph(groups, made, again)

    def _by_torch(self, reason: str) -> Runner:
        if self._scalars:
            raise NumberNeededError(self._scalars)
        graph = self._graph
        graph.report.by_torch += [(called(node), reason) for node in calls(graph.module)]
        return partial(_forward, graph.module)


def _whole_call(node: Node) -> Node:
    """The call of which a node is a part."""
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _among(groups: Groups, written: Set[int]) -> list[Sequence[tuple[int, int]]]:
    """The groups of tensors that overlap, and of which one is written to."""
    return [group for group in groups if not written.isdisjoint(place for place, _ in group)]


def _forward(module: GraphModule, args: Sequence[Any]) -> Sequence[Any]:
    found: Sequence[Any] = module(*args)
    return found


def unmapped(module: GraphModule) -> dict[Node, str]:
    """The calls of a graph that have no counterpart here, and why."""
    found = {node: reason_against(node) for node in calls(module)}
    return {node: reason for node, reason in found.items() if reason}


class PieceOfGraph:
    """A piece of a graph after calls of torch's, whose results may be of any form in each call."""

    def __init__(self, module: GraphModule, report: GraphReport) -> None:
        self._graph = SharedGraph(module, report)
        self._plans: Recent[Any, GraphPart] = Recent(MOST_SIZES)

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        key = tuple([_form(a) if isinstance(a, torch.Tensor) else as_key(a) for a in args])
        plan = self._plans.get(key)
        if plan is None:
            check_promises(self._graph.module, args)
            plan = GraphPart(self._graph)
            self._plans.keep(key, plan)
        return plan(args)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a program is made for of a tensor."""
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return (
        tensor.shape,
        strides,
        tensor.dtype,
        tensor.requires_grad,
        tensor.is_conj(),
        tensor.device,
    )


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
                else PieceOfGraph(piece.module, report),
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
