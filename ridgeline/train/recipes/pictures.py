"""The images a recipe trains on: the bundled digits, or files that `--data` points to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.data import ImageFolder, TensorDataset, cifar10, digits, mnist, random_split
from ridgeline.data.digits import BACKGROUND, MEAN, STD, LabelledImages
from ridgeline.data.transforms import (
    CenterCrop,
    Compose,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    Resize,
    Transform,
)
from ridgeline.errors import MissingFileError

SIDE = 64  # of images out of a folder


@dataclass(frozen=True)
class Images:
    """Images to learn from and to test on, and what to do with the former in training."""

    name: str
    train: Any
    test: Any
    channels: int
    side: int
    classes: int
    augment: Transform | None
    mean: float = 0.0  # what was taken off the pixels, and what they were divided by
    std: float = 1.0


def open_images(data: str, side: int = 32) -> Images:
    """The images at a path: MNIST or CIFAR-10 files, or a folder for each class."""
    if not data:
        return _bundled(side)
    folder = Path(data)
    if not folder.is_dir():
        raise MissingFileError(f"{data} is not a folder", help="give a folder with images")
    if any(folder.rglob("*idx3-ubyte*")):
        parts = [mnist(folder, part) for part in ("train", "test")]
        return _split("MNIST", parts, 10, RandomCrop(28, padding=2))
    if any(folder.rglob("data_batch_1*")):
        parts = [cifar10(folder, part) for part in ("train", "test")]
        augment = Compose([RandomCrop(32, padding=4), RandomHorizontalFlip()])
        return _split("CIFAR-10", parts, 10, augment)
    whole = ImageFolder(folder, Compose([Resize(SIDE), CenterCrop(SIDE)]))
    train, test = random_split(whole, [0.9, 0.1])
    return Images(folder.name, train, test, 3, SIDE, len(whole.classes), RandomHorizontalFlip())


def _bundled(side: int) -> Images:
    train, test = digits("train", side), digits("test", side)
    augment = RandomAffine(15.0, 3.0 * side / 32, 0.15, 10.0, fill=BACKGROUND)
    return Images(
        "handwritten digits", _dataset(train), _dataset(test), 1, side, 10, augment, MEAN, STD
    )


def _split(name: str, parts: Sequence[LabelledImages], classes: int, augment: Transform) -> Images:
    train, test = parts
    _, channels, side, _ = train.images.shape
    return Images(name, _dataset(train), _dataset(test), channels, side, classes, augment)


def _dataset(split: LabelledImages) -> TensorDataset:
    return TensorDataset(split.images, split.labels)
