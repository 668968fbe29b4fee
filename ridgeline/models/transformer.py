"""What the transformers here are built of: attention, feed-forward layers, blocks, rotations.

All layers of one pass share a `Pass`: which positions the tokens have, who may look at whom, and
by which angles queries and keys are turned. For generation, each layer's keys and values so far
lie in a cache of fixed size, written at positions that are run-time values: one compiled step
serves every position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.nn.functional import gelu, relu, scaled_dot_product_attention, silu, tanh
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import arange, cat
from ridgeline.tensors.tensor import Tensor

Activation = Callable[[Tensor], Tensor]


def _gelu_tanh(x: Tensor) -> Tensor:
    return gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Activation] = {
    "gelu": gelu, "gelu_new": _gelu_tanh, "gelu_pytorch_tanh": _gelu_tanh, "relu": relu,
    "silu": silu, "tanh": tanh,
}  # fmt: skip


def activation(name: str) -> Activation:
    """An activation by the name that configurations use."""
    if name not in ACTIVATIONS:
        raise BadValueError(
            f"there is no activation {name!r}", help=f"known: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


class Past(NamedTuple):
    """The keys and values of one layer, [batch, heads, capacity, head size]."""

    keys: Tensor
    values: Tensor


Cache = list[Past]  # one for each layer


class Rotation(NamedTuple):
    """Cosines and sines of the angles of every position, [(batch, 1,) length, head size]."""

    cosines: Tensor
    sines: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Turn each pair of elements half a head apart by its angle."""
        half = x.shape[-1] // 2
        turned = cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cosines.to(dtype=x.dtype) + turned * self.sines.to(dtype=x.dtype)


def rotation(places: Tensor, frequencies: Tensor) -> Rotation:
    """The rotation of tokens at positions [length], or [batch, length] where rows differ."""
    angles = places.to(dtype=frequencies.dtype).unsqueeze(-1) * frequencies
    angles = cat([angles, angles], -1)
    if places.dim() == 2:
        angles = angles.unsqueeze(1)  # all heads alike
    return Rotation(angles.cos(), angles.sin())


def rotary_frequencies(size: int, theta: float) -> Any:
    """Turns per position of each pair of a head's elements, as a NumPy array."""
    return (1.0 / theta ** (np.arange(0, size, 2, dtype=np.float32) / size)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Pass:
    """What all layers share while some tokens go through them."""

    causal: bool = False  # each token sees itself and those before it
    mask: Tensor | None = None  # added to the scores
    places: Tensor | None = None  # the tokens' positions in the caches
    rotation: Rotation | None = None


def seen(visible: Tensor) -> Tensor:
    """What to add to scores so that only what is visible counts."""
    return choose(visible, 0.0, -math.inf)


def cached_pass(
    places: Tensor, capacity: int, rotation: Rotation | None, skipped: Tensor | None = None
) -> Pass:
    """A pass over new tokens that see themselves and everything before them in the caches.

    Of the caches' first positions each row leaves out as many as `skipped` [batch] says.
    """
    columns, own = arange(capacity), places.unsqueeze(-1)
    visible = columns <= own
    if skipped is not None:
        counts = columns >= skipped.reshape((-1, 1, 1, 1))
        visible = (visible & counts) | (columns == own)  # what is skipped sees itself: no NaN
    return Pass(mask=seen(visible), places=places, rotation=rotation)


class Attention(nn.Module):
    """Attention in which several query heads may share a head of keys and values."""

    def __init__(
        self,
        width: int,
        heads: int,
        shared_heads: int | None = None,
        head_size: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if head_size is None and width % heads:
            raise BadValueError(f"a width of {width} cannot be split into {heads} heads")
        self.heads, self.shared_heads = heads, shared_heads or heads
        self.head_size, self.dropout = head_size or width // heads, dropout
        inner, shared = self.heads * self.head_size, self.shared_heads * self.head_size
        self.query = nn.Linear(width, inner, bias)
        self.key = nn.Linear(width, shared, bias)
        self.value = nn.Linear(width, shared, bias)
        self.output = nn.Linear(inner, width, bias if output_bias is None else output_bias)

    def forward(self, x: Tensor, what: Pass, past: Past | None = None) -> Tensor:
        q, k, v = (self._split(layer(x)) for layer in (self.query, self.key, self.value))
        if what.rotation is not None:
            q, k = what.rotation(q), what.rotation(k)
        if past is not None:
            assert what.places is not None
            past.keys.index_copy_(2, what.places, k)
            past.values.index_copy_(2, what.places, v)
            k, v = past
        dropout = self.dropout if self.training else 0.0
        shares = self.heads != self.shared_heads
        mask = None if what.mask is None else what.mask.to(dtype=q.dtype)
        mixed = scaled_dot_product_attention(q, k, v, mask, dropout, what.causal, enable_gqa=shares)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, x: Tensor) -> Tensor:
        """[batch, length, heads * size] as [batch, heads, length, size]."""
        batch, length = x.shape[0], x.shape[1]
        return x.reshape((batch, length, -1, self.head_size)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, width: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(self.activation(self.up(x)))
        return result


class GatedFeedForward(nn.Module):
    """Two linear layers, the inner values weighed by a gate: SwiGLU where it is SiLU."""

    def __init__(self, width: int, inner: int, activation: Activation, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias), nn.Linear(width, inner, bias)
        self.down, self.activation = nn.Linear(inner, width, bias), activation

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what goes in and normalised."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norm(), norm()
        self.norm_first, self.drop = norm_first, nn.Dropout(dropout)

    def forward(self, x: Tensor, what: Pass, past: Past | None = None) -> Tensor:
        first, second = self.attention_norm, self.feed_forward_norm
        if self.norm_first:
            x = x + self.drop(self.attention(first(x), what, past))
            x = x + self.drop(self.feed_forward(second(x)))
        else:
            x = first(x + self.drop(self.attention(x, what, past)))
            x = second(x + self.drop(self.feed_forward(x)))
        return x


def initialise(module: nn.Module, spread: float) -> None:
    """Normal weights and zero biases for linear layers and embeddings, as transformers start."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, 0.0, spread)
            bias = getattr(layer, "bias", None)
            if bias is not None:
                nn.init.zeros_(bias)
