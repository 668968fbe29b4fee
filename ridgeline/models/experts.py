"""Mixtures of experts: a router, the feed-forward layers it chooses from, and one for all."""

from __future__ import annotations

import math

from ridgeline import nn
from ridgeline.devices import is_mesh
from ridgeline.models.feed_forward import activation, feed_forward
from ridgeline.models.parts import Experts, Parts
from ridgeline.nn.experts import through_experts
from ridgeline.nn.functional import linear, sigmoid, softmax
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import einsum, topk, zeros, zeros_like
from ridgeline.tensors.tensor import Tensor


class Router(nn.Module):
    """Which experts a token goes to, and by how much each counts: [tokens, chosen] both."""

    def __init__(self, width: int, experts: Experts) -> None:
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(zeros((experts.count, width)))
        nn.init.normal_(self.weight, 0.0, 0.02)
        self.register_buffer("correction", zeros((experts.count,)) if experts.corrected else None)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.experts
        scores = linear(x, self.weight)
        if own.router == "chosen softmax":
            best, chosen = topk(scores, own.chosen, -1)
            return chosen, softmax(best, -1)
        scores = sigmoid(scores) if own.router == "sigmoid" else softmax(scores, -1)
        ranked = scores if self.correction is None else scores + self.correction
        chosen = topk(self._allowed(ranked), own.chosen, -1)[1]
        weights = scores.gather(-1, chosen)
        if own.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, weights * own.scale

    def _allowed(self, ranked: Tensor) -> Tensor:
        """Scores of experts in the best groups; nothing else can be chosen."""
        own = self.experts
        if own.groups == 1:
            return ranked
        grouped = ranked.reshape((ranked.shape[0], own.groups, -1))
        best = topk(grouped, 2, -1)[0].sum(-1) if own.corrected else grouped.amax(-1)
        allowed = topk(best, own.groups_chosen, -1)[1]
        inside = zeros_like(best).scatter(1, allowed, 1.0).unsqueeze(-1) > 0
        return choose(inside, grouped, -math.inf).flatten(1)


class ExpertFeedForward(nn.Module):
    """Experts as one tensor a layer. All are computed where the chosen are nearly all of them."""

    def __init__(self, parts: Parts, experts: Experts) -> None:
        super().__init__()
        self.experts, self.activation = experts, activation(parts.activation)
        self.router = Router(parts.width, experts)
        inner, width, count = experts.inner, parts.width, experts.count
        self.gates = nn.Parameter(zeros((count, inner, width)))
        self.ups = nn.Parameter(zeros((count, inner, width)))
        self.downs = nn.Parameter(zeros((count, width, inner)))
        for weight in (self.gates, self.ups, self.downs):
            nn.init.normal_(weight, 0.0, parts.spread)
        shared = experts.shared_inner
        self.shared = feed_forward(parts, shared) if shared else None
        self.shared_gate = nn.Linear(width, 1, False) if experts.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape((-1, x.shape[-1]))
        chosen, weights = self.router(tokens)
        few = int(tokens.shape[0]) * self.experts.chosen < self.experts.count
        ways = self._sent if is_mesh(x.device) else self._few if few else self._all
        mixed = ways(tokens, chosen, weights.to(dtype=x.dtype))
        found: Tensor = mixed.reshape(x.shape)
        if self.shared is None:
            return found
        common: Tensor = self.shared(x)
        share = 1.0 if self.shared_gate is None else sigmoid(self.shared_gate(x))
        return found + common * share

    def _sent(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Tokens go to the ranks of their experts."""
        matrices = self.gates, self.ups, self.downs
        return through_experts(x, chosen, weights, *matrices, self.activation)

    def _few(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Only the chosen experts' weights are read."""
        gate = einsum("td,tkid->tki", x, self.gates[chosen])
        inner = self.activation(gate) * einsum("td,tkid->tki", x, self.ups[chosen])
        return einsum("tki,tkdi,tk->td", inner, self.downs[chosen], weights)

    def _all(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Every expert for every token, weighed by nothing where it was not chosen."""
        shares = zeros((x.shape[0], self.experts.count), dtype=x.dtype, device=x.device)
        shares = shares.scatter(1, chosen, weights)
        gate = einsum("td,eid->eti", x, self.gates)
        inner = self.activation(gate) * einsum("td,eid->eti", x, self.ups)
        return einsum("etd,te->td", einsum("eti,edi->etd", inner, self.downs), shares)
