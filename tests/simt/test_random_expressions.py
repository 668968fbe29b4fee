"""Random expressions of integers, the same to the bit in the simulator, on the host and as CUDA."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt.kernel import SimtKernel
from tests.simt.emulated import CudaRun, Emulator, cuda_run

SIZE = 64
EDGES = {
    "i32": [0, 1, -1, 2, -2, 7, -7, 31, 32, 33, 2**31 - 1, -(2**31), 65536, -65537],
    "u32": [0, 1, 2, 7, 31, 32, 33, 2**31, 2**32 - 1, 65536],
    "i64": [0, 1, -1, 63, 64, 2**31, -(2**31), 2**63 - 1, -(2**63), 10**12],
}
TYPES = {"i32": np.int32, "u32": np.uint32, "i64": np.int64}


def expression(draw: random.Random, kind: str, depth: int) -> str:
    """A text of an element type over the variables a, b, c, the thread t and numbers."""
    if depth == 0:
        names = [*"abc", f"{kind}({draw.randint(0, 9)})"]
        return draw.choice([*names, "t"] if kind == "i32" else names)
    deeper = [expression(draw, kind, draw.randint(0, depth - 1)) for _ in range(4)]
    x, y, z, w = deeper
    choices = [
        f"({x} {draw.choice(['+', '-', '*', '+', '-', '*', '//', '%', '&', '|', '^'])} {y})",
        f"({x} {draw.choice(['+', '-', '*'])} {y} {draw.choice(['+', '-', '*'])} {z})",
        f"({x} << ({y} & {kind}(31)))", f"({x} >> ({y} & {kind}(31)))",
        f"(~{x})", f"{draw.choice(['min', 'max'])}({x}, {y})",
        f"({x} if {y} {draw.choice(['<', '<=', '==', '!=', '>', '>='])} {z} else {w})",
        f"{kind}(simt.popc({x}))", f"{kind}(simt.clz({x}))",
    ]  # fmt: skip
    if kind != "u32":
        choices += [f"(-{x})", f"abs({x})"]
    return draw.choice(choices)


def random_kernel(seed: int) -> tuple[SimtKernel, list[np.ndarray]]:
    """A kernel of six expressions of one type, with a loop around one, and its arguments."""
    draw = random.Random(seed)
    kind = draw.choice(list(TYPES))
    parts = [expression(draw, kind, draw.randint(1, 4)) for _ in range(6)]
    body = [f"y[{n}, t] = {part}" for n, part in enumerate(parts[:5])]
    arrays = ", ".join(f'p{name}: {kind}["n"]' for name in "abc")
    lines = [f"def random_{seed}({arrays}, y: out[{kind}['6 n']]):", "t = threadIdx.x",
             *(f"{name} = p{name}[t]" for name in "abc"), *body,
             f"for t in range({draw.randint(1, 5)}):", f"    a = {parts[5]}",
             "y[5, threadIdx.x] = a"]  # fmt: skip
    rng = np.random.default_rng(seed)
    info = np.iinfo(TYPES[kind])
    given = []
    for _ in "abc":
        wide = rng.integers(info.min, info.max, SIZE, TYPES[kind], endpoint=True)
        narrow = rng.integers(0 if kind == "u32" else -40, 40, SIZE).astype(TYPES[kind])
        edges = rng.choice(np.array(EDGES[kind], TYPES[kind]), SIZE)
        given.append(np.choose(rng.integers(0, 3, SIZE), [wide, narrow, edges]))
    return simt.kernel("\n    ".join(lines)), given


def check(seeds: range, folder: Path) -> None:
    kernels = {seed: random_kernel(seed) for seed in seeds}
    runs: dict[int, CudaRun] = {
        seed: cuda_run(kernel, 1, SIZE, *given) for seed, (kernel, given) in kernels.items()
    }
    emulator = Emulator(list(runs.values()), folder)
    for seed, (kernel, given) in kernels.items():
        found = kernel.simulate(1, SIZE, *given)
        assert not found.errors
        wanted, source = found.outputs["y"], "\n".join(kernel.captured.source.lines)
        host = kernel[1, SIZE](*[rl.tensor(array) for array in given]).numpy()
        np.testing.assert_array_equal(host, wanted, source)
        np.testing.assert_array_equal(emulator.run(runs[seed])["y"], wanted, source)


pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")


def test_random_expressions(tmp_path: Path) -> None:
    check(range(12), tmp_path)


@pytest.mark.slow
def test_many_random_expressions(tmp_path: Path) -> None:
    check(range(12, 160), tmp_path)
