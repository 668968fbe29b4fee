"""ResNet-50 at batch 256: `python -m benchmarks.gpu.resnet50 [train] [infer]`.

Training is a step of SGD with momentum under bfloat16 autocast, inference a bfloat16 model in
evaluation; torch has its memory in channels last, its best setting. All candidates begin with the
same weights and images. Reported are the first call, milliseconds of a call, the peak of device
memory, and the losses of the first steps, or the error of the scores against float32.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.command import parsed
from benchmarks.gpu.gpt2 import slowest
from benchmarks.gpu.store import store

BATCH, SIZE, CLASSES = 256, 224, 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
STEPS, ROUNDS, CALLS = 5, 5, 4
OURS, TORCH, COMPILED = "ridgeline", "torch", "torch.compile"


def network(nn: Any) -> Any:
    """The model in torch's or ridgeline's modules."""

    def unit(before: int, after: int, size: int, stride: int) -> Any:
        conv = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after))

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = unit(before, width, 1, 1), unit(width, width, 3, stride)
            self.third = unit(width, 4 * width, 1, 1)
            changes = stride != 1 or before != 4 * width
            self.shortcut = unit(before, 4 * width, 1, stride) if changes else nn.Identity()

        def forward(self, x: Any) -> Any:
            inner = nn.functional.relu(self.second(nn.functional.relu(self.first(x))))
            return nn.functional.relu(self.third(inner) + self.shortcut(x))

    layers, before = [unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in STAGES:
        for number in range(count):
            layers.append(Block(before, width, stride if number == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, CLASSES))


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Initial weights, and statistics as of a trained model, that keep the signal alive."""
    source = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            found[name] = np.zeros(shape, np.int64)
        elif len(shape) > 1:
            spread = np.sqrt(2 / np.prod(shape[1:]))
            found[name] = (source.standard_normal(shape) * spread).astype(np.float32)
        elif name.endswith(("running_var", "weight")):
            found[name] = source.uniform(0.5, 1.0, shape).astype(np.float32)
        else:
            found[name] = (source.standard_normal(shape) * 0.1).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """What a candidate runs: a function and its arguments."""

    lib: Any
    run: Callable[..., Any]
    parts: list[Any]


def _model(lib: Any) -> Any:
    model = network(lib.nn)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({k: lib.from_numpy(v) for k, v in weights(shapes).items()})
    model.to("cuda")
    return model.to(memory_format=lib.channels_last) if lib.__name__ == "torch" else model


def _images(lib: Any, dtype: str) -> Any:
    values = np.random.default_rng(6).standard_normal((BATCH, 3, SIZE, SIZE), np.float32)
    images = lib.from_numpy(values).to("cuda").to(getattr(lib, dtype))
    return images.to(memory_format=lib.channels_last) if lib.__name__ == "torch" else images


def train(lib: Any, wrap: Callable[[Any], Any]) -> Case:
    """A step of training."""
    model = _model(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        with lib.autocast("cuda", dtype=lib.bfloat16):
            scores = model(images)
            loss = lib.nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        return loss

    labels = np.random.default_rng(7).integers(0, CLASSES, BATCH)
    parts = [_images(lib, "float32"), lib.from_numpy(labels).to("cuda")]
    return Case(lib, wrap(step), parts)


def infer(lib: Any, wrap: Callable[[Any], Any], dtype: str = "bfloat16") -> Case:
    """Scores of a batch of images."""
    model = _model(lib).to(getattr(lib, dtype)).eval()

    def run(images: Any) -> Any:
        with lib.no_grad():
            return model(images)

    return Case(lib, wrap(run), [_images(lib, dtype)])


def _values(result: Any) -> Any:
    return result.detach().double().cpu().numpy()


def measured(case: Case, steps: int) -> dict[str, Any]:
    """The figures of one candidate: the first results, and times of calls back to back."""
    lib = case.lib
    lib.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    results = [_values(case.run(*case.parts))]
    first = time.perf_counter() - begin
    results += [_values(case.run(*case.parts)) for _ in range(steps - 1)]
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            case.run(*case.parts)
        lib.cuda.synchronize()
        times.append((time.perf_counter() - begin) / CALLS)
    return {
        "first_call_s": first, "median_ms": float(np.median(times)) * 1e3,
        "best_ms": min(times) * 1e3, "peak_memory": lib.cuda.max_memory_allocated(),
        "results": results,
    }  # fmt: skip


def _report(name: str, what: str, found: dict[str, Any]) -> None:
    shown = {k: v for k, v in found.items() if k != "results"}
    print(what, name, json.dumps(shown), flush=True)


def compare(what: str, only: set[str], kernels: bool) -> dict[str, Any]:
    """All candidates of training or inference."""
    make, steps = (train, STEPS) if what == "train" else (infer, 2)
    wanted = None
    if what == "infer" and only != {OURS}:
        import torch

        with torch.inference_mode():
            case = infer(torch, lambda run: run, "float32")
            wanted = _values(case.run(*case.parts))
    outcomes: dict[str, Any] = {}
    for name in (OURS, TORCH, COMPILED):
        if only and name not in only:
            continue
        lib, wrap = _candidate(name)
        lib.cuda.empty_cache()
        case = make(lib, wrap)
        found = outcomes[name] = measured(case, steps)
        results = found.pop("results")
        if what == "train":
            found["losses"] = [float(value) for value in results]
        elif wanted is not None:
            found["error"] = float(np.linalg.norm(results[-1] - wanted) / np.linalg.norm(wanted))
        _report(name, what, found)
        if kernels and name == OURS:
            print(slowest(case.run, case.parts, 45), flush=True)
        del case
    return outcomes


def _candidate(name: str) -> tuple[Any, Callable[[Any], Any]]:
    if name == OURS:
        import ridgeline as rl

        return rl, rl.jit
    import torch

    torch.set_float32_matmul_precision("high")
    return torch, torch.compile if name == COMPILED else lambda run: run


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.resnet50", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="train|infer", help="both if not given")
    parser.add_argument("--only", action="append", choices=[OURS, TORCH, COMPILED])
    parser.add_argument("--kernels", action="store_true", help="the slowest kernels too")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    arguments = parsed(parser, "what", ("train", "infer"))
    found: dict[str, Any] = {}
    for what in arguments.what or ("train", "infer"):
        found[what] = compare(what, set(arguments.only or ()), arguments.kernels)
        store(found, "resnet50", arguments.out)  # after each, so that what was measured is kept
    return 0


if __name__ == "__main__":
    sys.exit(main())
