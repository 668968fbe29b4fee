"""Products with what follows them fused: `python -m benchmarks.gpu.fused_products`.

A linear layer with a GELU, a gated one (SwiGLU), and one with a bias, a residual and a norm, in
bfloat16, against torch and torch.compile over the same values: ridgeline with its own products, and
with cuBLASLt's alone. Results are compared with torch in float32, and medians of rounds taken in
turn. `--check` compares layers of odd sizes with float64 instead, forward and backward.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import ridgeline as rl
from benchmarks.gpu.store import store

ROUNDS = 5
CALLS = 10


def linear_gelu(lib: Any) -> Callable[..., Any]:
    """The first half of a block's feed-forward layers."""
    f = lib.nn.functional
    return lambda x, w, b: f.gelu(f.linear(x, w, b), approximate="tanh")


def swiglu(lib: Any) -> Callable[..., Any]:
    """The gated form of it."""
    f = lib.nn.functional
    return lambda x, w, v: f.silu(f.linear(x, w)) * f.linear(x, v)


def residual_norm(lib: Any) -> Callable[..., Any]:
    """A projection back, added to what came in, and the norm of the next layer."""
    f = lib.nn.functional

    def run(x: Any, w: Any, b: Any, r: Any, g: Any, c: Any) -> Any:
        y = f.linear(x, w, b) + r
        return y, f.layer_norm(y, (y.shape[-1],), g, c)

    return run


def mlp_training(lib: Any) -> Callable[..., Any]:
    """Two layers with a GELU and a residual, forward and backward."""
    f, grad = lib.nn.functional, lib.autograd.grad

    def run(x: Any, w: Any, b: Any, v: Any, c: Any, ct: Any) -> Any:
        x, w, b, v, c = (t.detach().requires_grad_() for t in (x, w, b, v, c))
        y = f.linear(f.gelu(f.linear(x, w, b), approximate="tanh"), v, c) + x
        return (y.detach(), *grad(y, [x, w, b, v, c], ct))

    return run


PROGRAMS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "linear_gelu": (linear_gelu, [(16384, 2048), (8192, 2048), (8192,)]),
    "swiglu": (swiglu, [(8192, 4096), (14336, 4096), (14336, 4096)]),
    "bias_residual_norm": (
        residual_norm, [(16384, 2048), (2048, 2048), (2048,), (16384, 2048), (2048,), (2048,)]
    ),
    "mlp_training": (
        mlp_training,
        [(16384, 1024), (4096, 1024), (4096,), (1024, 4096), (1024,), (16384, 1024)],
    ),
}  # fmt: skip

ODD = [(3, 50, 136, 264), (1, 300, 72, 520), (5, 129, 200, 328), (2, 1000, 104, 1032)]


def made(shapes: list[tuple[int, ...]], seed: int) -> list[Any]:
    """Random operands, whose products have the size of their factors."""
    import torch

    source = torch.Generator("cuda").manual_seed(seed)
    found = []
    for shape in shapes:
        scale = shape[-1] ** -0.5 if len(shape) == 2 and found else 1.0
        values = torch.randn(shape, generator=source, device="cuda") * scale
        found.append(values.to(torch.bfloat16))
    return found


def errors(results: Any, truth: Any) -> list[float]:
    """How far each result is from the truth, in the Euclidean norm."""
    import torch

    found = []
    for value, exact in zip(results, truth, strict=True):
        if isinstance(value, rl.Tensor):
            value = torch.from_numpy(value.detach().cpu().float().numpy()).to(exact.device)
        found.append(float((value.double() - exact.double()).norm() / exact.double().norm()))
    return found


def ours(operands: list[Any]) -> list[Any]:
    """The same operands as tensors of ridgeline."""
    held = [rl.from_numpy(o.float().cpu().numpy()) for o in operands]
    return [o.to("cuda").bfloat16() for o in held]


def several(results: Any) -> list[Any]:
    """Results as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def check() -> None:
    """Layers of odd sizes against float64."""
    import torch

    for batch, rows, wide, inner in ODD:
        shapes = [(batch, rows, wide), (inner, wide), (inner,), (wide, inner), (wide,)]
        operands = made([*shapes, shapes[0]], rows)
        exact = mlp_training(torch)(*(o.double() for o in operands))
        theirs = errors(mlp_training(torch)(*operands), exact)
        given = ours(operands)
        for products in ("own", "model", "library"):
            with rl.config.override(products=products):
                found = errors(rl.jit(mlp_training(rl))(*given), exact)
            wrong = any(not a <= 2 * b + 1e-3 for a, b in zip(found, theirs))
            shown = " ".join(f"{a:.5f}/{b:.5f}" for a, b in zip(found, theirs))
            print("WRONG" if wrong else "right", batch, rows, wide, inner, products, shown)


def timed(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of a call of each, in turn, one round after the other."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                kept = call()
            rl.cuda.synchronize()
            torch.cuda.synchronize()
            found[name] += [(time.perf_counter() - begin) / CALLS] * (number > 0)
            del kept
    return found


def measure(name: str) -> dict[str, Any]:
    """All candidates of a program."""
    import torch

    program, shapes = PROGRAMS[name]
    operands = made(shapes, 1)
    torch.backends.cuda.matmul.allow_tf32 = False
    exact = several(program(torch)(*(o.float() for o in operands)))
    given = ours(operands)
    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, Any] = {}
    eager, compiled = program(torch), torch.compile(program(torch))
    calls["torch"] = lambda: eager(*operands)
    calls["torch.compile"] = lambda: compiled(*operands)
    for products in ("model", "library"):
        jitted = rl.jit(program(rl))

        def run(jitted: Any = jitted, products: Any = products) -> Any:
            with rl.config.override(products=products):
                return jitted(*given)

        calls[f"ridgeline {products}"] = run
    for label, call in list(calls.items()):
        begin = time.perf_counter()
        results = several(call())
        first = time.perf_counter() - begin
        found[label] = {"first_call_s": first, "error": max(errors(results, exact))}
        del results
    del exact
    for label, rounds in timed(calls).items():
        found[label]["median_ms"] = median(rounds) * 1e3
    return found


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    figures = {}
    for name in arguments.only:
        found = figures[name] = measure(name)
        best = min(one["median_ms"] for label, one in found.items() if "torch" in label)
        shown = " ".join(
            f"{label}: {one['median_ms']:.4f} ms ({one['median_ms'] / best:.3f}, error "
            f"{one['error']:.5f}, first {one['first_call_s']:.1f} s)"
            for label, one in found.items()
        )
        print(name, shown, flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures))
    store(figures, "fused-products", arguments.out)


if __name__ == "__main__":
    main()
