"""Latencies and rates of GPUs for the timing model, by compute capability.

Memory latencies in cycles are pointer chases published for V100, A100, H800 and L40; rates per
multiprocessor are NVIDIA's tables of throughput.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ridgeline.profile import gpus
from ridgeline.profile.gpus import GPUS, Gpu
from ridgeline.simt.launch import LaunchError


@dataclass(frozen=True)
class SmFacts:
    """One multiprocessor: latencies in cycles, lanes a cycle of each unit, L1 with shared bytes."""

    l1_latency: int
    l2_latency: int
    dram_latency: int
    shared_latency: int
    rates: dict[str, float]  # lanes a cycle
    l1_bytes: int
    l2_bytes_per_cycle: float  # of the whole GPU
    barrier_cycles: int
    arithmetic_latency: float = 4.0
    fp64_latency: float = 8.0
    sfu_latency: float = 18.0
    shuffle_latency: float = 23.0
    tensor_latency: float = 33.0  # of a 16x16x16 product, until the next may add to it
    tensor_share: float = 0.9  # of the peak that products of fragments reach


def _rates(fp32: int, fp64: float, int32: int, half: int) -> dict[str, float]:
    return {"fma": fp32, "fp64": fp64, "int": int32, "half": half, "sfu": 16, "shuffle": 32,
            "lsu": 32, "control": 128}  # fmt: skip


_FACTS: dict[int, SmFacts] = {
    70: SmFacts(28, 212, 440, 19, _rates(64, 32, 64, 128), 128 << 10, 2155, 60),
    75: SmFacts(32, 212, 440, 22, _rates(64, 2, 64, 128), 96 << 10, 1270, 60),
    80: SmFacts(33, 206, 552, 23, _rates(64, 32, 64, 256), 192 << 10, 5120, 60),
    86: SmFacts(33, 230, 560, 23, _rates(128, 2, 64, 128), 128 << 10, 2300, 60),
    89: SmFacts(34, 274, 625, 23, _rates(128, 2, 64, 128), 128 << 10, 3200, 60),
    90: SmFacts(32, 273, 660, 29, _rates(128, 64, 64, 256), 256 << 10, 5500, 60, tensor_share=0.62),
    100: SmFacts(34, 290, 740, 29, _rates(128, 64, 64, 256), 256 << 10, 8000, 60),
}


def sm_facts(gpu: Gpu) -> SmFacts:
    """The facts of a GPU's multiprocessor, from the nearest capability that is known."""
    below = [capability for capability in _FACTS if capability <= gpu.capability]
    return _FACTS[max(below) if below else min(_FACTS)]


def _joined(gpu: Gpu) -> str:
    return gpu.name.lower().replace(" ", "")


def gpu_named(name: str) -> Gpu:
    """A GPU by a name such as h100, or an error that lists those there are."""
    found = gpus.find(name)
    if found is None:
        words = re.split(r"[\s_-]+", name.lower())
        matches = [gpu for gpu in GPUS if all(w in _joined(gpu) or w in gpu.name.lower()
                                              for w in words)]  # fmt: skip
        found = matches[-1] if matches else None
    if found is None or found.capability < 70:
        known = ", ".join(gpu.name for gpu in GPUS if gpu.capability >= 70)
        raise LaunchError(f"{name!r} is no GPU of the table", help=f"known: {known}")
    return found
