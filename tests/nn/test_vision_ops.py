"""torchvision's ops, by definitions written out box by box and pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.vision import io, ops
from ridgeline.vision.transforms import functional, v2

RNG = np.random.default_rng(3)


def boxes(count: int, size: float = 8.0) -> np.ndarray:
    corners = np.sort(RNG.uniform(0, size, (count, 2, 2)), axis=1)
    return corners.reshape(count, 4).astype(np.float32)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return float(shared / (sum(areas) - shared))


def test_overlaps_of_boxes() -> None:
    first, second = boxes(5), boxes(3)
    found = ops.box_iou(rl.tensor(first), rl.tensor(second)).numpy()
    wanted = [[overlap(a, b) for b in second] for a in first]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    same = rl.tensor(first)
    for measure in (ops.generalized_box_iou, ops.distance_box_iou, ops.complete_box_iou):
        np.testing.assert_allclose(measure(same, same).diagonal().numpy(), 1.0, atol=1e-5)
    for loss in (ops.generalized_box_iou_loss, ops.distance_box_iou_loss,
                 ops.complete_box_iou_loss):  # fmt: skip
        np.testing.assert_allclose(loss(same, same, "sum").item(), 0.0, atol=1e-4)
    apart = rl.tensor([[0.0, 0.0, 1.0, 1.0]]), rl.tensor([[3.0, 0.0, 4.0, 1.0]])
    assert ops.generalized_box_iou(*apart).item() == pytest.approx(-0.5)
    assert ops.distance_box_iou(*apart).item() == pytest.approx(-9 / 17)


@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_formats_lead_back(form: str) -> None:
    given = boxes(4)
    there = ops.box_convert(rl.tensor(given), "xyxy", form)
    np.testing.assert_allclose(ops.box_convert(there, form, "xyxy").numpy(), given, atol=1e-5)


def test_the_best_boxes_are_kept() -> None:
    given, scores = boxes(40), RNG.permutation(40).astype(np.float32)
    kept: list[int] = []
    for n in np.argsort(-scores):
        if all(overlap(given[n], given[k]) <= 0.3 for k in kept):
            kept.append(int(n))
    assert ops.nms(rl.tensor(given), rl.tensor(scores), 0.3).tolist() == kept
    kinds = rl.tensor(RNG.integers(0, 3, 40))
    by_kind = ops.batched_nms(rl.tensor(given), rl.tensor(scores), kinds, 0.3).tolist()
    alone = [
        np.flatnonzero(kinds.numpy() == kind)[
            ops.nms(rl.tensor(given[kinds.numpy() == kind]),
                    rl.tensor(scores[kinds.numpy() == kind]), 0.3).numpy()
        ]
        for kind in range(3)
    ]  # fmt: skip
    assert sorted(by_kind) == sorted(np.concatenate(alone).tolist())
    assert ops.nms(rl.zeros(0, 4), rl.zeros(0), 0.5).shape == (0,)


def pixel(plane: np.ndarray, y: float, x: float) -> float:
    h, w = plane.shape
    if y < -1 or y > h or x < -1 or x > w:
        return 0.0
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    dy, dx = y - top, x - left
    upper = plane[top, left] * (1 - dx) + plane[top, right] * dx
    lower = plane[bottom, left] * (1 - dx) + plane[bottom, right] * dx
    return float(upper * (1 - dy) + lower * dy)


@pytest.mark.parametrize(("ratio", "aligned"), [(2, False), (-1, True), (-1, False)])
def test_regions_are_sampled(ratio: int, aligned: bool) -> None:
    maps = RNG.normal(size=(2, 3, 7, 9)).astype(np.float32)
    given = [boxes(2, 15.0) - 1, boxes(1, 15.0)]
    leaf = rl.tensor(maps, requires_grad=True)
    found = ops.roi_align(leaf, [rl.tensor(b) for b in given], (2, 3), 0.5, ratio, aligned)
    wanted = []
    for number, rows in enumerate(given):
        for row in rows.astype(np.float64):
            x1, y1, x2, y2 = row * 0.5 - (0.5 if aligned else 0)
            height, width = y2 - y1, x2 - x1
            if not aligned:
                height, width = max(height, 1), max(width, 1)
            nh = ratio if ratio > 0 else math.ceil(height / 2)
            nw = ratio if ratio > 0 else math.ceil(width / 3)
            for plane in maps[number].astype(np.float64):
                for py in range(2):
                    for px in range(3):
                        samples = [
                            pixel(plane, y1 + (py + (i + 0.5) / nh) * height / 2,
                                  x1 + (px + (j + 0.5) / nw) * width / 3)
                            for i in range(nh) for j in range(nw)
                        ]  # fmt: skip
                        wanted.append(sum(samples) / max(len(samples), 1))
    np.testing.assert_allclose(found.detach().numpy().ravel(), wanted, atol=1e-5)
    found.sum().backward()
    assert np.isfinite(leaf.grad.numpy()).all() and leaf.grad.abs().sum().item() > 0


def test_regions_are_pooled() -> None:
    maps = RNG.normal(size=(1, 2, 6, 5)).astype(np.float32)
    given = np.array([[0, 1.2, 0.4, 4.6, 5.0], [0, 0, 0, 1, 1]], np.float32)
    found = ops.roi_pool(rl.tensor(maps), rl.tensor(given), 2).numpy()
    for row, grid in zip(given, found):
        x1, y1, x2, y2 = (math.floor(v + 0.5) for v in row[1:])
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for py in range(2):
            for px in range(2):
                top, bottom = math.floor(py * height / 2), math.ceil((py + 1) * height / 2)
                left, right = math.floor(px * width / 2), math.ceil((px + 1) * width / 2)
                part = maps[0][:, y1 + top : y1 + bottom, x1 + left : x1 + right]
                np.testing.assert_array_equal(grid[:, py, px], part.max((1, 2)))


def test_small_things_of_ops() -> None:
    masks = np.zeros((2, 5, 6), bool)
    masks[0, 1:3, 2:5] = masks[1, 4, 0] = True
    assert ops.masks_to_boxes(rl.tensor(masks)).tolist() == [[2, 1, 4, 2], [0, 4, 0, 4]]
    assert ops.clip_boxes_to_image(rl.tensor([[-1.0, 2.0, 9.0, 9.0]]), (5, 6)).tolist() == [
        [0, 2, 6, 5]
    ]
    assert ops.remove_small_boxes(rl.tensor([[0.0, 0, 1, 1], [0, 0, 3, 3]]), 2).tolist() == [1]
    loss = ops.sigmoid_focal_loss(rl.tensor([0.3, -1.0]), rl.tensor([1.0, 0.0]), 0.25, 2, "sum")
    share = 1 / (1 + np.exp([-0.3, 1.0]))
    right = np.array([share[0], 1 - share[1]])
    wanted = (np.array([0.25, 0.75]) * (1 - right) ** 2 * -np.log(right)).sum()
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    frozen, norm = ops.FrozenBatchNorm2d(3), rl.nn.BatchNorm2d(3).eval()
    norm.running_mean.copy_(rl.tensor([1.0, 2.0, 3.0]))
    frozen.load_state_dict(norm.state_dict())
    x = rl.rand(2, 3, 4, 4)
    np.testing.assert_allclose(frozen(x).numpy(), norm(x).detach().numpy(), atol=1e-5)
    rl.manual_seed(0)
    rows = ops.stochastic_depth(rl.ones(200, 2), 0.5, "row")
    assert set(rows.flatten().tolist()) == {0.0, 2.0} and (rows[:, 0] == rows[:, 1]).all()
    dropped = ops.drop_block2d(rl.ones(2, 3, 9, 9), 0.3, 3)
    assert 0 in dropped.flatten().tolist()


def test_pictures_change_as_tensors_and_as_pillows(tmp_path) -> None:
    pytest.importorskip("PIL")
    tensor = rl.tensor(RNG.integers(0, 256, (3, 9, 11), np.uint8))
    picture = functional.to_pil_image(tensor)
    for name, options in (("invert", ()), ("posterize", (3,)), ("solarize", (100,)),
                          ("equalize", ()), ("autocontrast", ())):  # fmt: skip
        changed = getattr(functional, name)
        ours = changed(tensor, *options).numpy().astype(int)
        theirs = np.moveaxis(np.array(changed(picture, *options)), -1, 0).astype(int)
        assert np.abs(ours - theirs).max() <= 1, name
    for name, factor, most in (("adjust_hue", 0.2, 9), ("adjust_sharpness", 1.7, 3),
                               ("adjust_gamma", 0.7, 2)):  # fmt: skip
        changed = getattr(functional, name)
        ours = changed(tensor, factor).numpy().astype(int)
        theirs = np.moveaxis(np.array(changed(picture, factor)), -1, 0).astype(int)
        assert np.abs(ours - theirs).max() <= most, name  # Pillow rounds hues to bytes on its way
    io.write_png(tensor, str(tmp_path / "a.png"))
    assert (io.read_image(str(tmp_path / "a.png")) == tensor).all()
    assert functional.get_dimensions(picture) == functional.get_dimensions(tensor) == [3, 9, 11]
    scaled = v2.Compose([v2.ToImage(), v2.ToDtype(rl.float32, scale=True)])(picture)
    np.testing.assert_allclose(scaled.numpy(), tensor.numpy() / 255, atol=1e-6)


def test_blurring_is_a_mean_by_a_normal_distribution() -> None:
    image = RNG.uniform(size=(2, 8, 7)).astype(np.float32)
    found = functional.gaussian_blur(rl.tensor(image), (3, 5), (0.8, 1.3)).numpy()

    def bell(n, s):
        weights = np.exp(-((np.arange(n) - n // 2) ** 2) / (2 * s * s))
        return weights / weights.sum()

    kernel = np.outer(bell(5, 1.3), bell(3, 0.8))
    padded = np.pad(image, ((0, 0), (2, 2), (1, 1)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 3), (1, 2))
    np.testing.assert_allclose(found, (windows * kernel).sum((-1, -2)), atol=1e-6)


def test_batches_are_mixed_with_their_labels() -> None:
    rl.manual_seed(1)
    images, labels = rl.rand(4, 3, 8, 8), rl.tensor([0, 1, 2, 1])
    for mix in (v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)):
        made, shares = mix(images, labels)
        assert made.shape == images.shape and shares.shape == (4, 3)
        np.testing.assert_allclose(shares.sum(1).numpy(), 1.0, atol=1e-6)
