"""Reference results of collectives, from the arrays of all ranks, in the order of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ridgeline.communicators.calls import REDUCTIONS, Call

_NARROW = 4  # floats of fewer bytes are summed in float32 and rounded once


def _sums_in(dtype: np.dtype) -> np.dtype:
    is_narrow_float = dtype.itemsize < _NARROW and dtype.kind not in "iub"
    return np.dtype(np.float32) if is_narrow_float else dtype


def joined(arrays: Sequence[np.ndarray], reduction: str) -> np.ndarray:
    """The arrays of all ranks, joined one after the other."""
    dtype, step = arrays[0].dtype, REDUCTIONS[reduction]
    total = arrays[0].astype(_sums_in(dtype))
    for array in arrays[1:]:
        step(total, array.astype(total.dtype, copy=False), out=total)
    if reduction == "mean":
        total = total // len(arrays) if dtype.kind in "iu" else total / len(arrays)
    return total.astype(dtype, copy=False)


def starts(counts: Sequence[int]) -> list[int]:
    """Where the rows of each rank begin, and where those of the last end."""
    places = [0]
    for count in counts:
        places.append(places[-1] + count)
    return places


def results(calls: Sequence[Call], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What each rank gets of a collective; ranks may get the same array."""
    call, size = calls[0], len(arrays)
    match call.kind:
        case "all_reduce":
            return [joined(arrays, call.reduction)] * size
        case "all_gather":
            return [np.concatenate(arrays)] * size
        case "broadcast":
            return [arrays[call.root].copy()] * size  # its rank may go on and write to it
        case "reduce_scatter":
            total, places = joined(arrays, call.reduction), starts(call.counts)
            return [total[places[rank] : places[rank + 1]] for rank in range(size)]
        case "all_to_all":
            places_of = [starts(each.counts) for each in calls]
            return [
                np.concatenate(
                    [
                        array[places[rank] : places[rank + 1]]
                        for array, places in zip(arrays, places_of, strict=True)
                    ]
                )
                for rank in range(size)
            ]
    return list(arrays)
