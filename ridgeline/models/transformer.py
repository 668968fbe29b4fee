"""What the transformers here are built of: attention, feed-forward layers, blocks.

All layers of one kind share a `PassInfo`: who may look at whom, what is added to the scores, and by
which angles queries and keys are turned. For generation, each layer's keys and values so far lie
in a cache of fixed size, written at positions that are run-time values: one compiled step serves
every position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.models.experts import ExpertFeedForward
from ridgeline.models.feed_forward import feed_forward
from ridgeline.models.norms import HeadNorm, norm
from ridgeline.models.parts import Latent, Parts, of_layer
from ridgeline.models.positions import Rotation
from ridgeline.nn.functional import scaled_dot_product_attention, softmax, tanh
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import arange, cat, matmul, ones, zeros
from ridgeline.tensors.tensor import Tensor


class Past(NamedTuple):
    """The keys and values of one layer, [batch, heads, capacity, head size]."""

    keys: Tensor
    values: Tensor


Cache = list[Past]  # one for each layer


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What layers of one kind share while some tokens go through them."""

    causal: bool = False  # each token sees itself and those before it
    mask: Tensor | None = None  # added to the scores
    positions: Tensor | None = None  # the tokens' positions in the caches
    rotation: Rotation | None = None


def seen(visible: Tensor) -> Tensor:
    """What to add to scores so that only what is visible counts."""
    return choose(visible, 0.0, -math.inf)


class Attention(nn.Module):
    """Attention in which several query heads may share a head of keys and values."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        width, heads = parts.width, parts.heads
        if parts.head_size is None and width % heads:
            raise BadValueError(f"a width of {width} cannot be split into {heads} heads")
        self.heads, self.shared_heads = heads, parts.shared_heads or heads
        if heads % self.shared_heads:
            raise BadValueError(f"{heads} heads cannot share {self.shared_heads} of keys")
        size = self.key_size = self.value_size = parts.head_size or width // heads
        inner, shared = heads * size, self.shared_heads * size
        biases = [
            parts.query_bias if own is None else own for own in (parts.key_bias, parts.value_bias)
        ]
        self.query = nn.Linear(width, inner, parts.query_bias)
        self.key = nn.Linear(width, shared, biases[0])
        self.value = nn.Linear(width, shared, biases[1])
        self.output = nn.Linear(inner, width, parts.output_bias)
        self.normalised = "turned" if parts.norm_turned else parts.query_norm
        if parts.query_norm:
            self.query_norm = _query_norm(parts, heads, size)
            self.key_norm = _query_norm(parts, self.shared_heads, size)
        self.clip, self.mix = parts.clip, Mixing(parts)

    def forward(self, x: Tensor, what: PassInfo, past: Past | None = None) -> Tensor:
        q, k, v = self.projected(x, what.rotation)
        mixed: Tensor = self.mix(q, *kept(k, v, what, past), what)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def projected(self, x: Tensor, turn: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [batch, heads, length, size]."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        if self.clip is not None:
            q, k, v = (t.clamp(-self.clip, self.clip) for t in (q, k, v))
        if self.normalised == "all":
            q, k = self.query_norm(q), self.key_norm(k)
        q, k, v = split(q, self.heads), split(k, self.shared_heads), split(v, self.shared_heads)
        if self.normalised in ("head", "each head"):
            q, k = self.query_norm(q), self.key_norm(k)
        if turn is not None:
            q, k = turn(q), turn(k)
        if self.normalised == "turned":
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v


class CrossAttention(Attention):
    """Attention to another sequence, whose keys and values are unfolded once."""

    def unfold(self, source: Tensor) -> Past:
        """The keys and values of hidden states [batch, length, width]."""
        made = (split(layer(source), self.shared_heads) for layer in (self.key, self.value))
        return Past(*made)

    def forward(self, x: Tensor, what: PassInfo, past: Past | None = None) -> Tensor:
        assert past is not None
        mixed = self.mix(split(self.query(x), self.heads), *past, what)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class LatentAttention(nn.Module):
    """Attention whose keys and values are unfolded from a short vector for each token."""

    def __init__(self, parts: Parts, latent: Latent) -> None:
        super().__init__()
        self.heads = self.shared_heads = heads = parts.heads
        self.sizes, width = latent, parts.width
        self.key_size = latent.plain_size + latent.turned_size
        self.value_size, bias = latent.value_size, parts.query_bias
        if latent.query_rank is None:
            self.query = nn.Linear(width, heads * self.key_size, False)
        else:
            self.query_down = nn.Linear(width, latent.query_rank, bias)
            self.query_norm = norm(parts, latent.query_rank)
            self.query = nn.Linear(latent.query_rank, heads * self.key_size, False)
        self.down = nn.Linear(width, latent.rank + latent.turned_size, bias)
        self.down_norm = norm(parts, latent.rank)
        self.up = nn.Linear(latent.rank, heads * (latent.plain_size + latent.value_size), False)
        self.output = nn.Linear(heads * latent.value_size, width, parts.output_bias)
        self.mix = Mixing(parts)

    def forward(self, x: Tensor, what: PassInfo, past: Past | None = None) -> Tensor:
        sizes, turn = self.sizes, what.rotation
        short = x if sizes.query_rank is None else self.query_norm(self.query_down(x))
        q, down = split(self.query(short), self.heads), self.down(x)
        shared = down[..., sizes.rank :].unsqueeze(1)  # the same for all heads
        unfolded = split(self.up(self.down_norm(down[..., : sizes.rank])), self.heads)
        turned = q[..., sizes.plain_size :]
        if turn is not None:
            turned, shared = turn(turned), turn(shared)
        q = cat([q[..., : sizes.plain_size], turned], -1)
        shared = shared.expand((*turned.shape[:2], *shared.shape[2:]))
        k = cat([unfolded[..., : sizes.plain_size], shared], -1)
        mixed = self.mix(q, *kept(k, unfolded[..., sizes.plain_size :], what, past), what)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class Mixing(nn.Module):
    """softmax(q kᵀ) v, with what some models do to the scores before."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.scale, self.softcap, self.dropout = parts.scale, parts.softcap, parts.attention_dropout
        self.sinks = nn.Parameter(zeros((parts.heads,))) if parts.sinks else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, what: PassInfo) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        mask = None if what.mask is None else what.mask.to(dtype=q.dtype)
        shares = q.shape[1] != k.shape[1]
        if self.softcap is None and self.sinks is None:
            return scaled_dot_product_attention(
                q, k, v, mask, dropout, what.causal, self.scale, enable_gqa=shares
            )
        if shares:
            count = int(q.shape[1]) // int(k.shape[1])
            k, v = k.repeat_interleave(count, 1), v.repeat_interleave(count, 1)
        scores = matmul(q, k.transpose(-1, -2)) * (self.scale or int(q.shape[-1]) ** -0.5)
        if self.softcap is not None:
            scores = tanh(scores / self.softcap) * self.softcap
        if what.causal:
            positions = arange(q.shape[2])
            mask = seen(positions <= positions.unsqueeze(-1))
        if mask is not None:
            scores = scores + mask
        if self.sinks is not None:  # one more column, that gives nothing
            sinks = self.sinks.reshape((1, -1, 1, 1)).expand((*scores.shape[:3], 1))
            scores = cat([scores, sinks.to(dtype=scores.dtype)], -1)
        weights = softmax(scores, -1)
        weights = weights if self.sinks is None else weights[..., :-1]
        return matmul(nn.functional.dropout(weights, dropout, True), v)


