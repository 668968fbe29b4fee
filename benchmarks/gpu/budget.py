"""Twice the batch in the memory of one on a GPU: `python -m benchmarks.gpu.budget [--batch 8]`.

A training step of GPT-2 (124M) under bfloat16 autocast is run with a batch, which takes so much
memory; then with twice the batch, and a budget of just that. Reported are the time of a token in
both, and the frontier of bytes against time.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

import ridgeline as rl
from benchmarks.workloads.gpt_step import SETTINGS, Size, network

TIMED = 12


def training(size: Size, memory: int | None) -> Any:
    """A step over one batch, within a budget."""
    rl.manual_seed(0)
    model = network(rl.nn, size)
    model.to("cuda")
    optimizer = rl.optim.AdamW(model.parameters(), **SETTINGS)
    text = rl.randint(0, size.vocabulary, (size.batch, size.length + 1)).to("cuda")
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        with rl.autocast("cuda", dtype=rl.bfloat16):
            scores = model(tokens).reshape(-1, size.vocabulary)
            loss = rl.nn.functional.cross_entropy(scores.float(), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    jitted = rl.jit(step) if memory is None else rl.jit(step, memory=memory)
    return jitted, (tokens, targets)


def measured(size: Size, memory: int | None) -> tuple[float, int]:
    """Microseconds of a token, and the most bytes that were held."""
    step, given = training(size, memory)
    begin = time.perf_counter()
    losses = [step(*given).item() for _ in range(3)]
    compiled = time.perf_counter() - begin
    rl.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        step(*given).item()
        times.append(time.perf_counter() - begin)
    peak, token = rl.cuda.max_memory_allocated(), float(np.median(times)) / size.batch / size.length
    budget = "no budget" if memory is None else f"a budget of {memory / 2**30:.2f} GiB"
    print(
        f"batch {size.batch}, {budget}: {token * 1e6:.3f} us a token, peak {peak / 2**30:.2f} GiB, "
        f"loss {losses[-1]:.4f}, first three calls {compiled:.1f} s",
        flush=True,
    )
    if memory is not None:
        print("\n".join(map(str, list(step.frontier(*given))[::4])), flush=True)
    return token, peak


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.budget", description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=12)
    given = parser.parse_args()
    size = Size(given.layers, 768, 12, 50304, given.batch, 1024)
    once, peak = measured(size, None)
    rl.cuda.empty_cache()
    twice, held = measured(Size(given.layers, 768, 12, 50304, 2 * given.batch, 1024), peak)
    print(
        f"twice the batch in {held / peak:.3f} of the memory: {twice / once:.3f} of a token's time"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
