"""A GPU that is stated and not there, for tests of what would be compiled for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ridgeline.fusion.groups import Roofline
from ridgeline.ops.convolve import ConvolveAttrs
from ridgeline.runtime.cuda.attention import AttentionKernels, CudnnAttention, Problem
from ridgeline.runtime.cuda.backend import CudaBackend, JoinedKernels
from ridgeline.runtime.cuda.control_flow import DeviceControlFlow
from ridgeline.runtime.cuda.cudnn_convolution import CudnnConvolution
from ridgeline.runtime.cuda.product import CublasProduct
from ridgeline.runtime.cuda.user_kernels import UserKernels
from ridgeline.schedules.gpu.machine import H200, GpuMachine


class StatedGpu(CudaBackend):
    """The backend of such a GPU: nothing is loaded or run."""

    def __init__(self, facts: GpuMachine = H200, recompute: bool = True) -> None:
        self._facts, self._recompute = facts, recompute
        self._joining = JoinedKernels(facts.parameter_bytes)
        self._control_flow = DeviceControlFlow("cuda:0")
        self.user_kernels = UserKernels(facts.shared_bytes)
        self.product = CublasProduct(self._facts)
        self.convolution = StatedConvolution(self)
        self.attention = StatedAttention(self)
        self.attention_kernels = AttentionKernels(facts.capability)

    def roofline(self, facts: GpuMachine) -> Roofline:
        """As the backend has it; without `recompute`, kernels read what others wrote."""
        return replace(super().roofline(facts), recompute=self._recompute)

    def convolution_plan(self, attrs: ConvolveAttrs, dtype: str) -> Any:
        """What cuDNN has; tests say so."""
        return None

    def attention_plan(self, kind: str, problem: Problem) -> Any:
        """What cuDNN has; tests say so."""
        return None


class StatedConvolution(CudnnConvolution):
    """Convolutions that a test says cuDNN has."""

    def __init__(self, of: StatedGpu) -> None:
        self.plan = of.convolution_plan  # type: ignore[method-assign]


class StatedAttention(CudnnAttention):
    """Attention that a test says cuDNN has."""

    def __init__(self, of: StatedGpu) -> None:
        self.plan = of.attention_plan  # type: ignore[method-assign]
