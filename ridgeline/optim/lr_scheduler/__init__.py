"""Learning-rate schedules with torch's names and formulas."""

from ridgeline.optim.lr_scheduler.base import LRScheduler
from ridgeline.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from ridgeline.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from ridgeline.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from ridgeline.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from ridgeline.optim.lr_scheduler.plateau import ReduceLROnPlateau
from ridgeline.reference import describe as _describe

_LRScheduler = LRScheduler  # its name before torch 2
__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR",
]  # fmt: skip
_describe("optim.lr_scheduler", {name: globals()[name] for name in __all__})
