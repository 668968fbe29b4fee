"""The planner against training steps of our own that were measured on one H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster
from ridgeline.planner.memory import rank_memory
from ridgeline.planner.named_models import shape_named
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import software_named
from ridgeline.planner.step import StepModel
from ridgeline.planner.work import TimedCluster

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
H200 = TimedCluster(usual_cluster(gpu_named("h200")), DEFAULT)
# `benchmarks/gpu/gpt2.py`: no dropout, 32 sequences of 1,024.
GPT2 = ModelShape("gpt2", 12, 768, 12, 12, 3072, False, 50304, tied=True, biased=True,
                  learned_positions=1024)  # fmt: skip


def measured(name: str, *path: str) -> tuple[float, float]:
    """Seconds of a step and bytes at the peak."""
    found: Any = json.loads((RESULTS / name).read_text())
    for key in path:
        found = found[key]
    return found["median_ms"] / 1e3, found["peak_memory"]


def planned(job: Job, software: str) -> tuple[float, float]:
    layout = ParallelLayout(microbatch=job.sequences, sharding="none")
    profile = software_named(software)
    step = StepModel(job, layout, profile, H200).estimate().seconds
    return step, rank_memory(job, layout, profile, 0).total


@pytest.mark.parametrize(
    ("candidate", "software"),
    [
        ("ridgeline", "ridgeline"),
        ("torch", "fsdp-eager"),
        # Its loss is compiled, too, and its attention made for the GPU.
        ("torch.compile", "fsdp-compile score_bytes=4 attention_hopper=1"),
    ],
)
def test_a_step_of_gpt2(candidate: str, software: str) -> None:
    seconds, held = measured("2026-11-15-NVIDIA-H200-gpt2.json", "candidates", candidate)
    if candidate == "ridgeline":
        seconds, held = measured("2026-11-15-NVIDIA-H200-gpt2-4.json", "candidates", candidate)
    found = planned(Job(GPT2, 1024, 32), software)
    assert found[0] == pytest.approx(seconds, rel=0.12)
    assert found[1] == pytest.approx(held, rel=0.10)


def test_a_step_of_resnet() -> None:
    """Its memory comes out low: our compiler keeps more than the least that it must."""
    seconds, held = measured("2026-11-15-NVIDIA-H200-resnet50-4.json", "train", "ridgeline")
    found = planned(Job(shape_named("resnet50"), 1, 256), "ridgeline")
    assert found[0] == pytest.approx(seconds, rel=0.20)
    assert 0.65 * held < found[1] < 1.05 * held
