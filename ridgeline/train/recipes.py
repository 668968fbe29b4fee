"""What `ridgeline train MODEL` trains: a model, its data, optimizer and schedule, ready to run.

The settings of a recipe were chosen on the validation images inside the training part; the test
images were not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ridgeline import nn
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.data.digits import BACKGROUND, Split
from ridgeline.data.transforms import RandomAffine
from ridgeline.errors import RidgelineError
from ridgeline.models import lenet5
from ridgeline.optim import SGD
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.tensors.modes import no_grad
from ridgeline.tensors.tensor import tensor
from ridgeline.tracing.jit import jit
from ridgeline.train.loop import Run


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose of a run; a run is a function of these."""

    model: str
    epochs: int
    batch_size: int
    lr: float
    seed: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can be fitted, and the measure of its success."""

    run: Run
    title: str
    evaluate: Callable[[], float]  # the share of test images recognised


@dataclass(frozen=True, slots=True)
class Recipe:
    """The defaults of a model and how to prepare its run."""

    defaults: Settings
    prepare: Callable[[Settings], Prepared]


def _lenet(settings: Settings) -> Prepared:
    manual_seed(settings.seed)
    train, test = digits("train"), digits("test")
    if settings.batch_size > len(train):
        raise RidgelineError(
            f"a batch of {settings.batch_size} is larger than the {len(train)} training images",
            help="use a smaller --batch-size",
        )
    model = lenet5()
    loader = DataLoader(
        TensorDataset(train.images, train.labels),
        settings.batch_size,
        shuffle=True,
        drop_last=True,
        seed=settings.seed,
        transform=RandomAffine(15.0, 3.0, 0.15, 10.0, fill=BACKGROUND),
    )
    optimizer = SGD(model.parameters(), settings.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = settings.epochs * len(loader)
    schedule = OneCycleLR(optimizer, settings.lr, total_steps=steps, pct_start=0.2)
    run = Run(model, optimizer, schedule, loader, _step(model, optimizer), asdict(settings))
    title = f"LeNet-5 on handwritten digits, {len(train)} images to learn, {len(test)} to test"
    return Prepared(run, title, lambda: _accuracy(model, test))


def _step(model: nn.Module, optimizer: SGD) -> Any:
    """One training step as one captured program."""

    @jit
    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        return loss, (scores.argmax(1) == labels).sum()

    return step


def _accuracy(model: nn.Module, split: Split) -> float:
    """The share of a split's images that the model recognises."""

    @jit
    def correct(images: Any, labels: Any) -> Any:
        with no_grad():
            return (model(images).argmax(1) == labels).sum()

    training = model.training
    model.eval()
    count = correct(tensor(split.images), tensor(split.labels))
    model.train(training)
    return int(count) / len(split)


RECIPES = {
    "lenet": Recipe(Settings("lenet", epochs=60, batch_size=64, lr=0.1, seed=0), _lenet),
}
