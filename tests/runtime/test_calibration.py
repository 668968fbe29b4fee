"""Calibration: coarse figures, measured once, that neither noise nor nonsense gets into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ridgeline.compiler.cpu import machine
from ridgeline.config import config
from ridgeline.runtime.cpu import calibration
from ridgeline.runtime.cpu.calibration import Calibration, rounded
from ridgeline.schedules.machine import Machine

SLOW = Calibration(core_bytes=5e9, core_flops=50e9, region_seconds=10e-6)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calibration, "_known", {})
    with config.override(cache_dir=str(tmp_path / "cache"), calibrate=True):
        yield


def test_a_machine_is_measured_once(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = calibration.calibration()
    calibration._known.clear()
    monkeypatch.delattr(calibration, "measure")
    assert calibration.calibration() == first  # from disk
    for name, bounds in (("core_bytes", (2e9, 100e9)), ("region_seconds", (1e-6, 20e-6))):
        assert bounds[0] <= getattr(first, name) <= bounds[1]


def test_other_numbers_of_threads_are_other_figures(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        calibration, "measure", lambda threads: Calibration(20e9 / threads, 100e9, 1e-6)
    )
    for threads in (1, 2, 4):
        with config.override(threads=threads):
            assert calibration.calibration().core_bytes == 20e9 / threads


def test_schedules_go_by_what_was_measured(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measure", lambda threads: SLOW)
    found = machine()
    assert {name: getattr(found, name) for name in asdict(SLOW)} == asdict(SLOW)
    with config.override(calibrate=False):
        plain = machine()
    assert (plain.core_bytes, plain.core_flops, plain.region_seconds) == (20e9, 100e9, 1e-6)


@given(st.floats(1e-12, 1e15))
def test_rounding_is_coarse_and_bounded(value: float) -> None:
    found = rounded(value, (2e9, 100e9))
    assert found in (2e9, 5e9, 10e9, 20e9, 50e9, 100e9)
    if 2e9 <= value <= 100e9:
        assert 0.6 < found / value < 1.6


@given(st.floats(15e9, 30e9))
def test_noise_is_rounded_away(value: float) -> None:
    assert rounded(value, (2e9, 100e9)) == 20e9


def test_memory_costs_more_next_to_faster_arithmetic() -> None:
    common = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
    fast = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20, core_flops=200e9)
    assert fast.far == 2 * common.far == pytest.approx(0.5)
