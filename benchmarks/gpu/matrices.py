"""Products of 16-bit matrices, ours and cuBLASLt's: `python -m benchmarks.gpu.matrices`.

Thirty shapes: squares, few rows or columns, and the layers of GPT-2 (32×1024 tokens) and Llama in
both directions. Candidates are tiles of our kernel (`loops/tensor_cores.py`) and the first eight
algorithms that cuBLASLt proposes, all over the same random operands, in turns: milliseconds are
medians of rounds. Every candidate is compared with float32 first. `--check` compares odd sizes with
float64 and times nothing.

The parent only starts processes: a kernel that waits for ever is given up after some seconds, and
the rest goes on in a new process without it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import ridgeline as rl
from benchmarks.gpu.store import store
from ridgeline.codegen.cuda.cubin import kernel_resources
from ridgeline.codegen.cuda.emit import generate
from ridgeline.codegen.cuda.nvrtc import compile_source
from ridgeline.codegen.cuda.source import KernelSource
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.ir import Kernel, named
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.loops.schedule import replay
from ridgeline.loops.tensor_cores import TensorCoreTile
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.schedules.gpu import tensor_cores
from ridgeline.schedules.gpu.machine import H200
from ridgeline.schedules.gpu.tensor_cores import ProductSize

ROUNDS = 3
SECONDS = 0.012  # of a candidate in a round, about
MOST_CALLS = 40
PATIENCE = 25  # seconds without a word from the process that measures


@dataclass(frozen=True)
class Shape:
    """A product of [m, k] by [k, n]; `left` and `right` say which axis lies dense in memory."""

    name: str
    m: int
    n: int
    k: int
    left: str = "k"
    right: str = "n"
    batch: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.batch


def _layer(name: str, tokens: int, wide: int, out: int) -> list[Shape]:
    """A linear layer: forward, the gradients of its operand and of its weights."""
    return [
        Shape(f"{name} forward", tokens, out, wide, "k", "k"),
        Shape(f"{name} operand", tokens, wide, out, "k", "n"),
        Shape(f"{name} weights", out, wide, tokens, "m", "n"),
    ]


SHAPES = [
    *(Shape(f"square {n}", n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)),
    Shape("few rows 64", 64, 4096, 4096, "k", "k"),
    Shape("few rows 128", 128, 8192, 8192, "k", "k"),
    Shape("few rows 256", 256, 14336, 4096, "k", "k"),
    Shape("few columns 128", 8192, 128, 8192),
    *_layer("gpt2 qkv", 32768, 768, 2304),
    *_layer("gpt2 out", 32768, 768, 768),
    *_layer("gpt2 up", 32768, 768, 3072),
    *_layer("gpt2 head", 8192, 768, 50304),
    *_layer("llama1b up", 16384, 2048, 16384),
    *_layer("llama8b down", 8192, 14336, 4096),
    Shape("llama1b head forward", 4096, 128256, 2048, "k", "k"),
    Shape("llama8b qkv forward", 8192, 6144, 4096, "k", "k"),
]  # fmt: skip

ODD = [
    Shape("odd", 300, 77, 72, "k", "k"), Shape("odd", 1000, 520, 136, "k", "n"),
    Shape("odd", 328, 1000, 500, "m", "n"), Shape("odd", 776, 648, 264, "m", "k"),
    Shape("odd", 136, 264, 1000, "k", "k"), Shape("odd", 64, 40, 8, "k", "k"),
    Shape("odd", 200, 312, 104, "k", "n", 5), Shape("odd", 1304, 2056, 4104, "m", "n"),
    Shape("odd", 2600, 3336, 648, "k", "k"), Shape("odd", 520, 520, 8200, "m", "n"),
]  # fmt: skip

WITHIN = 1.05  # of the best prediction: tiles that are tried
MORE = 2.0  # the same where odd sizes are compared


def size_of(shape: Shape) -> ProductSize:
    """The product as our model takes it."""
    return ProductSize(shape.m, shape.n, shape.k, shape.batch, 2, 2)


def tiles(shape: Shape, within: float) -> list[TensorCoreTile]:
    """The tiles that are tried, the one that the compiler takes first."""
    found = sorted(tensor_cores.predicted(size_of(shape), H200), key=lambda one: one[0])
    return [tile for seconds, tile in found if seconds <= found[0][0] * within]


def lowered(shape: Shape) -> Any:
    """The loops of a product."""
    letters = {"m": shape.m, "n": shape.n, "k": shape.k}
    numbers = {"b": 0, "m": 1, "n": 2, "k": 3} if shape.batch > 1 else {"m": 0, "n": 1, "k": 2}
    extents = ((shape.batch,) if shape.batch > 1 else ()) + tuple(letters.values())
    operands, maps = [], []
    for own, last in (("m", shape.left), ("n", shape.right)):
        order = ["b"] * (shape.batch > 1) + (["k", own] if last == own else [own, "k"])
        sizes = {**letters, "b": shape.batch}
        kind = TensorType(tuple(sizes[letter] for letter in order), rl.bfloat16, "cuda:0")
        operands.append(leaf(kind))
        maps.append(tuple(axis(numbers[letter]) for letter in order))
    output = tuple(numbers[letter] for letter in numbers if letter != "k")
    made = contract(*operands, ContractAttrs(extents, output, *maps))
    return GroupLowering(folds=[made], graph=Graph([made], operands), name="product").lower()


def kernel_of(shape: Shape, tile: TensorCoreTile) -> Kernel:
    """The kernel of a product with a tile."""
    group = lowered(shape)
    return named(replay(group.kernel, tensor_cores.with_tile(group, tile)))


# ---- in the process that measures ----------------------------------------------------------------


class Bench:
    """The device, through our runtime; memory is torch's."""

    def __init__(self) -> None:
        import torch

        from ridgeline.runtime.cuda import device
        from ridgeline.runtime.cuda.module import Modules

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.device = device.device(0)
        self.device.activate()
        self.modules = Modules(self.device)
        self.workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def operands(self, shape: Shape) -> list[Any]:
        torch = self.torch
        made = []
        for own, last in ((shape.m, shape.left == "m"), (shape.n, shape.right == "n")):
            sizes = (shape.k, own) if last else (own, shape.k)
            sizes = (shape.batch, *sizes) if shape.batch > 1 else sizes
            made.append(torch.randn(sizes, device="cuda", dtype=torch.bfloat16))
        sizes = (shape.batch,) * (shape.batch > 1) + (shape.m, shape.n)
        return [*made, torch.full(sizes, float("nan"), device="cuda", dtype=torch.bfloat16)]

    def product(self, shape: Shape, operands: list[Any], dtype: Any) -> Any:
        left, right = (x.to(dtype) for x in operands[:2])
        left = left.mT if shape.left == "m" else left
        return left @ (right if shape.right == "n" else right.mT)

    def steps(self, source: KernelSource, image: bytes, operands: list[Any]) -> list[Any]:
        from ridgeline.runtime.cuda.launches import KernelLaunch, Starting, grids_of
        from ridgeline.runtime.cuda.steps import ArgumentWords

        rows = [(one.symbol, one.shared_bytes) for one in source.launches]
        self.modules.load([(image, rows)])
        words = ArgumentWords(5)
        words.fill([*(x.data_ptr() for x in operands), self.workspace.data_ptr()])
        launch = KernelLaunch(source.workspace_bytes, grids_of(source))
        assert source.workspace_bytes <= self.workspace.numel()
        return list(launch.steps((0, 1, 2), Starting(0, self.modules, words, 3)))

    def library(self, shape: Shape, operands: list[Any]) -> list[Any]:
        """The algorithms of cuBLASLt."""
        from ridgeline.runtime.cuda import cublaslt
        from ridgeline.runtime.cuda.steps import ArgumentWords

        words = ArgumentWords(5)
        words.fill([*(x.data_ptr() for x in operands), self.workspace.data_ptr()])
        m, n, k = shape.m, shape.n, shape.k
        inside = (m * k, n * k, m * n)
        left = (1, m) if shape.left == "m" else (k, 1)
        right = (n, 1) if shape.right == "n" else (1, k)
        made = [
            cublaslt.MatrixOperand(i, 0, *steps, inside[i], ())
            for i, steps in enumerate((left, right, (n, 1)))
        ]
        found = []
        for number in range(8):
            try:
                found.append(_Algorithm(number)(
                    0, ("bfloat16", "bfloat16"), (m, n, k, shape.batch), (), made, 3, words, False
                ))  # fmt: skip
            except Exception:
                break
        return found

    def graph(self, steps: list[Any], calls: int) -> Any:
        """Some calls as one graph, so that the host does not hold them up."""
        torch = self.torch
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            stream = torch.cuda.current_stream().cuda_stream
            for _ in range(calls):
                for step in steps:
                    step.enqueue(stream)
        return made

    def seconds(self, graph: Any, calls: int) -> float:
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / calls


