"""What the measured ceilings of a machine allow one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ridgeline.compiler.explain import quantity
from ridgeline.devices import CPU, device
from ridgeline.dtypes import float64
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.runtime.cpu.ceilings import ceilings


@dataclass(frozen=True, slots=True)
class KernelRoofline:
    """Exact work of an expression against measured ceilings: what bounds it, and the least time.

    `moved` is what the schedule's own loads and stores move, by the scope they touch.
    """

    operations: Mapping[str, int]
    flops: int
    bytes: int
    moved: Mapping[str, int]
    bandwidth: float
    peak: float

    @property
    def bound(self) -> str:
        """`memory` or `compute`."""
        return "memory" if self.bytes / self.bandwidth > self.flops / self.peak else "compute"

    @property
    def seconds(self) -> float:
        """The least time the machine could need."""
        return max(self.bytes / self.bandwidth, self.flops / self.peak)

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {count}" for name, count in self.operations.items())
        moved = ", ".join(f"{scope} {quantity(n, 'B')}" for scope, n in self.moved.items())
        intensity = self.flops / self.bytes if self.bytes else 0.0
        return "\n".join([
            f"useful work      {quantity(self.flops, 'FLOP')} ({classes})   exact",
            f"compulsory bytes {quantity(self.bytes, 'B')}, {intensity:.2f} FLOP/B   exact",
            f"moved            {moved}   exact",
            f"ceilings         {self.bandwidth / 1e9:.1f} GB/s, "
            f"{self.peak / 1e9:.0f} GFLOP/s   measured",
            f"at least         {self.seconds * 1e6:.2f} µs, bound by {self.bound}",
        ])  # fmt: skip

    __repr__ = __str__


def ceilings_of(device_name: str, lowered: Lowered) -> tuple[float, float]:
    """Bytes and operations per second that a device was measured to do."""
    if device_name == CPU:
        limits = ceilings()
        wide = any(b.dtype is float64 for b in lowered.kernel.params)
        return limits.copy_bandwidth, limits.fma_float64 if wide else limits.fma_float32
    from ridgeline.runtime.cuda.ceilings import ceilings as of_gpu

    found = of_gpu(device(device_name).index or 0)
    return found.copy_bandwidth, found.fma_float32
