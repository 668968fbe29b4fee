"""The result of the CUDA code generator: a text, and how to launch its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ridgeline.loops.build import substitute
from ridgeline.loops.ir import Const, Expr, Var, index


@dataclass(frozen=True, slots=True)
class TileMap:
    """Tiles of a tensor in memory, for the copy engine: it is told once what lies where.

    Sizes, strides and the tile's sides are in elements, the axis whose elements lie side by side
    first; that stride is not named. What a tile has beyond the sizes is zero.
    """

    parameter: int  # whose memory it is, of the launch's
    dtype: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One `__global__` function and its configuration.

    The grid is one-dimensional: `blocks()` blocks of `block` threads. With `cluster` > 1 the blocks
    come in clusters of that many, and `blocks()` counts blocks, not clusters. The function takes a
    pointer for every parameter, and behind them the `maps`.
    """

    symbol: str
    grid: tuple[Expr, ...]  # factors, expressions over the kernel's sizes
    block: int
    shared_bytes: int
    cluster: int = 1
    maps: tuple[TileMap, ...] = ()

    def blocks(self, sizes: Mapping[str, int] | None = None) -> int:
        """The number of blocks to launch; 0 if there is no work."""
        known = {Var.make(name): index(value) for name, value in (sizes or {}).items()}
        factors = [substitute(factor, known) for factor in self.grid]
        assert all(isinstance(f, Const) for f in factors), "every size has a value"
        return prod(int(f.value) for f in factors if isinstance(f, Const)) * self.cluster


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel as CUDA C++. Launches with more than 48 KB of shared memory need the attribute."""

    name: str
    text: str
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    options: tuple[str, ...] = ()  # of NVRTC, in place of others of the same name
