"""What the transformers here are made of, as values: one description builds any of them.

A family of models is a table (`families/`) that says which setting of its `config.json` each of
these parts is. The skeletons (`language.py`, `encoder.py`, …) build what they are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

E = TypeVar("E")
Norm = Literal["layer", "layer+1", "rms", "rms+1"]
Residual = Literal["pre", "post", "inner", "sandwich", "parallel", "parallel two"]


@dataclass(frozen=True, slots=True)
class Rotary:
    """How queries and keys are turned by their positions."""

    size: int  # of a head's elements, how many are turned
    theta: float = 10_000.0
    kind: str = "default"  # how the turns are stretched to longer texts: `positions.py`
    factor: float = 1.0
    original: int = 0  # the positions there were before stretching
    low: float = 1.0  # llama3: of turns within those positions, what is slow and what is fast
    high: float = 4.0
    fast: float = 32.0  # yarn: the same two bounds
    slow: float = 1.0
    truncate: bool = True
    amplitude: float = 1.0  # cosines and sines are multiplied by it
    short: tuple[float, ...] = ()  # longrope: each turn's divisor in short texts and in long ones
    long: tuple[float, ...] = ()
    interleaved: bool = False  # pairs are neighbours, not half a head apart


@dataclass(frozen=True, slots=True)
class Relative:
    """Scores that depend on the distance between two tokens, by buckets of distances."""

    buckets: int
    farthest: int  # from here on all distances share a bucket
    two_sided: bool


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a row of patches."""

    size: int
    patch: int
    channels: int = 3
    summary: bool = True  # a token before the patches that stands for all of them
    distilled: bool = False  # and one for what a teacher says
    bias: bool = True
    flat: bool = False  # files hold positions and the summary's token without axes of one
    norm_before: bool = False
    pooling: Literal["dense", "norm", "first", "probe"] = "dense"  # the summary of hidden states


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: keys and values are unfolded from a short vector a token."""

    rank: int
    query_rank: int | None
    plain_size: int  # of a head's query and key, without position
    turned_size: int  # of a head's query, and of the key that all heads share, with position
    value_size: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A feed-forward layer of many, of which a router chooses a few for each token."""

    count: int
    chosen: int
    inner: int
    router: Literal["softmax", "chosen softmax", "sigmoid", "groups"] = "softmax"
    normalised: bool = False  # the weights of the chosen add up to one
    scale: float = 1.0
    groups: int = 1  # routers that first choose some groups of experts
    groups_chosen: int = 1
    corrected: bool = False  # scores get a bias for choosing, not for weighing
    shared_inner: int = 0  # an expert that every token goes through
    shared_gate: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """A transformer's stack of blocks, and what is before and behind it."""

    width: int
    layers: int
    heads: int
    inner: int
    vocabulary: int = 0
    context: int = 1 << 30  # the most positions there are
    shared_heads: int | None = None  # heads of keys and values, where they are fewer
    head_size: int | None = None
    embedding_width: int | None = None  # where it is not the stack's
    # norms and the order of things
    norm: Norm = "rms"
    eps: float = 1e-5
    norm_weight: bool = True
    norm_bias: bool = True
    residual: Residual = "pre"
    embedding_norm: bool = False
    final_norm: bool = True
    # positions
    positions: Literal["", "learned", "alibi", "sinusoidal"] = ""
    position_offset: int = 0  # the row of the first token's position
    counted: bool = False  # positions count only tokens that the mask shows
    rotaries: tuple[Rotary | None, ...] = ()  # for each layer
    alibi_scale: float = 1.0
    relative: Relative | None = None
    mel_bins: int = 0  # of sound, whose frames two convolutions join before the stack
    padding: int | None = None  # positions count tokens that are not this one
    image: Image | None = None
    types: int = 0  # kinds of text that an embedding tells apart
    # attention
    causal: bool = True
    query_bias: bool = False
    key_bias: bool | None = None  # where it is not as the query's
    value_bias: bool | None = None
    output_bias: bool = False
    query_norm: Literal["", "head", "each head", "all"] = ""
    query_norm_kind: Norm | None = None  # where it is not the stack's
    query_norm_bias: bool = False
    norm_turned: bool = False  # queries and keys are normalised after they are turned
    scale: float | None = None
    softcap: float | None = None
    clip: float | None = None
    windows: tuple[int | None, ...] = ()  # for each layer, how far back it sees
    sinks: bool = False  # heads may look at nothing
    latent: Latent | None = None
    # feed-forward layers
    activation: str = "silu"
    gated: bool = True
    up_bias: bool = False
    down_bias: bool | None = None
    experts: tuple[Experts | None, ...] = ()  # for each layer
    shared_layers: bool = False  # all blocks are one
    # factors
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    layer_scale: bool = False  # each part's result is weighed element by element
    score_scale: float = 1.0
    score_cap: float | None = None
    # the head
    projected: int | None = None  # the width of what images and texts are compared by
    tied: bool = False
    head_bias: bool = False
    pooled: str = ""  # the activation of a summary of the first token, if there is one
    summary: str = "tanh"  # the one before scores of classes
    # training
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    spread: float = 0.02  # of weights that are made anew


def of_layer(values: Sequence[E], layer: int) -> E | None:
    """What a layer has where none do, all have the same, or each has its own."""
    return None if not values else values[layer if len(values) > 1 else 0]
