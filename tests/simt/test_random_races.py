"""Random kernels against all pairs of accesses: the detector misses no race and invents none."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt.kernel import SimtKernel

BLOCKS, SIZE = 2, 8
SHAPES = (64, 64, 40, 96, (8, 8), (5, 4, 3), (16, 3))  # whole warps, parts of them, rows
INDICES = {
    "t % 8": lambda t: t % 8,
    "t // 8": lambda t: t // 8,
    "(t + 1) % 8": lambda t: (t + 1) % 8,
    "t // 32": lambda t: t // 32,
    "t % 2": lambda t: t % 2,
    "3": lambda t: 3,
    "(t // 16) % 4": lambda t: t // 16 % 4,
}
GUARDS = {
    "True": lambda b, t: True,
    "t < 32": lambda b, t: t < 32,
    "t == 5": lambda b, t: t == 5,
    "t < 8": lambda b, t: t < 8,
    "t >= 56": lambda b, t: t >= 56,
    "t % 32 == 0": lambda b, t: t % 32 == 0,
    "b == 0": lambda b, t: b == 0,
    "b == 1 and t == 5": lambda b, t: b == 1 and t == 5,
}
KINDS = ("read", "write", "atomic", "syncthreads", "syncwarp", "half")
SYNCS = {  # how many neighbours a statement orders, and how it is written
    "syncthreads": (1024, "syncthreads()"),
    "syncwarp": (32, "syncwarp()"),
    "half": (16, "syncwarp(u32(65535) << u32(t % 32 // 16 * 16))"),
}


@dataclass(frozen=True)
class Step:
    kind: str
    array: str = ""
    index: str = "3"
    guard: str = "True"


def random_steps(draw: random.Random) -> list[Step]:
    steps = []
    for _ in range(draw.randint(2, 9)):
        kind = draw.choices(KINDS, (4, 3, 1, 2, 2, 2))[0]
        array = draw.choices(("s", "g"), (3, 1))[0]
        guard = draw.choice([*GUARDS, "t == 5", "t < 8", "t % 32 == 0"])
        steps.append(Step(kind, array, draw.choice(list(INDICES)), guard))
    return steps


def kernel_of(steps: list[Step]) -> SimtKernel:
    lines = ['def random_kernel(g: inout[i32["n"]]):',
             "    s = shared(16, i32)",
             "    t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)",
             "    b = blockIdx.x",
             "    if t < 16:", "        s[t] = 0", "    syncthreads()", "    kept = 0"]  # fmt: skip
    for number, step in enumerate(steps):
        if step.kind in SYNCS:
            lines.append(f"    {SYNCS[step.kind][1]}")
            continue
        element = f"{step.array}[{step.index}]"
        action = {
            "read": f"kept += {element}",
            "write": f"{element} = (b * 1024 + t) * 100 + {number}",
            "atomic": f"atomic_add({element}, 1)",
        }[step.kind]
        lines += [f"    if {step.guard}:", f"        {action}"]
    return simt.kernel("\n".join(lines))


def has_race(steps: list[Step], threads: int) -> bool:
    """Every pair of accesses to an element, by what each thread has seen of the others."""
    found: dict[tuple[str, int, int], list[Access]] = {}
    for block in range(BLOCKS):
        seen = np.zeros((threads, threads), np.int64)
        for step in steps:
            for thread in range(threads):
                if step.kind in SYNCS or not GUARDS[step.guard](block, thread):
                    continue
                seen[thread, thread] += 1
                owner = block if step.array == "s" else -1
                element = (step.array, owner, INDICES[step.index](thread))
                access = Access(block, thread, seen[thread].copy(), step.kind)
                found.setdefault(element, []).append(access)
            if step.kind in SYNCS:
                size = SYNCS[step.kind][0]
                for first in range(0, threads, size):
                    seen[first : first + size] = seen[first : first + size].max(axis=0)
    return any(
        _races(one, other)
        for accesses in found.values()
        for one, other in itertools.combinations(accesses, 2)
    )


@dataclass(frozen=True)
class Access:
    block: int
    thread: int
    seen: np.ndarray[Any, Any]  # of each thread of the block, how many of its accesses came before
    kind: str


def _races(one: Access, other: Access) -> bool:
    same = one.block == other.block
    if (same and one.thread == other.thread) or {one.kind, other.kind} in ({"read"}, {"atomic"}):
        return False
    if not same:
        return True
    before = other.seen[one.thread] >= one.seen[one.thread]
    return not before and one.seen[other.thread] < other.seen[other.thread]


def check(seed: int) -> None:
    draw = random.Random(seed)
    steps, shape = random_steps(draw), draw.choice(SHAPES)
    result = kernel_of(steps).simulate(BLOCKS, shape, np.zeros(2 * SIZE, np.int32))
    kinds = {finding.kind for finding in result.findings}
    threads = shape if isinstance(shape, int) else int(np.prod(shape))
    assert bool(kinds & {"shared race", "global race"}) == has_race(steps, threads), (shape, steps)


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_random_kernels() -> None:
    for seed in range(60, 3000):
        check(seed)
