"""Models that make images: autoencoders and a GAN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline import nn
from ridgeline.data import DataLoader, TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.errors import BadValueError
from ridgeline.models import GAN, VAE, DenoisingAutoencoder
from ridgeline.optim import Adam
from ridgeline.random import manual_seed
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit
from ridgeline.train.loop import Run
from ridgeline.train.pictures import grid, save_png
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
from ridgeline.train.recipes.text import mean_loss

SHOWN = 10  # images in a row of a picture


def pixels(images: Images, part: Any, low: float) -> Any:
    """A part's images with pixels in low…1."""
    if not isinstance(part, TensorDataset):
        raise BadValueError("this model takes MNIST, CIFAR-10 or the bundled digits")
    ink = (part.tensors[0] * images.std + images.mean).clip(0, 1)
    return ink * (1 - low) + low


def _loss(model: Any, pixels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return model.loss(pixels), {}


def _autoencoder(settings: Settings, options: Options) -> Prepared:
    only(settings, {"length": DEFAULT_LENGTH})
    manual_seed(settings.seed)
    images = open_images(settings.data)
    train, test = (pixels(images, part, 0.0) for part in (images.train, images.test))
    check_batch(settings, len(train), "training images")
    flat = [part.reshape(len(part), -1) for part in (train, test)]
    size = flat[0].shape[1]
    variational = settings.model == "vae"
    model: nn.Module = VAE((size, 400)) if variational else DenoisingAutoencoder((size, 256, 64))
    model = model.to(options.device)
    learnt, validation = set_apart(settings, TensorDataset(flat[0]))
    loader = DataLoader(learnt, settings.batch_size, True, seed=settings.seed)
    optimizer = Adam(model.parameters(), settings.lr)
    run = make_run(settings, options, model, optimizer, None, loader, _loss, validation)
    kind = "a variational autoencoder" if variational else "a denoising autoencoder"

    def present(kept: nn.Module, out: Path) -> str:
        kept.eval()
        with no_grad():
            found = kept(tensor(flat[1][:SHOWN]).to(options.device))
        made = found.reconstruction.sigmoid() if variational else found
        shape = test[:SHOWN].shape
        rows = [test[:SHOWN], as_array(made).reshape(shape).clip(0, 1)]
        return picture(rows, out, "images above their reconstructions")

    return Prepared(
        run,
        f"{kind} on {images.name}, {len(train)} images",
        lambda kept: {"test_loss": mean_loss(kept, TensorDataset(flat[1]), _loss, options.device)},
        present,
    )


def picture(rows: list[Any], out: Path, what: str) -> str:
    save_png(out / "images.png", grid(np.concatenate(rows), SHOWN))
    return f"{what}: {out / 'images.png'}"


class Adversaries:
    """The optimizers of a generator and a discriminator behind one interface."""

    def __init__(self, generator: Adam, discriminator: Adam) -> None:
        self.generator, self.discriminator = generator, discriminator
        self.param_groups = generator.param_groups

    def state_dict(self) -> dict[str, Any]:
        """The state of both."""
        return {"generator": self.generator.state_dict(),
                "discriminator": self.discriminator.state_dict()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the state of both."""
        self.generator.load_state_dict(state["generator"])
        self.discriminator.load_state_dict(state["discriminator"])


def _gan(settings: Settings, options: Options) -> Prepared:
    only(settings, {"length": DEFAULT_LENGTH, "accumulate": 1, "clip": 0.0, "ema": 0.0,
                    "validation": 0.0, "precision": "float32"})  # fmt: skip
    manual_seed(settings.seed)
    images = open_images(settings.data)
    if images.side != 32:
        raise BadValueError(f"the GAN makes images of 32×32 pixels, not {images.side}")
    train = pixels(images, images.train, -1.0)
    check_batch(settings, len(train), "training images")
    model = GAN(images.channels).to(options.device)
    pair = Adversaries(*(
        Adam(part.parameters(), settings.lr, betas=(0.5, 0.999))
        for part in (model.generator, model.discriminator)
    ))  # fmt: skip
    loader = DataLoader(
        TensorDataset(train), settings.batch_size, True, drop_last=True, seed=settings.seed
    )

    @jit
    def step(real: Any) -> Any:
        pair.discriminator.zero_grad()
        apart = model.discriminator_loss(real)
        apart.backward()
        pair.discriminator.step()
        pair.generator.zero_grad()
        passing = model.generator_loss(int(real.shape[0]))
        passing.backward()
        pair.generator.step()
        return passing, {"discriminator": apart.detach() * int(real.shape[0])}

    def present(kept: Any, out: Path) -> str:
        kept.eval()
        with no_grad():
            made = as_array(kept.sample(SHOWN * SHOWN)) / 2 + 0.5
        return picture([made], out, "images made of noise")

    run = Run(model, pair, None, loader, step, asdict(settings), options.device)
    return Prepared(run, f"a GAN on {images.name}, {len(train)} images", lambda kept: {}, present)


RECIPES = {
    "autoencoder": Recipe(Settings("autoencoder", 30, 64, 1e-3), _autoencoder),
    "vae": Recipe(Settings("vae", 30, 64, 1e-3), _autoencoder),
    "gan": Recipe(Settings("gan", 30, 64, 1e-3), _gan),
}
