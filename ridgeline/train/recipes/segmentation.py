"""U-Net: which pixels of a noisy image are ink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ridgeline import nn
from ridgeline.data import DataLoader, TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.errors import BadValueError
from ridgeline.models import UNet
from ridgeline.nn.functional import cross_entropy
from ridgeline.optim import AdamW
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.train.evaluate import Evaluator
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
from ridgeline.train.recipes.generative import SHOWN, picture, pixels
from ridgeline.train.recipes.pictures import open_images

NOISE = 0.5  # standard deviation; ink is 1 and paper 0
WIDTHS = (16, 32, 64)


def pixel_classes(model: Any, noisy: Tensor, ink: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy over all pixels, and the share of them that is told right."""
    scores = model(noisy)
    right = (scores.argmax(1) == ink).to(scores.dtype).mean((1, 2)).sum()
    return cross_entropy(scores, ink), {"pixel_accuracy": right}


def _noisy(clean: Any, seed: int) -> TensorDataset:
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    ink = (clean.mean(1) > 0.5).astype(np.int64)
    return TensorDataset((clean + NOISE * noise).astype(np.float32), ink)


def _unet(settings: Settings, options: Options) -> Prepared:
    only(settings, {"length": DEFAULT_LENGTH})
    manual_seed(settings.seed)
    images = open_images(settings.data)
    if images.side % (1 << len(WIDTHS) - 1):
        raise BadValueError(f"this U-Net halves images twice, which {images.side} does not allow")
    clean = [pixels(images, part, 0.0) for part in (images.train, images.test)]
    test = _noisy(clean[1], settings.seed + 1)
    train, validation = set_apart(settings, _noisy(clean[0], settings.seed))
    check_batch(settings, len(train), "training images")
    model = UNet(images.channels, 2, WIDTHS).to(options.device)
    loader = DataLoader(train, settings.batch_size, True, drop_last=True, seed=settings.seed)
    optimizer = AdamW(model.parameters(), settings.lr)
    steps = settings.epochs * len(loader)
    schedule = OneCycleLR(optimizer, settings.lr, total_steps=steps)
    parts = (model, optimizer, schedule, loader, pixel_classes, validation)

    def evaluate(kept: nn.Module) -> dict[str, float]:
        found = Evaluator(kept, pixel_classes, options.device)(DataLoader(test, 64))
        return {"test_pixel_accuracy": found["pixel_accuracy"]}

    def present(kept: nn.Module, out: Path) -> str:
        noisy = test.tensors[0][:SHOWN]
        kept.eval()
        with no_grad():
            told = as_array(kept(tensor(noisy).to(options.device)).argmax(1))[:, None]
        rows = [noisy.clip(0, 1), np.broadcast_to(told, noisy.shape), clean[1][:SHOWN]]
        return picture(rows, out, "noisy images, the ink found, and the images without noise")

    return Prepared(
        make_run(settings, options, *parts),
        f"a U-Net on {images.name} under noise, {len(train)} images to learn",
        evaluate,
        present,
    )


RECIPES = {"unet": Recipe(Settings("unet", 4, 32, 3e-3), _unet)}
