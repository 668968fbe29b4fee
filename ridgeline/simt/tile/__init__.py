"""Kernels over tiles: a block works on pieces of arrays, and no thread is named.

    @tile.kernel
    def softmax(x: f32["r c"], y: out[f32["r c"]], B: const = 1024):
        r, m, s = tile.block(0), f32("-inf"), f32(0)
        for t in tile.range(x.shape[1], B):
            v = x[r, t]
            new = max(m, v.max())
            s = s * tile.exp(m - new) + tile.exp(v - new).sum()
            m = new
        for t in tile.range(x.shape[1], B):
            y[r, t] = tile.exp(x[r, t] - m) / s

    y = softmax[rows](x)

Elements past the end of an array are neither stored nor reduced. A tile kernel becomes a kernel of
threads, `softmax.threads()`, so it runs wherever those run: on a GPU, on a CPU, in the simulator.
"""

from __future__ import annotations

from ridgeline.simt.tile.kernel import TileKernel, kernel
from ridgeline.simt.tile.language import (
    block,
    cos,
    dot,
    exp,
    fabs,
    full,
    log,
    maximum,
    minimum,
    range,
    sin,
    span,
    sqrt,
    tanh,
    where,
    zeros,
)

__all__ = [
    "TileKernel", "block", "cos", "dot", "exp", "fabs", "full", "kernel", "log", "maximum",
    "minimum", "range", "sin", "span", "sqrt", "tanh", "where", "zeros",
]  # fmt: skip
