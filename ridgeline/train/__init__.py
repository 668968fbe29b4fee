"""The training library behind `ridgeline train`: fit, checkpoints, logs, events, pictures."""

from ridgeline.train.checkpoint import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from ridgeline.train.evaluate import Evaluator
from ridgeline.train.events import SummaryWriter
from ridgeline.train.fit import Fitted, fit
from ridgeline.train.loop import CheckpointMismatchError, DivergedError, Run, drive
from ridgeline.train.objectives import classification, next_token, regression
from ridgeline.train.pictures import grid, save_png, scatter
from ridgeline.train.step import Average, Step

__all__ = [
    "Average", "CheckpointMismatchError", "DivergedError", "Evaluator", "Fitted", "Run", "Step",
    "SummaryWriter", "classification", "drive", "fit", "grid", "load_checkpoint", "load_weights",
    "next_token", "regression", "save_checkpoint", "save_png", "save_weights", "scatter",
]  # fmt: skip
