"""Calibration: coarse figures, measured once, that neither noise nor nonsense gets into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ridgeline.config import config
from ridgeline.runtime.cpu import calibration
from ridgeline.runtime.cpu.backend import machine
from ridgeline.runtime.cpu.calibration import Calibration, rounded, steady
from ridgeline.schedules.machine import Machine

SLOW = Calibration(core_bytes=5e9, core_flops=50e9, region_seconds=10e-6)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calibration, "_known", {})
    with config.override(cache_dir=str(tmp_path / "cache"), calibrate=True):
        yield


def test_a_machine_is_measured_once(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_UNSTEADY", 1e9)
    first = calibration.calibration()
    assert first is not None
    calibration._known.clear()
    monkeypatch.delattr(calibration, "measure")
    assert calibration.calibration() == first  # from disk
    for name, bounds in (("core_bytes", (2e9, 100e9)), ("region_seconds", (1e-6, 20e-6))):
        assert bounds[0] <= getattr(first, name) <= bounds[1]


def test_a_busy_machine_is_planned_for_as_a_common_one_and_measured_again(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with config.override(calibrate=False):
        common = machine()
    monkeypatch.setattr(calibration, "_multiplied", lambda: [1e-4, 1e-4, 3e-4, 3e-4, 9e-4])
    assert machine() == common
    monkeypatch.setattr(calibration, "measure", lambda threads: SLOW)
    assert machine() == common  # one process has one plan
    calibration._known.clear()
    assert machine().core_bytes == SLOW.core_bytes


def test_the_measurement_of_another_process_goes_first(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(threads: int) -> Calibration:
        monkeypatch.setattr(calibration, "measure", lambda threads: SLOW)
        assert calibration._kept(threads) == SLOW  # meanwhile, elsewhere
        return Calibration(20e9, 100e9, 1e-6)

    monkeypatch.setattr(calibration, "measure", measured)
    assert calibration.calibration() == SLOW


def test_few_slow_bursts_are_left_out_and_many_tell_that_the_machine_is_busy() -> None:
    assert steady([9.0, 1.1, 1.0, 1.2, 7.0]) == 1.1
    assert steady([0.3, *[1.0] * 9]) == 1.0
    assert steady([1.0, 1.0, 2.0, 2.0, 2.0]) is None


def test_other_numbers_of_threads_are_other_figures(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        calibration, "measure", lambda threads: Calibration(20e9 / threads, 100e9, 1e-6)
    )
    for threads in (1, 2, 4):
        with config.override(threads=threads):
            found = calibration.calibration()
            assert found is not None
            assert found.core_bytes == 20e9 / threads


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
