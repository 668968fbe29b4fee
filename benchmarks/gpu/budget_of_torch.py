"""Budgets beside torch's on a GPU: `python -m benchmarks.gpu.budget_of_torch [0.6 0.2]`.

A training step of GPT-2 (124M) under bfloat16 autocast with torch.compile and its
`activation_memory_budget`, a share of what would be kept; then with `jit`, and as budget the bytes
that torch's step held. Reported are milliseconds of a step and the peak of both, each in a process
of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.workloads.gpt_step import Size

SHARES = (0.8, 0.6, 0.4, 0.2)
SIZE = Size(layers=12, width=768, heads=12, vocabulary=50304, batch=16, length=1024)
TIMED, SECONDS = 15, 100


def theirs(share: float) -> dict[str, Any]:
    """Torch's step with a share of its activations."""
    import torch
    import torch._functorch.config

    from benchmarks.gpu.torch_backend import training

    torch.set_float32_matmul_precision("high")
    torch._functorch.config.activation_memory_budget = share
    step = training(torch, SIZE, "inductor", narrow=True)
    for _ in range(3):
        step().item()
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(lambda: step().item())
    return {"ms": milliseconds, "peak": torch.cuda.max_memory_allocated()}


def ours(budget: int) -> dict[str, Any]:
    """Our step within so many bytes."""
    import ridgeline as rl
    from benchmarks.gpu.budget import training

    step, given = training(SIZE, budget)
    for _ in range(3):
        step(*given).item()
    rl.cuda.reset_peak_memory_stats()
    milliseconds = timed(lambda: step(*given).item())
    return {"ms": milliseconds, "peak": rl.cuda.max_memory_allocated()}


def timed(step: Any) -> float:
    """Milliseconds of a step."""
    times = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e3


def in_process(kind: str, number: float) -> dict[str, Any]:
    """The figures of one side, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu.budget_of_torch", kind, str(number)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {SECONDS} s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-3:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["theirs"]:
        print(json.dumps(theirs(float(sys.argv[2]))))
        return 0
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(int(float(sys.argv[2])))))
        return 0
    for share in [float(text) for text in sys.argv[1:]] or SHARES:
        torch_step = in_process("theirs", share)
        own = in_process("ours", torch_step["peak"]) if "peak" in torch_step else {}
        ratio = own["ms"] / torch_step["ms"] if "ms" in own else float("nan")
        print(f"budget {share}: torch {torch_step}, ours {own}, time {ratio:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
