"""Cast cancellation: a detour through a type that holds every value changes nothing.

%1 = cast %0 [dtype=float32] : float32[8]      becomes   %0
%2 = cast %1 [dtype=bfloat16] : bfloat16[8]
"""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes
import numpy as np

from ridgeline.dtypes import DType
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import CAST, cast


def simplify_casts(node: Node) -> Node | None:
    """Of two casts in a row the first goes where it loses nothing."""
    if node.op is not CAST:
        return None
    inner = node.inputs[0]
    if inner.op is not CAST:
        return None
    source = inner.inputs[0]
    return cast(source, node.dtype) if holds_all(inner.dtype, source.dtype) else None


@lru_cache(maxsize=256)
def holds_all(wide: DType, narrow: DType) -> bool:
    """True where every value of `narrow` is one of `wide`: nothing is rounded or clipped."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.kind == "complex" or narrow.kind == "complex" or wide.kind == "bool":
        return False
    if narrow.kind == "float":
        return wide.kind == "float" and _floats_fit(wide, narrow)
    low, high = np.iinfo(narrow.numpy).min, np.iinfo(narrow.numpy).max
    if wide.kind == "float":
        bits = int(ml_dtypes.finfo(wide.numpy).nmant) + 1
        return max(-int(low), int(high)) <= 1 << bits
    return np.iinfo(wide.numpy).min <= low and high <= np.iinfo(wide.numpy).max


def _floats_fit(wide: DType, narrow: DType) -> bool:
    a, b = ml_dtypes.finfo(wide.numpy), ml_dtypes.finfo(narrow.numpy)
    least = float(a.smallest_subnormal) <= float(b.smallest_subnormal)
    return bool(a.nmant >= b.nmant and least and float(a.max) >= float(b.max))
