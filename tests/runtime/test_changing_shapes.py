"""Programs over ever new lengths: what is kept of them is bounded, in entries and in memory.

The whole form runs 10,000 lengths in processes of their own: `python -m pytest -m slow` here, or
`python -m tests.runtime.lengths WAY COUNT`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.codegen.caches import LoadedCode, cache_root
from ridgeline.codegen.llvm import elf
from ridgeline.compiler import program
from ridgeline.compiler.program import Program
from ridgeline.execution import tiers
from ridgeline.runtime.cpu import backend
from ridgeline.tracing.jit import MOST_TRACES
from ridgeline.weak import Recent

FEW = 6


def work(x: rl.Tensor) -> rl.Tensor:
    return rl.relu(x * 2 + 1).cumsum(0).sum()


def lengths(function: Callable[[rl.Tensor], rl.Tensor], begin: int, end: int) -> None:
    for length in range(begin, end):
        x = (np.arange(length) % 3).astype(np.float32)  # all sums are exact
        assert function(rl.tensor(x)).item() == (x * 2 + 1).cumsum().sum()


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Tables of a few programs; gives the machine code that is mapped."""
    monkeypatch.setattr(program, "_programs", Recent(FEW, 1 << 14))
    monkeypatch.setattr(program, "_shown", Recent(FEW, 1 << 14))
    monkeypatch.setattr(tiers, "_compiled_pieces", Recent(FEW, 1 << 14))
    monkeypatch.setattr(tiers, "_pieces", Recent(4 * FEW))
    monkeypatch.setattr(backend, "machine_code", LoadedCode(1))
    mapped: set[int] = set()
    load, unmap = elf.load, elf.unmap

    def loaded(code: bytes) -> elf.Mapped:
        made = load(code)
        mapped.add(made.base)
        return made

    def unmapped(base: int, size: int) -> None:
        mapped.discard(base)
        unmap(base, size)

    monkeypatch.setattr(elf, "load", loaded)
    monkeypatch.setattr(elf, "unmap", unmapped)
    return mapped


def test_compiled_pieces_are_let_go_with_their_code(few: set[int]) -> None:
    before = alive(Program)
    with rl.config.override(tier="compiled"):
        lengths(work, 3, 4 * FEW)
        assert alive(Program) - before <= 2 * FEW
        assert len(few) <= 2 * FEW
        lengths(work, 3, 6)  # those that were let go come back


def test_interpreted_pieces_are_bounded() -> None:
    with rl.config.override(tier="auto"):
        most = tiers.MOST_STRUCTURES
        lengths(work, 3, 300)
        assert len(tiers._pieces) <= most and len(tiers._kept) <= most


def test_traces_are_let_go_with_their_code(few: set[int]) -> None:
    before = alive(Program)
    function = rl.jit(work, dynamic=False)
    lengths(function, 40, 40 + MOST_TRACES + 2 * FEW)
    kept = MOST_TRACES + FEW + 1
    assert alive(Program) - before <= kept
    assert len(few) <= kept


def test_dynamic_traces_share_code(few: set[int]) -> None:
    function = rl.jit(work, dynamic=True)
    lengths(function, 100, 400)
    assert function.compilations <= 2
    assert len(few) <= 3


def test_code_in_use_stays_mapped(few: set[int]) -> None:
    first = rl.jit(work)
    lengths(first, 7, 8)
    lengths(rl.jit(work), 500, 500 + 2 * FEW)
    lengths(first, 7, 8)


def test_the_disk_cache_stays_below_its_limit(tmp_path: object) -> None:
    limit = 200_000
    with rl.config.override(cache_dir=str(tmp_path), cache_max_bytes=limit, tier="compiled"):
        for length in range(900, 925):
            rl.tensor(np.ones(length, np.float32)).cumsum(0).exp().sum().item()
            files = [f for f in cache_root().rglob("*") if f.is_file()]
            assert sum(f.stat().st_size for f in files) <= limit


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "train", "compiled", "jit", "dynamic"])
def test_memory_is_flat_over_ten_thousand_lengths(way: str) -> None:
    command = [sys.executable, "-m", "tests.runtime.lengths", way, "10000"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(out)
    rows = {int(row.split()[1]): float(row.split()[2]) for row in out.splitlines()}
    assert rows[10000] - rows[500] <= 100
