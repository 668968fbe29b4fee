"""Atomic operations on elements of every type: what they give, three ways, and that they compile.

A kernel carries out all operations that a type has, each on a row of its own; NumPy says what comes
of them, element by element.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import f32
from ridgeline.simt.frontend.problems import KernelLanguageError
from ridgeline.simt.types import ELEMENTS, ElementType
from tests.simt.three_ways import Solved, check_compiles, emulator_of

VALUES = {
    "int": [3, -2, 7, 100, -128, 127, 0, 5], "uint": [3, 200, 7, 100, 0, 255, 1, 5],
    "float": [1.0, -2.0, np.nan, 3.0, 0.5, -0.0, 0.0, np.nan], "bool": [1, 0, 1, 0, 1, 1, 0, 0],
}  # fmt: skip
HELD = {
    "int": [3, 5, -7, 0, 127, 127, -1, 5], "uint": [3, 5, 8, 0, 255, 255, 2, 5],
    "float": [1.0, 5.0, 2.0, np.nan, -0.5, 0.0, 0.0, np.nan], "bool": [1, 1, 0, 0, 1, 0, 1, 0],
}  # fmt: skip


def same_bits(a: Any, b: Any) -> Any:
    return unsigned(a) == unsigned(b)


def unsigned(values: Any) -> Any:
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


def counted(found: Any, most: Any) -> Any:
    wraps = unsigned(found) >= unsigned(most)
    return np.where(wraps, found.dtype.type(0), found + found.dtype.type(1))


def counted_down(found: Any, most: Any) -> Any:
    wraps = (found == 0) | (unsigned(found) > unsigned(most))
    return np.where(wraps, most, found - found.dtype.type(1))


# what an element becomes, of what it was and the operand
BECOMES = {
    "add": lambda y, x: y + x, "sub": lambda y, x: y - x, "min": np.minimum, "max": np.maximum,
    "and": lambda y, x: y & x, "or": lambda y, x: y | x, "xor": lambda y, x: y ^ x,
    "inc": counted, "dec": counted_down, "exch": lambda y, x: x, "store": lambda y, x: x,
    "load": lambda y, x: y,
    "cas": lambda y, x: np.where(same_bits(y, x), np.zeros_like(y), y),
}  # fmt: skip


def call(op: str, row: int, memory: str, scope: str) -> str:
    given = {"load": "", "cas": ", x[i], z[0]"}.get(op, ", x[i]")
    return f'atomic_{op}({memory}, ({row}, i){given}, scope="{scope}")'


def accepted(element: ElementType) -> list[str]:
    """The operations that an element type has."""
    found = []
    for op in BECOMES:
        text = f'def k(x: {element}["n"], z: {element}["o"], y: inout[{element}["r n"]]):\n'
        text += f"    i = threadIdx.x\n    {call(op, 0, 'y', 'device')}"
        try:
            simt.kernel(text)
        except KernelLanguageError:
            continue
        found.append(op)
    return found


def solved(element: ElementType, space: str, scope: str) -> Solved:
    ops = accepted(element)
    memory, rows = ("y", len(ops)) if space == "global" else ("s", len(ops))
    lines = [
        f'def atomics(x: {element}["n"], z: {element}["o"], y: inout[{element}["r n"]], '
        f'old: inout[{element}["r n"]]):',
        "    i = threadIdx.x",
    ]
    if space == "shared":
        lines += [f"    s = shared(({rows}, 8), {element})", f"    for r in range({rows}):",
                  "        s[r, i] = y[r, i]"]  # fmt: skip
    for row, op in enumerate(ops):
        target = "" if op == "store" else f"old[{row}, i] = "
        lines.append(f"    {target}{call(op, row, memory, scope)}")
    if space == "shared":
        lines += [f"    for r in range({rows}):", "        y[r, i] = s[r, i]"]
    kind = element.dtype.numpy
    x = np.array(VALUES[element.dtype.kind]).astype(kind)
    y = np.array([HELD[element.dtype.kind]] * rows).astype(kind)
    old = np.zeros_like(y)
    with np.errstate(all="ignore"):
        become = np.array([BECOMES[op](y[0], x) for op in ops]).astype(kind)
    before = np.where(np.array(ops)[:, None] == "store", old, y)
    return Solved(
        f"{element}-{space}-{scope}", simt.kernel("\n".join(lines)), 1, 8,
        (x, np.zeros(1, kind), y, old), (become, before),
    )  # fmt: skip


CASES = [
    solved(element, space, scope)
    for element in ELEMENTS
    for space, scope in (("global", "device"), ("global", "system"), ("shared", "block"))
]


def test_what_types_have() -> None:
    assert set(accepted(f32)) == set(BECOMES) - {"and", "or", "xor", "inc", "dec"}
    assert set(accepted(simt.i32)) == set(BECOMES)
    assert set(accepted(simt.u8)) == {"load", "store", "cas"}


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_in_the_simulator_and_on_the_host(one: Solved) -> None:
    one.check_simulated()
    one.check_host()


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs a C++ compiler")
def test_as_cuda(tmp_path: Path) -> None:
    emulator = emulator_of(CASES, tmp_path)
    for one in CASES:
        one.check_emulated(emulator)


@pytest.mark.gpu
@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_on_a_gpu(one: Solved) -> None:
    one.check_gpu()


def test_that_it_compiles() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    check_compiles(CASES)
