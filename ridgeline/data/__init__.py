"""Datasets, loaders and transforms, and the handwritten digits that come with the package."""

from ridgeline.data import transforms
from ridgeline.data.collate import default_collate, to_tensors as default_convert
from ridgeline.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
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
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
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
from ridgeline.module_paths import unknown as _unknown
from ridgeline.reference import describe as _describe

__all__ = [
    "BatchSampler", "ByteTokenizer", "ChainDataset", "CharTokenizer", "ConcatDataset",
    "DataLoader", "Dataset", "DistributedSampler", "FileTokenizer", "ImageFolder",
    "IterableDataset", "NumpyDataset", "RandomSampler", "Sampler", "SequentialSampler",
    "StackDataset", "Subset", "SubsetRandomSampler", "TableDataset", "TensorDataset",
    "TextDataset", "Tokenizer", "WeightedRandomSampler", "WorkerError", "WorkerInfo", "cifar10",
    "current_stream", "default_collate", "default_convert", "digits", "get_worker_info",
    "karate_club", "load_arrays", "mnist", "random_split", "read_idx", "read_image", "read_table",
    "read_text", "transforms",
]  # fmt: skip
_describe("data", {name: globals()[name] for name in __all__})
__getattr__ = _unknown(__name__)
