"""torchvision.transforms.functional: changes of a picture's colours and sharpness.

Pictures of Pillow's go through Pillow; tensors [..., c, h, w] by the same formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline.data.optional import need
from ridgeline.errors import BadValueError
from ridgeline.nn import functional
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.public import arange, clamp, exp, maximum, minimum, ones_like, stack, where
from ridgeline.tensors.tensor import Tensor, tensor


def most(img: Tensor) -> float:
    """The value of white."""
    return 1.0 if img.is_floating_point() else 255.0


def _operation(name: str, img: Any, *options: Any) -> Any:
    """An operation of Pillow's module for whole pictures."""
    return getattr(need("PIL.ImageOps", "Pillow", "pictures"), name)(img, *options)


def invert(img: Any) -> Any:
    """White for black."""
    return (most(img) - img).to(img.dtype) if isinstance(img, Tensor) else _operation("invert", img)


def posterize(img: Any, bits: int) -> Any:
    """Bytes with only their first bits."""
    if not isinstance(img, Tensor):
        return _operation("posterize", img, bits)
    return img & tensor(256 - 2 ** (8 - bits), dtype=img.dtype)


def solarize(img: Any, threshold: float) -> Any:
    """What is brighter than a threshold inverted."""
    if not isinstance(img, Tensor):
        return _operation("solarize", img, threshold)
    made: Tensor = where(img >= threshold, invert(img), img)
    return made


def autocontrast(img: Any) -> Any:
    """Each channel spread from black to white."""
    if not isinstance(img, Tensor):
        return _operation("autocontrast", img)
    values = img.float()
    low, high = values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True)
    flat = high == low
    scale = where(flat, 1.0, most(img) / (high - low))
    return clamp((values - where(flat, 0.0, low)) * scale, 0, most(img)).to(img.dtype)


def equalize(img: Any) -> Any:
    """Each channel of bytes with as many dark as bright pixels."""
    if not isinstance(img, Tensor):
        return _operation("equalize", img)
    planes = img.detach().cpu().numpy()
    flat = planes.reshape(-1, planes.shape[-2] * planes.shape[-1])
    made = np.stack([_equalized(plane) for plane in flat]).reshape(planes.shape)
    return from_numpy(made).to(img.device)


def _equalized(plane: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    counts = np.bincount(plane, minlength=256)
    filled = counts[counts != 0]
    step = int(filled[:-1].sum()) // 255
    if step == 0:
        return plane
    table = np.concatenate([[0], np.cumsum(counts)[:-1]]) + step // 2
    made: np.ndarray[Any, Any] = np.clip(table // step, 0, 255).astype(np.uint8)[plane]
    return made


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * value ** gamma, of values in 0…1."""
    if gamma < 0:
        raise BadValueError(f"adjust_gamma: gamma is not negative, got {gamma}")
    if isinstance(img, Tensor):
        values = img.float() / most(img)
        changed = clamp(gain * values**gamma, 0, 1)
        return (
            changed.to(img.dtype) if img.is_floating_point() else (changed * 255.999).to(img.dtype)
        )
    table = [int(255 + 1 - 1e-3) * gain * (value / 255.0) ** gamma for value in range(256)]
    shown = img.convert("RGB").point([int(value) for value in table] * 3)
    return shown.convert(img.mode)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colours turned around the circle by a factor in -0.5…0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise BadValueError(f"adjust_hue: a factor in -0.5…0.5, not {hue_factor}")
    if isinstance(img, Tensor):
        return _turned_hue(img, hue_factor)
    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, saturation, value = img.convert("HSV").split()
    moved = (np.array(hue).astype(np.int64) + int(hue_factor * 255)).astype(np.uint8)
    image = need("PIL.Image", "Pillow", "pictures")
    return image.merge("HSV", (image.fromarray(moved, "L"), saturation, value)).convert(img.mode)


def _turned_hue(img: Tensor, factor: float) -> Tensor:
    """The same of a tensor, by hue, saturation and value."""
    if img.shape[-3] == 1:
        return img
    scaled = img if img.is_floating_point() else img.float() / 255
    red, green, blue = scaled.unbind(-3)
    high, low = maximum(maximum(red, green), blue), minimum(minimum(red, green), blue)
    spread = high - low
    safe = where(spread == 0, ones_like(spread), spread)
    saturation = spread / where(spread == 0, ones_like(high), high)
    to_red, to_green, to_blue = (high - red) / safe, (high - green) / safe, (high - blue) / safe
    by_blue = where(high == green, 2 + to_red - to_blue, 4 + to_green - to_red)
    sixths = where(high == red, to_blue - to_green, by_blue)
    hue = (sixths / 6 + 1 + factor) % 1
    sixth = hue * 6
    channels = []
    for offset in (5.0, 3.0, 1.0):
        k = (offset + sixth) % 6
        channels.append(high - high * saturation * clamp(minimum(k, 4 - k), 0, 1))
    made = stack(channels, -3)
    return made.to(img.dtype) if img.is_floating_point() else (made * 255.999).to(img.dtype)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """Further from, or nearer to, a smoothed picture; borders stay."""
    if not isinstance(img, Tensor):
        enhance = need("PIL.ImageEnhance", "Pillow", "pictures").Sharpness
        return enhance(img).enhance(sharpness_factor)
    if min(img.shape[-2:]) <= 2:
        return img
    kernel = ones_like(img.float().reshape(-1)[:1]).expand(3, 3).clone()
    kernel[1, 1] = 5.0
    smooth = _filtered(img.float(), kernel / kernel.sum())
    smooth = smooth if img.is_floating_point() else smooth.round()
    other = img.float().clone()
    other[..., 1:-1, 1:-1] = smooth
    mixed = sharpness_factor * img.float() + (1 - sharpness_factor) * other
    return mixed.clamp(0, most(img)).to(img.dtype)


def _filtered(img: Tensor, kernel: Tensor) -> Tensor:
    """Every channel under the same window, without margins."""
    flat = img.reshape(-1, 1, *img.shape[-2:])
    made = functional.conv2d(flat, kernel.unsqueeze(0).unsqueeze(0).to(img.dtype))
    return made.reshape(*img.shape[:-2], *made.shape[-2:])


def blurred(
    img: Tensor, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> Tensor:
    """Each pixel the mean of those around it, by a normal distribution; borders are mirrored."""
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if sigma is None:
        wide = [size * 0.15 + 0.35 for size in sizes]
    else:
        wide = [float(sigma)] * 2 if isinstance(sigma, int | float) else list(sigma)
    wide = wide * 2 if len(wide) == 1 else wide
    if any(size % 2 == 0 or size < 1 for size in sizes) or min(wide) <= 0:
        raise BadValueError(f"gaussian_blur: odd sizes and deviations above 0, not {sizes}, {wide}")
    across, down = (_bell(size, deviation) for size, deviation in zip(sizes, wide))
    margins = [sizes[0] // 2] * 2 + [sizes[1] // 2] * 2
    values = img if img.is_floating_point() else img.float()
    flat = values.reshape(-1, 1, *img.shape[-2:])
    padded = functional.pad(flat, margins, mode="reflect")
    made = _filtered(padded, down.unsqueeze(1) * across).reshape(img.shape)
    return made if img.is_floating_point() else made.round().to(img.dtype)


def _bell(size: int, deviation: float) -> Tensor:
    half = (size - 1) / 2
    weights = exp(-0.5 * ((arange(size).float() - half) / deviation) ** 2)
    return weights / weights.sum()
