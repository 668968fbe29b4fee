"""Measure on one GPU what the planner's table of kernels holds: products, attention, memory.

    python tools/measure_kernels.py > ridgeline/planner/data/kernels_h200.csv

A row is a kind, its sizes, microseconds for one run and the reached TFLOP/s or GB/s. Every case
runs for a twentieth of a second after a warm-up, so that clocks are those of sustained work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

GROUP_SECONDS = 0.05


def seconds(call: Callable[[], object]) -> float:
    """Mean seconds of one call over a twentieth of a second, after a warm-up."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - start, 1e-6)
    count = max(3, min(2000, int(GROUP_SECONDS / once)))
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(count):
        call()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / count


def row(kind: str, sizes: tuple[int, ...], time_s: float, rate: float, unit: str) -> None:
    """Print one line of the table."""
    print(f"{kind},{'x'.join(map(str, sizes))},{time_s * 1e6:.2f},{rate:.1f},{unit}", flush=True)


def products() -> None:
    """Matrix products as transformers have them, in bfloat16 and float8."""
    shapes = [
        (m, n, k)
        for m in (512, 1024, 2048, 4096, 8192, 16384)
        for n, k in (
            (1024, 4096), (4096, 1024), (2048, 2048), (6144, 2048), (2048, 8192), (4096, 4096),
            (1536, 12288), (12288, 1536), (6144, 12288), (12288, 6144), (8192, 8192),
            (3584, 8192), (28672, 8192), (13312, 16384), (16384, 6656), (2304, 16384),
            (16384, 2048), (16032, 4096), (128256, 4096),
        )
    ]  # fmt: skip
    for m, n, k in shapes:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        time_s = seconds(lambda a=a, b=b: a @ b.t())
        row("product_bf16", (m, n, k), time_s, 2 * m * n * k / time_s / 1e12, "TFLOP/s")
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        time_s = seconds(
            lambda a=a8, b=b8, one=one: torch._scaled_mm(
                a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        )
        row("product_fp8", (m, n, k), time_s, 2 * m * n * k / time_s / 1e12, "TFLOP/s")
        del a, b, a8, b8


def sustained() -> None:
    """A large product for two seconds: the clock that the power limit leaves."""
    one = torch.ones((), device="cuda")
    for kind in ("bf16", "fp8"):
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        if kind == "fp8":
            a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)

        def call(a: torch.Tensor = a, b: torch.Tensor = b, kind: str = kind) -> object:
            if kind == "bf16":
                return a @ b.t()
            return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        end = time.perf_counter() + 2.0
        while time.perf_counter() < end:
            for _ in range(50):
                call()
            torch.cuda.synchronize()
        time_s = seconds(call)
        row(f"sustained_{kind}", (8192, 8192, 8192), time_s, 2 * 8192**3 / time_s / 1e12, "TFLOP/s")


def attention() -> None:
    """Causal attention, forwards and backwards; FLOPs count the lower triangle alone."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ):  # fmt: skip
        for batch, heads, length, width in (
            (4, 4, 2048, 128), (4, 16, 2048, 128), (1, 16, 4096, 128), (1, 32, 8192, 128),
            (1, 4, 8192, 128), (1, 8, 32768, 128), (4, 16, 2048, 64), (1, 16, 8192, 64),
        ):  # fmt: skip
            make = lambda b=batch, h=heads, s=length, d=width: torch.randn(  # noqa: E731
                b, h, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=True
            )
            q, k, v = make(), make(), make()
            flops = 2 * batch * heads * length * length * width
            try:
                with sdpa_kernel(backend):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    grad = torch.randn_like(out)
                    time_f = seconds(
                        lambda q=q, k=k, v=v: F.scaled_dot_product_attention(
                            q, k, v, is_causal=True
                        )
                    )
                    time_b = seconds(
                        lambda out=out, q=q, k=k, v=v, grad=grad: torch.autograd.grad(
                            out, (q, k, v), grad, retain_graph=True
                        )
                    )
            except RuntimeError as error:
                print(f"# {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            sizes = (batch, heads, length, width)
            row(f"attention_{name}_forward", sizes, time_f, flops / time_f / 1e12, "TFLOP/s")
            row(f"attention_{name}_backward", sizes, time_b, 2.5 * flops / time_b / 1e12, "TFLOP/s")


def memory() -> None:
    """Copies, additions, normalisations and Adam: bytes read and written by the second."""
    for elements in (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28):
        x = torch.randn(elements // 4096, 4096, device="cuda", dtype=torch.bfloat16)
        y = torch.empty_like(x)
        time_s = seconds(lambda x=x, y=y: y.copy_(x))
        row("copy", (elements,), time_s, 4 * elements / time_s / 1e9, "GB/s")
        time_s = seconds(lambda x=x, y=y: torch.add(x, x, out=y))
        row("add", (elements,), time_s, 4 * elements / time_s / 1e9, "GB/s")
        w = torch.ones(4096, device="cuda", dtype=torch.bfloat16)
        time_s = seconds(lambda x=x, w=w: F.layer_norm(x, (4096,), w, w))
        row("layer_norm", (elements,), time_s, 4 * elements / time_s / 1e9, "GB/s")
        time_s = seconds(lambda x=x: F.gelu(x))
        row("gelu", (elements,), time_s, 4 * elements / time_s / 1e9, "GB/s")
    p = torch.zeros(1 << 28, device="cuda", requires_grad=True)
    p.grad = torch.randn_like(p)
    adam = torch.optim.AdamW([p], lr=1e-4, fused=True)
    time_s = seconds(adam.step)
    row("adamw_fp32", (1 << 28,), time_s, 28 * (1 << 28) / time_s / 1e9, "GB/s")
    tiny = torch.zeros(1, device="cuda")
    time_s = seconds(lambda: tiny.add_(1))
    row("launch", (1,), time_s, 0.0, "none")


if __name__ == "__main__":
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("kind,sizes,microseconds,rate,unit")
    memory()
    attention()
    products()
    sustained()
