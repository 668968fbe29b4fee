"""Recurrent layers: plain, LSTM and GRU, as cells and over whole sequences.

A sequence is one `scan` in the graph, so recording and compiling take the same time however long it
is; all input products of a layer are one contraction before it, and a step only multiplies by the
hidden weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.nn import functional, init
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from ridgeline.tensors.public import arange, cat, sigmoid, stack, tanh, where, zeros
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.kept_scans import own_scan

State = tuple[Tensor, ...]
# From the products of input and hidden state with their weights, and the state, the next state.
Cell = Callable[[Tensor, Tensor, State], State]
# Of the hidden state: what it is multiplied by, what is added, and what makes it narrower.
Weights = tuple[Tensor, Tensor | None, Tensor | None]


def _plain(activation: Callable[[Tensor], Tensor]) -> Cell:
    def step(given: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (activation(given + hidden),)

    return step


def _lstm(given: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    enter, forget, new, leave = (given + hidden).chunk(4, -1)
    memory = sigmoid(forget) * state[1] + sigmoid(enter) * tanh(new)
    return (sigmoid(leave) * tanh(memory), memory)


def _gru(given: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    given_reset, given_keep, given_new = given.chunk(3, -1)
    hidden_reset, hidden_keep, hidden_new = hidden.chunk(3, -1)
    keep = sigmoid(given_keep + hidden_keep)
    new = tanh(given_new + sigmoid(given_reset + hidden_reset) * hidden_new)
    return ((1 - keep) * new + keep * state[0],)


_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
_CELLS: dict[str, Cell] = {
    "RNN_TANH": _plain(tanh),
    "RNN_RELU": _plain(functional.relu),
    "LSTM": _lstm,
    "GRU": _gru,
}


def _step(state: State, given: Tensor, weights: Weights, cell: Cell) -> tuple[State, Tensor]:
    """One step of a layer: the next state, and the hidden part of it. It reads nothing else."""
    weight, bias, narrow = weights
    state = cell(given, functional.linear(state[0], weight, bias), state)
    if narrow is not None:
        state = (functional.linear(state[0], narrow), *state[1:])
    return state, state[0]


def _step_or_stay(
    state: State, now: tuple[Tensor, Tensor], weights: Weights, cell: Cell
) -> tuple[State, Tensor]:
    """The same for sequences that go on; those that have ended keep their state."""
    given, there = now
    moved, _ = _step(state, given, weights, cell)
    kept = tuple(where(there, new, old) for new, old in zip(moved, state))
    return kept, kept[0]


def recurrence(
    mode: str, given: Tensor, state: State, weights: Weights, reverse: bool,
    there: Tensor | None = None,
) -> tuple[Tensor, State]:  # fmt: skip
    """One layer in one direction, from what its input was multiplied to: hidden states, and the
    last state."""
    if there is None:
        last, seen = own_scan(_step, state, given, weights, _CELLS[mode], reverse=reverse)
    else:
        now = (given, there)
        last, seen = own_scan(_step_or_stay, state, now, weights, _CELLS[mode], reverse=reverse)
    return seen, last


_USUAL = {  # what `repr` need not say
    "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
    "proj_size": 0,
}  # fmt: skip


def _uniform(layer: Module, hidden_size: int) -> None:
    """torch's default for recurrent weights: uniform in ±1/sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in layer.parameters():
        init.uniform_(parameter, -bound, bound)


