"""GPU arithmetic: occupancy, the table of GPUs, the laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from ridgeline.profile.arithmetic import amdahl, littles_law, peak, roofline
from ridgeline.profile.gpus import GPUS, find
from ridgeline.profile.occupancy import LIMITS, GpuArithmeticError, occupancy, waves


def up(x: int, g: int) -> int:
    return -(-x // g) * g


@given(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 240_000))
def test_occupancy_on_sm_90_is_the_checked_formula(threads, registers, shared):
    """The closed form that agreed with the driver on 7,152 combinations."""
    w, rw = math.ceil(threads / 32), up(32 * registers, 256)
    by_regs = 0 if rw * up(w, 4) > 65536 else (16384 // rw) * 4 // w
    by_smem = 0 if shared > 232448 else 233472 // up(shared + 1024, 128)
    assert occupancy(90, threads, registers, shared).blocks == min(64 // w, 32, by_regs, by_smem)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "limiter"),
    [
        (90, 384, 168, 213188, 1, "registers"),
        (90, 128, 32, 100_000, 2, "shared memory"),
        (80, 256, 32, 0, 8, "warps"),
        (75, 256, 32, 0, 4, "warps"),
        (86, 1024, 32, 0, 1, "warps"),
        (89, 32, 16, 0, 24, "blocks"),
        (100, 64, 255, 0, 4, "registers"),
    ],
)
def test_known_occupancies(capability, threads, registers, shared, blocks, limiter):
    fits = occupancy(capability, threads, registers, shared)
    assert (fits.blocks, fits.limiter) == (blocks, limiter)


@given(
    st.sampled_from(sorted(LIMITS)),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 300_000),
)
def test_occupancy_never_exceeds_the_machine(capability, threads, registers, shared):
    fits, limits = occupancy(capability, threads, registers, shared), LIMITS[capability]
    assert 0 <= fits.warps <= limits.warps and 0 <= fits.blocks <= limits.blocks
    assert 0 <= fits.share <= 1
    more = occupancy(capability, threads, min(255, registers + 8), shared + 512)
    assert more.blocks <= fits.blocks


@pytest.mark.parametrize(
    "bad", [(12, 32, 32, 0), (90, 0, 32, 0), (90, 2048, 32, 0), (90, 32, 300, 0), (90, 32, 32, -1)]
)
def test_impossible_kernels_are_refused(bad):
    with pytest.raises(GpuArithmeticError):
        occupancy(*bad)


def test_waves():
    assert waves(264, 132, 2) == 1.0 and waves(1, 132, 0) == 0.0


def test_littles_law_as_in_the_notes():
    flight = littles_law(4200, 600, 132)
    assert round(flight.bytes_per_sm) == 19091 and round(flight.warps_per_sm) == 37
    assert littles_law(4200, 600, 132, loads=2).warps_per_sm == pytest.approx(18.64, abs=0.01)


@given(st.floats(0, 1), st.floats(0.01, 1e6))
def test_amdahl(share, speedup):
    whole = amdahl(share, speedup)
    assert min(1, speedup) * (1 - 1e-9) <= whole <= max(1, speedup) * (1 + 1e-9)
    assert amdahl(share, 1) == pytest.approx(1)


def test_peak_and_roofline():
    assert peak(132, 128, 1.98) == pytest.approx(66.9, abs=0.1)
    roof = roofline(2 * 4096**3, 3 * 2 * 4096**2, 989.4, 4800)
    assert roof.bound == "arithmetic" and roof.floor_ms == pytest.approx(0.139, abs=0.001)
    assert roofline(1e6, 1e6, 989.4, 4800).bound == "memory"
    with pytest.raises(GpuArithmeticError):
        roofline(1, 0, 1, 1)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", None),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA A800-SXM4-80GB", "A800"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI325X", "MI325X"),
        ("Jetson Nano", "Jetson Nano"),
        ("Orin", "Jetson AGX Orin"),
        ("Jetson Orin Nano", None),
        ("NVIDIA RTX A1000", None),
        ("Quadro P1000", None),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Radeon", None),
    ],
)
def test_device_names(name, model):
    found = find(name)
    assert (found.name if found else None) == model


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_table_is_plausible(gpu):
    """Float32 peaks follow from multiprocessors and clock; no sparse figure slipped in."""
    per_clock = {5: 128, 6: 64, 7: 64, 8: 64 if gpu.capability == 80 else 128}.get(
        gpu.capability // 10, 128
    )
    assert peak(gpu.sms, per_clock, gpu.boost_ghz) == pytest.approx(gpu.float32, rel=0.05)
    assert gpu.sixteen_bit >= gpu.float32 and gpu.source and gpu.bandwidth > 0
