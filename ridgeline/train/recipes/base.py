"""What a recipe is: from a user's settings to a run that can be driven, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ridgeline import nn
from ridgeline.data import DataLoader, Dataset, random_split
from ridgeline.distributed import Mesh, Plan, parallelize
from ridgeline.dtypes import bfloat16
from ridgeline.errors import BadValueError
from ridgeline.optim import Optimizer
from ridgeline.tensors.autocast import autocast
from ridgeline.train.evaluate import Evaluator
from ridgeline.train.loop import Run
from ridgeline.train.objectives import Objective
from ridgeline.train.step import Average, Step

DEFAULT_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose that does not change the run's numbers, but for rounding."""

    workers: int = 0  # processes that load data
    device: str = "cpu"
    mesh: Mesh | None = None  # of ranks that share the work
    plan: Plan | None = None  # how they do

    def placed(self, model: nn.Module) -> nn.Module:
        """The model where it is trained: on the device, or shared out over the mesh."""
        if self.mesh is None:
            return model.to(self.device)
        return parallelize(model, self.mesh, self.plan)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose of a run; a run is a function of these."""

    model: str
    epochs: int
    batch_size: int
    lr: float
    seed: int = 0
    data: str = ""  # empty: what comes with the package
    accumulate: int = 1
    clip: float = 0.0  # 0: gradients are not clipped
    ema: float = 0.0  # 0: no average of the weights is kept
    length: int = DEFAULT_LENGTH  # tokens in a window of text
    validation: float = 0.0  # the share of the training data that only measures every epoch
    precision: str = "float32"  # of matrix products: float32 or bfloat16


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can be driven, and what to do with its model afterwards."""

    run: Run
    title: str
    evaluate: Callable[[nn.Module], dict[str, float]]  # figures on data that was held out
    present: Callable[[nn.Module, Path], str] | None = None  # writes samples; says where

    @property
    def model(self) -> nn.Module:
        """The weights to keep: the average where there is one."""
        average = getattr(self.run.step, "average", None)
        return self.run.model if average is None else average.model


@dataclass(frozen=True, slots=True)
class Recipe:
    """The defaults of a model and how to prepare its run."""

    defaults: Settings
    prepare: Callable[[Settings, Options], Prepared]


def make_run(
    settings: Settings,
    options: Options,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: Any,
    loader: DataLoader,
    objective: Objective,
    validation: Dataset[Any] | None = None,
) -> Run:
    """A run of the usual kind: one objective, one optimizer."""
    if settings.precision == "bfloat16":
        objective = autocast(options.device, bfloat16)(objective)
    average = Average(model, settings.ema) if settings.ema else None
    step = Step(model, optimizer, objective, settings.accumulate, settings.clip or None, average)
    run = Run(model, optimizer, scheduler, loader, step, asdict(settings), options.device)
    run.mesh = options.mesh
    if validation is not None:
        evaluator = Evaluator(
            model if average is None else average.model, objective, options.device
        )
        run.validate = partial(evaluator, DataLoader(validation, settings.batch_size))
    return run


def set_apart(settings: Settings, train: Dataset[Any]) -> tuple[Dataset[Any], Dataset[Any] | None]:
    """The data to learn from, and what is kept for validation, if anything is."""
    if not settings.validation:
        return train, None
    share = settings.validation
    learnt, kept = random_split(train, [1 - share, share], seed=settings.seed)
    if not len(kept):
        raise BadValueError(f"a share of {share} leaves no sample for validation")
    return learnt, kept


def check_batch(settings: Settings, count: int, what: str) -> None:
    """Raise where a batch is larger than the data."""
    if settings.batch_size > count:
        raise BadValueError(
            f"a batch of {settings.batch_size} is larger than the {count} {what}",
            help="use a smaller --batch-size",
        )


def only(settings: Settings, names: Mapping[str, Any]) -> None:
    """Raise where an option is set that this recipe does not have."""
    for name, default in names.items():
        if getattr(settings, name) != default:
            raise BadValueError(f"{settings.model} has no option --{name.replace('_', '-')}")
