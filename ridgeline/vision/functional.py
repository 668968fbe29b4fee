"""torchvision.transforms.functional: one picture in, one out, of Pillow's or a tensor [c, h, w]."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.data.optional import need
from ridgeline.errors import BadTypeError, BadValueError
from ridgeline.nn import functional
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.public import cat
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.vision.adjustments import (
    adjust_gamma as adjust_gamma,
    adjust_hue as adjust_hue,
    adjust_sharpness as adjust_sharpness,
    autocontrast as autocontrast,
    blurred,
    equalize as equalize,
    invert as invert,
    posterize as posterize,
    solarize as solarize,
)


class InterpolationMode(Enum):
    """How a picture is read between its pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"
    BOX = "box"
    HAMMING = "hamming"


def image_module() -> Any:
    """Pillow's module of pictures."""
    return need("PIL.Image", "Pillow", "pictures")


def size_of(img: Any) -> tuple[int, int]:
    """Height and width."""
    if isinstance(img, Tensor):
        return img.shape[-2], img.shape[-1]
    return img.height, img.width


def to_tensor(pic: Any) -> Tensor:
    """A picture as a tensor [c, h, w] of floats in 0…1; arrays [h, w, c] of bytes too."""
    if isinstance(pic, Tensor):
        raise BadTypeError("to_tensor needs a picture or an array, not a tensor")
    array = np.array(pic)
    planes = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    if array.dtype == np.bool_:
        return tensor(planes.astype(np.float32))
    if array.dtype == np.uint8:
        return tensor(np.ascontiguousarray(planes, np.float32) / np.float32(255))
    return tensor(np.ascontiguousarray(planes))


def pil_to_tensor(pic: Any) -> Tensor:
    """A picture as a tensor [c, h, w] of its own bytes."""
    array = np.array(pic)
    return from_numpy(
        np.ascontiguousarray(array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0))
    )


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor [c, h, w] or an array [h, w, c] as a picture."""
    array = np.asarray(pic.detach().cpu() if isinstance(pic, Tensor) else pic)
    if isinstance(pic, Tensor):
        array = np.moveaxis(array[None] if array.ndim == 2 else array, 0, -1)
        if array.dtype.kind == "f":
            array = (array * 255).astype(np.uint8)
    array = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    return image_module().fromarray(array, mode) if mode else image_module().fromarray(array)


def _by_channel(values: Sequence[float], like: Tensor) -> Tensor:
    return tensor(list(values), dtype=like.dtype).reshape(-1, 1, 1).to(like.device)


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """(tensor - mean) / std, channel by channel."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise BadTypeError("normalize needs a tensor of floats: put ToTensor() before it")
    if 0 in std:
        raise BadValueError("normalize: a deviation of 0 cannot be divided by")
    made = (tensor - _by_channel(mean, tensor)) / _by_channel(std, tensor)
    return tensor.copy_(made) if inplace else made


