"""Small laws of performance as exact formulas: Little, Amdahl, peak, intensity, roofline."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.profile.occupancy import GpuArithmeticError


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0 or value == float("inf"):
            raise GpuArithmeticError(f"{name} must be a positive number, not {value}")


@dataclass(frozen=True)
class InFlight:
    """What must be on the way at once to use the whole bandwidth."""

    bytes: float
    bytes_per_sm: float
    warps_per_sm: float


def littles_law(
    bandwidth_gbs: float, latency_ns: float, sms: int, bytes_per_thread: int = 16, loads: int = 1
) -> InFlight:
    """Bytes in flight = bandwidth × latency, for the GPU and for each multiprocessor.

    `warps_per_sm` is how many warps supply that when each thread has `loads` loads of
    `bytes_per_thread` bytes outstanding.
    """
    _positive(bandwidth=bandwidth_gbs, latency=latency_ns, sms=sms, bytes=bytes_per_thread)
    _positive(loads=loads)
    # GB/s × ns = bytes.
    total = bandwidth_gbs * latency_ns
    return InFlight(total, total / sms, total / sms / (32 * bytes_per_thread * loads))


def amdahl(share: float, speedup: float) -> float:
    """How much faster the whole gets when `share` of its time gets `speedup` times faster."""
    if not 0 <= share <= 1:
        raise GpuArithmeticError(f"the share must lie between 0 and 1, not {share}")
    if not speedup > 0:
        raise GpuArithmeticError(f"the speed-up must be positive, not {speedup}")
    remaining = (1 - share) + share / speedup
    return float("inf") if remaining == 0 else 1 / remaining


def peak(sms: int, fma_per_clock_per_sm: float, clock_ghz: float) -> float:
    """TFLOP/s of multiply–add units; each multiply–add is two operations."""
    _positive(sms=sms, fma=fma_per_clock_per_sm, clock=clock_ghz)
    return 2.0 * sms * fma_per_clock_per_sm * clock_ghz / 1e3


@dataclass(frozen=True)
class Roof:
    """Where work lies under a roofline."""

    intensity: float
    attainable: float
    """TFLOP/s."""
    bound: str
    floor_ms: float


def roofline(flops: float, moved: float, peak_tflops: float, bandwidth_gbs: float) -> Roof:
    """Intensity, attainable rate and least time of work that does `flops` on `moved` bytes."""
    _positive(bytes=moved, peak=peak_tflops, bandwidth=bandwidth_gbs)
    if not 0 <= flops < float("inf"):
        raise GpuArithmeticError(f"flops must be a number from 0 up, not {flops}")
    intensity = flops / moved
    by_memory = intensity * bandwidth_gbs / 1e3
    bound = "memory" if by_memory < peak_tflops else "arithmetic"
    floor = max(flops / (peak_tflops * 1e12), moved / (bandwidth_gbs * 1e9)) * 1e3
    return Roof(intensity, min(by_memory, peak_tflops), bound, floor)
