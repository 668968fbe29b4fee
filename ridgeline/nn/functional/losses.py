"""The triplet loss under a distance that is given."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.functions.neural.margins import same_rank
from ridgeline.nn.functional.table import OWN
from ridgeline.record.modes import called
from ridgeline.tensors.public import _reduced, clamp, minimum
from ridgeline.tensors.tensor import Tensor


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet loss under any distance."""
    same_rank("triplet_margin_loss", anchor, positive, negative)
    distance = called(distance_function or OWN["pairwise_distance"])
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return _reduced(clamp(margin + near - far, min=0.0), reduction)
