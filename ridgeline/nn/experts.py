"""Mixtures of experts: tokens go to a few of many feed-forward layers, which a router chooses.

Each expert is computed for the tokens that were sent to it alone. Over a mesh with an axis `ep`
ranks have experts of their own, and tokens travel to them and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.dtypes import DType, int64
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.nn import init
from ridgeline.nn.functional import silu, softmax
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.tensors.experts import expert_counts, from_experts, grouped_product, to_experts
from ridgeline.tensors.public import arange, einsum, full_like, topk
from ridgeline.tensors.tensor import Tensor

Elementwise = Callable[[Tensor], Tensor]


def through_experts(
    tokens: Tensor,
    chosen: Tensor,
    weights: Tensor,
    gates: Tensor,
    ups: Tensor,
    downs: Tensor,
    activation: Elementwise,
) -> Tensor:
    """What the chosen experts make of each token, weighed and added up.

    An expert is `downs @ (activation(gates @ x) * (ups @ x))`. A choice whose number is behind the
    last expert is none, and adds nothing.
    """
    counts = expert_counts(chosen, int(gates.shape[0]))
    copies = tokens.unsqueeze(1).expand(*chosen.shape, tokens.shape[1])
    rows = to_experts(copies, chosen, counts)
    gate, up = (grouped_product(rows, matrix, counts) for matrix in (gates, ups))
    made = grouped_product(activation(gate) * up, downs, counts)
    return einsum("tkd,tk->td", from_experts(made, chosen, counts), weights)


class MixtureOfExperts(Module):
    """Feed-forward layers with a gate, of which a router chooses `top_k` for each token.

    All choices count, unless `capacity` says how often an expert may be chosen, as a multiple of
    its even share: then, in the order of the tokens, those that come too late are dropped. With
    `balancing` a call gives a number too, which is smallest, 1, where experts are chosen and scored
    evenly: a hundredth of it added to the loss keeps all of them in use.
    """

    gates: Parameter
    ups: Parameter
    downs: Parameter

    def __init__(
        self,
        width: int,
        inner: int,
        experts: int,
        top_k: int = 2,
        *,
        capacity: float | None = None,
        balancing: bool = False,
        activation: Elementwise = silu,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        _check(width, inner, experts, top_k, capacity)
        self.width, self.inner, self.experts, self.top_k = width, inner, experts, top_k
        self.capacity, self.balancing, self.activation = capacity, balancing, activation
        self.router = Linear(width, experts, False, device, dtype)
        self.gates = empty_parameter((experts, inner, width), dtype, device)
        self.ups = empty_parameter((experts, inner, width), dtype, device)
        self.downs = empty_parameter((experts, width, inner), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every expert starts as linear layers of its sizes do."""
        for matrix in (self.gates, self.ups, self.downs):
            bound = 1 / math.sqrt(int(matrix.shape[2]))
            init.uniform_(matrix, -bound, bound)

    def forward(self, x: Tensor) -> Any:
        """[..., width] to the same shape; with `balancing` a pair of that and the loss."""
        if int(x.shape[-1]) != self.width:
            raise ShapeError(f"an input of shape {list(x.shape)} for experts of width {self.width}")
        tokens = x.reshape((-1, self.width))
        shares = softmax(self.router(tokens), -1)
        best, chosen = topk(shares, self.top_k, -1)
        weights = best / best.sum(-1, keepdim=True)
        balance = self._balance(shares, chosen) if self.balancing else None
        if self.capacity is not None:
            kept = self._in_time(chosen)
            chosen = choose(kept, chosen, full_like(chosen, self.experts))
            weights = choose(kept, weights, 0.0)
        mixed = through_experts(
            tokens, chosen, weights, self.gates, self.ups, self.downs, self.activation
        )
        found = mixed.reshape(x.shape)
        return found if balance is None else (found, balance)

    def _given(self, chosen: Tensor) -> Tensor:
        """For each choice and expert, in the order of the tokens, whether it is that expert's."""
        numbers = arange(self.experts, device=chosen.device)
        return chosen.reshape((-1, 1)) == numbers

    def _balance(self, shares: Tensor, chosen: Tensor) -> Tensor:
        """Experts times the sum of how often each is chosen by how it is scored."""
        often = self._given(chosen).to(dtype=shares.dtype).mean(0)
        return (often * shares.mean(0)).sum() * self.experts

    def _in_time(self, chosen: Tensor) -> Tensor:
        """Which choices come before an expert is full."""
        assert self.capacity is not None
        most = math.ceil(self.capacity * chosen.numel() / self.experts)
        given = self._given(chosen).to(dtype=int64)
        rank = (given.cumsum(0) * given).sum(1)
        return (rank <= most).reshape(chosen.shape)

    def extra_repr(self) -> str:
        capacity = "" if self.capacity is None else f", capacity={self.capacity}"
        sizes = f"{self.width}, {self.inner}, experts={self.experts}"
        return f"{sizes}, top_k={self.top_k}{capacity}"


def _check(width: int, inner: int, experts: int, top_k: int, capacity: float | None) -> None:
    for name, value in (("width", width), ("inner", inner), ("experts", experts)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadValueError(f"{name} is {value!r}, expected a number of at least 1")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= experts:
        raise BadValueError(f"top_k is {top_k!r}, expected 1 to {experts}, the experts there are")
    if capacity is not None and not capacity > 0:
        raise BadValueError(
            f"capacity is {capacity!r}", help="a multiple of an expert's even share, such as 1.25"
        )
