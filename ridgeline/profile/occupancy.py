"""Theoretical occupancy of a kernel, by the driver's own arithmetic, for sm_70 to sm_121.

A block needs warps, registers and shared memory of one multiprocessor; the scarcest decides how
many fit. Registers are handed out per warp in units of 256, on four sub-partitions; shared
memory in units of 128 or 256 bytes, plus what the system keeps for itself in each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.errors import RidgelineError

WARP = 32
REGISTERS = 65536
REGISTER_UNIT = 256
PARTITIONS = 4
MOST_REGISTERS = 255
MOST_THREADS = 1024


class GpuArithmeticError(RidgelineError):
    """A number that no GPU has."""

    code = "RL0711"


@dataclass(frozen=True)
class SmLimits:
    """What one multiprocessor has."""

    warps: int
    blocks: int
    shared: int
    shared_per_block: int
    reserved: int
    shared_unit: int


LIMITS: dict[int, SmLimits] = {
    70: SmLimits(64, 32, 98304, 98304, 0, 256),
    72: SmLimits(64, 32, 98304, 98304, 0, 256),
    75: SmLimits(32, 16, 65536, 65536, 0, 256),
    80: SmLimits(64, 32, 167936, 166912, 1024, 128),
    86: SmLimits(48, 16, 102400, 101376, 1024, 128),
    87: SmLimits(48, 16, 167936, 166912, 1024, 128),
    89: SmLimits(48, 24, 102400, 101376, 1024, 128),
    90: SmLimits(64, 32, 233472, 232448, 1024, 128),
    100: SmLimits(64, 32, 233472, 232448, 1024, 128),
    103: SmLimits(64, 32, 233472, 232448, 1024, 128),
    110: SmLimits(48, 24, 233472, 232448, 1024, 128),
    120: SmLimits(48, 24, 102400, 101376, 1024, 128),
    121: SmLimits(48, 24, 102400, 101376, 1024, 128),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps that fit at once, and the resource that ran out."""

    blocks: int
    warps: int
    share: float
    limiter: str
    by_warps: int
    by_registers: int
    by_shared: int
    by_blocks: int


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _blocks_by_registers(registers: int, warps: int) -> int:
    per_warp = _up(registers * WARP, REGISTER_UNIT)
    if per_warp * _up(warps, PARTITIONS) > REGISTERS:
        return 0
    if per_warp == 0:
        return 1 << 30
    return (REGISTERS // PARTITIONS // per_warp) * PARTITIONS // warps


def _blocks_by_shared(shared: int, limits: SmLimits) -> int:
    if shared > limits.shared_per_block:
        return 0
    needed = _up(shared + limits.reserved, limits.shared_unit)
    return limits.shared // needed if needed else 1 << 30


def occupancy(capability: int, threads: int, registers: int, shared: int = 0) -> Occupancy:
    """How many blocks of a kernel one multiprocessor holds; `shared` is static plus dynamic."""
    if capability not in LIMITS:
        known = ", ".join(f"sm_{number}" for number in LIMITS)
        raise GpuArithmeticError(f"sm_{capability} is not in the table", note=f"known: {known}")
    if not 1 <= threads <= MOST_THREADS:
        raise GpuArithmeticError(f"a block has 1 to {MOST_THREADS} threads, not {threads}")
    if not 0 <= registers <= MOST_REGISTERS:
        raise GpuArithmeticError(f"a thread has 0 to {MOST_REGISTERS} registers, not {registers}")
    if shared < 0:
        raise GpuArithmeticError(f"shared memory cannot be negative: {shared}")
    limits = LIMITS[capability]
    warps = -(-threads // WARP)
    fits = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(registers, warps),
        "shared memory": _blocks_by_shared(shared, limits),
    }
    blocks = min(fits.values())
    limiter = next(name for name, count in fits.items() if count == blocks)
    return Occupancy(
        blocks,
        blocks * warps,
        blocks * warps / limits.warps,
        limiter,
        fits["warps"],
        fits["registers"],
        fits["shared memory"],
        fits["blocks"],
    )


def waves(grid: int, sms: int, blocks: int) -> float:
    """How many times the GPU must be filled to run a grid; 0 where no block fits."""
    return grid / (sms * blocks) if sms > 0 and blocks > 0 else 0.0
