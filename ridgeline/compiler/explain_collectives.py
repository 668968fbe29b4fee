"""The collectives of a program as text: axis, bytes, line, and what hides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ridgeline.compiler.kernel_profile import quantity
from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe
from ridgeline.ops.started import WAIT, is_start, operand_of

if TYPE_CHECKING:
    from ridgeline.compiler.stages import Stages


def collective_lines(stages: Stages) -> Iterable[str]:
    """A line for each collective, in the order in which all ranks start them."""
    groups = stages.fusion.groups
    waits = {
        group.apart.inputs[0]: (index, group.apart)
        for index, group in enumerate(groups)
        if group.apart is not None and group.apart.op is WAIT
    }
    for index, group in enumerate(groups):
        start = group.apart
        if start is None or not is_start(start) or start not in waits:
            continue
        end, wait = waits[start]
        hidden = sum(other.apart is None for other in groups[index + 1 : end])
        behind = f"behind {hidden} kernels" if hidden else "exposed"
        why = "  (inserted)" if start.attrs.inserted else ""
        yield (
            f"  {start.op.name.removeprefix('start_'):<15} {start.attrs.group.axis:<8} "
            f"{quantity(_payload(start, wait), 'B'):>8}  {behind:<18} {describe(wait)}{why}"
        ).rstrip()


def _payload(start: Node, wait: Node) -> int:
    """The larger of the bytes a rank sends and receives, as communicators count them."""
    return max(nbytes(operand_of(start)), nbytes(wait))
