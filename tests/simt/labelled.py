"""Kernels with a label: what the simulator has to report, or that it must stay silent.

A case names the kind of error that some schedule punishes, `warning` where a remark is all there
may be, or None for a kernel without a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline import simt
from ridgeline.simt.kernel import SimtKernel


@dataclass(frozen=True)
class Case:
    """A kernel, its launch, and the error it has."""

    kernel: SimtKernel
    error: str | None
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


CASES: list[Case] = []


def case(
    error: str | None, grid: Any, block: Any, *arguments: Any, **keywords: Any
) -> Callable[[Any], SimtKernel]:
    def register(function: Any) -> SimtKernel:
        kernel = simt.kernel(function)
        CASES.append(Case(kernel, error, grid, block, arguments, keywords))
        return kernel

    return register


def zeros(n: int) -> Any:
    return np.zeros(n, np.int32)


def numbers(n: int) -> Any:
    return np.arange(n, dtype=np.int32)