def resize(
    img: Any,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """A picture in another size; one number is that of its shorter side."""
    height, width = size_of(img)
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if len(sizes) == 1:
        short = min(height, width)
        wanted = (int(sizes[0] * height / short), int(sizes[0] * width / short))
        if max_size is not None and max(wanted) > max_size:
            long = max(wanted)
            wanted = (int(max_size * wanted[0] / long), int(max_size * wanted[1] / long))
    else:
        wanted = sizes[0], sizes[1]
    way = InterpolationMode(interpolation).value
    if not isinstance(img, Tensor):
        return img.resize(wanted[::-1], getattr(image_module().Resampling, way.upper()))
    batched = img.dim() == 4
    smooth = way in ("bilinear", "bicubic")
    options = {"align_corners": False, "antialias": bool(antialias)} if smooth else {}
    floats = img.float() if not img.is_floating_point() else img
    made = functional.interpolate(floats if batched else floats[None], wanted, mode=way, **options)
    if not img.is_floating_point():
        made = made.round().clamp(0, 255).to(img.dtype)
    return made if batched else made[0]


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of a picture; what lies outside is black."""
    if isinstance(img, Tensor):
        h, w = size_of(img)
        outside = (max(-left, 0), max(left + width - w, 0), max(-top, 0), max(top + height - h, 0))
        if any(outside):
            img, top, left = functional.pad(img, outside), max(top, 0), max(left, 0)
        return img[..., top : top + height, left : left + width]
    return img.crop((left, top, left + width, top + height))


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """The middle of a picture."""
    height, width = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    own = size_of(img)
    return crop(img, round((own[0] - height) / 2), round((own[1] - width) / 2), height, width)


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    if isinstance(img, Tensor):
        return img.flip([-1])
    return img.transpose(image_module().Transpose.FLIP_LEFT_RIGHT)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    if isinstance(img, Tensor):
        return img.flip([-2])
    return img.transpose(image_module().Transpose.FLIP_TOP_BOTTOM)


def pad(
    img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant"
) -> Any:
    """Margins around a picture: one number, (left and right, top and bottom), or all four."""
    sizes = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = {1: sizes * 4, 2: sizes * 2, 4: sizes}[len(sizes)]
    if not isinstance(img, Tensor):
        if padding_mode == "constant":
            return need("PIL.ImageOps", "Pillow", "pictures").expand(
                img, (left, top, right, bottom), fill
            )
        return to_pil_image(pad(pil_to_tensor(img), (left, top, right, bottom), 0, padding_mode))
    mode = {"edge": "replicate", "symmetric": "reflect"}.get(padding_mode, padding_mode)
    given = img if mode == "constant" else img[None].float()
    options = {"value": fill} if mode == "constant" else {}
    made = functional.pad(given, (left, right, top, bottom), mode=mode, **options)
    return made if mode == "constant" else made[0].to(img.dtype)


def rotate(
    img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST, **options: Any
) -> Any:
    """A picture turned against the clock by some degrees; what comes from outside is black."""
    shown = img if not isinstance(img, Tensor) else to_pil_image(img)
    way = getattr(image_module().Resampling, InterpolationMode(interpolation).value.upper())
    turned = shown.rotate(angle, way, options.get("expand", False), options.get("center"))
    return to_tensor(turned).to(img.dtype) if isinstance(img, Tensor) else turned


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Brightness as the eye has it, as one channel or three equal ones."""
    if not isinstance(img, Tensor):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else image_module().merge("RGB", [grey] * 3)
    red, green, blue = img.unbind(-3)
    grey = (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)
    return grey if num_output_channels == 1 else cat([grey] * 3, -3)


to_grayscale = rgb_to_grayscale


def _blend(img: Tensor, other: Any, factor: float) -> Tensor:
    most = 1.0 if img.is_floating_point() else 255.0
    mixed: Tensor = factor * img + (1 - factor) * other
    return mixed.clamp(0, most).to(img.dtype)


def _enhanced(img: Any, kind: str, factor: float) -> Any:
    return getattr(need("PIL.ImageEnhance", "Pillow", "pictures"), kind)(img).enhance(factor)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """All values times a factor."""
    if isinstance(img, Tensor):
        return _blend(img, 0.0, brightness_factor)
    return _enhanced(img, "Brightness", brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Further from, or nearer to, the mean brightness."""
    if isinstance(img, Tensor):
        grey = rgb_to_grayscale(img) if img.shape[-3] == 3 else img
        return _blend(img, grey.float().mean(), contrast_factor)
    return _enhanced(img, "Contrast", contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Further from, or nearer to, grey."""
    if isinstance(img, Tensor):
        return _blend(img, rgb_to_grayscale(img), saturation_factor)
    return _enhanced(img, "Color", saturation_factor)


def five_crop(img: Any, size: int | Sequence[int]) -> tuple[Any, ...]:
    """The four corners and the middle."""
    height, width = (size,) * 2 if isinstance(size, int) else tuple(size)
    own = size_of(img)
    corners = [(t, e) for t in (0, own[0] - height) for e in (0, own[1] - width)]
    return (*(crop(img, t, e, height, width) for t, e in corners), center_crop(img, size))


def convert_image_dtype(image: Tensor, dtype: Any) -> Tensor:
    """Between bytes in 0…255 and floats in 0…1."""
    if image.is_floating_point() == dtype.is_floating_point:
        return image.to(dtype)
    return image.to(dtype) / 255 if dtype.is_floating_point else (image * 255.999).to(dtype)


def gaussian_blur(
    img: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> Any:
    """Each pixel the mean of those around it, by a normal distribution; borders are mirrored."""
    if isinstance(img, Tensor):
        return blurred(img, kernel_size, sigma)
    return to_pil_image(blurred(pil_to_tensor(img), kernel_size, sigma))


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width."""
    channels = img.shape[-3] if isinstance(img, Tensor) else len(img.getbands())
    return [channels, *size_of(img)]


def get_size(img: Any) -> list[int]:
    """Height and width."""
    return list(size_of(img))


def get_image_size(img: Any) -> list[int]:
    """Width and height."""
    return list(size_of(img)[::-1])


def get_image_num_channels(img: Any) -> int:
    """How many channels a picture has."""
    return get_dimensions(img)[0]


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A part of a picture in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, None, antialias)


def ten_crop(img: Any, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Any, ...]:
    """The four corners and the middle, of the picture and of the flipped one."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A rectangle of a tensor overwritten."""
    made = img if inplace else img.clone()
    made[..., i : i + h, j : j + w] = v
    return made


def to_image(inpt: Any) -> Tensor:
    """A picture, an array [h, w, c] or a tensor as a tensor [c, h, w] of its own type."""
    return inpt if isinstance(inpt, Tensor) else pil_to_tensor(inpt)


def to_dtype(inpt: Tensor, dtype: Any = dtypes.float32, scale: bool = False) -> Tensor:
    """Another element type; with `scale`, bytes in 0…255 become floats in 0…1 and back."""
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


to_dtype_image, horizontal_flip, vertical_flip = to_dtype, hflip, vflip
_get_image_size, resize_image, pad_image, crop_image = get_image_size, resize, pad, crop
rgb_to_grayscale_image, normalize_image = rgb_to_grayscale, normalize
