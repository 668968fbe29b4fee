"""Loops that walk all memory as one: the rows and columns of the image under a 1×1 window."""

from __future__ import annotations

from itertools import pairwise

from ridgeline.loops.ir import Kernel
from ridgeline.loops.schedule import Fuse
from ridgeline.schedules.accesses import Access, accesses
from ridgeline.schedules.attempts import attempt


def joined(
    kernel: Kernel, rows: dict[str, int], inner: dict[str, int]
) -> tuple[list[Fuse], Kernel, dict[str, int], dict[str, int]]:
    """Steps that fuse such loops, and the kernel and its axes after them.

    A longer loop fills vectors and tiles with less left over.
    """
    steps: list[Fuse] = []
    refused: set[tuple[str, str]] = set()
    while True:
        touched = accesses(kernel)
        pairs = [p for p in (*pairwise(rows), *pairwise(inner)) if p not in refused]
        pair = next((p for p in pairs if _one(p, touched, rows | inner)), None)
        if pair is None:
            return steps, kernel, rows, inner
        step = Fuse(*pair)
        made = attempt(kernel, step)
        if made is None:  # the epilogue computes with an index itself
            refused.add(pair)
            continue
        kernel = made
        steps.append(step)
        rows, inner = _renamed(rows, step), _renamed(inner, step)


def _one(pair: tuple[str, str], touched: list[Access], sizes: dict[str, int]) -> bool:
    outer, inner = pair
    if sizes[outer] == 1 or sizes[inner] == 1:
        return False
    for access in touched:
        step, length = access.stride(inner), access.stride(outer)
        if step is None or length is None or length != step * sizes[inner]:
            return False
    return True


def _renamed(axes: dict[str, int], step: Fuse) -> dict[str, int]:
    made: dict[str, int] = {}
    for name, size in axes.items():
        if name == step.outer:
            made[step.axis] = size * axes[step.inner]
        elif name != step.inner:
            made[name] = size
    return made
