"""Recurrent layers: RNN, GRU and LSTM, in one or both directions, by a scan over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ridgeline as rl
from ridgeline.nn import functional as F
from ridgeline.onnx.operators.quantized import dynamic_quantize
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Floats, OnnxError
from ridgeline.tensors.tensor import Tensor

Activation = Callable[[Tensor], Tensor]
# by name: a function of x, alpha and beta, with the defaults of both
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "relu": (lambda x, a, b: rl.relu(x), 0, 0),
    "tanh": (lambda x, a, b: rl.tanh(x), 0, 0),
    "sigmoid": (lambda x, a, b: rl.sigmoid(x), 0, 0),
    "affine": (lambda x, a, b: a * x + b, 1, 0),
    "leakyrelu": (lambda x, a, b: F.leaky_relu(x, a), 0.01, 0),
    "thresholdedrelu": (lambda x, a, b: rl.where(x > a, x, rl.zeros_like(x)), 1, 0),
    "scaledtanh": (lambda x, a, b: a * rl.tanh(b * x), 1, 1),
    "hardsigmoid": (lambda x, a, b: rl.clamp(a * x + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: F.elu(x, a), 1, 0),
    "softsign": (lambda x, a, b: F.softsign(x), 0, 0),
    "softplus": (lambda x, a, b: F.softplus(x), 0, 0),
}  # fmt: skip


def _activations(
    names: list[str], alphas: Floats | None, betas: Floats | None, clip: float | None
) -> list[Activation]:
    """The functions that names stand for; numbers are given out to those that take them."""
    left, right = list(alphas or []), list(betas or [])
    found: list[Activation] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise OnnxError(f"{name!r} is no activation of a recurrent layer")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        alpha = left.pop(0) if left and alpha else alpha
        beta = right.pop(0) if right and beta else beta
        found.append(_bound(function, alpha, beta, clip))
    return found


def _bound(
    function: Callable[[Tensor, float, float], Tensor], a: float, b: float, clip: float | None
) -> Activation:
    def apply(x: Tensor) -> Tensor:
        return function(x if clip is None else rl.clamp(x, -clip, clip), a, b)

    return apply


@dataclass(frozen=True)
class _Cell:
    """One step of a layer: `step(states, x W^T, ...)` gives the new states, the first one last."""

    gates: int
    states: int
    step: Callable[..., tuple[Tensor, ...]]


def _rnn_step(states: Any, gates: Tensor, r: Tensor, bias: Any, fs: Any, options: Any) -> Any:
    (h,) = states
    return (fs[0](gates + h @ r.T + bias[1]),)


def _gru_step(states: Any, gates: Tensor, r: Tensor, bias: Any, fs: Any, options: Any) -> Any:
    (h,) = states
    size = h.shape[-1]
    rz, rh = r[: 2 * size], r[2 * size :]
    own = fs[0](gates[:, : 2 * size] + h @ rz.T + bias[1][: 2 * size])
    z, reset = own[:, :size], own[:, size:]
    if options["linear_before_reset"]:
        candidate = fs[1](gates[:, 2 * size :] + reset * (h @ rh.T + bias[1][2 * size :]))
    else:
        candidate = fs[1](gates[:, 2 * size :] + (reset * h) @ rh.T + bias[1][2 * size :])
    return ((1 - z) * candidate + z * h,)


def _lstm_step(states: Any, gates: Tensor, r: Tensor, bias: Any, fs: Any, options: Any) -> Any:
    h, c = states
    product = h @ r.T if options["product"] is None else options["product"][1](h)
    i, o, f, g = rl.chunk(gates + product + bias[1], 4, -1)
    peephole = options["p"]
    if peephole is None:
        i, f = fs[0](i), fs[0](f)
    else:
        pi, po, pf = rl.chunk(peephole, 3, -1)
        i, f = fs[0](i + pi * c), fs[0](f + pf * c)
    if options["input_forget"]:
        f = 1 - i
    c = f * c + i * fs[1](g)
    o = fs[0](o if peephole is None else o + po * c)
    return (o * fs[2](c), c)


_CELLS = {"RNN": _Cell(1, 1, _rnn_step), "GRU": _Cell(3, 1, _gru_step),
          "LSTM": _Cell(4, 2, _lstm_step)}  # fmt: skip


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Time first, backwards; each sequence within its own length."""
    if lengths is None:
        return rl.flip(x, (0,))
    steps = rl.arange(x.shape[0]).unsqueeze(1)
    places = rl.where(steps < lengths, lengths - 1 - steps, steps)
    return rl.take_along_dim(x, rl.broadcast_to(places.unsqueeze(-1), x.shape), 0)


