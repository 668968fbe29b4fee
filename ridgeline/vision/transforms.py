"""torchvision.transforms: changes to pictures, one after the other, some of them random.

Draws follow `manual_seed`, and in a loader's workers the loader's seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ridgeline.errors import BadValueError
from ridgeline.functions.random import chosen_generator
from ridgeline.module_paths import missing
from ridgeline.tensors.tensor import Tensor
from ridgeline.values import philox
from ridgeline.vision import functional
from ridgeline.vision.functional import InterpolationMode

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAdjustSharpness",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "Scale",
    "TenCrop",
    "ToPILImage",
    "ToTensor",
    "functional",
]  # fmt: skip

__path__: list[str] = []  # `functional` and `v2` are beside it


def uniform(low: float = 0.0, high: float = 1.0) -> float:
    """The next number of the default generator's stream."""
    offset = chosen_generator().skip(1)
    key = np.array(chosen_generator().initial_seed(), np.uint64)
    word = philox.blocks(key, np.array([offset], np.uint64))
    return low + (high - low) * float(word[0][0]) * 2.0**-32


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


class Transform:
    """A change that prints with what it was made of; a subclass's `change` does it."""

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)

    def change(self, img: Any) -> Any:
        """The changed picture."""
        raise NotImplementedError

    def __call__(self, img: Any) -> Any:
        return self.change(img)

    forward = __call__

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


class Compose(Transform):
    """Changes, one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def change(self, img: Any) -> Any:
        """What the last one gives."""
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        inside = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"Compose({inside}\n)"


class _Function(Transform):
    """A function of a picture with its arguments."""

    def __init__(self, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        self._run, self._args, self._options = function, args, options

    def change(self, img: Any) -> Any:
        """What the function gives."""
        return self._run(img, *self._args, **self._options)

    def __repr__(self) -> str:
        given = [*map(str, self._args), *(f"{n}={v}" for n, v in self._options.items())]
        return f"{type(self).__name__}({', '.join(given)})"


class ToTensor(_Function):
    """A picture, or an array [h, w, c] of bytes, as floats [c, h, w] in 0…1."""

    def __init__(self) -> None:
        super().__init__(functional.to_tensor)


class PILToTensor(_Function):
    """A picture as its own bytes [c, h, w]."""

    def __init__(self) -> None:
        super().__init__(functional.pil_to_tensor)


class ToPILImage(_Function):
    """A tensor or an array as a picture."""

    def __init__(self, mode: str | None = None) -> None:
        super().__init__(functional.to_pil_image, mode=mode)


class Normalize(_Function):
    """(tensor - mean) / std, channel by channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std = mean, std
        super().__init__(functional.normalize, mean=mean, std=std, inplace=inplace)


class Resize(_Function):
    """A picture in another size; one number is that of its shorter side."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size = size
        super().__init__(functional.resize, size, interpolation, max_size, antialias)


Scale = Resize


class CenterCrop(_Function):
    """The middle of a picture."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _pair(size)
        super().__init__(functional.center_crop, self.size)


class FiveCrop(_Function):
    """The four corners and the middle."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__(functional.five_crop, size)


class Pad(_Function):
    """Margins around a picture."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__(functional.pad, padding, fill, padding_mode)


class Grayscale(_Function):
    """Brightness alone."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__(functional.rgb_to_grayscale, num_output_channels)


class ConvertImageDtype(_Function):
    """Between bytes in 0…255 and floats in 0…1."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(functional.convert_image_dtype, dtype)


class Lambda(_Function):
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        super().__init__(lambd)


class _Sometimes(Transform):
    """A change that is made with some probability."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def made(self, img: Any) -> Any:
        """The change."""
        raise NotImplementedError

    def change(self, img: Any) -> Any:
        """The changed picture, or the picture."""
        return self.made(img) if uniform() < self.p else img


class RandomHorizontalFlip(_Sometimes):
    """Left and right exchanged, or not."""

    made = staticmethod(functional.hflip)


class RandomVerticalFlip(_Sometimes):
    """Top and bottom exchanged, or not."""

    made = staticmethod(functional.vflip)


class RandomGrayscale(_Sometimes):
    """Without its colours, or not."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def made(self, img: Any) -> Any:
        """As many channels as before, all of them equal."""
        count = img.shape[-3] if isinstance(img, Tensor) else len(img.getbands())
        return functional.rgb_to_grayscale(img, count)


class RandomApply(_Sometimes):
    """Some changes together, or none."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        super().__init__(p)
        self.transforms = transforms

    def made(self, img: Any) -> Any:
        """All of them."""
        return Compose(self.transforms)(img)


class RandomChoice(Transform):
    """One of some changes."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Any = None) -> None:
        self.transforms, self.p = transforms, p

    def change(self, img: Any) -> Any:
        """What the chosen one gives."""
        weights = np.cumsum(self.p if self.p is not None else np.ones(len(self.transforms)))
        index = int(np.searchsorted(weights, uniform(0.0, float(weights[-1])), side="right"))
        return self.transforms[index](img)


