"""Image transforms against torch and Pillow, or against what they promise; seeded."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.data import DataLoader, TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.data.randomness import RandomStream
from ridgeline.data.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianNoise,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)
from ridgeline.errors import RidgelineError

IMAGES = np.random.default_rng(0).random((6, 3, 17, 23)).astype(np.float32)


@pytest.mark.parametrize("method", ["bilinear", "cubic"])
@pytest.mark.parametrize("size", [(5, 9), (32, 40), (17, 10), (1, 1)])
def test_resize_is_torchs_antialiased_resize(method: str, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    wanted = torch.nn.functional.interpolate(
        torch.tensor(IMAGES), size=size, mode=method.replace("cubic", "bicubic"), antialias=True
    )
    got = Resize(size, method)(IMAGES, RandomStream(0))
    np.testing.assert_allclose(got, wanted.numpy(), atol=3e-6)


def test_resize_of_the_shorter_side_and_crops() -> None:
    assert Resize(34)(IMAGES, RandomStream(0)).shape == (6, 3, 34, 46)
    middle = CenterCrop(11)(IMAGES, RandomStream(0))
    assert np.array_equal(middle, IMAGES[:, :, 3:14, 6:17])
    with pytest.raises(RidgelineError, match="cannot crop 18×18"):
        CenterCrop(18)(IMAGES, RandomStream(0))
    whole = RandomResizedCrop(8, scale=(1, 1), ratio=(23 / 17, 23 / 17))(IMAGES, RandomStream(0))
    np.testing.assert_allclose(whole, Resize((8, 8))(IMAGES, RandomStream(0)), atol=1e-6)
    ramp = np.broadcast_to(np.arange(64, dtype=np.float32), (200, 1, 64, 64))
    spans = np.ptp(RandomResizedCrop(16, scale=(0.25, 0.25))(ramp, RandomStream(3)), axis=(1, 2, 3))
    assert 20 < spans.min() < spans.max() < 40 and spans.std() > 2


def test_flips_and_erasing_touch_their_share() -> None:
    many = np.repeat(IMAGES[:1], 2000, 0)
    for flip, turned in (
        (RandomHorizontalFlip(0.3), many[..., ::-1]),
        (RandomVerticalFlip(0.3), many[..., ::-1, :]),
    ):
        made = flip(many, RandomStream(1))
        same, other = (made == many).all((1, 2, 3)), (made == turned).all((1, 2, 3))
        assert (same | other).all() and 0.26 < other.mean() < 0.34
    erased = RandomErasing(0.5, (0.1, 0.2), fill=-1)(many, RandomStream(2)) == -1
    share = erased[:, 0].mean((1, 2))
    assert 0.46 < (share > 0).mean() < 0.54
    assert share[share > 0].min() > 0.07 and share.max() < 0.24
    assert (erased.all(1) == erased.any(1)).all()


def test_values() -> None:
    raw = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    made = ToTensor()(raw, RandomStream(0))
    assert made.shape == (2, 3, 4, 5) and made[1, 2, 3, 4] == np.float32(119) / 255
    assert ToTensor()(raw[..., 0], RandomStream(0)).shape == (2, 1, 4, 5)
    noisy = GaussianNoise(0.5)(np.zeros((50, 3, 20, 20), np.float32), RandomStream(0))
    assert abs(noisy.mean()) < 0.01 and abs(noisy.std() - 0.5) < 0.01
    kurtosis = float((noisy**4).mean() / (noisy**2).mean() ** 2)
    assert abs(kurtosis - 3) < 0.1, "not normal"
    jittered = ColorJitter(0.5, 0.5)(IMAGES, RandomStream(0))
    assert jittered.shape == IMAGES.shape and jittered.min() >= 0 and jittered.max() <= 1
    assert np.array_equal(ColorJitter()(IMAGES, RandomStream(0)), IMAGES)


def test_a_composition_is_a_function_of_its_stream() -> None:
    chain = Compose([
        Resize(20), RandomCrop(16, padding=2), RandomHorizontalFlip(), RandomErasing(),
        ColorJitter(0.2, 0.2), GaussianNoise(0.1), Normalize([0.5] * 3, [0.2] * 3),
    ])  # fmt: skip
    one, two = chain(IMAGES, RandomStream(7, 1, 2)), chain(IMAGES, RandomStream(7, 1, 2))
    assert np.array_equal(one, two) and one.shape == (6, 3, 16, 16)
    assert not np.array_equal(one, chain(IMAGES, RandomStream(7, 1, 3)))
    loader = DataLoader(TensorDataset(IMAGES, np.arange(6)), 6, seed=7, transform=chain)
    loader.epoch = 1
    first = as_array(next(iter(loader))[0])
    assert np.array_equal(first, chain(IMAGES, RandomStream(7, 1, 0)))
    assert repr(chain).startswith("Compose(Resize(20, 'bilinear'), RandomCrop(16")
