"""torchvision.ops' losses: of overlapping boxes, and of rare classes."""

from __future__ import annotations

import math

from ridgeline.errors import BadValueError
from ridgeline.nn import functional
from ridgeline.tensors.public import atan, maximum, minimum
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.ops.boxes import box_area


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    raise BadValueError(f"a reduction is none, mean or sum, not {reduction!r}")


def sigmoid_focal_loss(
    inputs: Tensor,
    targets: Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
) -> Tensor:
    """Cross entropy of two classes in which what is easy counts for little."""
    share = inputs.sigmoid()
    entropy = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    right = share * targets + (1 - share) * (1 - targets)
    loss = entropy * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return _reduced(loss, reduction)


def _overlap(first: Tensor, second: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Of boxes pair by pair: the shared part, and the area that both cover."""
    sides = minimum(first[..., 2:], second[..., 2:]) - maximum(first[..., :2], second[..., :2])
    shared = sides.clamp(min=0).prod(-1)
    covered = box_area(first) + box_area(second) - shared
    return shared / (covered + eps), covered


def _hull(first: Tensor, second: Tensor) -> Tensor:
    return maximum(first[..., 2:], second[..., 2:]) - minimum(first[..., :2], second[..., :2])


def generalized_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """One less the generalized overlap of boxes, pair by pair."""
    overlap, covered = _overlap(boxes1, boxes2, eps)
    around = _hull(boxes1, boxes2).prod(-1)
    return _reduced(1 - (overlap - (around - covered) / (around + eps)), reduction)


def _distance_loss(first: Tensor, second: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    overlap, _ = _overlap(first, second, eps)
    diagonal = (_hull(first, second) ** 2).sum(-1) + eps
    centres = [(b[..., :2] + b[..., 2:]) / 2 for b in (first, second)]
    return 1 - overlap + ((centres[0] - centres[1]) ** 2).sum(-1) / diagonal, overlap


def distance_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """One less the overlap, and the distance of the centres."""
    return _reduced(_distance_loss(boxes1, boxes2, eps)[0], reduction)


def complete_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """The loss by distance, and how much the shapes differ."""
    loss, overlap = _distance_loss(boxes1, boxes2, eps)
    angles = [atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes1, boxes2)]
    unlike = (4 / math.pi**2) * (angles[1] - angles[0]) ** 2
    share = (unlike / (1 - overlap + unlike + eps)).detach()
    return _reduced(loss + share * unlike, reduction)
