"""Decoding on a GPU, `python -m benchmarks.gpu.decoding`: milliseconds a token through `generate`.

A model of Llama's shape with random weights takes in a prompt and writes tokens; bytes are the
weights without the table of embeddings and the cache that is read, set against a copy on the same
device. `--profile` lists the kernels of one token, and what the host does between tokens.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import sys
import time
from typing import Any

import numpy as np

import ridgeline as rl
from benchmarks.gpu.command import parsed
from ridgeline.models import Llama, generate

COPIED = 1 << 30  # bytes of the copy that is the roof
WARM_UP = 8  # tokens that are not timed


def copy_rate() -> float:
    """Bytes a second that a copy reads and writes."""
    source = rl.rand(COPIED // 4, device="cuda")
    move = rl.jit(lambda x: x + 1.0)
    move(source)
    best = float("inf")
    for _ in range(5):
        rl.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            move(source)
        rl.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 10)
    return 2 * COPIED / best


def build(layers: int, context: int, dtype: str) -> Any:
    """A model of Llama 3 8B's shape with so many layers, made on the device."""
    rl.set_default_device("cuda")
    try:
        model = Llama(num_hidden_layers=layers, max_position_embeddings=context)
        return model.to(getattr(rl, dtype)).eval()
    finally:
        rl.set_default_device("cpu")


def token_bytes(model: Any, length: int) -> float:
    """What has to be read for one token."""
    held = sum(p.numel() * p.dtype.itemsize for p in model.parameters())
    table = model.tokens.weight
    cache = model.new_cache(1, 1)
    per_token = sum(part.numel() * part.dtype.itemsize for past in cache for part in past)
    return float(held - table.numel() * table.dtype.itemsize + per_token * length)


def seconds_a_token(model: Any, prompt: Any, count: int, **how: Any) -> float:
    """The mean over `count` tokens that follow the first few, the better of two runs."""

    def run() -> float:
        tokens = generate(model, prompt, count + WARM_UP, stream=True, **how)
        [next(tokens) for _ in range(WARM_UP)][-1].cpu().numpy()  # a copy alone would wait for none
        begin = time.perf_counter()
        list(tokens)[-1].cpu().numpy()
        return time.perf_counter() - begin

    return min(run() for _ in range(2)) / count


def host_profile(model: Any, prompt: Any, count: int, **how: Any) -> str:
    """Where the host's time goes."""
    profile = cProfile.Profile()
    profile.enable()
    generate(model, prompt, count, **how).cpu()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(25)
    return text.getvalue()


def kernels_of_a_token(model: Any, batch: int, length: int) -> str:
    """The kernels of one token with their times."""
    cache = model.new_cache(batch, length)
    token = rl.zeros((batch, 1), dtype=rl.int64, device="cuda")
    place = rl.tensor(length - 2)
    model.step(token, place, rl.tensor(0), cache)
    return str(model.step.profile(token, place, rl.tensor(0), cache, rounds=3))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.decoding", description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true")
    given = parsed(parser)
    length = given.prompt + given.tokens + WARM_UP
    model = build(given.layers, 1 << (length - 1).bit_length(), given.dtype)
    prompt = np.random.default_rng(0).integers(0, 128256, (given.batch, given.prompt))
    how = {"temperature": given.temperature, "seed": 0}
    seconds = seconds_a_token(model, prompt, given.tokens, **how)
    moved, roof = token_bytes(model, given.prompt + given.tokens // 2), copy_rate()
    print(
        f"{given.layers} layers, batch {given.batch}: {seconds * 1e3:.3f} ms a token, "
        f"{moved / seconds / 1e12:.2f} TB/s, {moved / seconds / roof:.0%} of a copy "
        f"({roof / 1e12:.2f} TB/s)"
    )
    if given.profile:
        print(kernels_of_a_token(model, given.batch, 1 << (length - 1).bit_length()))
        print(host_profile(model, prompt, given.tokens, **how))
    return 0


if __name__ == "__main__":
    sys.exit(main())
