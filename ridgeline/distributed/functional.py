"""Collectives of tensors that give new tensors, and through which gradients flow."""

from ridgeline.tensors.collectives import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    broadcast as broadcast,
    reduce_scatter as reduce_scatter,
    shift as shift,
)
