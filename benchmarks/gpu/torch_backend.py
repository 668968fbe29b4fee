"""torch.compile with our backend beside torch's on a GPU: `python -m benchmarks.gpu.torch_backend`.

First small networks are compared with torch, with gradients, and the calls that torch still makes
are counted. Then a training step of a GPT, each candidate in a process of its own with empty
caches: the first call, milliseconds of a step, its loss. `gpt` is 6 layers of 384 in float32,
`gpt2` is GPT-2 (124M) under bfloat16 autocast, 8×1024 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.gpt_step import SETTINGS, SMALL, Size, network

SIZES = {
    "gpt": SMALL,
    "gpt2": Size(layers=12, width=768, heads=12, vocabulary=50304, batch=8, length=1024),
}
CANDIDATES = ("ridgeline", "inductor")
TIMED, SECONDS = 30, 110


def training(torch: Any, size: Size, backend: str, narrow: bool) -> Callable[[], Any]:
    """A step over one batch."""
    torch.manual_seed(0)
    model = network(torch.nn, size).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), **SETTINGS, fused=True)
    text = torch.randint(size.vocabulary, (size.batch, size.length + 1), device="cuda")
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss_of(tokens: Any, targets: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=narrow):
            scores = model(tokens).reshape(-1, size.vocabulary)
            return torch.nn.functional.cross_entropy(scores.float(), targets.reshape(-1))

    forward = torch.compile(loss_of, backend=backend)

    def step() -> Any:
        optimizer.zero_grad()
        loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def measured(name: str, backend: str) -> dict[str, Any]:
    """The figures of one candidate, in this process."""
    import torch

    torch.set_float32_matmul_precision("high")
    if backend == "ridgeline":
        import ridgeline.torch_backend
    step = training(torch, SIZES[name], backend, narrow=name == "gpt2")
    begin = time.perf_counter()
    losses = [step().item()]
    first = time.perf_counter() - begin
    losses += [step().item() for _ in range(9)]
    times = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    found = {
        "first_call_s": round(first, 2), "median_ms": round(float(np.median(times)) * 1e3, 3),
        "best_ms": round(min(times) * 1e3, 3), "losses": [losses[0], losses[-1]],
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }  # fmt: skip
    if backend == "ridgeline":
        found["by torch"] = ridgeline.torch_backend.explain().splitlines()[:6]
    return found


def in_process(name: str, backend: str) -> dict[str, Any]:
    """The same in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        environment = {
            **os.environ, "RIDGELINE_CACHE_DIR": f"{caches}/ridgeline",
            "TRITON_CACHE_DIR": f"{caches}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.gpu.torch_backend", "--one", name, backend]
        try:
            done = subprocess.run(
                command, env=environment, check=False, capture_output=True, text=True,
                timeout=SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {SECONDS} s"}
    if done.returncode:
        return {"error": done.stderr[-1500:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- small networks, compared with torch ---------------------------------------------------------


def networks(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Networks on the GPU, with what goes in."""
    nn = torch.nn
    encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    convolutions = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    embedded = nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU())
    made = {
        "linear": (nn.Sequential(nn.Linear(33, 65), nn.Tanh(), nn.Linear(65, 7)), (9, 33)),
        "convolutions": (convolutions, (4, 3, 31, 31)),
        "encoder": (encoder, (3, 17, 32)),
        "recurrent": (nn.LSTM(12, 20, batch_first=True), (5, 11, 12)),
    }
    found = {
        name: (model.to("cuda"), (torch.randn(shape, device="cuda"),))
        for name, (model, shape) in made.items()
    }
    places = torch.randint(50, (6, 13), device="cuda")
    found["embedded"] = (embedded.to("cuda"), (places,))
    return found


def compared(torch: Any, model: Any, given: tuple[Any, ...]) -> str:
    """The largest distance of results and gradients from torch's."""
    import copy

    import ridgeline.torch_backend as backend

    torch._dynamo.reset()
    backend.reset()
    own = copy.deepcopy(model)
    run = torch.compile(own, backend="ridgeline")
    worst, side = 0.0, torch.cuda.Stream()
    for number in range(3):
        with torch.cuda.stream(side if number == 2 else torch.cuda.current_stream()):
            side.wait_stream(torch.cuda.default_stream())
            results = [call(*given) for call in (model, run)]
            results = [r[0] if isinstance(r, tuple) else r for r in results]
            for result, module in zip(results, (model, own)):
                module.zero_grad()
                result.square().mean().backward()
            pairs = [(results[0], results[1])]
            pairs += [(p.grad, q.grad) for p, q in zip(model.parameters(), own.parameters())]
            gaps = [((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in pairs]
            worst = max(worst, *gaps)
    return f"{worst:.1e} from torch; {backend.explain().splitlines()[0]}"


def main() -> int:
    """Compare, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.torch_backend",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(*arguments.one)))
        return 0
    import torch

    torch.manual_seed(0)
    for name, (model, given) in networks(torch).items():
        try:
            print(f"{name}: {compared(torch, model, given)}", flush=True)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    for name in arguments.sizes:
        for backend in CANDIDATES:
            print(name, backend, json.dumps(in_process(name, backend)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