def _Algorithm(number: int) -> Any:
    """cuBLASLt's product with its choice of that number."""
    from ctypes import byref, c_int32, c_uint32, c_uint64

    from ridgeline.runtime.cuda import cublaslt

    class Chosen(cublaslt.MatmulStep):
        def _choose(self, dtype: str) -> None:
            preference = cublaslt._Description("MatmulPreference")
            preference.set(cublaslt._PREF_WORKSPACE, c_uint64(cublaslt.WORKSPACE))
            preference.set(cublaslt._PREF_REDUCTION, c_uint32(cublaslt._WIDE_REDUCTIONS))
            found, count = (cublaslt._Heuristic * 8)(), c_int32()
            left, right, result = self._layouts
            status = self._library.cublasLtMatmulAlgoGetHeuristic(
                self._handle, self._description.raw, left.raw, right.raw, result.raw, result.raw,
                preference.raw, c_int32(8), byref(found), byref(count),
            )  # fmt: skip
            if status or count.value <= number:
                raise IndexError(number)
            self._algorithm = found[number]

    return Chosen


def measured(shapes: list[Shape], skipped: set[str], check: bool, say: Any) -> None:
    """Compile everything side by side, then compare and time shape by shape."""
    begun = time.perf_counter()
    bench = Bench()
    torch = bench.torch
    wanted: list[tuple[Shape, TensorCoreTile, KernelSource]] = []
    for shape in shapes:
        for tile in tiles(shape, MORE if check else WITHIN):
            if f"{shape}{tile.text}" not in skipped:
                wanted.append((shape, tile, generate(kernel_of(shape, tile))))
    made = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = [source.text for _, _, source in wanted]
        images = list(pool.map(lambda text: compile_source(text, "sm_90a"), texts))
    say({"made": made - begun, "compiled": time.perf_counter() - made, "kernels": len(images)})
    stream = torch.cuda.current_stream().cuda_stream
    for shape in shapes:
        key = f"{shape}"
        if key in skipped:
            continue
        operands = bench.operands(shape)
        torch.cuda.synchronize()
        wide = torch.float64 if check else torch.bfloat16
        small = check or shape.m * shape.n < 1 << 28
        exact = bench.product(shape, operands, wide).double() if small else None
        size = None if exact is None else exact.norm()
        candidates: dict[str, list[Any]] = {}
        errors: dict[str, Any] = {}
        for place, (one, tile, source) in enumerate(wanted):
            if one is not shape:
                continue
            say({"trying": f"{shape}{tile.text}"})
            resources = kernel_resources(images[place], source.launches[-1].symbol, 90)
            steps = bench.steps(source, images[place], operands)
            operands[2].fill_(float("nan"))
            for step in steps:
                step.enqueue(stream)
            torch.cuda.synchronize()
            if exact is not None:
                error = ((operands[2].double() - exact).norm() / size).item()
                again = operands[2].clone()
                operands[2].fill_(float("nan"))
                for step in steps:
                    step.enqueue(stream)
                torch.cuda.synchronize()
                same = bool((again == operands[2]).all().item())
                errors[tile.text] = error
                if not error < 6e-3 or not same or resources.local_bytes:
                    say({"wrong": f"{shape} {tile.text}", "error": error, "same": same,
                         "local": resources.local_bytes})  # fmt: skip
                    continue
            candidates[tile.text] = steps
        if check:
            say({"checked": str(shape), "tiles": len(candidates),
                 "error": max(errors.values(), default=-1.0)})  # fmt: skip
            say({"done": key})
            continue
        if shape.batch == 1:
            for number, step in enumerate(bench.library(shape, operands)):
                candidates[f"cublaslt {number}"] = [step]
        del exact
        times: dict[str, list[float]] = {name: [] for name in candidates}
        estimate = shape.flops / 600e12
        calls = max(2, min(MOST_CALLS, int(SECONDS / max(estimate, 5e-6))))
        graphs = {}
        for name, steps in candidates.items():
            say({"trying": f"{shape}{name}"})
            graphs[name] = bench.graph(steps, calls)
        for number in range(ROUNDS + 1):
            for name, graph in graphs.items():
                taken = bench.seconds(graph, calls)
                times[name] += [taken] * (number > 0)  # the first round warms up
        middle = {name: median(rounds) * 1e3 for name, rounds in times.items()}
        sizes, axes = [shape.m, shape.n, shape.k], shape.left + shape.right
        say({"shape": shape.name, "sizes": sizes, "axes": axes, "ms": middle, "errors": errors})
        say({"done": key})
        del operands, candidates