def _one_direction(
    cell: _Cell, x: Tensor, w: Tensor, r: Tensor, bias: tuple[Tensor, Tensor],
    states: tuple[Tensor, ...], lengths: Tensor | None, fs: list[Activation], options: Any,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """All hidden states of a direction, and the last of each state."""
    product = options.get("product")
    gates = (x @ w.T if product is None else product[0](x)) + bias[0]
    steps = rl.arange(x.shape[0])

    def step(carried: tuple[Tensor, ...], given: Any) -> Any:
        at, number = given
        new = cell.step(carried, at, r, bias, fs, options)
        if lengths is None:
            return new, new[0]
        alive = (number < lengths).unsqueeze(-1)
        kept = tuple(rl.where(alive, a, b) for a, b in zip(new, carried))
        return kept, rl.where(alive, new[0], rl.zeros_like(new[0]))

    last, all_states = rl.scan(step, states, (gates, steps))
    return all_states, last


def _layer(
    kind: str, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, sequence_lens: Tensor | None,
    initial: list[Tensor | None], direction: str, names: list[str], alphas: Floats | None,
    betas: Floats | None, clip: float | None, layout: int, options: dict[str, Any],
) -> tuple[Tensor, ...]:  # fmt: skip
    cell = _CELLS[kind]
    if layout:
        x = x.transpose(0, 1)
        initial = [None if each is None else each.transpose(0, 1) for each in initial]
    size, batch = r.shape[-1], x.shape[1]
    lengths = None if sequence_lens is None else sequence_lens.to(rl.int64)
    each = len(names) // w.shape[0]
    outputs, finals = [], []
    for number in range(w.shape[0]):
        backwards = direction == "reverse" or number == 1
        states = tuple(
            rl.zeros(batch, size, dtype=x.dtype) if given is None else given[number]
            for given in initial
        )
        zero = rl.zeros(cell.gates * size, dtype=x.dtype)
        bias = (zero, zero)
        if b is not None:
            bias = (b[number, : cell.gates * size], b[number, cell.gates * size :])
        first, count = number * each, each
        fs = _activations(names[first : first + count], alphas, betas, clip)
        given = _reversed(x, lengths) if backwards else x
        p = options.get("p")
        products = options.get("products")
        own = {
            **options,
            "p": None if p is None else p[number],
            "product": None if products is None else products[number],
        }
        found, last = _one_direction(
            cell, given, w[number], r[number], bias, states, lengths, fs, own
        )
        outputs.append(_reversed(found, lengths) if backwards else found)
        finals.append(last)
    y = rl.stack(outputs, 1)  # time, direction, batch, hidden
    ends = [rl.stack([final[i] for final in finals]) for i in range(cell.states)]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [each.transpose(0, 1) for each in ends]
    return (y, *ends)


def _count(direction: str) -> int:
    if direction not in ("forward", "reverse", "bidirectional"):
        raise OnnxError(f"{direction!r} is no direction")
    return 2 if direction == "bidirectional" else 1


def _rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None, activations: list[str] | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0,
    output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    names = activations or ["Tanh"] * _count(direction)
    return _layer("RNN", x, w, r, b, sequence_lens, [initial_h], direction, names,
                  activation_alpha, activation_beta, clip, layout, {})  # fmt: skip


def _gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None, activations: list[str] | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0,
    linear_before_reset: int = 0, output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh"] * _count(direction)
    options = {"linear_before_reset": linear_before_reset}
    return _layer("GRU", x, w, r, b, sequence_lens, [initial_h], direction, names,
                  activation_alpha, activation_beta, clip, layout, options)  # fmt: skip


def _lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, initial_c: Tensor | None = None, p: Tensor | None = None,
    activation_alpha: Floats | None = None, activation_beta: Floats | None = None,
    activations: list[str] | None = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int = 0, input_forget: int = 0, layout: int = 0, output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * _count(direction)
    options = {"input_forget": input_forget, "p": p}
    return _layer("LSTM", x, w, r, b, sequence_lens, [initial_h, initial_c], direction, names,
                  activation_alpha, activation_beta, clip, layout, options)  # fmt: skip


def _quantized_product(values: Tensor, scale: Tensor, zero: Tensor) -> Callable[[Tensor], Tensor]:
    """A product with a matrix of small integers, by operands that are rounded to 8 bits too."""
    matrix = values.to(rl.int32) - zero.to(rl.int32)

    def product(x: Tensor) -> Tensor:
        small, step, offset = dynamic_quantize(x)
        whole = rl.matmul(small.to(rl.int32) - offset.to(rl.int32), matrix)
        return whole.to(x.dtype) * (step * scale)

    return product


def _quantized_lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, initial_c: Tensor | None = None, p: Tensor | None = None,
    w_scale: Tensor | None = None, w_zero_point: Tensor | None = None,
    r_scale: Tensor | None = None, r_zero_point: Tensor | None = None,
    activation_alpha: Floats | None = None, activation_beta: Floats | None = None,
    activations: list[str] | None = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int = 0, input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """ONNX Runtime's LSTM with weights of 8 bits, which lie input first."""
    if w_scale is None or w_zero_point is None or r_scale is None or r_zero_point is None:
        raise OnnxError("DynamicQuantizeLSTM is given no scales")
    products = [
        (
            _quantized_product(w[number], w_scale[number], w_zero_point[number]),
            _quantized_product(r[number], r_scale[number], r_zero_point[number]),
        )
        for number in range(int(w.shape[0]))
    ]
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * _count(direction)
    options = {"input_forget": input_forget, "p": p, "products": products}
    states = [initial_h, initial_c]
    return _layer("LSTM", x, w, r.transpose(1, 2), b, sequence_lens, states, direction, names,
                  activation_alpha, activation_beta, clip, 0, options)  # fmt: skip


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("RNN", _rnn),
    OperatorRow("GRU", _gru),
    OperatorRow("LSTM", _lstm),
    OperatorRow("DynamicQuantizeLSTM", _quantized_lstm, domain="com.microsoft"),
)