class RandomCrop(Transform):
    """A part of a size from anywhere."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(size=_pair(size), padding=padding, pad_if_needed=pad_if_needed)
        self._fill, self._mode = fill, padding_mode

    def change(self, img: Any) -> Any:
        """The part."""
        wanted = self.size
        if self.padding is not None:
            img = functional.pad(img, self.padding, self._fill, self._mode)
        height, width = functional.size_of(img)
        if self.pad_if_needed and (height < wanted[0] or width < wanted[1]):
            margin = (max(wanted[1] - width, 0), max(wanted[0] - height, 0))
            img = functional.pad(img, margin, self._fill, self._mode)
            height, width = functional.size_of(img)
        if height < wanted[0] or width < wanted[1]:
            raise BadValueError(f"a part of {wanted} does not fit into {(height, width)}")
        top = int(uniform(0, height - wanted[0] + 1))
        left = int(uniform(0, width - wanted[1] + 1))
        return functional.crop(img, top, left, *wanted)

    size: tuple[int, int]
    padding: Any
    pad_if_needed: bool


class RandomResizedCrop(Transform):
    """A part of random size and shape, brought to one size."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size, self.scale, self.ratio = _pair(size), scale, ratio
        self._interpolation, self._antialias = interpolation, antialias

    def change(self, img: Any) -> Any:
        """The part."""
        top, left, height, width = self._part(*functional.size_of(img))
        part = functional.crop(img, top, left, height, width)
        return functional.resize(part, self.size, self._interpolation, None, self._antialias)

    def _part(self, height: int, width: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            area = height * width * uniform(*self.scale)
            aspect = math.exp(uniform(*map(math.log, self.ratio)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = int(uniform(0, height - h + 1)), int(uniform(0, width - w + 1))
                return top, left, h, w
        side = min(height, width)
        return (height - side) // 2, (width - side) // 2, side, side


class RandomRotation(Transform):
    """Turned by an angle between two, or up to one in either direction."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ) -> None:
        self.degrees = (-degrees, degrees) if isinstance(degrees, int | float) else tuple(degrees)
        self._options = {"interpolation": interpolation, "expand": expand, "center": center}

    def change(self, img: Any) -> Any:
        """The turned picture."""
        return functional.rotate(img, uniform(*self.degrees), **self._options)


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue, changed by random factors in this order."""

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        ranges = [
            (max(0.0, 1 - f), 1 + f) if isinstance(f, int | float) else tuple(f)
            for f in (brightness, contrast, saturation)
        ]
        self.brightness, self.contrast, self.saturation = ranges
        self.hue = (-hue, hue) if isinstance(hue, int | float) else tuple(hue)

    def change(self, img: Any) -> Any:
        """The picture in other colours."""
        for name in ("brightness", "contrast", "saturation", "hue"):
            factor = uniform(*getattr(self, name))
            if factor != (name != "hue"):  # one that changes something
                img = getattr(functional, f"adjust_{name}")(img, factor)
        return img


class RandomInvert(_Sometimes):
    """White for black, or not."""

    made = staticmethod(functional.invert)


class RandomAutocontrast(_Sometimes):
    """Each channel spread from black to white, or not."""

    made = staticmethod(functional.autocontrast)


class RandomEqualize(_Sometimes):
    """As many dark as bright pixels, or not."""

    made = staticmethod(functional.equalize)


class RandomPosterize(_Sometimes):
    """Bytes with only their first bits, or not."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def made(self, img: Any) -> Any:
        """The picture of few colours."""
        return functional.posterize(img, self.bits)


class RandomSolarize(_Sometimes):
    """What is brighter than a threshold inverted, or not."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def made(self, img: Any) -> Any:
        """The picture with its bright parts inverted."""
        return functional.solarize(img, self.threshold)


class RandomAdjustSharpness(_Sometimes):
    """Sharper or smoother, or not."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def made(self, img: Any) -> Any:
        """The picture by the factor."""
        return functional.adjust_sharpness(img, self.sharpness_factor)


class GaussianBlur(Transform):
    """Blurred by a deviation between two, or by one."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        self.kernel_size = _pair(kernel_size)
        self.sigma = (sigma, sigma) if isinstance(sigma, int | float) else tuple(sigma)

    def change(self, img: Any) -> Any:
        """The blurred picture."""
        return functional.gaussian_blur(img, self.kernel_size, uniform(*self.sigma))


class TenCrop(_Function):
    """The four corners and the middle, of the picture and of the flipped one."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__(functional.ten_crop, _pair(size), vertical_flip)


class RandomOrder(Transform):
    """Changes in a random order."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def change(self, img: Any) -> Any:
        """What the last one gives."""
        for transform in sorted(self.transforms, key=lambda _: uniform()):
            img = transform(img)
        return img


class RandomErasing(_Sometimes):
    """A rectangle of a tensor overwritten, or none."""

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__(p)
        self._where, self.value = RandomResizedCrop(1, scale, ratio), value

    def made(self, img: Tensor) -> Tensor:
        """The tensor with the rectangle."""
        top, left, height, width = self._where._part(*functional.size_of(img))
        made = img.clone()
        made[..., top : top + height, left : left + width] = self.value
        return made


def __getattr__(name: str) -> Any:
    if name == "v2":
        return import_module("ridgeline.vision.v2")
    raise AttributeError(missing(__name__, name), name=name)
