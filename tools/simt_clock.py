"""How long launches take on the GPU that is there, for `tools.simt_chains` and `simt_times`.

Launches wait in the stream behind a kernel that spins, so that Python's share is not in their
times. What an empty kernel takes in the same place is taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import blockDim, blockIdx, f32, i32, inout, threadIdx

_SPIN = 5_000_000  # dependent operations, about ten milliseconds
_FLUSHED = 1 << 26  # elements of four bytes, several times any L2


@dataclass(frozen=True)
class Timed:
    """A launch to be timed: a kernel, its shape and arguments, and what should bound it."""

    name: str
    bound: str
    kernel: Any
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict)


@simt.kernel
def spin(x: inout[f32["n"]], steps: i32):
    a = x[0]
    for _ in range(steps):
        a = a * 0.5 + 1.0
    x[0] = a


@simt.kernel
def nothing(x: inout[f32["n"]]):
    if x.shape[0] == 0:
        x[0] = 0.0


@simt.kernel
def flush(x: inout[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    x[i] = x[i] + 1.0


class Stopwatch:
    """Times launches on the current GPU."""

    def __init__(self) -> None:
        self._one = rl.zeros(1, device="cuda")
        self._large = rl.zeros(_FLUSHED, device="cuda")
        self.overhead = 0.0
        self.overhead = min(self._times(lambda: nothing[1, 32](self._one), 12))

    def seconds(self, case: Timed, repeats: int = 7) -> float:
        """The median time of a launch that finds nothing of its data in the caches."""
        given = [
            rl.tensor(a, device="cuda") if isinstance(a, np.ndarray) else a for a in case.arguments
        ]

        def launch() -> None:
            case.kernel[case.grid, case.block](*given, **case.constants)

        return max(0.0, float(np.median(self._times(launch, repeats))) - self.overhead)

    def _times(self, launch: Callable[[], None], repeats: int) -> list[float]:
        with rl.eager():
            launch()
            rl.cuda.synchronize()
            pairs = []
            spin[1, 1](self._one, _SPIN)
            for _ in range(repeats):
                flush[_FLUSHED // 256, 256](self._large)
                begin, end = (rl.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                launch()
                end.record()
                pairs.append((begin, end))
            rl.cuda.synchronize()
        return [float(begin.elapsed_time(end)) / 1e3 for begin, end in pairs]
