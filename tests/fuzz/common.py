"""The statements that both flavours have, and how often each is made."""

from __future__ import annotations

from tests.fuzz.flow import (
    begin_gradient,
    control_flow,
    end_gradient,
    mapped,
    nested,
    outside_state,
    python_branch,
    python_state,
    transformed,
    twice_differentiated,
)
from tests.fuzz.views import (
    flip,
    gather,
    index,
    join,
    overlapping,
    pad,
    permute,
    reshape,
    scatter,
    split,
    triangle,
    unsqueeze,
)
from tests.fuzz.writes import masked_write, shifted, view_then_write, write, write_at

COMMON = {
    permute: 3, reshape: 3, unsqueeze: 2, index: 4, flip: 2, join: 3, pad: 2, triangle: 1, split: 2,
    gather: 4, scatter: 3, write: 4, view_then_write: 2, masked_write: 2, begin_gradient: 3,
    end_gradient: 5, python_state: 2, python_branch: 1, mapped: 1,
    control_flow: 2, outside_state: 2, write_at: 3, shifted: 1, overlapping: 1, transformed: 2,
    twice_differentiated: 1, nested: 1,
}  # fmt: skip
