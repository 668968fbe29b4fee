"""Launches as data, which the disk cache keeps and plans are made from.

Kernels of loops are here; what libraries are asked for is with the classes of `libraries/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ridgeline.codegen.cuda.source import KernelSource, TileMap
from ridgeline.runtime.cuda.module import Modules
from ridgeline.runtime.cuda.steps import (
    ArgumentWords,
    JoinedStep,
    KernelStep,
    LaunchStep,
    TiledStep,
)


@dataclass(frozen=True, slots=True)
class Starting:
    """Where steps are made: a device with its code, a plan's addresses, the workspace's slot."""

    device: int
    modules: Modules
    words: ArgumentWords
    workspace: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A `__global__` function, and how many threads run it."""

    symbol: str
    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1
    maps: tuple[TileMap, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel of our own, of one or more grids; each takes an address for every slot."""

    workspace: int
    grids: tuple[Grid, ...]

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """One step for each grid."""
        arguments = tuple(max(slot, 0) for slot in slots)  # what is not written is not touched
        arguments = (*arguments, on.workspace) if self.workspace else arguments
        for grid in self.grids:
            kernel, shape = on.modules[grid.symbol], (grid.blocks, grid.threads)
            if grid.maps:
                yield TiledStep(
                    kernel, shape, grid.shared_bytes, grid.cluster, grid.maps, arguments, on.words
                )
            else:
                yield KernelStep(
                    kernel, *shape, grid.shared_bytes, grid.cluster, arguments, on.words
                )


@dataclass(frozen=True, slots=True)
class JoinedLaunch:
    """Several kernels that are started as one, with all their addresses in one parameter."""

    workspace: int
    grids: tuple[Grid, ...]

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """One step for each grid."""
        for grid in self.grids:
            function, arguments = on.modules[grid.symbol], (*slots, on.workspace)
            yield JoinedStep(
                function, grid.blocks, grid.threads, grid.shared_bytes, arguments, on.words
            )


def grids_of(source: KernelSource) -> tuple[Grid, ...]:
    """The launches of a text that have something to do."""
    found = [(one, one.blocks()) for one in source.launches]
    return tuple(
        Grid(one.symbol, blocks, one.block, one.shared_bytes, one.cluster, one.maps)
        for one, blocks in found
        if blocks
    )
