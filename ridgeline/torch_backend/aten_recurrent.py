"""Operators of torch's registry for recurrences: their weights come as a list, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ridgeline as rl
from ridgeline.nn.recurrent import recurrence

F = rl.nn.functional


def _layers(mode: str) -> Callable[..., Any]:
    """A recurrence over padded sequences: its outputs, and the last states."""

    def call(
        x: Any, hx: Any, params: Sequence[Any], has_biases: Any, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        if not isinstance(has_biases, bool):
            raise NotImplementedError("a recurrence over a packed batch")
        state = tuple(hx) if mode == "LSTM" else (hx,)
        x = x.transpose(0, 1) if batch_first else x
        weights, last = iter(params), list[tuple[Any, ...]]()
        for layer in range(num_layers):
            if layer and dropout and train:
                x = F.dropout(x, dropout, True)
            seen = []
            for reverse in (False, True)[: 2 if bidirectional else 1]:
                begin = tuple(part[len(last)] for part in state)
                found, end = _direction(mode, x, begin, weights, has_biases, reverse)
                seen.append(found)
                last.append(end)
            x = rl.cat(seen, -1) if bidirectional else seen[0]
        ends = [rl.stack(list(parts)) for parts in zip(*last)]
        return (x.transpose(0, 1) if batch_first else x, *ends)

    return call


def _direction(
    mode: str, x: Any, state: tuple[Any, ...], weights: Any, has_biases: bool, reverse: bool
) -> Any:
    """One layer in one direction, with the next of the weights."""
    enter, stay = next(weights), next(weights)
    biases = (next(weights), next(weights)) if has_biases else (None, None)
    narrower = mode == "LSTM" and state[0].shape[-1] != state[1].shape[-1]
    narrow = next(weights) if narrower else None
    given = F.linear(x, enter, biases[0])
    return recurrence(mode, given, state, (stay, biases[1], narrow), reverse)


def _cell(mode: str) -> Callable[..., Any]:
    """One step of a recurrence."""

    def call(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = tuple(hx) if mode == "LSTM" else (hx,)
        given = F.linear(x, w_ih, b_ih).unsqueeze(0)
        _, last = recurrence(mode, given, state, (w_hh, b_hh, None), reverse=False)
        return last if mode == "LSTM" else last[0]

    return call


_MODES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN_TANH", "rnn_relu": "RNN_RELU"}
RECURRENT: dict[str, Callable[..., Any]] = {
    **{name: _layers(mode) for name, mode in _MODES.items()},
    **{f"{name}_cell": _cell(mode) for name, mode in _MODES.items()},
}
