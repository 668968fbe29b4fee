"""Layers whose attributes a program changes after it made them compute what torch's compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

Edit = Callable[[Any], object]


def _set(**values: Any) -> Edit:
    return lambda layer: [setattr(layer, name, value) for name, value in values.items()]


NORMS: dict[str, Edit] = {
    "not tracked": _set(track_running_stats=False),
    "not tracked, in evaluation": lambda n: (_set(track_running_stats=False)(n), n.eval()),
    "without statistics": _set(track_running_stats=False, running_mean=None, running_var=None),
    "without statistics, in evaluation": lambda n: (
        _set(running_mean=None, running_var=None)(n), n.eval(),
    ),
    "another momentum": _set(momentum=0.5),
    "averaged": _set(momentum=None),
    "not counted": _set(num_batches_tracked=None),
    "another eps": _set(eps=0.5),
    "without weights": _set(weight=None, bias=None),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["BatchNorm1d", "InstanceNorm1d"])
@pytest.mark.parametrize("edit", NORMS)
def test_normalisation(kind: str, edit: str) -> None:
    if kind == "InstanceNorm1d" and edit in ("averaged", "without statistics, in evaluation"):
        pytest.skip("torch refuses such an instance norm")
    found = []
    for lib in (rl, torch):
        norm = getattr(lib.nn, kind)(3, affine=True, track_running_stats=True, dtype=lib.float64)
        rows = np.random.default_rng(3).standard_normal((4, 2, 3, 5))
        seen: list[Any] = [norm(lib.tensor(rows[0]))]
        NORMS[edit](norm)
        seen += [norm(lib.tensor(row)) for row in rows[1:]]
        seen += [b.to(lib.float64) for b in (norm.running_mean, norm.running_var) if b is not None]
        if norm.num_batches_tracked is not None:
            seen.append(norm.num_batches_tracked)
        found.append([part.tolist() for part in seen])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


LAYERS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "padded convolution": ("Conv2d", (2, 3, 3), {"padding": (1, 1)}),
    "strided convolution": ("Conv2d", (2, 3, 3), {"stride": (2, 2)}),
    "spread convolution": ("Conv2d", (2, 3, 3), {"dilation": (2, 2)}),
    "pool": ("MaxPool2d", (2,), {"kernel_size": 3, "stride": 1, "ceil_mode": True}),
    "average": ("AvgPool2d", (2,), {"kernel_size": 3, "divisor_override": 2}),
    "groups": ("GroupNorm", (1, 2), {"num_groups": 2, "eps": 0.5}),
    "slope": ("LeakyReLU", (0.1,), {"negative_slope": 0.7}),
    "axis": ("Softmax", (1,), {"dim": 2}),
    "size": ("Upsample", (None, 2), {"scale_factor": 3.0, "mode": "bilinear"}),
    "probability": ("Dropout", (0.5,), {"p": 0.0}),
}


@pytest.mark.parametrize("case", LAYERS)
def test_settings_of_layers(case: str) -> None:
    kind, given, changes = LAYERS[case]
    x = np.random.default_rng(5).standard_normal((1, 2, 6, 6))
    found = []
    for lib in (rl, torch):
        layer = getattr(lib.nn, kind)(*given)
        layer.double()
        with lib.no_grad():
            for parameter in layer.parameters():
                values = np.arange(parameter.numel()).reshape(tuple(parameter.shape))
                parameter.copy_(lib.tensor(np.sin(values)))
        layer(lib.tensor(x))
        for name, value in changes.items():
            setattr(layer, name, value)
        found.append(layer(lib.tensor(x)).tolist())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
