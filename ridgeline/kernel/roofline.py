"""The roofline of one kernel under the measured limits of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ridgeline.compiler.kernel_profile import quantity
from ridgeline.dtypes import float64
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.runtime.limits import BusyMachineError, Limits, limits


@dataclass(frozen=True, slots=True)
class KernelRoofline:
    """Exact work of an expression against measured limits: what bounds it, and the least time.

    `moved` is what the schedule's own loads and stores move, by the scope they touch.
    """

    operations: Mapping[str, int]
    flops: int
    bytes: int
    moved: Mapping[str, int]
    limits: Limits | BusyMachineError  # an error where the machine was too busy to measure them

    @property
    def bound(self) -> str:
        """`memory` or `compute`."""
        known = self._known()
        slow = self.bytes / known.bandwidth > self.flops / known.peak
        return "memory" if slow else "compute"

    @property
    def seconds(self) -> float:
        """The least time the machine could need."""
        return self._known().least_seconds(self.flops, self.bytes)

    def _known(self) -> Limits:
        if isinstance(self.limits, BusyMachineError):
            raise self.limits
        return self.limits

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {count}" for name, count in self.operations.items())
        moved = ", ".join(f"{scope} {quantity(n, 'B')}" for scope, n in self.moved.items())
        intensity = self.flops / self.bytes if self.bytes else 0.0
        lines = [
            f"useful work      {quantity(self.flops, 'FLOP')} ({classes})   exact",
            f"compulsory bytes {quantity(self.bytes, 'B')}, {intensity:.2f} FLOP/B   exact",
            f"moved            {moved}   exact",
        ]
        if isinstance(self.limits, BusyMachineError):
            return "\n".join([*lines, f"limits           {self.limits.message}"])
        least = f"{self.seconds * 1e6:.2f} µs, bound by {self.bound}"
        return "\n".join(
            [*lines, f"limits           {self.limits.said}", f"at least         {least}"]
        )

    __repr__ = __str__


def limits_for(device_name: str, lowered: Lowered) -> Limits | BusyMachineError:
    """What a device can do for a kernel, or why that is not known."""
    wide = any(b.dtype is float64 for b in lowered.kernel.params)
    try:
        return limits(device_name, float64=wide)
    except BusyMachineError as error:
        return error
