"""Convolutions of all families, forward and by both gradients, at sizes that networks have.

`python -m benchmarks convolutions` runs them all and closes with the geometric mean of the ratios.
Filters are arguments of every call, as in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from benchmarks.frameworks import ridgeline_builder, torch_builder, torch_module
from benchmarks.workload import OURS, TORCH, Arrays, Builder, Workload, generator

FORWARD, DATA, FILTER = "forward", "data", "filter"


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution, the same along all of its spatial axes but for the image's."""

    name: str
    batch: int
    channels: int
    made: int
    image: tuple[int, ...]
    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def filters(self) -> tuple[int, ...]:
        """The shape of the filters."""
        outer, inner = self.channels, self.made
        if not self.transposed:
            outer, inner = inner, outer
        return (outer, inner // self.groups, *(self.taps,) * len(self.image))

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        reach, margin = self.dilation * (self.taps - 1), 2 * self.padding
        if self.transposed:
            sizes = [(s - 1) * self.stride - margin + reach + 1 for s in self.image]
        else:
            sizes = [(s + margin - reach - 1) // self.stride + 1 for s in self.image]
        return (self.batch, self.made, *sizes)

    @property
    def given(self) -> tuple[int, ...]:
        """The shape of the image."""
        return (self.batch, self.channels, *self.image)

    @property
    def products(self) -> int:
        """How many products are summed, those with padding among them."""
        one = self.given if self.transposed else self.result
        return prod(one) * prod(self.filters[1:])


SHAPES = (
    Convolution("resnet-56", 1, 64, 64, (56, 56), 3, padding=1),
    Convolution("resnet-7", 8, 512, 512, (7, 7), 3, padding=1),
    Convolution("stem-7x7", 4, 3, 64, (224, 224), 7, 2, 3),
    Convolution("point", 4, 256, 64, (56, 56), 1),
    Convolution("point-stride-2", 4, 256, 512, (28, 28), 1, 2),
    Convolution("five-by-five", 16, 32, 64, (28, 28), 5, padding=2),
    Convolution("depthwise", 1, 96, 96, (112, 112), 3, padding=1, groups=96),
    Convolution("depthwise-stride-2", 1, 96, 96, (112, 112), 3, 2, 1, groups=96),
    Convolution("depthwise-14", 8, 384, 384, (14, 14), 3, padding=1, groups=384),
    Convolution("depthwise-7x7", 4, 96, 96, (56, 56), 7, padding=3, groups=96),
    Convolution("resnext", 4, 128, 128, (56, 56), 3, padding=1, groups=32),
    Convolution("dilated", 2, 64, 64, (65, 65), 3, padding=2, dilation=2),
    Convolution("transposed", 4, 128, 64, (28, 28), 4, 2, 1, transposed=True),
    Convolution("along-time", 8, 80, 256, (1000,), 3, padding=1),
    Convolution("volume", 2, 16, 32, (16, 32, 32), 3, padding=1),
    Convolution("odd", 3, 13, 29, (17, 23), 3, padding=1),
    Convolution("small", 32, 6, 16, (14, 14), 5),
)  # fmt: skip


def inputs(shape: Convolution, kind: str) -> Arrays:
    """An image and filters, and for a gradient the result's gradient too."""
    source = generator()
    shapes = {"image": shape.given, "filters": shape.filters}
    if kind != FORWARD:
        shapes["outer"] = shape.result
    return {name: source.standard_normal(size, np.float32) for name, size in shapes.items()}


def convolved(shape: Convolution, lib: Any) -> Callable[[Any, Any], Any]:
    """The convolution as one writes it, in torch or ridgeline."""
    turned = "_transpose" if shape.transposed else ""
    function = getattr(lib.nn.functional, f"conv{turned}{len(shape.image)}d")
    settings = {
        "stride": shape.stride, "padding": shape.padding, "dilation": shape.dilation,
        "groups": shape.groups,
    }  # fmt: skip
    return lambda image, filters: function(image, filters, None, **settings)


def own(shape: Convolution, kind: str, lib: Any) -> Callable[..., Any]:
    """A convolution or one of its gradients in ridgeline."""
    function = convolved(shape, lib)
    if kind == FORWARD:
        return function

    def gradient(image: Any, filters: Any, outer: Any) -> Any:
        by, rest = (image, filters) if kind == DATA else (filters, image)
        pair = (lambda x: function(x, rest)) if kind == DATA else (lambda x: function(rest, x))
        return lib.vjp(pair, by)[1](outer)[0]

    return gradient


def torchs(shape: Convolution, kind: str, torch: Any) -> Callable[..., Any]:
    """A convolution in torch, or one of its gradients without computing its result first."""
    if kind == FORWARD:
        return convolved(shape, torch)
    every = len(shape.image)
    sizes = [[size] * every for size in (shape.stride, shape.padding, shape.dilation)]
    mask = [kind == DATA, kind == FILTER, False]

    def gradient(image: Any, filters: Any, outer: Any) -> Any:
        made = torch.ops.aten.convolution_backward(
            outer, image, filters, None, *sizes, shape.transposed, [0] * every, shape.groups, mask
        )
        return made[0] if kind == DATA else made[1]

    return gradient


def reference(shape: Convolution, kind: str, arrays: Arrays) -> Arrays:
    """The same in float64 by torch."""
    torch = torch_module()
    tensors = [torch.from_numpy(array).double() for array in arrays.values()]
    with torch.no_grad():
        return {"out0": torchs(shape, kind, torch)(*tensors).numpy()}


def _workload(shape: Convolution, kind: str) -> Workload:
    builders: dict[str, Builder] = {
        OURS: ridgeline_builder(partial(own, shape, kind), jit=True),
        TORCH: torch_builder(partial(torchs, shape, kind)),
    }
    return Workload(
        name=f"convolutions:{shape.name}-{kind}",
        title=f"{shape.name} {kind}",
        inputs=partial(inputs, shape, kind),
        reference=partial(reference, shape, kind),
        builders=builders,
        tolerance=2e-5,
        flops=2.0 * shape.products,
        bytes=4.0 * sum(map(prod, (shape.given, shape.filters, shape.result))),
    )


WORKLOADS = [_workload(shape, kind) for shape in SHAPES for kind in (FORWARD, DATA, FILTER)]
