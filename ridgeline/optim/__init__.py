"""Optimizers and learning-rate schedules with torch.optim's names and update formulas."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.optim import lr_scheduler, swa_utils
from ridgeline.optim.adam import Adam, AdamW
from ridgeline.optim.adam_variants import LAMB, Adamax, Lion, NAdam, RAdam
from ridgeline.optim.adaptive import Adadelta, Adagrad, RMSprop
from ridgeline.optim.lbfgs import LBFGS
from ridgeline.optim.optimizer import Optimizer
from ridgeline.optim.others import ASGD, Adafactor, Muon, Rprop
from ridgeline.optim.sgd import SGD
from ridgeline.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_swa_avg_fn
from ridgeline.reference import describe as _describe

__all__ = [
    "ASGD", "LAMB", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "AveragedModel", "Lion", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop",
    "get_ema_avg_fn", "get_swa_avg_fn", "lr_scheduler", "swa_utils",
]  # fmt: skip
_describe("optim", {name: globals()[name] for name in __all__})
__getattr__ = _unknown(__name__)
