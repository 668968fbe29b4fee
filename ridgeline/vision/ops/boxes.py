"""torchvision.ops.boxes: boxes (x1, y1, x2, y2), how they overlap, and which of them to keep."""

from __future__ import annotations

import math

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.public import atan, cat, maximum, minimum, stack, where, zeros
from ridgeline.tensors.tensor import Tensor

_FORMATS = ("xyxy", "xywh", "cxcywh")


def box_area(boxes: Tensor) -> Tensor:
    """The areas of boxes [n, 4]."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _joint(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """The areas that each pair of boxes shares, and that it covers."""
    first, second = boxes1.unsqueeze(-2), boxes2.unsqueeze(-3)
    low = maximum(first[..., :2], second[..., :2])
    high = minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared, box_area(boxes1).unsqueeze(-1) + box_area(boxes2).unsqueeze(-2) - shared


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The shared part of what each pair of boxes covers, [n, m]."""
    shared, covered = _joint(boxes1, boxes2)
    return shared / covered


def _hull(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Width and height of the smallest box around each pair."""
    first, second = boxes1.unsqueeze(-2), boxes2.unsqueeze(-3)
    low = minimum(first[..., :2], second[..., :2])
    return (maximum(first[..., 2:], second[..., 2:]) - low).clamp(min=0)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The overlap, less the empty part of the smallest box around each pair."""
    shared, covered = _joint(boxes1, boxes2)
    around = _hull(boxes1, boxes2).prod(-1)
    return shared / covered - (around - covered) / around


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """The overlap, less the distance of the centres by that of the furthest corners."""
    diagonal = (_hull(boxes1, boxes2) ** 2).sum(-1) + eps
    centres = [(b[..., :2] + b[..., 2:]) / 2 for b in (boxes1, boxes2)]
    apart = ((centres[0].unsqueeze(-2) - centres[1].unsqueeze(-3)) ** 2).sum(-1)
    return box_iou(boxes1, boxes2) - apart / diagonal


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """The overlap by distance, less how much the shapes differ."""
    angles = [atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes1, boxes2)]
    unlike = (4 / math.pi**2) * (angles[0].unsqueeze(-1) - angles[1].unsqueeze(-2)) ** 2
    share = (unlike / (1 - box_iou(boxes1, boxes2) + unlike + eps)).detach()
    return distance_box_iou(boxes1, boxes2, eps) - share * unlike


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes as corners, as corner and size, or as centre and size."""
    for name in (in_fmt, out_fmt):
        if name not in _FORMATS:
            raise BadValueError(f"a format of boxes is one of {_FORMATS}, not {name!r}")
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = {"xyxy": (a, b), "xywh": (a, a + b), "cxcywh": (a - b / 2, a + b / 2)}[in_fmt]
    parts = {"xyxy": (low, high), "xywh": (low, high - low)}
    return cat(list(parts.get(out_fmt) or ((low + high) / 2, high - low)), -1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut at the borders of a picture of (height, width)."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return stack([x, y], -1).reshape(boxes.shape)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The numbers of the boxes of which both sides are long enough."""
    sides = boxes[:, 2:] - boxes[:, :2]
    found: Tensor = where((sides >= min_size).all(-1))[0]
    return found


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The numbers of boxes to keep, best first: none overlaps a better one by more than that.

    One box decides about the next, so this runs in NumPy.
    """
    corners, order = (
        boxes.detach().cpu().numpy(),
        scores.detach().argsort(descending=True, stable=True),
    )
    remaining, kept = order.cpu().numpy(), []
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    while remaining.size:
        best, remaining = remaining[0], remaining[1:]
        kept.append(best)
        low = np.maximum(corners[best, :2], corners[remaining, :2])
        high = np.minimum(corners[best, 2:], corners[remaining, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        with float_errors_ignored():
            overlap = shared / (areas[best] + areas[remaining] - shared)
        remaining = remaining[~(overlap > iou_threshold)]
    return from_numpy(np.array(kept, np.int64)).to(boxes.device)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` where boxes of different classes leave one another alone."""
    if boxes.numel() == 0:
        return zeros(0, dtype=dtypes.int64, device=boxes.device)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # classes are moved where none meets another
    return nms(boxes + apart.unsqueeze(-1), scores, iou_threshold)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest boxes around masks [n, height, width]."""
    if masks.numel() == 0:
        return zeros((0, 4), device=masks.device)
    there = masks.detach().cpu().numpy() != 0
    ends = []
    for axis in (1, 2):  # columns, then rows
        seen = there.any(axis)
        ends += [seen.argmax(1), seen.shape[1] - 1 - seen[:, ::-1].argmax(1)]
    left, right, top, bottom = ends
    found = np.stack([left, top, right, bottom], 1).astype(np.float32)
    return from_numpy(found).to(masks.device)
