"""Layouts and memory formats of tensors, by torch's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class layout:
    """Which elements are stored: all of them, or those that are not zero."""

    name: str

    def __repr__(self) -> str:
        return f"ridgeline.{self.name}"


@dataclass(frozen=True, slots=True)
class memory_format:
    """In which order the axes of a dense tensor lie in memory."""

    name: str

    def __repr__(self) -> str:
        return f"ridgeline.{self.name}"


strided, sparse_coo, sparse_csr, sparse_csc = map(
    layout, ("strided", "sparse_coo", "sparse_csr", "sparse_csc")
)
contiguous_format, preserve_format, channels_last, channels_last_3d = map(
    memory_format, ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
)
# by format: the number of axes that it is for, and the axes from the slowest in memory on
ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}
legacy_contiguous_format = contiguous_format  # torch's older name for it
