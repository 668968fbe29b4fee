"""Launches to explain: those that a file gives, made-up ones, and variations of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.errors import BadValueError
from ridgeline.simt.language import cdiv
from ridgeline.simt.simulator.findings import Simulation
from ridgeline.simt.simulator.simulate import SimulationOptions
from ridgeline.simt.types import ElementType

if TYPE_CHECKING:
    from ridgeline.simt.kernel import SimtKernel


@dataclass(frozen=True)
class ExampleLaunch:
    """A grid, a block and arguments for a kernel."""

    grid: Any
    block: Any
    arguments: tuple[Any, ...]


def launch_of(
    kernel: SimtKernel, names: Mapping[str, Any], grid: str | None, block: str | None, size: int
) -> ExampleLaunch:
    """The launch that a file gives for a kernel, or a made-up one; options overrule its shape."""
    example = names.get(f"{kernel.__name__}_example")
    given = example() if callable(example) else names.get("examples", {}).get(kernel.__name__)
    if given is not None:
        if not isinstance(given, tuple) or len(given) != 3:
            raise BadValueError(
                f"the example of {kernel.__name__} is not (grid, block, arguments)",
                help=f'examples = {{"{kernel.__name__}": (4, 256, (a, b))}}',
            )
        launch = ExampleLaunch(given[0], given[1], tuple(given[2]))
    else:
        launch = made_up(kernel, size)
    if grid is not None:
        launch = replace(launch, grid=_numbers(grid))
    return launch if block is None else replace(launch, block=_numbers(block))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise BadValueError(f"{text!r} is no list of sizes", help="as in 16 or 8,8") from None


def made_up(kernel: SimtKernel, size: int, seed: int = 0) -> ExampleLaunch:
    """Arguments of random numbers: small whole ones for integers, so that they can be indices."""
    draw = np.random.default_rng(seed)
    arguments: list[Any] = []
    signature = kernel.signature
    for name in signature.inputs:
        if name in signature.constants:
            continue
        if name in signature.scalars:
            kind = signature.scalars[name]
            whole = isinstance(kind, ElementType) and kind.dtype.kind != "float"
            arguments.append(size if whole else 1.0)
            continue
        array = signature.arrays[name]
        element = array.element
        dtype = (element if isinstance(element, ElementType) else element.choices[0]).dtype
        shape = tuple(length if isinstance(length, int) else size for length in array.sizes)
        if dtype.kind == "float":
            arguments.append(draw.standard_normal(shape).astype(dtype.numpy))
        else:
            high = 2 if dtype.kind == "bool" else min(size, 100)
            arguments.append(draw.integers(0, high, shape).astype(dtype.numpy))
    return ExampleLaunch(cdiv(size, 256), 256, tuple(arguments))


def varied(
    kernel: SimtKernel, launch: ExampleLaunch, shared: int = 0
) -> Iterator[tuple[str, Simulation]]:
    """The launch again: with other schedules, with its integers shuffled, with equal integers."""
    draw = np.random.default_rng(1)

    def run(what: str, changed: ExampleLaunch, seed: int | None) -> tuple[str, Simulation]:
        options = SimulationOptions(seed=seed)
        found = kernel.simulate(
            changed.grid, changed.block, *changed.arguments, shared=shared, options=options
        )
        return what, found

    for seed in (1, 2):
        yield run(f"schedule {seed}", launch, seed)
    for what, change in (("shuffled data", draw.permutation), ("equal data", _level)):
        arguments = tuple(
            change(a.reshape(-1)).reshape(a.shape) if _is_integers(a) else a
            for a in launch.arguments
        )
        if any(_is_integers(a) for a in arguments):
            yield run(what, replace(launch, arguments=arguments), None)


def _is_integers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def _level(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.full_like(values, values.min() if values.size else 0)
