"""Sequences of different lengths: padded to one tensor, or packed step by step.

A packed batch holds the elements of all sequences time step by time step, the longest sequence
first, so that step t is the first `batch_sizes[t]` rows. Lengths are read when a batch is packed:
under jit they must be known numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.tensors.public import cat, full, stack
from ridgeline.tensors.tensor import Tensor, tensor


class PackedSequence(NamedTuple):
    """Sequences packed by time step; `sorted_indices` says which sequence each row came from."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with its elements on another device or of another type."""
        return self._replace(data=self.data.to(*args, **kwargs))


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences [length, …] as one tensor [longest, batch, …], the shorter ones padded."""
    members = list(sequences)
    if not members:
        raise ArgumentError("pad_sequence needs at least one sequence")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f'padding_side is "left" or "right", not {padding_side!r}')
    if any(m.dim() == 0 or tuple(m.shape[1:]) != tuple(members[0].shape[1:]) for m in members):
        shapes = [list(m.shape) for m in members]
        raise ShapeError(f"sequences may differ in their first axis only, got {shapes}")
    longest = max(int(m.shape[0]) for m in members)
    rows = []
    for member in members:
        missing = longest - int(member.shape[0])
        if missing:
            shape = (missing, *(int(n) for n in member.shape[1:]))
            filler = full(shape, padding_value, dtype=member.dtype, device=member.device)
            member = cat([member, filler] if padding_side == "right" else [filler, member])
        rows.append(member)
    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded tensor, each with its own length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[n, :length] for n, length in enumerate(_numbers(lengths))]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences [longest, batch, …] packed by their lengths."""
    counts = _numbers(lengths)
    steps = input.transpose(0, 1) if batch_first else input
    if len(counts) != int(steps.shape[1]):
        raise ShapeError(f"{len(counts)} lengths for a batch of {int(steps.shape[1])}")
    if min(counts, default=0) < 1 or max(counts) > int(steps.shape[0]):
        raise ArgumentError(f"lengths lie in 1…{int(steps.shape[0])}, got {counts}")
    if enforce_sorted and any(a < b for a, b in pairwise(counts)):
        raise ArgumentError(
            "lengths must not grow along the batch", help="pass enforce_sorted=False"
        )
    order = np.argsort(-np.asarray(counts), kind="stable")
    there = np.arange(max(counts))[:, None] < np.asarray(counts)[order]
    step, row = np.nonzero(there)
    data = steps[tensor(step, device=input.device), tensor(order[row], device=input.device)]
    sizes = tensor(there.sum(1))
    if enforce_sorted:
        return PackedSequence(data, sizes)
    return PackedSequence(data, sizes, tensor(order), tensor(np.argsort(order)))


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths, packed."""
    lengths = [int(s.shape[0]) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A packed batch as a padded tensor, and the lengths."""
    sizes = _numbers(sequence.batch_sizes)
    longest = total_length or len(sizes)
    if longest < len(sizes):
        raise ArgumentError(f"total_length {longest} is less than the longest, {len(sizes)}")
    lengths = np.array([sum(size > row for size in sizes) for row in range(sizes[0])])
    starts = np.zeros(longest, np.int64)
    starts[1 : len(sizes)] = np.cumsum(sizes)[:-1]
    steps, rows = np.meshgrid(np.arange(longest), np.arange(sizes[0]), indexing="ij")
    there = steps < lengths
    indices = np.where(there, starts[steps] + rows, 0)
    padded = sequence.data[tensor(indices)]
    shape = (*there.shape, *(1,) * (sequence.data.dim() - 1))
    ended = tensor(~there, device=padded.device).reshape(shape)
    padded = padded.masked_fill(ended, padding_value)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices.to(padded.device))
        lengths = lengths[_numbers(sequence.unsorted_indices)]
    return (padded.transpose(0, 1) if batch_first else padded), tensor(lengths)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _numbers(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
