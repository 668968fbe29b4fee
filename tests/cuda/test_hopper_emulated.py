"""Kernels for Hopper on the CPU, thread by thread, against float64: odd sizes, every form.

The machine has barriers, copies and products that happen as late as they may, and memory that
holds no numbers until a copy has come (`emulated_hopper.h`): a kernel that waits too little fails.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.codegen.cuda import KernelSource, generate
from ridgeline.loops.ir import named
from ridgeline.loops.schedule import replay
from ridgeline.loops.tensor_cores import TensorCoreTile
from ridgeline.schedules.gpu import tensor_cores
from tests.cuda.emulated_hopper import EmulatedHopper
from tests.cuda.tiled import lowered

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")

Tile = TensorCoreTile


@dataclass(frozen=True)
class Case:
    """A product with a tile: sizes, which axis of each operand lies side by side, what follows."""

    m: int
    n: int
    k: int
    axes: str  # "mk nk" and the like, with batches before
    tile: TensorCoreTile
    batch: int = 0
    residual: bool = False
    curved: bool = False  # more is made of each sum than stands in a kernel once for each
    dtype: rl.DType = rl.bfloat16

    def shape(self, axes: str) -> tuple[int, ...]:
        sizes = {"m": self.m, "n": self.n, "k": self.k, "b": self.batch}
        return tuple(sizes[letter] for letter in axes)


CASES = [
    Case(300, 77, 72, "mk nk", Tile(128, 128, 3, blocks=4)),
    Case(152, 304, 200, "km kn", Tile(128, 192, 3, blocks=2), residual=True),
    Case(200, 264, 136, "mk kn", Tile(128, 128, 4, blocks=3, in_turns=True), dtype=rl.float16),
    Case(136, 520, 200, "km nk", Tile(64, 256, 3, blocks=3, in_turns=True), residual=True),
    Case(136, 264, 72, "mk nk", Tile(128, 128, 3, blocks=4, in_turns=True), 0, True, True),
    Case(200, 136, 72, "mk kn", Tile(128, 128, 3, blocks=2), curved=True),
    Case(100, 136, 264, "mk kn", Tile(64, 64, 3, blocks=5)),
    Case(520, 136, 72, "mk nk", Tile(128, 64, 3, cluster=2, blocks=4)),
    Case(72, 200, 104, "bmk bkn", Tile(128, 128, 3, blocks=4), batch=3),
    Case(300, 304, 520, "mk nk", Tile(128, 128, 3, blocks=4, cut=1, parts=4), residual=True),
    Case(264, 264, 264, "km kn", Tile(64, 128, 3, blocks=7, cut=15, parts=2)),
]  # fmt: skip


def source_of(case: Case) -> KernelSource:
    """The text of a case."""
    left, right = case.axes.split()
    group = lowered(
        case.shape(left), case.shape(right), left, right,
        dtype=case.dtype, residual=case.residual, curved=case.curved,
    )  # fmt: skip
    return generate(named(replay(group.kernel, tensor_cores.with_tile(group, case.tile))))


def aligned(values: Any) -> Any:
    """The array at a multiple of 16 bytes."""
    memory = np.empty(values.nbytes + 16, np.uint8)
    first = -memory.ctypes.data % 16
    made = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def compared(machine: EmulatedHopper, case: Case, source: KernelSource) -> None:
    """A product is that of float64, but for rounding."""
    rng = np.random.default_rng(case.m)
    axes = case.axes.split()
    read = [rng.standard_normal(case.shape(a)).astype(case.dtype.numpy) for a in axes]
    batch = "b" if case.batch else ""
    operands = ",".join(axes)
    wanted = np.einsum(f"{operands}->{batch}mn", *(a.astype(np.float64) for a in read))
    kind = np.float32 if case.residual or case.curved else case.dtype.numpy
    if case.residual:
        read.append(rng.standard_normal(wanted.shape).astype(np.float32))
        wanted += read[-1]
    if case.curved:
        wanted = np.tanh(np.exp(np.tanh(wanted)))
    made = aligned(np.full(wanted.shape, np.nan, kind))
    workspace = [np.full(source.workspace_bytes, 255, np.uint8)] * bool(source.workspace_bytes)
    machine.run(source, [*map(aligned, read), made, *workspace])
    gap = np.linalg.norm(made.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert gap < (3e-3 if case.dtype is rl.bfloat16 else 4e-4), case


def test_products(tmp_path: Path) -> None:
    sources = [source_of(case) for case in CASES]
    machine = EmulatedHopper(sources, tmp_path)
    for case, source in zip(CASES, sources):
        compared(machine, case, source)


FAULTS = {
    "a tile that is replaced while it is read": ("rl_multiply_wait<1>();", ""),
    "products that are read too early": ("rl_multiply_wait<0>();", ""),
    "an operand that nobody waits for": (
        "rl_barrier_wait(full + ring.stage * 8, ring.parity);", ""
    ),
    "a tile that is never given back": ("rl_release(empty + last * 8);", ""),
    "too few bytes": ("rl_barrier_expect(told, STAGE);", "rl_barrier_expect(told, STAGE / 2);"),
}  # fmt: skip


def test_the_machine_finds_what_is_wrong(tmp_path: Path) -> None:
    """Planted faults: each is told, or gives no numbers."""
    case = Case(136, 136, 520, "mk nk", Tile(128, 128, 3, blocks=4))
    source = source_of(case)
    (launch,) = source.launches
    broken = []
    for number, (right, wrong) in enumerate(FAULTS.values()):
        assert right in source.text
        symbol = f"fault{number}"
        text = source.text.replace(right, wrong).replace(launch.symbol, symbol)
        broken.append(replace(source, text=text, launches=(replace(launch, symbol=symbol),)))
    machine = EmulatedHopper(broken, tmp_path)
    for made in broken:
        with pytest.raises(AssertionError):
            compared(machine, case, made)
