"""Steps of optimizers as operators; Gradient, which needs its graph, is the runner's."""

from __future__ import annotations

from collections.abc import Callable

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import OnnxError
from ridgeline.tensors.tensor import Tensor

DOMAIN = "ai.onnx.preview.training"
Update = Callable[[list[Tensor]], list[Tensor]]


def _grouped(tensors: tuple[Tensor, ...], kinds: int, update: Update) -> tuple[Tensor, ...]:
    """Apply an update to each weight: inputs come by kind, all weights first, and results too."""
    count = len(tensors) // kinds
    rows = [update([tensors[kind * count + i] for kind in range(kinds)]) for i in range(count)]
    return tuple(each for column in zip(*rows) for each in column)


def _adagrad(
    r: Tensor, t: Tensor, *tensors: Tensor, decay_factor: float = 0.0, epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    rate = r / (1 + t.to(r.dtype) * decay_factor)

    def update(given: list[Tensor]) -> list[Tensor]:
        x, g, h = given
        g = norm_coefficient * x + g
        h = h + g * g
        return [x - rate * g / (rl.sqrt(h) + epsilon), h]

    return _grouped(tensors, 3, update)


def _adam(
    r: Tensor, t: Tensor, *tensors: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 0.0, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    count = t.to(r.dtype)
    corrected = r * rl.sqrt(1 - beta**count) / (1 - alpha**count)
    rate = rl.where(count > 0, corrected, r)

    def update(given: list[Tensor]) -> list[Tensor]:
        x, g, v, h = given
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = x - rate * v / (rl.sqrt(h) + epsilon)
        return [(1 - norm_coefficient_post) * x, v, h]

    return _grouped(tensors, 4, update)


def _momentum(
    r: Tensor, t: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    if mode not in ("standard", "nesterov"):
        raise OnnxError(f"{mode!r} is no kind of momentum")
    first = rl.where(t > 0, rl.full_like(r, beta), rl.ones_like(r))

    def update(given: list[Tensor]) -> list[Tensor]:
        x, g, v = given
        g = norm_coefficient * x + g
        v = alpha * v + first * g
        return [x - r * (v if mode == "standard" else g + alpha * v), v]

    return _grouped(tensors, 3, update)


def _gradient(*inputs: Tensor, xs: list[str], y: str, zs: list[str] | None = None) -> None:
    raise AssertionError("the runner computes gradients")


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Adagrad", _adagrad, domain=DOMAIN),
    OperatorRow("Adam", _adam, domain=DOMAIN),
    OperatorRow("Momentum", _momentum, domain=DOMAIN),
    OperatorRow("Gradient", _gradient, domain=DOMAIN),
)
