"""A training step of GPT-2 (124M) under bfloat16 autocast: `python -m benchmarks.gpu.gpt2`.

32×1024 tokens, AdamW, random data, the same initial weights for every candidate. Reported are the
first call, milliseconds of a step, the peak of device memory, and the losses of the first steps.
With `--kernels` the slowest kernels of ridgeline's step follow.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads.gpt_step import SETTINGS, Size, network

SIZE = Size(layers=12, width=768, heads=12, vocabulary=50304, batch=32, length=1024)
STEPS = 6
OURS, COMPILED = "ridgeline", "torch.compile"


def weights(names: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Initial weights of GPT-2's distribution."""
    source = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for name, shape in names.items():
        if name.endswith("bias"):
            found[name] = np.zeros(shape, np.float32)
        elif "norm" in name:
            found[name] = np.ones(shape, np.float32)
        else:
            found[name] = source.standard_normal(shape, np.float32) * np.float32(0.02)
    return found


def training(lib: Any, wrap: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    """A step, and its two arguments."""
    model = network(lib.nn, SIZE)
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({k: lib.from_numpy(v) for k, v in weights(state).items()})
    model.to("cuda")
    optimizer = lib.optim.AdamW(model.parameters(), **SETTINGS)

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        with lib.autocast("cuda", dtype=lib.bfloat16):
            scores = model(tokens).reshape(-1, SIZE.vocabulary)
            loss = lib.nn.functional.cross_entropy(scores.float(), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    text = np.random.default_rng(6).integers(0, SIZE.vocabulary, (SIZE.batch, SIZE.length + 1))
    parts = [
        lib.from_numpy(np.ascontiguousarray(p)).to("cuda") for p in (text[:, :-1], text[:, 1:])
    ]
    return wrap(step), parts


def measured(lib: Any, step: Any, parts: list[Any]) -> dict[str, Any]:
    """The figures of one candidate."""
    lib.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    losses = [step(*parts).item()]
    first = time.perf_counter() - begin
    losses += [step(*parts).item() for _ in range(STEPS - 1)]
    times = []
    for _ in range(2 * STEPS):
        begin = time.perf_counter()
        step(*parts).item()
        times.append(time.perf_counter() - begin)
    peak = lib.cuda.max_memory_allocated()
    return {
        "first_call_s": first, "median_ms": float(np.median(times)) * 1e3,
        "best_ms": min(times) * 1e3, "peak_memory": peak, "losses": losses,
    }  # fmt: skip


def slowest(step: Any, parts: list[Any], count: int = 30) -> str:
    """The kernels that take most of a step, equal ones together."""
    together: dict[str, list[Any]] = {}
    for kernel in step.profile(*parts, rounds=1):
        together.setdefault(kernel.name, []).append(kernel)
    ranked = sorted(together.items(), key=lambda item: -sum(k.seconds for k in item[1]))
    return "\n".join(
        f"{len(found):>4} x {found[0].seconds * 1e6:>8.1f} us = "
        f"{sum(k.seconds for k in found) * 1e3:>7.2f} ms "
        f"{found[0].nbytes / found[0].seconds / 1e9:>6.0f} GB/s {name} {found[0].lines}"
        for name, found in ranked[:count]
    )


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.gpt2", description=__doc__)
    parser.add_argument("--only", choices=[OURS, COMPILED], help="leave the other out")
    parser.add_argument("--kernels", action="store_true", help="the slowest kernels too")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.only != COMPILED:
        import ridgeline as rl

        step, parts = training(rl, rl.jit)
        found[OURS] = measured(rl, step, parts)
        print(OURS, found[OURS], flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        if arguments.kernels:
            print(slowest(step, parts), flush=True)
    if arguments.only != OURS:
        import torch

        torch.set_float32_matmul_precision("high")
        found[COMPILED] = measured(torch, *training(torch, torch.compile))
        print(COMPILED, found[COMPILED], flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
