"""Images: resizing, sampling at places, regions and boxes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.data.optional import need
from ridgeline.nn import functional as F
from ridgeline.onnx.operators.resizing import resize, resize_10, upsample
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, OnnxError, as_tensor
from ridgeline.tensors.tensor import Tensor

_MODES = {"linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic", "bicubic": "bicubic",
          "nearest": "nearest"}  # fmt: skip


def _grid_sample(
    x: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    if mode not in _MODES:
        raise OnnxError(f"{mode!r} is no way to sample")
    return F.grid_sample(x, grid, _MODES[mode], padding_mode, bool(align_corners))


def _roi_align(
    x: Tensor, rois: Tensor, batch_indices: Tensor, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel", opset: int = 16,
) -> Tensor:  # fmt: skip
    """Means or maxima of samples between pixels, in cells of regions."""
    half = 0.5 if coordinate_transformation_mode == "half_pixel" and opset >= 16 else 0.0
    corners = rois * spatial_scale - half
    x1, y1, x2, y2 = (corners[:, i] for i in range(4))
    width, height = x2 - x1, y2 - y1
    if not half:
        width, height = rl.clamp(width, min=1.0), rl.clamp(height, min=1.0)
    cell_h, cell_w = height / output_height, width / output_width
    results = []
    for number in range(int(rois.shape[0])):
        count_h = sampling_ratio or max(int(np.ceil(float(cell_h[number]))), 1)
        count_w = sampling_ratio or max(int(np.ceil(float(cell_w[number]))), 1)
        ys = _samples(y1[number], cell_h[number], output_height, count_h)
        xs = _samples(x1[number], cell_w[number], output_width, count_w)
        image = rl.index_select(x, 0, batch_indices[number : number + 1].to(rl.int64))[0]
        read = _between(image, ys, xs, mode == "max")
        cells = read.reshape(-1, output_height, count_h, output_width, count_w)
        over = rl.mean(cells, [2, 4]) if mode == "avg" else rl.amax(cells, [2, 4])
        results.append(over)
    if not results:
        return rl.zeros(0, x.shape[1], output_height, output_width, dtype=x.dtype)
    return rl.stack(results)


def _samples(start: Tensor, cell: Tensor, cells: int, count: int) -> Tensor:
    inside = (rl.arange(count) + 0.5) / count
    places = rl.arange(cells).unsqueeze(1) + inside
    return start + places.reshape(-1).to(start.dtype) * cell


def _between(image: Tensor, ys: Tensor, xs: Tensor, largest: bool) -> Tensor:
    """An image read between its pixels, weighted; nothing is outside of it."""
    rows, columns = _neighbours(ys, image.shape[1]), _neighbours(xs, image.shape[2])
    parts = []
    for row, row_weight in rows:
        line = rl.index_select(image, 1, row)
        for column, column_weight in columns:
            pixel = rl.index_select(line, 2, column)
            parts.append(pixel * (row_weight.unsqueeze(1) * column_weight))
    if largest:
        return rl.maximum(rl.maximum(parts[0], parts[1]), rl.maximum(parts[2], parts[3]))
    return parts[0] + parts[1] + parts[2] + parts[3]


def _neighbours(places: Tensor, length: Any) -> list[tuple[Tensor, Tensor]]:
    """The two pixels beside each place, with their weights."""
    inside = rl.logical_and(places >= -1, places <= length).to(places.dtype)
    clamped = rl.clamp(places, 0, length - 1)
    low = rl.floor(clamped)
    high = rl.clamp(low + 1, max=length - 1)
    share = clamped - low
    return [(low.to(rl.int64), (1 - share) * inside), (high.to(rl.int64), share * inside)]


def _max_roi_pool(x: Tensor, rois: Array, pooled_shape: Any, spatial_scale: float = 1.0) -> Tensor:
    rows, columns = pooled_shape
    results = []
    for batch, *corners in rois:
        x1, y1, x2, y2 = (int(np.floor(c * spatial_scale + 0.5)) for c in corners)
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        cells = []
        for i in range(rows):
            top, bottom = _cell(i, height, rows, y1, x.shape[2])
            for j in range(columns):
                left, right = _cell(j, width, columns, x1, x.shape[3])
                image = x[int(batch), :, top:bottom, left:right]
                empty = bottom <= top or right <= left
                cells.append(
                    rl.zeros(x.shape[1], dtype=x.dtype) if empty else rl.amax(image, [1, 2])
                )
        results.append(rl.stack(cells, 1).reshape(x.shape[1], rows, columns))
    return rl.stack(results)


def _cell(number: int, size: int, count: int, start: int, length: int) -> tuple[int, int]:
    first = int(np.floor(number * size / count)) + start
    last = int(np.ceil((number + 1) * size / count)) + start
    return min(max(first, 0), length), min(max(last, 0), length)


def _suppress(
    boxes: Array, scores: Array, max_output_boxes_per_class: int = 0, iou_threshold: float = 0.0,
    score_threshold: float | None = None, center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    """The best boxes of each class that overlap no better one; how many depends on the data."""
    found: list[tuple[int, int, int]] = []
    for batch in range(boxes.shape[0]):
        corners = _corners(boxes[batch].astype(np.float64), center_point_box)
        for kind in range(scores.shape[1]):
            own = scores[batch, kind]
            order = np.argsort(-own, kind="stable")
            if score_threshold is not None:
                order = order[own[order] > score_threshold]
            for box in _kept(corners, order, iou_threshold, max_output_boxes_per_class):
                found.append((batch, kind, box))
    return as_tensor(np.array(found, np.int64).reshape(-1, 3))


def _corners(boxes: Array, center: int) -> Array:
    """Boxes as lower and upper corners."""
    if center:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _kept(corners: Array, order: Array, threshold: float, most: int) -> list[int]:
    kept: list[int] = []
    areas = np.prod(corners[:, 2:] - corners[:, :2], 1)
    while len(order) and len(kept) < most:
        best, rest = int(order[0]), order[1:]
        kept.append(best)
        low = np.maximum(corners[best, :2], corners[rest, :2])
        high = np.minimum(corners[best, 2:], corners[rest, 2:])
        shared = np.prod(np.clip(high - low, 0, None), 1)
        whole = areas[best] + areas[rest] - shared
        ratio = np.where(whole > 0, shared / np.where(whole > 0, whole, 1), 0)
        order = rest[ratio <= threshold]
    return kept


def _decode(encoded_stream: Array, pixel_format: str = "RGB") -> Tensor:
    pillow = need("PIL.Image", "pillow", "ImageDecoder")
    modes = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
    if pixel_format not in modes:
        raise OnnxError(f"{pixel_format!r} is no format of pixels")
    try:
        image = pillow.open(io.BytesIO(encoded_stream.tobytes())).convert(modes[pixel_format])
    except OSError as error:
        raise OnnxError(f"an image cannot be decoded: {error}") from None
    pixels = np.array(image)
    if pixel_format == "BGR":
        pixels = pixels[:, :, ::-1].copy()
    return as_tensor(pixels if pixels.ndim == 3 else pixels[:, :, None].copy())


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Upsample", upsample),
    OperatorRow("Resize", resize_10, 10, 10),
    OperatorRow("Resize", resize, 11),
    OperatorRow("GridSample", _grid_sample),
    OperatorRow("RoiAlign", _roi_align),
    OperatorRow("MaxRoiPool", _max_roi_pool),
    OperatorRow("NonMaxSuppression", _suppress),
    OperatorRow("ImageDecoder", _decode),
)