class _CellBase(Module):
    """One step of a recurrence."""

    mode: str
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = _GATES[self.mode] * hidden_size
        self.weight_ih = empty_parameter((rows, input_size), dtype, device)
        self.weight_hh = empty_parameter((rows, hidden_size), dtype, device)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, empty_parameter((rows,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All weights uniform in ±1/sqrt(hidden_size)."""
        _uniform(self, self.hidden_size)

    def _stepped(self, input: Tensor, state: Any) -> tuple[Tensor, ...]:
        if len(input.shape) not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__} takes [{self.input_size}] or [n, {self.input_size}], "
                f"got {list(input.shape)}"
            )
        if state is None:
            shape = (*tuple(input.shape[:-1]), self.hidden_size)
            state = (zeros(shape, dtype=input.dtype),) * (2 if self.mode == "LSTM" else 1)
        given = functional.linear(input, self.weight_ih, self.bias_ih)
        hidden = functional.linear(state[0], self.weight_hh, self.bias_hh)
        return _CELLS[self.mode](given, hidden, state)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_CellBase):
    """One step of a plain recurrence, with tanh or ReLU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise BadValueError(f"nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
        object.__setattr__(self, "mode", f"RNN_{nonlinearity.upper()}")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._stepped(input, None if hx is None else (hx,))[0]


class GRUCell(_CellBase):
    """One step of a GRU."""

    mode = "GRU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._stepped(input, None if hx is None else (hx,))[0]


class LSTMCell(_CellBase):
    """One step of an LSTM; the state is (hidden, memory)."""

    mode = "LSTM"

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, ...]:
        return self._stepped(input, hx)


class RNNBase(Module):
    """Layers of a recurrence over [length, batch, features], in one or both directions."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        if proj_size and mode != "LSTM":
            raise BadValueError("proj_size is for LSTM only")
        if not 0 <= proj_size < max(hidden_size, 1) or num_layers < 1 or not 0 <= dropout <= 1:
            raise BadValueError(
                f"impossible sizes: hidden_size={hidden_size}, proj_size={proj_size}, "
                f"num_layers={num_layers}, dropout={dropout}"
            )
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = dropout, bidirectional, proj_size
        rows, out = _GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, width),
                    "weight_hh": (rows, out),
                }
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, empty_parameter(shape, dtype, device))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", *([f"_l{layer}_reverse"] if self.bidirectional else [])]

    def reset_parameters(self) -> None:
        """All weights uniform in ±1/sqrt(hidden_size)."""
        _uniform(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """torch's name for packing weights; the compiler lays them out itself."""

    def _initial(self, batch: int, like: Tensor, hx: Any) -> tuple[Tensor, ...]:
        """The state [layers * directions, batch, size] of each kind: hidden, and memory."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size]
        if self.mode == "LSTM":
            sizes.append(self.hidden_size)
        if hx is None:
            shapes = [(count, batch, size) for size in sizes]
            return tuple(zeros(s, dtype=like.dtype, device=like.device) for s in shapes)
        given = hx if isinstance(hx, tuple | list) else (hx,)
        for part, size in zip(given, sizes):
            if tuple(part.shape) != (count, batch, size):
                raise ShapeError(
                    f"the state has shape {list(part.shape)}, expected {[count, batch, size]}"
                )
        return tuple(given)

    def _run(
        self, x: Tensor, suffix: str, state: tuple[Tensor, ...], there: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One layer in one direction: all hidden states, and the last state.

        Where `there` [length, batch, 1] is false a sequence has ended and keeps its state.
        """
        biases = [getattr(self, f"bias_{k}{suffix}") if self.bias else None for k in ("ih", "hh")]
        narrow = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        weights = (getattr(self, "weight_hh" + suffix), biases[1], narrow)
        given = functional.linear(x, getattr(self, "weight_ih" + suffix), biases[0])
        return recurrence(self.mode, given, state, weights, suffix.endswith("_reverse"), there)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """All outputs of the last layer, and the last state of every layer.

        A packed batch gives a packed batch; its last states are those at each sequence's end.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        alone = len(input.shape) == 2
        if alone:
            input = input.unsqueeze(1)
            if hx is not None:
                parts = hx if isinstance(hx, tuple | list) else (hx,)
                hx = tuple(part.unsqueeze(1) for part in parts)
        elif self.batch_first:
            input = input.transpose(0, 1)
        if len(input.shape) != 3 or input.shape[-1] != self.input_size or not input.shape[0]:
            raise ShapeError(
                f"{type(self).__name__} takes sequences of {self.input_size} features, "
                f"got {list(input.shape)}"
            )
        output, last = self._layers(input, self._initial(input.shape[1], input, hx))
        if alone:
            output, last = output.squeeze(1), tuple(part.squeeze(1) for part in last)
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, last if self.mode == "LSTM" else last[0]

    def _packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Sequences of different lengths, in the order in which they were given."""
        padded, lengths = pad_packed_sequence(packed)
        steps, batch = int(padded.shape[0]), int(padded.shape[1])
        there = (arange(steps).unsqueeze(-1) < lengths).to(padded.device)
        state = self._initial(batch, padded, hx)
        output, last = self._layers(padded, state, there.unsqueeze(-1))
        sorts = packed.sorted_indices is not None
        again = pack_padded_sequence(output, lengths, enforce_sorted=not sorts)
        return again, last if self.mode == "LSTM" else last[0]

    def _layers(
        self, x: Tensor, state: tuple[Tensor, ...], there: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All layers in order; inputs of later ones are dropped out while training."""
        last, number = [], 0
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = functional.dropout(x, self.dropout, True)
            outputs = []
            for suffix in self._suffixes(layer):
                out, end = self._run(x, suffix, tuple(part[number] for part in state), there)
                outputs.append(out)
                last.append(end)
                number += 1
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
        return x, tuple(stack(list(parts)) for parts in zip(*last))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in _USUAL.items():
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """Plain recurrence, with tanh or ReLU."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Any = None, dtype: dtypes.DType | None = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise BadValueError(f"nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; the state is (hidden, memory)."""

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", input_size, hidden_size, *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", input_size, hidden_size, *args, **kwargs)
