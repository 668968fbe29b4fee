"""A GPU that is stated and not there, for tests of what would be compiled for it."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.compiler.cuda import CudaBackend
from ridgeline.fusion.groups import Roofline
from ridgeline.schedules.gpu.machine import H200, GpuMachine
from ridgeline.weak import Recent


class StatedGpu(CudaBackend):
    """The backend of such a GPU: nothing is loaded or run."""

    def __init__(self, facts: GpuMachine = H200, recompute: bool = True) -> None:
        self._facts, self._recompute = facts, recompute
        self._keys = Recent(100, 100)

    def roofline(self, facts: GpuMachine) -> Roofline:
        """As the backend has it; without `recompute`, kernels read what others wrote."""
        return replace(super().roofline(facts), recompute=self._recompute)
