"""Image classifiers: LeNet-5, a perceptron, ResNets, a vision transformer.

The settings of LeNet-5 were chosen on the validation images inside the training part of the
digits; the test images were not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline import nn
from ridgeline.data import DataLoader
from ridgeline.errors import RidgelineError
from ridgeline.models import lenet5, mlp, resnet18, resnet34, resnet50
from ridgeline.optim import SGD, AdamW, Optimizer
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.tensors.modes import no_grad
from ridgeline.tracing.jit import jit
from ridgeline.train.objectives import classification
from ridgeline.train.recipes.base import Prepared, Recipe, Settings, check_batch, make_run, only
from ridgeline.train.recipes.pictures import Images, open_images

Build = Callable[[Images], nn.Module]
_TESTED = 256  # images in a batch of the test


def _lenet(images: Images) -> nn.Module:
    if (images.channels, images.side) != (1, 32):
        raise RidgelineError(
            f"LeNet-5 takes grey images of 32×32 pixels, {images.name} has {images.channels} "
            f"channels of {images.side}×{images.side}",
            help="use resnet18",
        )
    return lenet5(images.classes)


def _perceptron(images: Images) -> nn.Module:
    inputs = images.channels * images.side**2
    return nn.Sequential(nn.Flatten(), *mlp([inputs, 256, 128, images.classes]))


def _residual(make: Callable[[int], nn.Module]) -> Build:
    def build(images: Images) -> nn.Module:
        model = make(images.classes)
        if images.channels != 3:
            return nn.Sequential(nn.Conv2d(images.channels, 3, 1, bias=False), model)
        return model

    return build


def _sgd(model: nn.Module, lr: float) -> Optimizer:
    return SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4, nesterov=True)


def _adamw(model: nn.Module, lr: float) -> Optimizer:
    return AdamW(model.parameters(), lr, weight_decay=0.05)


def _classifier(
    title: str, build: Build, optimize: Callable[[nn.Module, float], Optimizer]
) -> Callable[[Settings, int], Prepared]:
    def prepare(settings: Settings, workers: int) -> Prepared:
        only(settings, {"length": Settings.__dataclass_fields__["length"].default})
        manual_seed(settings.seed)
        images = open_images(settings.data)
        check_batch(settings, len(images.train), "training images")
        model = build(images)
        loader = DataLoader(
            images.train,
            settings.batch_size,
            shuffle=True,
            drop_last=True,
            seed=settings.seed,
            transform=images.augment,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        optimizer = optimize(model, settings.lr)
        steps = settings.epochs * len(loader)
        schedule = OneCycleLR(optimizer, settings.lr, total_steps=steps, pct_start=0.2)
        run = make_run(settings, model, optimizer, schedule, loader, classification)
        full = (
            f"{title} on {images.name}, {len(images.train)} images to learn, "
            f"{len(images.test)} to test"
        )
        return Prepared(run, full, lambda kept: {"test_accuracy": accuracy(kept, images.test)})

    return prepare


def accuracy(model: nn.Module, dataset: Any) -> float:
    """The share of a dataset's images that a model recognises."""

    @jit
    def correct(images: Any, labels: Any) -> Any:
        with no_grad():
            return (model(images).argmax(1) == labels).sum()

    training = model.training
    model.eval()
    count = sum(int(correct(*batch)) for batch in DataLoader(dataset, _TESTED))
    model.train(training)
    return count / len(dataset)


def _recipe(
    name: str, title: str, build: Build, epochs: int, batch_size: int, lr: float,
    optimize: Callable[[nn.Module, float], Optimizer] = _sgd,
) -> tuple[str, Recipe]:  # fmt: skip
    return name, Recipe(Settings(name, epochs, batch_size, lr), _classifier(title, build, optimize))


RECIPES = dict([
    _recipe("lenet", "LeNet-5", _lenet, 60, 64, 0.1),
    _recipe("mlp", "a perceptron of 3 layers", _perceptron, 30, 64, 0.05),
    _recipe("resnet18", "ResNet-18", _residual(resnet18), 10, 64, 0.05),
    _recipe("resnet34", "ResNet-34", _residual(resnet34), 10, 64, 0.05),
    _recipe("resnet50", "ResNet-50", _residual(resnet50), 10, 64, 0.05),
])  # fmt: skip
