"""Attention by cuDNN: which nodes it computes, over which memory, and how a call is started.

A call is plain data: the direction, the attention, and where each tensor of the library's graph
lies. What the library does not take goes to kernels of our own, which is decided before grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

from ridgeline.codegen.cuda.attention import Attention, Strides
from ridgeline.compiler.attention import operand_views, over, problem_of
from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds
from ridgeline.graph.strides import View, itself
from ridgeline.ops.attention import ATTENTION_CALL
from ridgeline.runtime.cuda import cudnn_attention
from ridgeline.runtime.cuda.cudnn_attention import BACKWARD, FORWARD
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan, GraphStep, Place
from ridgeline.runtime.cuda.steps import Words

Planned = Callable[[str, Attention], EnginePlan | None]
_STRIDES = [field.name for field in fields(Attention)].index("strides")
_LEAST = 512  # rows and columns from which the library was measured to be faster


def is_call(node: Node, planned: Planned) -> bool:
    """True for a long attention that the library has, over operands in order."""
    rows, columns = (bounds(operand.shape[-2])[0] for operand in node.inputs[:2])
    return min(rows, columns) >= _LEAST and _plan(node, [*map(itself, node.inputs)], planned)


def views_of(node: Node, graph: Graph, planned: Planned) -> Sequence[View]:
    """The operands where they lie, or in order where the library does not read them there."""
    found = operand_views(node, graph)
    return found if _plan(node, found, planned) else [*map(itself, node.inputs)]


def _plan(node: Node, views: Sequence[View], planned: Planned) -> bool:
    return planned(kind_of(node), over(node, views, frozenset())) is not None


def kind_of(node: Node) -> str:
    """The direction of a call."""
    return FORWARD if node.op is ATTENTION_CALL else BACKWARD


def launch_of(group: Group, planned: Planned) -> tuple[str, int, tuple[Any, ...]]:
    """How a call is started, and the workspace it needs."""
    assert group.apart is not None
    kind, problem = kind_of(group.apart), problem_of(group)
    plan = planned(kind, problem)
    assert plan is not None, "a graph holds only calls that the library has"
    memory, workspace = cudnn_attention.memory(kind, problem, plan.workspace)
    return "attention", workspace, (kind, astuple(problem), tuple(map(astuple, memory)))


def step_of(
    device: int,
    started: tuple[Any, ...],
    slots: Sequence[int],
    workspace: int,
    words: Words,
    planned: Planned,
) -> GraphStep:
    """The call of a launch."""
    kind, settings, memory = started
    problem = Attention(*settings)
    problem = replace(problem, strides=tuple(Strides(*at) for at in settings[_STRIDES]))
    plan = planned(kind, problem)
    assert plan is not None, "the library has what it had when the program was compiled"
    places = {
        number: Place(workspace if argument is None else slots[argument], offset)
        for number, argument, offset in memory
    }
    values = {one.number: one.value for one in cudnn_attention.network(kind, problem).values}
    return GraphStep(device, plan, places, workspace, words, values)
