"""Registers, local and shared memory of kernels, read from machine code that no GPU has seen."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.codegen.cuda.cubin import kernel_resources
from ridgeline.codegen.cuda.nvrtc import compile_source
from ridgeline.simt import f32, i32, inout, local, shared, syncthreads, threadIdx
from ridgeline.simt.launch import LaunchError

pytest.importorskip("cuda.bindings.nvrtc")

TEXT = """
extern "C" __global__ void held(const float *a, float *b, int n) {
  __shared__ float tile[300];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = tile[(threadIdx.x + n) % 300];
}
extern "C" __global__ void small(float *b) { b[threadIdx.x] *= 2.0f; }
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(const float *a, float *b) {
  float kept[64];
  for (int i = 0; i < 64; i++) kept[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
  float total = 0;
  for (int i = 0; i < 64; i++) total = kept[i] * total + kept[63 - i];
  b[threadIdx.x] = total;
}
"""


@pytest.mark.parametrize("capability", [75, 80, 90])
def test_what_functions_take(capability: int) -> None:
    cubin = compile_source(TEXT, f"sm_{capability}")
    held, small, spilled = (
        kernel_resources(cubin, name, capability) for name in ("held", "small", "spilled")
    )
    assert held.shared_bytes == 1200 and held.local_bytes == 0
    assert small.shared_bytes == 0 and 4 <= small.registers <= 16
    most = 64 if capability == 75 else 32  # a multiprocessor has 65,536 for 1024 threads, or 2048
    assert spilled.registers <= most and spilled.local_bytes > 0


@simt.kernel
def reverse(x: f32["n"], y: inout[f32["n"]]):
    s = shared(64, f32)
    s[threadIdx.x] = x[threadIdx.x]
    syncthreads()
    y[threadIdx.x] = s[63 - threadIdx.x]


@simt.kernel
def looked_up(x: i32["n"], y: inout[i32["n"]]):
    a = local(64, i32, fill=0)
    for k in range(64):
        a[x[k] % 64] += k
    y[threadIdx.x] = a[y[threadIdx.x]]


def test_an_explanation_takes_the_compilers_figures() -> None:
    x = np.zeros(64, np.float32)
    found = reverse.explain(1, 64, x, x, registers="compiled")
    assert found.registers_from == "compiled" and 4 <= found.registers <= 32
    assert f"{found.registers} registers (compiled), 256 bytes shared" in str(found)
    assert reverse.explain(1, 64, x, x).registers_from == "estimated"
    assert reverse.explain(1, 64, x, x, registers=77).registers == 77


def test_arrays_indexed_as_they_run_are_local_memory() -> None:
    y = np.zeros(64, np.int32)
    found = looked_up.explain(1, 64, y, y, registers="compiled")
    assert found.local_bytes == 256
    assert "256 bytes local" in str(found)


def test_other_words_are_refused() -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match="compiled"):
        reverse.explain(1, 64, x, x, registers="many")
