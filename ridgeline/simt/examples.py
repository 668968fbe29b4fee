"""Launches to explain: those that a file gives, and made-up ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.errors import BadValueError
from ridgeline.simt.frontend.signature import REQUIRED
from ridgeline.simt.language import cdiv
from ridgeline.simt.simulator.findings import Simulation
from ridgeline.simt.simulator.simulate import DEFAULT, SimulationOptions
from ridgeline.simt.types import ElementType

if TYPE_CHECKING:
    from ridgeline.simt.kernel import SimtKernel


@dataclass(frozen=True)
class ExampleLaunch:
    """A grid, a block and arguments for a kernel; `keywords` are constants, sizes, and how the
    launch is shaped besides (`shared=` bytes, `cluster=`)."""

    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def simulate(self, kernel: SimtKernel, options: SimulationOptions = DEFAULT) -> Simulation:
        """Run it in the simulator."""
        return kernel.simulate(
            self.grid, self.block, *self.arguments, options=options, **self.keywords
        )


@dataclass(frozen=True)
class Wishes:
    """What the command line asks of a launch: its shape, and what made-up arguments are like."""

    grid: str | None = None
    block: str | None = None
    sizes: Sequence[str] = ()  # `64`, or `n=64` for axes of one name
    values: Sequence[str] = ()  # `name=3` of scalars and constants
    shared: int | None = None
    cluster: str | None = None
    seed: int = 0


def examples_of(names: Mapping[str, Any]) -> Iterator[str]:
    """The names of kernels that a file gives launches for."""
    yield from names.get("examples", {})
    yield from (n.removesuffix("_example") for n in names if n.endswith("_example"))


def launch_of(kernel: SimtKernel, names: Mapping[str, Any], wishes: Wishes) -> ExampleLaunch:
    """The launch that a file gives for a kernel, or a made-up one; wishes overrule its shape."""
    example = names.get(f"{kernel.__name__}_example")
    given = example() if callable(example) else names.get("examples", {}).get(kernel.__name__)
    launch = made_up(kernel, wishes) if given is None else _as_launch(kernel.__name__, given)
    keywords = dict(launch.keywords)
    if wishes.shared is not None:
        keywords["shared"] = wishes.shared
    if wishes.cluster is not None:
        keywords["cluster"] = _numbers(wishes.cluster)
    launch = replace(launch, keywords=keywords)
    if wishes.grid is not None:
        launch = replace(launch, grid=_numbers(wishes.grid))
    return launch if wishes.block is None else replace(launch, block=_numbers(wishes.block))


def _as_launch(name: str, given: Any) -> ExampleLaunch:
    if isinstance(given, ExampleLaunch):
        return given
    whole = isinstance(given, tuple) and len(given) in (3, 4)
    if not whole or not isinstance(given[2], (tuple, list)):
        raise BadValueError(
            f"the example of {name} is not (grid, block, arguments)",
            help=f'examples = {{"{name}": (4, 256, (a, b))}}, and a fourth item may name '
            "constants, shared= and cluster=",
        )
    return ExampleLaunch(given[0], given[1], tuple(given[2]), dict(*given[3:]))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise BadValueError(f"{text!r} is no list of sizes", help="as in 16 or 8,8") from None


def made_up(kernel: SimtKernel, wishes: Wishes = Wishes()) -> ExampleLaunch:
    """Arguments of random numbers: small whole ones for integers, so that they can be indices."""
    draw = np.random.default_rng(wishes.seed)
    signature = kernel.signature
    every, named = _sizes(wishes.sizes)
    chosen = _values(kernel, wishes.values)
    missing = [n for n, v in signature.constants.items() if v is REQUIRED and n not in chosen]
    if missing:
        raise BadValueError(f"the constant {missing[0]} of {kernel.__name__} has no value",
                            help=f"--set {missing[0]}=16")  # fmt: skip
    axes = {size for array in signature.arrays.values() for size in array.sizes}
    unknown = [name for name in named if name not in axes]
    if unknown:
        known = ", ".join(sorted(map(str, axes)))
        raise BadValueError(f"{kernel.__name__} has no size {unknown[0]}", help=f"one of {known}")
    arguments: list[Any] = []
    keywords = {name: chosen[name] for name in signature.constants if name in chosen}
    for name in signature.inputs:
        if name in signature.constants:
            continue
        if name in signature.scalars:
            kind = signature.scalars[name]
            whole = isinstance(kind, ElementType) and kind.dtype.kind != "float"
            arguments.append(chosen.get(name, named.get(name, every) if whole else 1.0))
            continue
        array = signature.arrays[name]
        element = array.element
        dtype = (element if isinstance(element, ElementType) else element.choices[0]).dtype
        shape = tuple(n if isinstance(n, int) else named.get(n, every) for n in array.sizes)
        if dtype.kind == "float":
            arguments.append(draw.standard_normal(shape).astype(dtype.numpy))
        else:
            high = 2 if dtype.kind == "bool" else min(every, 100)
            arguments.append(draw.integers(0, high, shape).astype(dtype.numpy))
    given = {size for n in signature.inputs if n in signature.arrays
             for size in signature.arrays[n].sizes}  # fmt: skip
    keywords |= {n: named.get(n, every) for n in axes - given if isinstance(n, str)}
    most = max([every, *named.values()])
    return ExampleLaunch(cdiv(most, 256), 256, tuple(arguments), keywords)


def _sizes(texts: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The length of axes, and of those that are named."""
    every, named = 1024, dict[str, int]()
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isdigit() or int(number) < 1:
            raise BadValueError(f"{text!r} is no size", help="--size 64, or --size n=64")
        if name:
            named[name] = int(number)
        else:
            every = int(number)
    return every, named


def _values(kernel: SimtKernel, texts: Sequence[str]) -> dict[str, int | float]:
    """Scalars and constants by name."""
    found: dict[str, int | float] = {}
    known = {**kernel.signature.scalars, **kernel.signature.constants}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in known:
            raise BadValueError(f"{kernel.__name__} has no scalar or constant {name}",
                                help=f"one of {', '.join(known) or 'none'}")  # fmt: skip
        try:
            found[name] = float(number) if any(c in number for c in ".en") else int(number, 0)
        except ValueError:
            raise BadValueError(f"{text!r} is no value", help=f"--set {name}=3") from None
    return found
