"""A training step of GPT-2 (124M) under bfloat16 autocast: `python -m benchmarks.gpu.gpt2`.

32×1024 tokens, AdamW, random data, the same initial weights for every candidate, each in a process
of its own with empty caches. Reported are milliseconds of a step, the ratio to torch.compile, the
peak of device memory, the first call cold (and, for ridgeline, with a warm cache), and how far the
losses of the first steps are from those of torch in float32.

Two more candidates say what such a distance means: torch in float32 throughout is the truth, and
torch from weights that differ by a hundred-thousandth shows for how many steps the losses depend on
the arithmetic at all: rounding to bfloat16 is four hundred times coarser. After that training is
chaotic, and every run goes its own way. With `--kernels` the slowest kernels of ridgeline's step
follow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.command import parsed
from benchmarks.gpu.store import store
from benchmarks.workloads.gpt_step import SETTINGS, Size, network

SIZE = Size(layers=12, width=768, heads=12, vocabulary=50304, batch=32, length=1024)
STEPS = 50  # whose losses are compared
TIMED = 20
BATCHES = 4
OURS, WARM, EAGER, COMPILED = "ridgeline", "ridgeline, warm cache", "torch", "torch.compile"
EXACT, SHIFTED = "torch in float32", "torch, weights shifted"
SHIFT = np.float32(1e-5)  # relative, of the weights of SHIFTED
AGREEING = 1e-3  # the most by which losses differ that the arithmetic still decides


def weights(names: dict[str, tuple[int, ...]], candidate: str) -> dict[str, Any]:
    """Initial weights of GPT-2's distribution."""
    source, other = np.random.default_rng(5), np.random.default_rng(7)
    found: dict[str, Any] = {}
    for name, shape in names.items():
        if name.endswith("bias"):
            found[name] = np.zeros(shape, np.float32)
        elif "norm" in name:
            found[name] = np.ones(shape, np.float32)
        else:
            found[name] = source.standard_normal(shape, np.float32) * np.float32(0.02)
        if candidate == SHIFTED:
            found[name] *= 1 + SHIFT * other.standard_normal(shape, np.float32)
    return found


def training(lib: Any, candidate: str) -> tuple[Any, list[Any]]:
    """A step, and its arguments for a few batches."""
    model = network(lib.nn, SIZE)
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({k: lib.from_numpy(v) for k, v in weights(state, candidate).items()})
    model.to("cuda")
    fused = {} if candidate in (OURS, WARM) else {"fused": True}
    optimizer = lib.optim.AdamW(model.parameters(), **SETTINGS, **fused)

    def loss_of(tokens: Any, targets: Any) -> Any:
        with lib.autocast("cuda", dtype=lib.bfloat16, enabled=candidate != EXACT):
            scores = model(tokens).reshape(-1, SIZE.vocabulary)
            return lib.nn.functional.cross_entropy(scores.float(), targets.reshape(-1))

    forward = lib.compile(loss_of) if candidate == COMPILED else loss_of

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    source = np.random.default_rng(6)
    text = source.integers(0, SIZE.vocabulary, (BATCHES, SIZE.batch, SIZE.length + 1))
    batches = [
        [lib.from_numpy(np.ascontiguousarray(p)).to("cuda") for p in (t[:, :-1], t[:, 1:])]
        for t in text
    ]
    return (lib.jit(step) if candidate in (OURS, WARM) else step), batches


def measured(lib: Any, candidate: str, kernels: bool) -> dict[str, Any]:
    """The figures of one candidate, in this process."""
    step, batches = training(lib, candidate)
    lib.cuda.synchronize()
    lib.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    losses = [step(*batches[0]).item()]
    first = time.perf_counter() - begin
    if candidate == WARM:
        return {"first_call_s": first}
    losses += [step(*batches[n % BATCHES]).item() for n in range(1, STEPS)]
    if candidate in (EXACT, SHIFTED):
        return {"losses": losses}
    times = []
    for n in range(TIMED):
        begin = time.perf_counter()
        step(*batches[n % BATCHES]).item()
        times.append(time.perf_counter() - begin)
    found = {
        "first_call_s": first, "median_ms": float(np.median(times)) * 1e3,
        "best_ms": min(times) * 1e3, "peak_memory": lib.cuda.max_memory_allocated(),
        "losses": losses,
    }  # fmt: skip
    if kernels and candidate == OURS:
        found["kernels"] = slowest(step, batches[0])
    return found


