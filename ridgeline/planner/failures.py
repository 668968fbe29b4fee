"""Training that is interrupted: how often to save, what is lost, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs.
PUBLISHED_HOURS = 54 * 24 * 16_384 / 419
"""Hours between failures of one GPU with all that is beside it."""


@dataclass(frozen=True)
class Interrupted:
    """A run over some time on machines that fail."""

    interval: float
    """Seconds between checkpoints that lose least."""
    effective: float
    """The share of time that trains."""
    failures: float
    """How many are to be expected."""


def best_interval(save: float, between: float) -> float:
    """Seconds between checkpoints: Young's and Daly's, for saves that take some of the time."""
    if save >= 2 * between:
        return between
    ratio = math.sqrt(save / (2 * between))
    return math.sqrt(2 * save * between) * (1 + ratio / 3 + ratio * ratio / 9) - save


def interrupted(
    seconds: float, gpus: int, gpu_hours: float = PUBLISHED_HOURS, save: float = 15.0,
    restart: float = 300.0,
) -> Interrupted:  # fmt: skip
    """A run of so many useful seconds: failures come at random, at a steady rate."""
    between = gpu_hours * 3600 / gpus
    interval = max(save, best_interval(save, between))
    # Of each interval a save; of each failure half an interval again, and the way back.
    lost = save / interval + (interval / 2 + restart) / between
    effective = max(0.0, 1 - lost)
    wall = seconds / effective if effective else math.inf
    return Interrupted(interval, effective, wall / between)


def cost(gpus: int, seconds: float, price: float) -> tuple[float, float]:
    """GPU-hours, and dollars."""
    hours = gpus * seconds / 3600
    return hours, hours * price
