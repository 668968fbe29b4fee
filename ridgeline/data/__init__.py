"""Datasets, loaders and transforms, and the handwritten digits that come with the package."""

from ridgeline.data import transforms
from ridgeline.data.collate import default_collate
from ridgeline.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from ridgeline.data.digits import digits
from ridgeline.data.loader import DataLoader
from ridgeline.data.making import current_stream
from ridgeline.data.pool import WorkerError
from ridgeline.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from ridgeline.data.sources.arrays import NumpyDataset, load_arrays
from ridgeline.data.sources.cifar import cifar10
from ridgeline.data.sources.idx import mnist, read_idx
from ridgeline.data.sources.images import ImageFolder, read_image
from ridgeline.data.sources.karate import karate_club
from ridgeline.data.sources.tables import TableDataset, read_table
from ridgeline.data.sources.text import TextDataset, read_text
from ridgeline.data.tokenizers import ByteTokenizer, CharTokenizer, FileTokenizer, Tokenizer
from ridgeline.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler", "ByteTokenizer", "CharTokenizer", "ConcatDataset", "DataLoader", "Dataset",
    "FileTokenizer", "ImageFolder", "IterableDataset", "NumpyDataset", "RandomSampler",
    "SequentialSampler", "Subset", "TableDataset", "TensorDataset", "TextDataset", "Tokenizer",
    "WeightedRandomSampler", "WorkerError", "WorkerInfo", "cifar10", "current_stream",
    "default_collate", "digits", "get_worker_info", "karate_club", "load_arrays", "mnist",
    "random_split", "read_idx", "read_image", "read_table", "read_text", "transforms",
]  # fmt: skip