def split(x: Tensor, heads: int) -> Tensor:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    return x.reshape((x.shape[0], x.shape[1], heads, -1)).transpose(1, 2)


def kept(k: Tensor, v: Tensor, what: PassInfo, past: Past | None) -> tuple[Tensor, Tensor]:
    """Keys and values of these tokens, or of all so far where they are kept."""
    if past is None:
        return k, v
    assert what.positions is not None
    past.keys.index_copy_(2, what.positions, k)
    past.values.index_copy_(2, what.positions, v)
    return past.keys, past.values


def _query_norm(parts: Parts, heads: int, size: int) -> nn.Module:
    if parts.query_norm == "each head":
        return HeadNorm(heads, size, parts.eps)
    whole = heads * size if parts.query_norm == "all" else size
    return norm(parts, whole, parts.query_norm_kind, parts.query_norm_bias)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer, each added to what goes in and normalised."""

    def __init__(self, parts: Parts, layer: int = 0, cross: bool = False) -> None:
        super().__init__()
        latent = parts.latent
        self.attention = Attention(parts) if latent is None else LatentAttention(parts, latent)
        experts = of_layer(parts.experts, layer)
        self.feed_forward = (
            feed_forward(parts) if experts is None else ExpertFeedForward(parts, experts)
        )
        self.form, self.drop = parts.residual, nn.Dropout(parts.dropout)
        self.factor = parts.residual_scale
        self.attention_norm = norm(parts)
        if self.form != "parallel":
            self.feed_forward_norm = norm(parts)
        if self.form == "sandwich":
            self.attention_after, self.feed_forward_after = norm(parts), norm(parts)
        if cross:
            self.cross, self.cross_norm = CrossAttention(parts), norm(parts)
        if parts.layer_scale:
            self.attention_scale = nn.Parameter(ones((parts.width,)))
            self.feed_forward_scale = nn.Parameter(ones((parts.width,)))

    def forward(self, x: Tensor, what: PassInfo, past: Past | None = None, *cross: Any) -> Tensor:
        """`cross` is, for blocks that look at another sequence, a pass, its keys and values."""
        if self.form.startswith("parallel"):
            first = self.attention_norm(x)
            second = first if self.form == "parallel" else self.feed_forward_norm(x)
            x = x + self.drop(self.attention(first, what, past))
            both: Tensor = x + self.drop(self.feed_forward(second))
            return both
        x = self._added("attention", x, what, past)
        if cross:
            x = self._added("cross", x, *cross)
        return self._added("feed_forward", x)

    def _added(self, name: str, x: Tensor, *rest: Any) -> Tensor:
        """x and what a part makes of it, normalised before, behind, or around the sum."""
        part, own = getattr(self, name), getattr(self, f"{name}_norm")
        y = part(own(x) if self.form in ("pre", "sandwich") else x, *rest)
        if self.form == "inner":
            y = own(y)
        if self.form == "sandwich":
            y = getattr(self, f"{name}_after")(y)
        scale = getattr(self, f"{name}_scale", None)
        y = self.drop(y if scale is None else y * scale)
        x = x + (y if self.factor == 1.0 else y * self.factor)
        result: Tensor = own(x) if self.form == "post" else x
        return result


def initialise(module: nn.Module, spread: float) -> None:
    """Normal weights and zero biases for linear layers and embeddings, as transformers start."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, 0.0, spread)
            bias = getattr(layer, "bias", None)
            if bias is not None:
                nn.init.zeros_(bias)
