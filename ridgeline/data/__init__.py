"""Datasets, loaders and transforms, and the handwritten digits that come with the package."""

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
from ridgeline.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "SequentialSampler",
    "Subset",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerError",
    "WorkerInfo",
    "current_stream",
    "default_collate",
    "digits",
    "get_worker_info",
    "random_split",
]
