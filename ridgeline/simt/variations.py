"""A launch run again: in other schedules, over other data and sizes, in blocks of other shapes.

A kernel is written for some launches. One whose indices leave their arrays, or that reads what
nothing wrote, is none of these: then nothing is said of it. Nor of other blocks where the results
are others too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.simt.examples import ExampleLaunch
from ridgeline.simt.launch import MOST_THREADS, LaunchError
from ridgeline.simt.simulator.findings import KernelFinding, Simulation
from ridgeline.simt.simulator.simulate import SimulationOptions

if TYPE_CHECKING:
    from ridgeline.simt.kernel import SimtKernel

# What says of a launch that the kernel is not written for it.
_UNFIT = (
    "out of bounds",
    "uninitialised",
    "assertion",
    "misaligned vector",
    "never ends",
    "not finished",
)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Variation:
    """What was changed, whether the kernel is for such a launch, and the errors found then."""

    what: str
    fits: bool
    errors: tuple[KernelFinding, ...]


def variations(
    kernel: SimtKernel, launch: ExampleLaunch, options: SimulationOptions, found: Simulation
) -> Iterator[Variation]:
    """The variations of a launch in which `found` was found."""
    for seed in (1, 2):
        shuffled = replace(options, seed=seed + (options.seed or 0))
        again = launch.simulate(kernel, shuffled)
        yield Variation(f"schedule {shuffled.seed}", True, again.errors)
    for what, changed, same_results in _changed(kernel, launch):
        try:
            again = changed.simulate(kernel, options)
        except LaunchError:  # such as too much shared memory
            continue
        fits = not any(finding.kind in _UNFIT for finding in again.findings)
        if same_results and not found.errors:
            fits = fits and _agree(found, again)
        yield Variation(what, fits, again.errors if fits else ())


def _agree(one: Simulation, other: Simulation) -> bool:
    pairs = [(one.outputs[name], other.outputs[name]) for name in one.outputs]
    return all(
        a.shape == b.shape
        and np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-3, 1e-3, equal_nan=True)
        for a, b in pairs
    )


def _changed(
    kernel: SimtKernel, launch: ExampleLaunch
) -> Iterator[tuple[str, ExampleLaunch, bool]]:
    """Launches with one thing changed, and whether they are to give the same results."""
    draw = np.random.default_rng(1)
    for what, change in (("shuffled data", draw.permutation), ("equal data", _level)):
        arguments = tuple(
            change(a.reshape(-1)).reshape(a.shape) if _is_integers(a) else a
            for a in launch.arguments
        )
        if any(map(_is_integers, launch.arguments)):
            yield what, replace(launch, arguments=arguments), False
    yield from ((f"{n} = {size}", smaller, False) for n, size, smaller in _sizes(kernel, launch))
    yield from ((f"blocks of {'x'.join(map(str, block))}",
                 replace(launch, grid=grid, block=block), True)
                for grid, block in _shapes(launch))  # fmt: skip


def _is_integers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def _level(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.full_like(values, values.min() if values.size else 0)


def _sizes(kernel: SimtKernel, launch: ExampleLaunch) -> Iterator[tuple[str, int, ExampleLaunch]]:
    """Arrays cut off along the axes of one name, and the scalars that hold their length."""
    names = [n for n in kernel.signature.inputs if n not in kernel.signature.constants]
    given = dict(zip(names, launch.arguments))
    lengths: dict[str, int] = {}
    for name, value in given.items():
        array = kernel.signature.arrays.get(name)
        if array is not None and isinstance(value, np.ndarray):
            lengths |= {
                s: n for s, n in zip(array.sizes, value.shape) if isinstance(s, str) and n > 2
            }
    for size, length in lengths.items():
        for shorter in dict.fromkeys((length - 1, length // 2 + 1)):
            cut = {n: _cut(kernel, n, v, size, length, shorter) for n, v in given.items()}
            yield size, shorter, replace(launch, arguments=tuple(cut.values()))


def _cut(kernel: SimtKernel, name: str, value: Any, size: str, length: int, shorter: int) -> Any:
    array = kernel.signature.arrays.get(name)
    if array is None:
        same = not isinstance(value, (bool, np.bool_)) and value == length
        return type(value)(shorter) if same else value
    if not isinstance(value, np.ndarray):
        return value
    wanted = tuple(slice(shorter if s == size else None) for s in array.sizes)
    return np.ascontiguousarray(value[wanted])


def _shapes(launch: ExampleLaunch) -> Iterator[tuple[Shape, Shape]]:
    """Grids and blocks of as many threads along x, in smaller and larger blocks."""
    grid, block = _triple(launch.grid), _triple(launch.block)
    threads = block[0] * block[1] * block[2]
    if grid[0] > 1 and block[0] % 2 == 0:
        yield (grid[0] * 2, *grid[1:]), (block[0] // 2, *block[1:])
    if grid[0] % 2 == 0 and threads * 2 <= MOST_THREADS:
        yield (grid[0] // 2, *grid[1:]), (block[0] * 2, *block[1:])


def _triple(value: Any) -> Shape:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(part) for part in (*parts, 1, 1)[:3])
