"""A collective or message that a rank asks of its group, described without its data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes  # noqa: F401  (teaches NumPy the names of narrow floats)
import numpy as np

from ridgeline.errors import ArgumentError, DTypeError, RidgelineError, ShapeError

# how values of several ranks are joined
REDUCTIONS: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,  # and divided by the number of ranks
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
MESSAGES = ("send", "recv")


class CommunicationError(RidgelineError):
    """Ranks that cannot go on together: one died, was silent, or called something else."""

    code = "RL0901"


@dataclass(frozen=True, slots=True)
class Call:
    """One collective or message of a rank.

    `shape` is that of what the rank gives (of what it gets, for `recv`). `counts` has, for each
    rank of the group, a length along the first axis: of what it gives to `all_gather`, gets from
    `reduce_scatter`, or is given by this rank in `all_to_all`, where `receives` says what this
    rank is given by each. `root` is the rank that `broadcast` is from, or the peer of a message.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"
    reduction: str = ""
    counts: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    root: int = -1
    tag: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the call: of the larger of what a rank gives and what it gets."""
        given = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return max(given, math.prod(self.result_shape) * np.dtype(self.dtype).itemsize)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of what this rank gets; `reduce_scatter`'s needs `result_of`."""
        if self.kind == "all_gather":
            return (sum(self.counts), *self.shape[1:])
        if self.kind == "all_to_all":
            return (sum(self.receives), *self.shape[1:])
        return self.shape

    def result_of(self, rank: int) -> tuple[int, ...]:
        """The shape of what a rank of the group gets."""
        if self.kind == "reduce_scatter":
            return (self.counts[rank], *self.shape[1:])
        return self.result_shape

    @property
    def agreed(self) -> Call:
        """What all ranks of the group have to say alike."""
        if self.kind == "all_gather":
            return replace(self, shape=self.shape[1:])
        if self.kind == "all_to_all":  # each pair of ranks agrees on its own length
            return replace(self, shape=self.shape[1:], counts=(), receives=())
        return self

    def __str__(self) -> str:
        if self.kind == "barrier":
            return "barrier()"
        facts = [f"{self.dtype}[{', '.join(map(str, self.shape))}]"]
        facts += [self.reduction] if self.reduction else []
        facts += [f"counts={list(self.counts)}"] if len(set(self.counts)) > 1 else []
        names = {"broadcast": "root", "send": "to", "recv": "from"}
        facts += [f"{names[self.kind]}={self.root}"] if self.kind in names else []
        return f"{self.kind}({', '.join(facts)})"


def even_counts(length: int, ranks: int) -> tuple[int, ...]:
    """A length as one part for each rank; the first are one longer where it does not divide."""
    part, rest = divmod(length, ranks)
    return tuple(part + (rank < rest) for rank in range(ranks))


def check(call: Call, rank: int, size: int) -> None:
    """Refuse a call that no group of this size can make."""
    np.dtype(call.dtype)
    if call.reduction and call.reduction not in REDUCTIONS:
        raise ArgumentError(
            f"there is no reduction {call.reduction!r}", help=f"one of {', '.join(REDUCTIONS)}"
        )
    if call.reduction and np.dtype(call.dtype).kind in "bOSU" and call.reduction != "max":
        raise DTypeError(f"{call.kind} cannot reduce {call.dtype} by {call.reduction}")
    if call.reduction in ("min", "max") and np.dtype(call.dtype).kind == "c":
        raise DTypeError(f"complex numbers have no {call.reduction}")
    if call.kind in ("broadcast", *MESSAGES) and not 0 <= call.root < size:
        raise ArgumentError(f"{call} in a group of {size} ranks", help=f"ranks are 0 to {size - 1}")
    if call.kind in ("all_gather", "reduce_scatter", "all_to_all"):
        _check_lengths(call, rank, size)


def _check_lengths(call: Call, rank: int, size: int) -> None:
    if not call.shape:
        raise ShapeError(f"{call.kind} goes along the first axis, and a number has none")
    if len(call.counts) != size:
        raise ShapeError(f"{call.kind} needs a length for each of {size} ranks: {call.counts}")
    wanted = call.counts[rank] if call.kind == "all_gather" else sum(call.counts)
    if call.shape[0] != wanted:
        raise ShapeError(
            f"{call.kind} of {call.shape[0]} rows with lengths {list(call.counts)} of the ranks",
            help=f"rank {rank} gives {wanted} rows",
        )
