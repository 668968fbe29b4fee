"""Measured limits of a device, with which profiles compare kernels.

Figures that were taken while others used the machine are refused: a limit that is too low flatters.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.devices import CPU, device
from ridgeline.errors import RidgelineError
from ridgeline.runtime.cpu import ceilings as host


class BusyMachineError(RidgelineError):
    """The limits of this machine, while others use it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes read and written and operations a second, and how they were found."""

    bandwidth: float
    peak: float
    said: str

    def least_seconds(self, flops: float, nbytes: float) -> float:
        """The least time that some work can take."""
        return max(flops / self.peak, nbytes / self.bandwidth)


def limits(device_name: str, *, float64: bool = False, again: bool = False) -> Limits:
    """The limits of a device, from disk or measured now, and with `again` always measured."""
    if device_name != CPU:
        return _of_gpu(device(device_name), again)
    found = host.measured_again() if again else host.ceilings()
    if found.noisy:
        raise BusyMachineError(
            "this machine's limits are not known: it was busy when they were measured "
            f"({found.why_noisy})",
            help="measure again when nothing else runs",
        )
    peak = found.fma_float64 if float64 else found.fma_float32
    return _said(found.copy_bandwidth, peak, f"with {found.threads} threads, measured")


def _of_gpu(target: device, again: bool) -> Limits:
    from ridgeline.runtime.cuda.ceilings import ceilings  # where there is a GPU

    if again:
        ceilings.cache_clear()
    found = ceilings(target.index or 0)
    how = f"on {found.name}, copies measured, arithmetic by its clock"
    return _said(found.copy_bandwidth, found.fma_float32, how)


def _said(bandwidth: float, peak: float, how: str) -> Limits:
    rates = f"{bandwidth / 1e9:.0f} GB/s copied, {peak / 1e9:.0f} GFLOP/s {how}"
    return Limits(bandwidth, peak, rates)
