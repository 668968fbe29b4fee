"""Language models that read from left to right: what GPT-2 and Llama share."""

from __future__ import annotations

from ridgeline import nn
from ridgeline.errors import ShapeError
from ridgeline.models.pretrained import Pretrained
from ridgeline.models.transformer import Cache, Pass, Past, Rotation, cached_pass
from ridgeline.nn.functional import linear
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import arange, zeros
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.jit import jit


class LanguageModel(Pretrained):
    """Tokens [batch, length] in, scores [batch, length, vocabulary] of each next token out."""

    context: int  # the most positions there are
    tokens: nn.Embedding
    blocks: nn.ModuleList
    norm: nn.Module
    head: nn.Linear | None  # None where the embedding's table is the head as well

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise ShapeError(f"{length} tokens are more than the model's {self.context} positions")
        places = arange(length)
        what = Pass(causal=True, rotation=self.rotation(places))
        return self.scores(self._hidden(tokens, places, what, [None] * len(self.blocks)))

    def embedded(self, tokens: Tensor, places: Tensor) -> Tensor:
        """What goes into the first block."""
        found: Tensor = self.tokens(tokens)
        return found

    def rotation(self, places: Tensor) -> Rotation | None:
        """How queries and keys are turned, if they are."""
        return None

    def scores(self, hidden: Tensor) -> Tensor:
        """A number for every word of the vocabulary."""
        weight = self.tokens.weight if self.head is None else self.head.weight
        return linear(hidden, weight)

    def _hidden(
        self, tokens: Tensor, places: Tensor, what: Pass, cache: Cache | list[None]
    ) -> Tensor:
        x = self.embedded(tokens, places)
        for block, past in zip(self.blocks, cache):
            x = block(x, what, past)
        result: Tensor = self.norm(x)
        return result

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """Room for the keys and values of `capacity` positions in every layer."""
        like, cache = self.tokens.weight, []
        for block in self.blocks:
            own = block.attention
            shape = (batch, own.shared_heads, capacity, own.head_size)
            made = (zeros(shape, dtype=like.dtype, device=like.device) for _ in range(2))
            cache.append(Past(*made))
        return cache

    @jit
    def step(
        self,
        tokens: Tensor,
        start: Tensor,
        last: Tensor,
        cache: Cache,
        skipped: Tensor | None = None,
    ) -> Tensor:
        """Take in tokens [batch, length] from position `start` on, and score what follows.

        `start` and `last`, the place of the last token that counts, are tensors: the compiled step
        serves every position. The cache is written in place. Where rows begin with padding,
        `skipped` [batch] says with how much.
        """
        with no_grad():
            places = arange(tokens.shape[1]) + start
            own = places if skipped is None else (places - skipped.unsqueeze(-1)).clamp(min=0)
            capacity = int(cache[0].keys.shape[2])
            what = cached_pass(places, capacity, self.rotation(own), skipped)
            hidden = self._hidden(tokens, own, what, cache)
            return self.scores(hidden.index_select(1, last.reshape((1,))))[:, 0]
