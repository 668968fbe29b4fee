"""The bundled handwritten digits: 1,797 images of 8×8 pixels, and their published split.

The images are those of the UCI set 'Optical Recognition of Handwritten Digits' (E. Alpaydin and
C. Kaynak, 1998, CC BY 4.0). The split is a rule, not a list: walking through the file, every
fifth image of each digit is a test image. docs/digits.md writes it down, with the hashes.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.resample import upscale
from ridgeline.errors import BadValueError, InputFileError

FILE = Path(__file__).with_name("digits.npz")
SIZE = 32  # the side that LeNet-5 takes
FOLD = 5  # one image in five
MEAN, STD = 0.3056, 0.3565  # of the upscaled training images, ink in 0…1
BACKGROUND = -MEAN / STD  # the value of a pixel without ink


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images as float32 [n, 1, side, side], about zero mean and unit variance, and int64 labels."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def load_raw(path: str | Path = FILE) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The stored images [1797, 8, 8] with values 0…16 and their labels, in the file's order."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = archive["images"], archive["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(
            f"cannot read the digits in {path}: {error}",
            help="the file comes with the package; reinstall it",
        ) from error
    return images, labels


def held_out(labels: NDArray[Any], fold: int = FOLD, index: int = FOLD - 1) -> NDArray[np.bool_]:
    """True at test images: those whose rank among the images of their digit is `place` mod `fold`.

    Ranks count from 0 in file order, so each part has every digit and every writer in it.
    """
    mask = np.zeros(len(labels), np.bool_)
    for digit in np.unique(labels):
        members = np.flatnonzero(labels == digit)
        mask[members[index::fold]] = True
    return mask


def content_hash(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> str:
    """SHA-256 over the pixels and then the labels, as bytes in file order."""
    digest = hashlib.sha256(images.astype(np.uint8).tobytes())
    digest.update(labels.astype(np.uint8).tobytes())
    return digest.hexdigest()


def digits(part: str = "train", size: int = SIZE) -> LabelledImages:
    """One part of the published split, upscaled to `size` pixels and standardised.

    Parts are "train" and "test", and inside the training images "fit" and "validation", made by
    the same rule: hyperparameters are chosen on those, so that the test images stay unseen.
    """
    images, labels = load_raw()
    keep = _part(labels, part)
    pixels = upscale(images[keep].astype(np.float32) / 16.0, size)
    standard = ((pixels - MEAN) / STD).astype(np.float32)
    return LabelledImages(standard[:, None], labels[keep].astype(np.int64))


def _part(labels: NDArray[Any], part: str) -> NDArray[np.intp]:
    """The indices of the images of a part, in file order."""
    test = held_out(labels)
    train = np.flatnonzero(~test)
    if part == "train":
        return train
    if part == "test":
        return np.flatnonzero(test)
    validation = held_out(labels[train])
    if part == "validation":
        return train[validation]
    if part == "fit":
        return train[~validation]
    raise BadValueError(
        f"the digits have no part {part!r}", help="parts: train, test, fit, validation"
    )
