"""Image classifiers: LeNet-5, a perceptron, VGG, ResNets, a vision transformer.

The settings of LeNet-5 were chosen on the validation images inside the training part of the
digits; the test images were not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline import nn
from ridgeline.data import DataLoader
from ridgeline.errors import BadValueError
from ridgeline.models import VGG, ViT, lenet5, mlp, resnet18, resnet34, resnet50
from ridgeline.models.pretrained import numbered
from ridgeline.optim import SGD, AdamW, Optimizer
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.train.evaluate import Evaluator
from ridgeline.train.objectives import classification
from ridgeline.train.recipes.base import (
    DEFAULT_LENGTH,
    Options,
    Prepared,
    Recipe,
    Settings,
    check_batch,
    make_run,
    only,
    set_apart,
)
from ridgeline.train.recipes.pictures import Images, open_images

Build = Callable[[Images], nn.Module]
_TESTED = 256  # images in a batch of the test


def _lenet(images: Images) -> nn.Module:
    if (images.channels, images.side) != (1, 32):
        raise BadValueError(
            f"LeNet-5 takes grey images of 32×32 pixels, {images.name} has {images.channels} "
            f"channels of {images.side}×{images.side}",
            help="use resnet18",
        )
    return lenet5(images.classes)


def _perceptron(images: Images) -> nn.Module:
    inputs = images.channels * images.side**2
    return nn.Sequential(nn.Flatten(), *mlp([inputs, 256, 128, images.classes]))


def _in_colour(make: Callable[[int], nn.Module]) -> Build:
    def build(images: Images) -> nn.Module:
        """A model for three channels, after a layer that makes them of what there are."""
        model = make(images.classes)
        if images.channels != 3:
            return nn.Sequential(nn.Conv2d(images.channels, 3, 1, bias=False), model)
        return model

    return build


def _vgg(classes: int) -> nn.Module:
    """VGG-11 with narrow linear layers, for small images."""
    return VGG((1, 1, 2, 2, 2), classes, batch_norm=True, hidden=256)


def _transformer(images: Images) -> nn.Module:
    return ViT(
        image_size=images.side, patch_size=4, num_channels=images.channels, hidden_size=96,
        num_hidden_layers=4, num_attention_heads=4, intermediate_size=192,
        id2label=numbered(images.classes),
    )  # fmt: skip


def _sgd(model: nn.Module, lr: float) -> Optimizer:
    return SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4, nesterov=True)


def _adamw(model: nn.Module, lr: float) -> Optimizer:
    return AdamW(model.parameters(), lr, weight_decay=0.05)


def _classifier(
    title: str, build: Build, optimize: Callable[[nn.Module, float], Optimizer]
) -> Callable[[Settings, Options], Prepared]:
    def prepare(settings: Settings, options: Options) -> Prepared:
        only(settings, {"length": DEFAULT_LENGTH})
        manual_seed(settings.seed)
        images = open_images(settings.data)
        train, validation = set_apart(settings, images.train)
        check_batch(settings, len(train), "training images")
        model = options.placed(build(images))
        loader = DataLoader(
            train,
            settings.batch_size,
            shuffle=True,
            drop_last=True,
            seed=settings.seed,
            transform=images.augment,
            num_workers=options.workers,
            persistent_workers=options.workers > 0,
        )
        optimizer = optimize(model, settings.lr)
        steps = settings.epochs * len(loader)
        schedule = OneCycleLR(optimizer, settings.lr, total_steps=steps, pct_start=0.2)
        parts = (model, optimizer, schedule, loader, classification, validation)
        run = make_run(settings, options, *parts)

        def held_out(kept: nn.Module, data: Any) -> dict[str, float]:
            return Evaluator(kept, classification, options.device)(DataLoader(data, _TESTED))

        full = f"{title} on {images.name}, {len(train)} images to learn, {len(images.test)} to test"
        return Prepared(
            run,
            full,
            lambda kept: {"test_accuracy": held_out(kept, images.test)["accuracy"]},
        )

    return prepare


def _recipe(
    name: str, title: str, build: Build, epochs: int, batch_size: int, lr: float,
    optimize: Callable[[nn.Module, float], Optimizer] = _sgd,
) -> tuple[str, Recipe]:  # fmt: skip
    return name, Recipe(Settings(name, epochs, batch_size, lr), _classifier(title, build, optimize))


RECIPES = dict([
    _recipe("lenet", "LeNet-5", _lenet, 60, 64, 0.1),
    _recipe("mlp", "a perceptron of 3 layers", _perceptron, 30, 64, 0.05),
    _recipe("vgg11", "VGG-11", _in_colour(_vgg), 10, 64, 0.02),
    _recipe("resnet18", "ResNet-18", _in_colour(resnet18), 10, 64, 0.05),
    _recipe("resnet34", "ResNet-34", _in_colour(resnet34), 10, 64, 0.05),
    _recipe("resnet50", "ResNet-50", _in_colour(resnet50), 10, 64, 0.05),
    _recipe("vit", "a vision transformer", _transformer, 60, 64, 1e-3, _adamw),
])  # fmt: skip
