"""Upscaling and warping, against torch and against what they must do on simple images."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.data.randomness import RandomStream
from ridgeline.data.resample import upscale, warp
from ridgeline.data.transforms import (
    Compose,
    Normalize,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
)
from ridgeline.errors import RidgelineError

IMAGES = np.random.default_rng(0).random((5, 8, 8)).astype(np.float32)
BATCH = np.random.default_rng(1).random((6, 2, 12, 10)).astype(np.float32)


def test_bilinear_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.interpolate(
        torch.tensor(IMAGES)[:, None], size=32, mode="bilinear"
    )
    assert np.allclose(upscale(IMAGES, 32, "bilinear"), theirs[:, 0].numpy(), atol=1e-6)


def test_cubic_keeps_constants_and_straight_lines() -> None:
    flat = np.full((1, 8, 8), 3.0, np.float32)
    assert np.allclose(upscale(flat, 32), 3.0)
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32), (1, 8, 8))
    inner = upscale(ramp, 32)[0, 0, 8:24]
    assert np.allclose(np.diff(inner), 0.25, atol=1e-6)


def test_cubic_passes_through_the_samples() -> None:
    up = upscale(IMAGES, 8 * 3)  # every third pixel has the centre of a source pixel
    assert np.allclose(up[:, 1::3, 1::3], IMAGES, atol=1e-5)


def test_upscale_refuses_to_shrink_and_unknown_methods() -> None:
    with pytest.raises(RidgelineError, match="cannot upscale"):
        upscale(IMAGES, 4)
    with pytest.raises(RidgelineError, match="no resampling method"):
        upscale(IMAGES, 32, "guess")


def still(count: int) -> np.ndarray:
    return np.tile(np.eye(2, 3), (count, 1, 1))


def test_warp_with_the_identity_changes_nothing() -> None:
    assert np.array_equal(warp(BATCH, still(6)), BATCH)


def test_warp_moves_whole_pixels_exactly() -> None:
    maps = still(6)
    maps[:, 0, 2], maps[:, 1, 2] = 2, -1  # the source lies two rows below, one column to the left
    moved = warp(BATCH, maps, fill=7.0)
    assert np.array_equal(moved[:, :, :-2, 1:], BATCH[:, :, 2:, :-1])
    assert np.all(moved[:, :, -2:] == 7) and np.all(moved[:, :, :, 0] == 7)


def test_warp_turns_by_a_right_angle() -> None:
    square = np.random.default_rng(2).random((1, 1, 9, 9)).astype(np.float32)
    quarter = np.array([[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]])
    assert np.allclose(warp(square, quarter)[0, 0], np.rot90(square[0, 0]), atol=1e-5)


def test_warp_far_away_gives_the_fill() -> None:
    maps = still(6)
    maps[:, :, 2] = 1e6
    assert np.all(warp(BATCH, maps, fill=-1.0) == -1)


@pytest.mark.parametrize(
    "transform",
    [
        RandomAffine(15, 3, 0.15, 10, fill=-1.0),
        RandomHorizontalFlip(),
        RandomCrop(8, padding=2),
        Compose([RandomHorizontalFlip(), Normalize(0.5, [0.2, 0.3])]),
    ],
    ids=lambda t: type(t).__name__,
)
def test_transforms_depend_on_their_stream_alone(transform: object) -> None:
    first = transform(BATCH, RandomStream(3, 1, 4))  # type: ignore[operator]
    again = transform(BATCH, RandomStream(3, 1, 4))  # type: ignore[operator]
    other = transform(BATCH, RandomStream(3, 1, 5))  # type: ignore[operator]
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.dtype == np.float32 and first.flags.c_contiguous


def test_affine_without_freedom_is_the_identity() -> None:
    assert np.allclose(RandomAffine()(BATCH, RandomStream(0)), BATCH)


def test_crop_shows_a_window_of_each_image() -> None:
    cropped = RandomCrop(8)(BATCH, RandomStream(0))
    for image, window in zip(BATCH, cropped):
        shapes = np.lib.stride_tricks.sliding_window_view(image, (8, 8), (1, 2))
        assert (shapes == window[:, None, None]).all(axis=(0, 3, 4)).any()
    with pytest.raises(RidgelineError, match="cannot crop"):
        RandomCrop(20)(BATCH, RandomStream(0))


def test_streams_are_uniform_and_stable() -> None:
    assert RandomStream(7, 1).permutation(6).tolist() == RandomStream(7, 1).permutation(6).tolist()
    assert sorted(RandomStream(7, 2).permutation(100)) == list(range(100))
    drawn = RandomStream(1).uniform(-2.0, 3.0, 20_000)
    assert drawn.min() >= -2 and drawn.max() < 3 and abs(drawn.mean() - 0.5) < 0.05
    assert set(RandomStream(1).integers(3, 1000)) == {0, 1, 2}
