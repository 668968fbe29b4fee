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
from ridgeline.runtime.limits import BusyMachineError, limits


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[None]:
    ceilings._kept.clear()
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield
    ceilings._kept.clear()


QUIET = ceilings.Ceilings(*range(1, 9), threads=1, noise=0.01, ours=1.0)
BUSY = dataclasses.replace(QUIET, ours=0.4)
UNSTEADY = dataclasses.replace(QUIET, noise=0.9)


@pytest.fixture
def one_thread(fresh: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(ceilings.executor, "threads", lambda: 1)
    yield monkeypatch


def test_figures_are_positive_and_remembered(one_thread: pytest.MonkeyPatch) -> None:
    found = ceilings.measure()
    assert all(value > 0 for value in dataclasses.asdict(found).values())
    measured = dataclasses.replace(found, noise=0.01, ours=1.0)
    one_thread.setattr(ceilings, "measure", lambda: measured)
    assert ceilings.ceilings() == measured
    ceilings._kept.clear()
    one_thread.delattr(ceilings, "measure")
    assert ceilings.ceilings() == measured  # from disk


@pytest.mark.parametrize("untrusted", [BUSY, UNSTEADY], ids=["busy", "unsteady"])
def test_figures_of_a_busy_machine_are_refused_and_measured_again_later(
    one_thread: pytest.MonkeyPatch, untrusted: ceilings.Ceilings
) -> None:
    one_thread.setattr(ceilings, "measure", lambda: untrusted)
    assert ceilings.ceilings().noisy
    with pytest.raises(BusyMachineError, match="busy when they were measured"):
        limits("cpu")
    one_thread.setattr(ceilings, "measure", lambda: QUIET)
    assert ceilings.ceilings().noisy  # it has only just been tried
    one_thread.setattr(ceilings, "_RETRY_SECONDS", 0.0)
    assert not ceilings.ceilings().noisy
    assert limits("cpu").bandwidth == QUIET.copy_bandwidth


def test_measured_again_the_higher_figure_counts(one_thread: pytest.MonkeyPatch) -> None:
    one_thread.setattr(ceilings, "measure", lambda: QUIET)
    assert limits("cpu").peak == QUIET.fma_float32
    faster = dataclasses.replace(QUIET, fma_float32=100.0, copy_bandwidth=0.5)
    one_thread.setattr(ceilings, "measure", lambda: faster)
    again = limits("cpu", again=True)
    assert (again.peak, again.bandwidth) == (100.0, QUIET.copy_bandwidth)
    one_thread.setattr(ceilings, "measure", lambda: BUSY)
    assert limits("cpu", again=True) == again == limits("cpu")


def test_a_machine_that_others_use_is_noticed(one_thread: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    one_thread.setattr(ceilings, "perf_counter", lambda: float(next(clock)))
    one_thread.setattr(ceilings, "process_time", lambda: 0.0)
    figures = {name: lambda: 1.0 for name in ("fma_float32", "fma_float64")}
    rest = {f.name: 1.0 for f in dataclasses.fields(ceilings.Ceilings)}
    one_thread.setattr(ceilings, "Ceilings", lambda **found: QUIET.__class__(**(rest | found)))
    assert ceilings._summarise(figures, 1).noisy


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
