"""Norms over channels that keep no running statistics."""

from __future__ import annotations

from ridgeline.errors import ShapeError
from ridgeline.functions.arithmetic import add, div, mul, pow
from ridgeline.functions.movement import narrow
from ridgeline.functions.normalization import native_group_norm
from ridgeline.functions.operands import require_real, step_count
from ridgeline.functions.padding import pad
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.record.cells import known


@functional()
def group_norm(
    input: Node,
    num_groups: int,
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
) -> Node:
    """Zero mean and unit variance over groups of channels."""
    require_real(input.dtype, "group_norm")
    batch, channels, *sizes = (known(n) for n in input.shape)
    if channels % num_groups:
        raise ShapeError(f"group_norm: {num_groups} groups do not divide {channels} channels")
    area = known(product(sizes)) if batch * channels else 0
    return native_group_norm(input, weight, bias, batch, channels, area, num_groups, eps)[0]


@functional(wide="input")
def local_response_norm(
    input: Node, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Node:
    """Division by a power of the mean square over neighbouring channels."""
    require_real(input.dtype, "local_response_norm")
    if product(input.shape) == 0:
        return input
    margin = (0, 0) * (len(input.shape) - 2) + (size // 2, (size - 1) // 2)
    padded, count = pad(input * input, margin), known(input.shape[1])
    total = narrow(padded, 1, 0, count)
    for i in range(1, step_count(size, "local_response_norm")):
        total = total + narrow(padded, 1, i, count)
    return div(input, pow(add(mul(div(total, size), alpha), k), beta))
