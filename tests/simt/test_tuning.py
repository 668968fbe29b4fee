"""Constants chosen by measuring, and a user's own CUDA C++."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.errors import BadValueError, ComputeError
from ridgeline.execution.interpreter_cost import interpreter_seconds
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.ops.kernel_launch import (
    CudaKernel,
    LaunchAttrs,
    LaunchResult,
    ThreadLaunch,
    UserKernel,
    launch,
)
from ridgeline.simt.cuda_source import CudaSourceError
from tests.simt import textbook

_SAXPY = """
extern "C" __global__ void saxpy(const float *a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = *a * x[i];
}
"""


def tuned_product() -> simt.autotuning.TunedKernel:
    return simt.autotune(
        textbook.matmul, {"L": (16, 32), "S": (4, 8), "V": (2,)},
        grid=lambda m, n, L, **_: (simt.cdiv(n, L), simt.cdiv(m, L)),
        block=lambda L, V, **_: (L // V, L // V),
    )  # fmt: skip


def test_the_best_constants_give_the_same() -> None:
    rng = np.random.default_rng(0)
    at, b = (rng.standard_normal((40, n)).astype(np.float32) for n in (50, 30))
    tuned = tuned_product()
    found = tuned(rl.tensor(at), rl.tensor(b))
    np.testing.assert_allclose(found.numpy(), at.T @ b, atol=1e-4)
    (best,) = tuned.best.values()
    assert best in tuned.choices
    again = tuned_product()  # finds on disk what was measured
    again(rl.tensor(at), rl.tensor(b))
    assert list(again.best.values()) == [best]


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(BadValueError, match="no constant Q"):
        simt.autotune(textbook.matmul, {"Q": (1,)}, grid=lambda **_: 1, block=lambda **_: 1)
    with pytest.raises(BadValueError, match="in place"):
        simt.autotune(textbook.scale, {}, grid=lambda **_: 1, block=lambda **_: 1)


def test_cuda_source_needs_a_gpu() -> None:
    saxpy = simt.cuda(_SAXPY, "saxpy", 'a: f32, x: f32["n"], y: out[f32["n"]]')
    with pytest.raises(CudaSourceError, match="arguments lie on the host"):
        saxpy[1, 64](2.0, rl.zeros(10))
    with pytest.raises(CudaSourceError, match="has no function other"):
        simt.cuda(_SAXPY, "other", 'x: f32["n"]')


def test_what_runs_on_a_gpu_alone_is_never_interpreted() -> None:
    one = ThreadLaunch((1, 1, 1), (32, 1, 1))
    kernel = UserKernel("alone", "alone", None, lambda grid: CudaKernel("", "alone"))
    results = (LaunchResult(0, None, (4,), rl.float32),)
    (made,) = launch([], LaunchAttrs(kernel, one, results, (), "cpu"))
    assert interpreter_seconds(Graph([made], [])) == math.inf
    with pytest.raises(ComputeError, match="alone runs on a GPU"):
        evaluate([made], {})


@pytest.mark.gpu
def test_cuda_source_on_a_gpu() -> None:
    saxpy = simt.cuda(_SAXPY, "saxpy", 'a: f32, x: f32["n"], y: out[f32["n"]]')
    x = rl.arange(100, dtype=rl.float32, device="cuda")
    assert saxpy[1, 128](2.0, x).tolist() == [2.0 * i for i in range(100)]
    f = rl.jit(lambda v, s: saxpy[1, 128](s, v + 1))
    assert f(x, 3.0).tolist() == [3.0 * (i + 1) for i in range(100)]
    broken = simt.cuda(
        _SAXPY.replace("int i", "int j"), "saxpy", 'a: f32, x: f32["n"], y: out[f32["n"]]'
    )
    with pytest.raises(CudaSourceError, match="does not compile"):
        broken[1, 128](2.0, x)
