"""Graphs with transforms of torch.func: `grad`, `vmap`, `jvp` inside of what is compiled.

Dynamo leaves them in its graphs as calls that begin and end a level of wrapped tensors, and what is
between them means another thing than it says. AOTAutograd runs such a graph once and writes down
the operators that come out; these are compiled as any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

_HOMES = ("torch._functorch", "torch._C._functorch")


def has_transforms(module: GraphModule) -> bool:
    """True for a graph in which some calls stand inside a transform."""
    return any(
        node.op == "call_function"
        and str(getattr(node.target, "__module__", None)).startswith(_HOMES)
        for node in module.graph.nodes
    )


def written_out(
    module: GraphModule,
    example_inputs: Sequence[Any],
    compiled: Callable[[GraphModule], Callable[..., Any]],
) -> Callable[..., Any]:
    """The graph without its transforms, each of its passes compiled."""

    def passed(part: GraphModule, examples: Sequence[Any]) -> Any:
        return compiled(part)

    made: Callable[..., Any] = aot_autograd(fw_compiler=passed)(module, example_inputs)
    return made
