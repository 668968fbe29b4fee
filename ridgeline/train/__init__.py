"""The training library behind `ridgeline train`: loop, checkpoints, log, progress, table."""

from ridgeline.train.checkpoint import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from ridgeline.train.loop import DivergedError, Run, fit

__all__ = [
    "DivergedError",
    "Run",
    "fit",
    "load_checkpoint",
    "load_weights",
    "save_checkpoint",
    "save_weights",
]
