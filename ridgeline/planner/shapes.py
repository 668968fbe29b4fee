"""Models as shapes: what a transformer's layers are, counted without building one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar


@dataclass(frozen=True)
class ModelShape:
    """A decoder of equal layers; sizes are elements."""

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
    parallel_block: bool = False
    """Attention and feed-forward read the same norm and are summed once."""
    window: int = 0
    """How far back attention looks; 0 for all the way."""
    experts: int = 1
    chosen: int = 1
    shared_inner: int = 0
    """The width of an expert that every token goes through."""

    unit: ClassVar[str] = "tokens"
    """What a step's speed is counted in."""

    @property
    def head(self) -> int:
        """Elements of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def queries(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head

    @property
    def keys(self) -> int:
        """Elements of all heads of keys."""
        return self.key_heads * self.head

    @cached_property
    def attention_parameters(self) -> int:
        """Of the products around attention in one layer, with its norm."""
        weights = self.hidden * (2 * self.queries + 2 * self.keys)
        biases = self.queries + 2 * self.keys + self.hidden if self.biased else 0
        return weights + biases + self.hidden * (2 if self.biased else 1)

    @cached_property
    def expert_parameters(self) -> int:
        """Of one feed-forward layer."""
        ups = 2 if self.gated else 1
        biases = self.inner * ups + self.hidden if self.biased else 0
        return (ups + 1) * self.hidden * self.inner + biases

    @cached_property
    def layer_parameters(self) -> int:
        """Of one layer, all experts counted."""
        shared = ((2 if self.gated else 1) + 1) * self.hidden * self.shared_inner
        router = self.hidden * self.experts if self.experts > 1 else 0
        norm = 0 if self.parallel_block else self.hidden * (2 if self.biased else 1)
        experts = self.experts * self.expert_parameters
        return self.attention_parameters + experts + shared + router + norm

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
        tables = self.embedding_parameters * (1 if self.tied else 2)
        positions = self.learned_positions * self.hidden
        return self.layers * self.layer_parameters + tables + positions + self.final_norm

    def active_parameters(self) -> int:
        """Those that one token is multiplied with, the table it is looked up in left out."""
        idle = (self.experts - self.chosen) * self.expert_parameters
        words = self.embedding_parameters
        return self.layers * (self.layer_parameters - idle) + words

    def flops_per_token(self, length: int, causal: bool) -> float:
        """Of a training step, forwards and backwards, nothing computed twice.

        With `causal` only the scores that count are counted, half of them.
        """
        seen = min(length, self.window) if self.window else length
        scores = 12 * self.layers * self.queries * seen
        if causal and not self.window:
            scores //= 2
        return 6 * self._multiplied() + scores

    def _multiplied(self) -> int:
        """Weights of products alone, without biases and norms."""
        ups = 3 if self.gated else 2
        feed_forward = ups * self.hidden * (self.chosen * self.inner + self.shared_inner)
        router = self.hidden * self.experts if self.experts > 1 else 0
        around = self.hidden * (2 * self.queries + 2 * self.keys)
        return self.layers * (around + feed_forward + router) + self.embedding_parameters
