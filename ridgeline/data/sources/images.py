"""Folders of image files: one subfolder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.data.dataset import Dataset
from ridgeline.data.making import current_stream
from ridgeline.data.optional import need
from ridgeline.data.resample import Floats
from ridgeline.data.transforms import Transform
from ridgeline.errors import BadValueError, MissingFileError, unreadable

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif")


def read_image(path: str | Path, mode: str = "RGB") -> Floats:
    """An image file as float32 [c, h, w] in 0…1; modes are "RGB" and "L" (grey)."""
    image = need("PIL.Image", "Pillow", "reading images")
    try:
        with image.open(path) as file:
            pixels = np.asarray(file.convert(mode), np.float32)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise unreadable(f"the image {path}", error, "replace or remove the file") from error
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes) / np.float32(255)


class ImageFolder(Dataset[tuple[Floats, int]]):
    """Images under `root/CLASS/…`, with the number of their class; classes go by name.

    `transform` is applied to each image, as a batch of one, before images are stacked: it should
    bring them to one size.
    """

    def __init__(
        self, root: str | Path, transform: Transform | None = None, mode: str = "RGB"
    ) -> None:
        self.root, self.transform, self.mode = Path(root), transform, mode
        if not self.root.is_dir():
            raise MissingFileError(f"{root} is not a folder")
        self.classes = sorted(entry.name for entry in self.root.iterdir() if entry.is_dir())
        self.samples = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((self.root / name).rglob("*"))
            if path.suffix.lower() in ENDINGS and path.is_file()
        ]
        if not self.samples:
            raise BadValueError(
                f"there are no images in {root}",
                help=f"one subfolder for each class, with files ending in {', '.join(ENDINGS)}",
            )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Floats, int]:
        path, label = self.samples[index]
        image: Any = read_image(path, self.mode)
        if self.transform is not None:
            image = self.transform(image[None], current_stream())[0]
        return image, label
