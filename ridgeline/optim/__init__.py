"""Optimizers and learning-rate schedules with torch.optim's names and update formulas."""

from ridgeline.optim import lr_scheduler
from ridgeline.optim.adam import Adam, AdamW
from ridgeline.optim.optimizer import Optimizer
from ridgeline.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
