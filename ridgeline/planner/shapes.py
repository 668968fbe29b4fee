"""Models as shapes: what a transformer's layers are, counted without building one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ridgeline.models.parts import Latent


@dataclass(frozen=True)
class ModelShape:
    """A decoder whose layers are equal, but for the first where others have experts.

    Sizes are elements.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    key_heads: int
    inner: int
    """The width inside a feed-forward layer, of one expert where there are several."""
    gated: bool
    vocabulary: int
    head_size: int = 0
    tied: bool = False
    biased: bool = False
    """Products and norms have biases, as GPT's do; where not, norms are RMSNorm."""
    dropout: bool = False
    drops_scores: bool = False
    """Dropout inside attention, between scores and values."""
    learned_positions: int = 0
    longest: int = 0
    """The most tokens of a sequence that the model takes; 0 where no more is said of it."""
    parallel_block: bool = False
    """Attention and feed-forward read the same norm and are summed once."""
    window: int = 0
    """How far back attention looks; 0 for all the way."""
    windowed: float = 1.0
    """Of the layers, the share that looks no further than the window."""
    latent: Latent | None = None
    """Keys and values are unfolded from a short vector of each token."""
    experts: int = 1
    chosen: int = 1
    shared_inner: int = 0
    """The width of an expert that every token goes through."""
    dense_layers: int = 0
    """Of the first layers, how many have one feed-forward where the others have experts."""
    dense_inner: int = 0
    """The width inside it."""
    counted: int = 0
    """Parameters of a model that was built; 0 where they follow from the sizes above."""

    unit: ClassVar[str] = "tokens"
    """What a step's speed is counted in."""

    @property
    def head(self) -> int:
        """Elements of one head of queries and keys."""
        if self.latent is not None:
            return self.latent.plain_size + self.latent.turned_size
        return self.head_size or self.hidden // self.heads

    @property
    def value_head(self) -> int:
        """Elements of one head of values."""
        return self.head if self.latent is None else self.latent.value_size

    @property
    def queries(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head

    @property
    def keys(self) -> int:
        """Elements of all heads of keys."""
        return self.key_heads * self.head

    def projections(self, split: int) -> list[tuple[int, int]]:
        """Columns and terms of a layer's products with weights around attention, on one rank."""
        values = self.heads * self.value_head // split
        if self.latent is None:
            keys = max(self.keys // split, self.head)
            return [(self.queries // split + 2 * keys, self.hidden), (self.hidden, values)]
        latent, queries = self.latent, self.queries // split
        found = [(queries, self.hidden)]
        if latent.query_rank:
            found = [(latent.query_rank, self.hidden), (queries, latent.query_rank)]
        unfolded = self.heads * (latent.plain_size + latent.value_size) // split
        down = latent.rank + latent.turned_size
        return [*found, (down, self.hidden), (unfolded, latent.rank), (self.hidden, values)]

    @cached_property
    def attention_parameters(self) -> int:
        """Of the products around attention in one layer, with its norm."""
        weights = sum(columns * terms for columns, terms in self.projections(1))
        biases = self.queries + 2 * self.keys + self.hidden if self.biased else 0
        inside = (self.latent.rank + (self.latent.query_rank or 0)) if self.latent else 0
        return weights + biases + inside + self.hidden * (2 if self.biased else 1)

    def _feed_forward(self, inner: int) -> int:
        """Parameters of one feed-forward layer of a width."""
        ups = 2 if self.gated else 1
        biases = inner * ups + self.hidden if self.biased else 0
        return (ups + 1) * self.hidden * inner + biases

    @cached_property
    def expert_parameters(self) -> int:
        """Of one feed-forward layer, or of one expert."""
        return self._feed_forward(self.inner)

    @cached_property
    def _around_parameters(self) -> int:
        """Of one layer without its feed-forward."""
        norm = 0 if self.parallel_block else self.hidden * (2 if self.biased else 1)
        return self.attention_parameters + norm

    @cached_property
    def layer_parameters(self) -> int:
        """Of one layer, all experts counted."""
        shared = ((2 if self.gated else 1) + 1) * self.hidden * self.shared_inner
        router = self.hidden * self.experts if self.experts > 1 else 0
        experts = self.experts * self.expert_parameters
        return self._around_parameters + experts + shared + router

    @cached_property
    def dense_parameters(self) -> int:
        """Of one of the first layers, where they have no experts."""
        return self._around_parameters + self._feed_forward(self.dense_inner)

    @cached_property
    def unsplit_parameters(self) -> int:
        """Of one layer, what every tensor-parallel rank has: norms, the router, biases of sums."""
        norms = (1 if self.parallel_block else 2) * self.final_norm
        router = self.hidden * self.experts if self.experts > 1 else 0
        sums = (2 if self.experts == 1 else 1) * self.hidden if self.biased else 0
        return norms + router + sums

    @cached_property
    def embedding_parameters(self) -> int:
        """Of the table of words."""
        return self.vocabulary * self.hidden

    @property
    def final_norm(self) -> int:
        """Parameters of the norm behind all layers."""
        return self.hidden * (2 if self.biased else 1)

    def parameters(self) -> int:
        """Of the whole model."""
        if self.counted:
            return self.counted
        tables = self.embedding_parameters * (1 if self.tied else 2)
        positions = self.learned_positions * self.hidden
        return self._in_layers() + tables + positions + self.final_norm

    def _in_layers(self) -> int:
        alike = self.layers - self.dense_layers
        return alike * self.layer_parameters + self.dense_layers * self.dense_parameters

    def active_parameters(self) -> int:
        """Those that one token is multiplied with, the table it is looked up in left out."""
        idle = (self.experts - self.chosen) * self.expert_parameters
        idle *= self.layers - self.dense_layers
        return self._in_layers() - idle + self.embedding_parameters

    def seen(self, length: int, causal: bool) -> float:
        """Keys that a query is scored with, on average; with `causal` those that count."""
        behind = length / 2 if causal else float(length)
        if not 0 < self.window < length:
            return behind
        return self.windowed * self.window + (1 - self.windowed) * behind

    def flops_per_token(self, length: int, causal: bool, frozen: bool = False) -> float:
        """Of a training step, forwards and backwards, nothing computed twice.

        With `causal` only the scores that count are counted, half of them; weights that are
        `frozen` have no gradients.
        """
        heads = self.heads * (self.head + self.value_head)
        weights = (4 if frozen else 6) * self._multiplied()
        return weights + 6 * self.layers * heads * self.seen(length, causal)

    def feed_forward_width(self, dense: bool) -> int:
        """The width that a token goes through in a layer."""
        return self.dense_inner if dense else self.inner * self.chosen + self.shared_inner

    def _multiplied(self) -> int:
        """Weights of products alone, without biases and norms."""
        ups = 3 if self.gated else 2
        alike = self.layers - self.dense_layers
        wide = alike * self.feed_forward_width(False)
        wide += self.dense_layers * self.feed_forward_width(True)
        router = alike * self.hidden * self.experts if self.experts > 1 else 0
        around = self.layers * sum(columns * terms for columns, terms in self.projections(1))
        return around + ups * self.hidden * wide + router + self.embedding_parameters
