"""`simt.cuda(source, name, signature)`: a user's own CUDA C++ as a kernel like any other.

    saxpy = simt.cuda('''
    extern "C" __global__ void saxpy(const float *a, const float *x, float *y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = *a * x[i];
    }''', "saxpy", 'a: f32, x: f32["n"], y: out[f32["n"]]')
    y = saxpy[simt.cdiv(n, 256), 256](2.0, x)

The function takes an address for each parameter of the signature, in its order (a scalar's too: it
may be computed on the GPU), and then an `int` for each named size, in the order in which they first
appear.
"""

from __future__ import annotations

from ridgeline.codegen.cuda.nvrtc import CudaCompileError, compile_source
from ridgeline.compiler.backend import backend
from ridgeline.devices import CPU
from ridgeline.errors import RidgelineError
from ridgeline.ops.kernel_launch import KERNEL_OPTIONS, CudaKernel, ThreadLaunch, UserKernel
from ridgeline.simt.frontend.source import capture
from ridgeline.simt.ir import ThreadProgram
from ridgeline.simt.kernel import SimtKernel, with_language
from ridgeline.weak import fingerprint


class CudaSourceError(RidgelineError):
    """CUDA C++ of a user that does not compile, or that is asked to run where there is no GPU."""

    code = "RL0844"


class CudaSource(SimtKernel):
    """A kernel whose text is the user's."""

    def __init__(self, source: str, name: str, signature: str) -> None:
        super().__init__(capture(with_language(f"def {name}({signature}):\n    pass\n")))
        self.source = source

    def as_launched(self, program: ThreadProgram, device: str) -> UserKernel:
        """The text as the graph knows it, compiled once so that errors are the user's."""
        if device == CPU:
            raise CudaSourceError(
                f"{self.__name__} is CUDA C++, and its arguments lie on the host",
                help='move them with .to("cuda"), or write it with @simt.kernel',
            )
        target = backend(device)
        try:
            compile_source(self.source, target.facts().arch, KERNEL_OPTIONS)
        except CudaCompileError as error:
            raise CudaSourceError(
                f"{self.__name__} does not compile", note=str(error)[:_MOST_NOTE]
            ) from None
        key = fingerprint(f"{self.source}\0{self.__name__}")
        return UserKernel(self.__name__, key, None, self._text)

    def _text(self, shape: ThreadLaunch) -> CudaKernel:
        return CudaKernel(self.source, self.__name__)


_MOST_NOTE = 2000


def cuda(source: str, name: str, signature: str) -> CudaSource:
    """A kernel of CUDA C++ with a function `name`; `signature` says what a launch gets."""
    if f" {name}(" not in source and f"*{name}(" not in source:
        raise CudaSourceError(f"the source has no function {name}")
    return CudaSource(source, name, signature)