def slowest(step: Any, parts: list[Any], count: int = 40) -> str:
    """The kernels that take most of a step, equal ones together."""
    together: dict[str, list[Any]] = {}
    for kernel in step.profile(*parts, rounds=1):
        together.setdefault(kernel.name, []).append(kernel)
    ranked = sorted(together.items(), key=lambda item: -sum(k.seconds for k in item[1]))
    total = sum(k.seconds for found in together.values() for k in found)
    lines = [f"all kernels {total * 1e3:.2f} ms"]
    for name, found in ranked[:count]:
        seconds = sum(k.seconds for k in found)
        rate = sum(k.nbytes for k in found) / seconds / 1e9
        lines.append(
            f"{len(found):>4} x {seconds / len(found) * 1e6:>8.1f} us = {seconds * 1e3:>7.2f} ms "
            f"{rate:>6.0f} GB/s {name} {found[0].lines}"
        )
    return "\n".join(lines)


def in_process(candidate: str, caches: Path, kernels: bool) -> dict[str, Any]:
    """The figures of one candidate, from a process of its own."""
    environment = {
        **os.environ, "RIDGELINE_CACHE_DIR": str(caches / "ridgeline"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }  # fmt: skip
    answer = caches / "answer.json"
    command = [sys.executable, "-m", "benchmarks.gpu.gpt2", "--one", candidate, str(answer)]
    done = subprocess.run([*command, *["--kernels"] * kernels], env=environment, check=False)
    if done.returncode:
        return {"error": f"ended with status {done.returncode}"}
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def report(found: dict[str, dict[str, Any]]) -> str:
    """A line for each candidate, and how far its losses are from those in float32."""
    best = found.get(COMPILED, {}).get("median_ms", float("nan"))
    lines = []
    for name, one in found.items():
        if "median_ms" not in one:
            shown = {key: value for key, value in one.items() if key != "losses"}
            lines.append(f"{name:22} {shown or ''}{_distance(name, found)}")
            continue
        lines.append(
            f"{name:22} {one['median_ms']:7.2f} ms (best {one['best_ms']:.2f}), "
            f"{one['median_ms'] / best:.3f} of torch.compile, "
            f"{one['peak_memory'] / 2**30:6.2f} GiB, first call {one['first_call_s']:.2f} s, "
            f"loss {one['losses'][0]:.4f} to {one['losses'][-1]:.4f}{_distance(name, found)}"
        )
    return "\n".join(lines)


def _distance(name: str, found: dict[str, dict[str, Any]]) -> str:
    """How far a candidate's losses are from the truth, while these are no chance and in all."""
    truth, own = (found.get(which, {}).get("losses") for which in (EXACT, name))
    if truth is None or own is None or name == EXACT:
        return ""
    gaps = np.abs(np.subtract(own, truth))
    steps = decided(found)
    return (
        f"  losses within {gaps[:steps].max():.1e} of float32 (mean {gaps[:steps].mean():.1e}) "
        f"over {steps} steps, {gaps.max():.2f} (mean {gaps.mean():.2f}) over {len(gaps)}"
    )


def decided(found: dict[str, dict[str, Any]]) -> int:
    """The first steps, whose losses do not depend on the last digits of the weights."""
    pair = [found.get(which, {}).get("losses") for which in (EAGER, SHIFTED)]
    if None in pair:
        return STEPS
    apart = np.abs(np.subtract(*pair)) > AGREEING
    return int(apart.argmax()) if apart.any() else STEPS


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.gpt2", description=__doc__)
    names = [OURS, WARM, EAGER, COMPILED, SHIFTED, EXACT]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--kernels", action="store_true", help="the slowest kernels too")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parsed(parser)
    if arguments.one:
        candidate, answer = arguments.one
        if candidate in (OURS, WARM):
            import ridgeline as lib
        else:
            import torch as lib

            lib.set_float32_matmul_precision("highest" if candidate == EXACT else "high")
        figures = measured(lib, candidate, arguments.kernels)
        Path(answer).write_text(json.dumps(figures))
        return 0
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as caches:
        for name in arguments.only:
            found[name] = in_process(name, Path(caches), arguments.kernels)
            print(found[name].pop("kernels", ""), flush=True)
            print(report({name: found[name]}), flush=True)
    print(report(found))
    store({"candidates": found}, "gpt2", arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
