"""torchvision.datasets: collections of pictures by their files; fetched where that is asked for."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from ridgeline.data.dataset import Dataset
from ridgeline.data.sources.cifar import unpickled
from ridgeline.data.sources.idx import read_idx
from ridgeline.data.sources.images import ENDINGS
from ridgeline.errors import MissingFileError, unreadable
from ridgeline.files import write_atomic
from ridgeline.tensors.tensor import tensor
from ridgeline.vision import functional

Change = Callable[[Any], Any] | None


class VisionDataset(Dataset[Any]):
    """Pictures with targets, each changed by a function on its way out."""

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transforms: Any = None,
        transform: Change = None,
        target_transform: Change = None,
    ) -> None:
        self.root = os.path.expanduser(root) if root is not None else ""
        self.transform, self.target_transform = transform, target_transform

    def _changed(self, image: Any, target: Any) -> tuple[Any, Any]:
        image = image if self.transform is None else self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


def _fetch(folder: Path, name: str, sources: tuple[str, ...]) -> None:
    """Fetch a file from the first of some places that has it."""
    folder.mkdir(parents=True, exist_ok=True)
    problem: OSError | None = None
    for source in sources:
        try:
            with urlopen(source + name, timeout=60) as answer:
                write_atomic(folder / name, answer.read())
                return
        except OSError as error:
            problem = error
    assert problem is not None
    raise unreadable(sources[0] + name, problem, help=f"put the file into {folder} by hand")


class MNIST(VisionDataset):
    """Handwritten digits, from the four files of their authors below `root/MNIST/raw`."""

    sources: tuple[str, ...] = ("https://ossci-datasets.s3.amazonaws.com/mnist/",)
    classes: tuple[str, ...] = tuple("0123456789")

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Change = None,
        target_transform: Change = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, None, transform, target_transform)
        self.train = train
        names = [
            f"{'train' if train else 't10k'}-{what}-ubyte"
            for what in ("images-idx3", "labels-idx1")
        ]
        images, labels = (read_idx(self._file(name, download)) for name in names)
        self._images = images
        self.data, self.targets = tensor(images), tensor(labels.astype(np.int64))
        self._labels = labels.astype(int).tolist()

    @property
    def raw_folder(self) -> str:
        """Where the files are."""
        return os.path.join(self.root, type(self).__name__, "raw")

    def _file(self, name: str, download: bool) -> Path:
        for folder in (Path(self.raw_folder), Path(self.root)):
            for ending in ("", ".gz"):
                if (folder / (name + ending)).is_file():
                    return folder / (name + ending)
        if not download:
            raise MissingFileError(
                f"{type(self).__name__} is not in {self.root}: there is no {name}",
                help="pass download=True, or put the files there",
            )
        _fetch(Path(self.raw_folder), f"{name}.gz", self.sources)
        return Path(self.raw_folder, f"{name}.gz")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = functional.image_module().fromarray(self._images[index])
        return self._changed(picture, self._labels[index])

    def __len__(self) -> int:
        return len(self._images)


class FashionMNIST(MNIST):
    """Clothes, in MNIST's form."""

    sources = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    )  # fmt: skip


class KMNIST(MNIST):
    """Cursive Japanese letters, in MNIST's form."""

    sources = ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    classes = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


class CIFAR10(VisionDataset):
    """Small pictures of ten kinds, from the archive of their authors below `root`."""

    source = "https://www.cs.toronto.edu/~kriz/"
    archive, folder = "cifar-10-python.tar.gz", "cifar-10-batches-py"
    parts = (tuple(f"data_batch_{n}" for n in range(1, 6)), ("test_batch",))
    key = "labels"
    classes: tuple[str, ...] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Change = None,
        target_transform: Change = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, None, transform, target_transform)
        self.train = train
        folder = Path(self.root)
        if not (folder / self.folder).is_dir():
            if not (folder / self.archive).is_file():
                if not download:
                    raise MissingFileError(
                        f"{type(self).__name__} is not in {self.root}",
                        help="pass download=True, or put the files there",
                    )
                _fetch(folder, self.archive, (self.source,))
            with tarfile.open(folder / self.archive) as file:
                file.extractall(folder, filter="data")
        files = [folder / self.folder / name for name in self.parts[not train]]
        pieces = [unpickled(file, file.read_bytes(), self.key) for file in files]
        planes = np.concatenate([piece["data"] for piece in pieces]).reshape(-1, 3, 32, 32)
        self.data = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        self.targets: list[int] = [int(t) for piece in pieces for t in piece[self.key]]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = functional.image_module().fromarray(self.data[index])
        return self._changed(picture, self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


class CIFAR100(CIFAR10):
    """Small pictures of a hundred kinds."""

    archive, folder = "cifar-100-python.tar.gz", "cifar-100-python"
    parts = (("train",), ("test",))
    key = "fine_labels"
    classes = ()


class ImageFolder(VisionDataset):
    """Pictures under `root/CLASS/…`, with the number of their class; classes go by name."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Change = None,
        target_transform: Change = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(root, None, transform, target_transform)
        self.loader = loader or default_loader
        self.classes = sorted(e.name for e in os.scandir(self.root) if e.is_dir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        accepted = is_valid_file or (lambda path: path.lower().endswith(ENDINGS))
        self.samples = [
            (str(path), number)
            for name, number in self.class_to_idx.items()
            for path in sorted(Path(self.root, name).rglob("*"))
            if accepted(str(path))
        ]
        if not self.samples:
            raise MissingFileError(f"there are no pictures of classes under {self.root}")
        self.imgs, self.targets = self.samples, [number for _, number in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


DatasetFolder = ImageFolder


def default_loader(path: str) -> Any:
    """A picture file in colours."""
    with functional.image_module().open(path) as file:
        return file.convert("RGB")


class FakeData(VisionDataset):
    """Pictures of noise with labels, the same ones every time."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Change = None,
        target_transform: Change = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(None, None, transform, target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"{type(self).__name__} has {self.size} pictures, not {index}")
        drawn = np.random.default_rng(index + self.random_offset)
        pixels = drawn.integers(0, 256, self.image_size, np.uint8)
        picture = functional.to_pil_image(np.squeeze(np.moveaxis(pixels, 0, -1)))
        return self._changed(picture, int(drawn.integers(self.num_classes)))

    def __len__(self) -> int:
        return self.size


__all__ = [
    "CIFAR10",
    "CIFAR100",
    "KMNIST",
    "MNIST",
    "DatasetFolder",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "VisionDataset",
]  # fmt: skip
