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
from ridgeline.data.sampler import RandomSampler, SequentialSampler, WeightedRandomSampler

__all__ = [
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "SequentialSampler",
    "Subset",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "digits",
    "random_split",
]
