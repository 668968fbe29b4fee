"""What a benchmark is: inputs, a float64 reference, and one builder per candidate.

A builder gets the inputs as NumPy arrays and returns a `Runner`. Building converts the inputs and
makes the program, but runs nothing: the first call of `Runner.call` is what a user waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = dict[str, NDArray[Any]]

OURS, DEFERRED = "ridgeline jit", "ridgeline"
TORCH, COMPILED, JAX, NUMPY, ORT = "torch", "torch.compile", "jax", "numpy", "onnxruntime"
OWN = (OURS, DEFERRED)
CANDIDATES = (*OWN, TORCH, COMPILED, JAX, NUMPY, ORT)


@dataclass(frozen=True, slots=True)
class Runner:
    """One candidate, ready to run: `call` does the work and waits for it, `read` gives results.

    `read` is called once, after the first `call`, and its arrays are compared with the reference.
    """

    call: Callable[[], Any]
    read: Callable[[], Arrays]


Builder: TypeAlias = Callable[[Arrays], Runner]


@dataclass(frozen=True, slots=True)
class Workload:
    """A piece of work that every candidate does alike, in float32.

    `tolerance` bounds the largest error against the float64 reference, relative to the largest
    element of each result. `flops` and `bytes` are the useful operations and the compulsory
    traffic of one call, where they are meaningful.
    """

    name: str
    title: str
    inputs: Callable[[], Arrays]
    reference: Callable[[Arrays], Arrays]
    builders: dict[str, Builder]
    tolerance: float
    flops: float = 0.0
    bytes: float = 0.0
    needs: tuple[str, ...] = field(default=())


def generator() -> np.random.Generator:
    """The fixed source of every workload's inputs."""
    return np.random.default_rng(20)


def normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    """Normal float32 numbers, the same on every run."""
    return (generator().standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)


def once(function: Callable[[], Any], arrays: Callable[[Any], Arrays]) -> Runner:
    """A runner whose result is what the function returned first."""
    kept: list[Any] = []

    def call() -> Any:
        result = function()
        if not kept:
            kept.append(result)
        return result

    return Runner(call, lambda: arrays(kept[0]))


def once_called(build: Builder) -> Callable[[Arrays], Arrays]:
    """A reference: what one call of a candidate gives."""

    def reference(arrays: Arrays) -> Arrays:
        runner = build(arrays)
        runner.call()
        return runner.read()

    return reference
