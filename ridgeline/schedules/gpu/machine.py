"""The facts of a GPU that default schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """What one GPU has: read from the device by the runtime, or a stated one in tests."""

    arch: str  # as NVRTC names it: "sm_80", "sm_90a"
    multiprocessors: int
    shared_bytes: int  # that one block may use
    l2_bytes: int
    cluster: int = 1  # blocks that can share their shared memory; 1 before Hopper
    block_threads: int = 1024
    parameter_bytes: int = 4096  # that one launch may take
    # accesses of a row that a block reads sooner than a second launch begins
    block_accesses: int = 4096

    # sums into shared places are added in one order, not as threads come
    one_order: bool = False

    @property
    def capability(self) -> int:
        """The compute capability times ten."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))


H200 = GpuMachine("sm_90a", 132, 232_448, 60 << 20, cluster=8, parameter_bytes=32_764)
A100 = GpuMachine("sm_80", 108, 166_912, 40 << 20)
T4 = GpuMachine("sm_75", 40, 65_536, 4 << 20)
