"""`rl.loops`: a function and example arguments as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import compilation, lower, optimize, prepare
from ridgeline.fusion.groups import Fusion
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, shows_constant, topological
from ridgeline.kernel.arguments import LoopsError, check_not_traced, memory_of
from ridgeline.kernel.scheduled import Loops
from ridgeline.record.cells import PLAIN
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.bodies import BodyFrame

if TYPE_CHECKING:
    from ridgeline.functions.random import Generator
    from ridgeline.graph.sizes import Size


def _is_given(node: Node) -> bool:
    """True for a value that lies in memory; a constant stays part of the expression."""
    return node.buffer is not None and not shows_constant(node)


def loops(function: Callable[..., Any], *examples: Tensor) -> Loops:
    """The loop nest of an expression, for tensors like the examples; it must be one kernel.

    The function is traced: it sees types and no values, and must leave all tensors as they are.
    """
    check_not_traced("rl.loops takes its tensors")
    for example in examples:
        memory_of(example)
    if not callable(function):
        raise LoopsError(f"rl.loops takes a function and tensors, not {function!r:.60}")
    outputs, given = _traced(function, examples)
    leaves = [n for n in topological(outputs, stop=_is_given) if _is_given(n) and n not in given]
    graph = prepare(Graph(outputs, [*given, *leaves]).on_fresh_leaves(), Recorded("loops"))
    to = compilation(graph, own=True)
    stages = lower(optimize(graph, to), to)
    _require_one(stages.fusion)
    return Loops(stages, graph, len(given), tuple(n.buffer for n in leaves))


class _Frame(BodyFrame):
    """The expression while it is traced: its arguments have no values."""

    def __init__(self) -> None:
        super().__init__("rl.loops", None)

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """A kernel has no stream of random numbers to advance."""
        raise LoopsError(
            "rl.loops cannot draw random numbers: its kernel would give the same ones in every "
            "call",
            help="draw them outside, and give them as an argument",
        )


def _traced(
    function: Callable[..., Any], examples: Sequence[Tensor]
) -> tuple[list[Node], list[Node]]:
    """The nodes of a function's results, and those of tensors like the examples under them."""
    frame = _Frame()
    given = [frame.element(read(example).type) for example in examples]
    with frame.inside():
        arguments = [wrap(node, PLAIN) for node in given]
        result = function(*arguments)
        wanted = list(result) if isinstance(result, (tuple, list)) else [result]
        if not wanted or not all(isinstance(value, Tensor) for value in wanted):
            raise LoopsError(f"the expression gives {result!r:.60}, not tensors")
        outputs = [read(value) for value in wanted]
    frame.finish()
    for number, (argument, node) in enumerate(zip(arguments, given), 1):
        if argument._cell.node is not node:
            raise LoopsError(
                f"the function writes to its argument {number}, and a kernel changes none of its "
                "tensors",
                help="return the new value, or write to a clone()",
            )
    return outputs, given


def _require_one(fusion: Fusion) -> None:
    """Refuse what is not one nest of loops."""
    groups = fusion.groups
    if not groups:
        raise LoopsError("this expression computes nothing: its results are its arguments")
    library = [g.name for g in groups if g.lowered is None]
    if library:
        raise LoopsError(
            f"{', '.join(library)} is no nest of loops: it runs as a call of a library",
            help="take the expression without it",
        )
    if len(groups) > 1:
        reasons = "\n".join(f"{r.first} + {r.second}: {r.reason}" for r in fusion.refusals)
        raise LoopsError(
            f"this expression takes {len(groups)} kernels: {', '.join(g.name for g in groups)}",
            note=reasons,
            help="give each part its own rl.loops",
        )
