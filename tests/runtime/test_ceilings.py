"""Ceilings: that they are measured, remembered unless noisy, and that the kernels do the work."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ridgeline.codegen.llvm.machine_code import target
from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import ceilings
from ridgeline.runtime.cpu.ceiling_kernels import _CHAINS, BLOCK, kernels
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[None]:
    ceilings._for_threads.cache_clear()
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield
    ceilings._for_threads.cache_clear()


def test_figures_are_positive_and_remembered(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = dataclasses.replace(ceilings.measure(), noise=0.01)
    assert all(value > 0 for value in dataclasses.asdict(measured).values())
    monkeypatch.setattr(ceilings, "measure", lambda: measured)
    assert ceilings.ceilings() == measured
    ceilings._for_threads.cache_clear()
    monkeypatch.delattr(ceilings, "measure")
    assert ceilings.ceilings() == measured  # from disk


def test_noisy_figures_are_not_stored(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = ceilings.Ceilings(*range(1, 9), threads=1, noise=0.9)
    monkeypatch.setattr(ceilings, "measure", lambda: noisy)
    assert ceilings.ceilings().noisy
    ceilings._for_threads.cache_clear()
    quiet = dataclasses.replace(noisy, noise=0.0)
    monkeypatch.setattr(ceilings, "measure", lambda: quiet)
    assert not ceilings.ceilings().noisy


def test_the_copy_kernel_copies_all_of_its_blocks_only() -> None:
    library = kernels()
    words = BLOCK // 8
    source = HostBuffer.allocate(4 * BLOCK)
    given = np.asarray(source).view(np.int64)
    given[:] = np.arange(4 * words)
    result = HostBuffer.allocate(4 * BLOCK)
    np.asarray(result)[:] = 255
    plan = NativePlan([NativeStep(library.address("ridgeline_copy"), (0, 1), 3, 1)], 2)
    plan.run((source.address, result.address))
    seen = np.asarray(result).view(np.int64)
    assert (seen[: 3 * words] == given[: 3 * words]).all()
    assert (seen[3 * words :] == -1).all()


@pytest.mark.parametrize(("bits", "kind"), [(32, np.float32), (64, np.float64)])
def test_the_multiply_add_kernel_computes(bits: int, kind: type) -> None:
    library = kernels()
    out = HostBuffer.allocate(64 * 4)
    np.asarray(out)[:] = 0
    NativePlan([NativeStep(library.address(f"ridgeline_fma{bits}"), (0,), 4, 1)], 1).run(
        (out.address,)
    )
    # Each chain converges to x = x / 2 + 1, that is 2.
    lanes = target().vector_bits // bits
    seen = np.asarray(out).view(kind).reshape(4, -1)[:, :lanes]
    assert (seen == 2.0 * _CHAINS).all()