def worker(arguments: Any) -> None:
    """Measure, and write a line for everything that happens."""

    def say(what: dict[str, Any]) -> None:
        with Path(arguments.worker).open("a") as out:
            out.write(json.dumps(what) + "\n")

    chosen = ODD if arguments.check else SHAPES
    if arguments.only:
        chosen = [s for s in chosen if any(word in s.name for word in arguments.only)]
    skipped = set(json.loads(os.environ.get("SKIPPED", "[]")))
    measured(chosen, skipped, arguments.check, say)
    say({"end": True})


def supervised(arguments: Any, log: Path) -> list[dict[str, Any]]:
    """The lines of processes that measure; what hangs is left out by the next one."""
    skipped: list[str] = []
    log.write_text("")
    for _ in range(6):
        words = [sys.executable, "-m", "benchmarks.gpu.matrices", "--worker", str(log)]
        words += ["--check"] * arguments.check + (
            ["--only", *arguments.only] if arguments.only else []
        )
        process = subprocess.Popen(words, env={**os.environ, "SKIPPED": json.dumps(skipped)})
        seen, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            size = log.stat().st_size
            if size != seen:
                seen, since = size, time.monotonic()
            patience = PATIENCE if seen else 90
            if time.monotonic() - since > (patience if "compiled" in log.read_text() else 90):
                process.kill()
                process.wait()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        if lines and "end" in lines[-1]:
            return lines
        tried = [line["trying"] for line in lines if "trying" in line]
        skipped = [line["done"] for line in lines if "done" in line] + skipped
        if tried:
            print("given up:", tried[-1], flush=True)
            skipped.append(tried[-1])
    return lines


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", default="/tmp")
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments)
        return
    folder = Path(arguments.out)
    lines = supervised(arguments, folder / ("checked.jsonl" if arguments.check else "times.jsonl"))
    ratios: list[float] = []
    for line in lines:
        if "wrong" in line or "checked" in line or "compiled" in line:
            print(line)
        if "ms" in line:
            ours = {k: v for k, v in line["ms"].items() if k.startswith("wgmma")}
            theirs = [v for k, v in line["ms"].items() if not k.startswith("wgmma")]
            m, n, k = line["sizes"]
            best = min(ours, key=ours.__getitem__) if ours else ""
            peak = 2e-9 * m * n * k / min(theirs)
            chosen = next(iter(ours.values()), 0.0)
            ratios.append(chosen / min(theirs))
            print(f"{line['shape']:20} {min(theirs):.4f} ms {peak:.0f} TF first {theirs[0]:.4f} "
                  f"ours {chosen:.4f} of best {ratios[-1]:.3f} of first {chosen / theirs[0]:.3f} "
                  f"best tile {ours[best] / chosen:.3f} {best[6:]}", flush=True)  # fmt: skip
    if ratios:
        mean = prod(ratios) ** (1 / len(ratios))
        print(f"geometric mean {mean:.3f} of the best of eight, worst {max(ratios):.3f}")
        store(
            {"shapes": [line for line in lines if "ms" in line]},
            "matrices",
            folder / "matrices.json",
        )


if __name__ == "__main__":
    main()
