"""Every model of `ridgeline train`, a few steps on little data: it runs, resumes and presents."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ridgeline import dtypes
from ridgeline.cli.train import MODELS
from ridgeline.config import config
from ridgeline.data import TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.errors import InputFileError, RidgelineError
from ridgeline.models import GAN
from ridgeline.train.display import Display
from ridgeline.train.interrupt import Interrupt
from ridgeline.train.log import RunLog
from ridgeline.train.loop import CHECKPOINT, drive
from ridgeline.train.recipes import RECIPES, Options, Prepared, generative, images, segmentation
from ridgeline.train.recipes.pictures import Images, open_images

SMALL = 4  # images
LARGE = ("vgg11", "resnet18", "resnet34", "resnet50")  # slow without compiling
TRIED = [name for name in MODELS if name not in LARGE]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Few images, a short text, and no compiling."""

    def few(data: str) -> Images:
        found = open_images(data)
        parts = [
            TensorDataset(*(array[:SMALL] for array in part.tensors))
            for part in (found.train, found.test)
        ]
        return dataclasses.replace(found, train=parts[0], test=parts[1])

    for module in (images, generative, segmentation):
        monkeypatch.setattr(module, "open_images", few)
    monkeypatch.setattr(generative, "GAN", partial(GAN, width=4))
    monkeypatch.setattr("ridgeline.train.recipes.text.SAMPLE", 8)
    (tmp_path / "text.txt").write_text("to be or not to be " * 8)
    with config.override(tier="interpreter"):
        yield


def prepared(name: str, folder: Path, epochs: int = 2, **more: Any) -> Prepared:
    defaults = RECIPES[name].defaults
    text = name in ("lstm", "gpt2", "llama", "bert")
    settings = dataclasses.replace(
        defaults,
        epochs=epochs,
        batch_size=min(2, defaults.batch_size),
        data=str(folder / "text.txt") if text else "",
        length=8 if text else defaults.length,
        **more,
    )
    return RECIPES[name].prepare(settings, Options())


def go(run: Prepared, out: Path, epochs: int) -> None:
    display = Display(Console(file=io.StringIO()), epochs, len(run.run.loader))
    with RunLog(out / "log.jsonl") as log:
        assert drive(run.run, epochs, out, display, log, Interrupt())


def test_the_command_knows_all_recipes() -> None:
    assert tuple(RECIPES) == MODELS


@pytest.mark.parametrize("name", TRIED)
def test_trains_and_presents(name: str, tmp_path: Path) -> None:
    run = prepared(name, tmp_path, 1)
    go(run, tmp_path, 1)
    assert all(np.isfinite(value) for value in run.evaluate(run.model).values())
    if run.present is not None:
        assert str(tmp_path) in run.present(run.model, tmp_path)


@pytest.mark.parametrize("name", ["vgg11", "resnet18"])
def test_large_models_fit_their_images(name: str, tmp_path: Path) -> None:
    run = prepared(name, tmp_path, 1)
    assert 0 <= run.evaluate(run.model)["test_accuracy"] <= 1


@pytest.mark.parametrize("name", ["gan", "vae"])
def test_a_run_in_two_parts_is_the_whole_run(name: str, tmp_path: Path) -> None:
    whole = prepared(name, tmp_path)
    go(whole, tmp_path / "whole", 2)
    first = prepared(name, tmp_path)
    go(first, tmp_path / "parts", 1)
    second = prepared(name, tmp_path)
    second.run.restore(tmp_path / "parts" / CHECKPOINT)
    go(second, tmp_path / "parts", 2)
    pairs = zip(whole.model.parameters(), second.model.parameters())
    assert all(np.array_equal(as_array(a), as_array(b)) for a, b in pairs)


@pytest.mark.parametrize("name", ["mlp", "unet", "vae", "bert"])
def test_validation_in_bfloat16(name: str, tmp_path: Path) -> None:
    run = prepared(name, tmp_path, 1, validation=0.5, precision="bfloat16")
    go(run, tmp_path, 1)
    log = (tmp_path / "log.jsonl").read_text()
    (loss,) = re.findall(r'"validation_loss": ([\d.e-]+)', log)
    assert np.isfinite(float(loss))
    parameters = list(run.model.parameters())
    assert all(p.dtype == dtypes.float32 for p in parameters)


def test_mistakes() -> None:
    lenet = RECIPES["lenet"]
    with pytest.raises(RidgelineError, match="no option --length"):
        lenet.prepare(dataclasses.replace(lenet.defaults, length=9), Options())
    with pytest.raises(InputFileError, match="not a folder"):
        open_images("/nowhere")
    gpt2 = RECIPES["gpt2"]
    with pytest.raises(InputFileError, match="cannot read"):
        gpt2.prepare(dataclasses.replace(gpt2.defaults, data="/nowhere.txt"), Options())
