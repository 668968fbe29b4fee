"""Sequences turned into others: an encoder, and a decoder that looks at it. T5, BART, Whisper."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline import nn
from ridgeline.dtypes import int64
from ridgeline.errors import ShapeError
from ridgeline.models.described import DescribedModel
from ridgeline.models.norms import norm
from ridgeline.models.parts import Parts
from ridgeline.models.positions import RelativeBias, sinusoids
from ridgeline.models.transformer import Cache, PassInfo, Past, TransformerBlock, initialise, seen
from ridgeline.nn.functional import gelu, linear
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import arange, argmax, full, stack, zeros
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit


class Stack(nn.Module):
    """Blocks, with positions and norms around them."""

    def __init__(self, parts: Parts, decodes: bool) -> None:
        super().__init__()
        self.parts = parts
        if parts.mel_bins:
            self.frames = nn.Conv1d(parts.mel_bins, parts.width, 3, padding=1)
            self.joined = nn.Conv1d(parts.width, parts.width, 3, 2, 1)
        rows = parts.context + parts.position_offset
        if parts.positions == "learned":
            self.positions = nn.Embedding(rows, parts.width)
        if parts.positions == "sinusoidal":
            self.register_buffer("waves", tensor(sinusoids(rows, parts.width)), persistent=False)
        self.embedding_norm = norm(parts) if parts.embedding_norm else None
        self.bias = RelativeBias(parts.relative, parts.heads) if parts.relative else None
        self.drop = nn.Dropout(parts.dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(parts, n, cross=decodes) for n in range(parts.layers)
        )
        self.norm = norm(parts) if parts.final_norm else None

    def heard(self, sound: Tensor) -> Tensor:
        """Frames of sound [batch, mel bins, frames] as a sequence of half their length."""
        x: Tensor = gelu(self.joined(gelu(self.frames(sound)))).transpose(1, 2)
        return x

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, columns: int,
        cache: Cache | None = None, cross: list[Any] | None = None,
    ) -> Tensor:  # fmt: skip
        """Hidden states of embedded tokens at `positions`; a mask is added to the scores."""
        own = self.parts
        if own.positions == "learned":
            x = x + self.positions(positions + own.position_offset)
        if own.positions == "sinusoidal":
            x = x + self.waves[positions].to(dtype=x.dtype)
        x = self.drop(x if self.embedding_norm is None else self.embedding_norm(x))
        if self.bias is not None:
            bias = self.bias(positions, columns)
            mask = bias if mask is None else mask + bias
        what = PassInfo(mask=mask, positions=positions)
        for n, block in enumerate(self.blocks):
            past, other = None if cache is None else cache[n], () if cross is None else cross[n]
            x = block(x, what, past, *other)
        return x if self.norm is None else self.norm(x)


class EncoderDecoder(DescribedModel):
    """A source and the tokens so far in, scores of each next token out.

    The source is tokens [batch, length], or sound as a mel spectrogram [batch, bins, frames].
    """

    ignored = (
        r"^lm_head\.weight$|^proj_out\.weight$|(encoder|decoder)\.embed_tokens\.weight$"
        r"|(encoder|decoder)\.embed_positions\.weight$"
    )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        parts, self.form = self.parts, self.description.form
        settings = self.description.settings
        own = self.description.family.described(settings, encoder=True)
        self.tokens = nn.Embedding(parts.vocabulary, parts.width)
        self.encoder = Stack(own, decodes=False)
        self.context = parts.context
        if self.form != "encoder states":
            self.decoder = Stack(parts, decodes=True)
        own_head = self.form == "words" and not parts.tied
        self.head = nn.Linear(parts.width, parts.vocabulary, False) if own_head else None
        if self.form == "words" and parts.head_bias:
            self.register_buffer("word_bias", zeros((1, parts.vocabulary)))
        self.start: int = settings.get("decoder_start_token_id", "float", 0)
        initialise(self, parts.spread)

    def forward(
        self, source: Tensor, tokens: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """`mask` [batch, length] is nonzero at tokens of the source that count."""
        states = self.encoded(source, mask)
        if self.form == "encoder states":
            return states
        if tokens is None:
            raise ShapeError("a model that decodes is given the tokens so far, [batch, length]")
        positions = arange(tokens.shape[1])
        visible = seen(positions <= positions.unsqueeze(-1))
        cross = self.crossed(states, mask)
        x = self._embedded(tokens)
        hidden: Tensor = self.decoder(x, positions, visible, int(tokens.shape[1]), None, cross)
        return hidden if self.form == "states" else self.scores(hidden)

    def encoded(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """The hidden states of the source."""
        sound = self.encoder.parts.mel_bins
        x = self.encoder.heard(source) if sound else self._embedded(source)
        visible = None if mask is None or sound else seen((mask != 0)[:, None, None, :])
        length = x.shape[1]
        found: Tensor = self.encoder(x, arange(length), visible, int(length))
        return found

    def crossed(self, states: Tensor, mask: Tensor | None) -> list[tuple[PassInfo, Past]]:
        """For each block of the decoder, what it sees of the source."""
        sound = self.encoder.parts.mel_bins
        visible = None if mask is None or sound else seen((mask != 0)[:, None, None, :])
        what = PassInfo(mask=visible)
        return [(what, block.cross.unfold(states)) for block in self.decoder.blocks]

    def _embedded(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.tokens(tokens)
        scale = self.parts.embedding_scale
        return x if scale == 1.0 else x * scale

    def scores(self, hidden: Tensor) -> Tensor:
        """A number for every word of the vocabulary."""
        if self.parts.score_scale != 1.0:
            hidden = hidden * self.parts.score_scale
        weight = self.tokens.weight if self.head is None else self.head.weight
        found = linear(hidden, weight)
        return found + self.word_bias if self.parts.head_bias else found

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """Room for the keys and values of `capacity` positions in every layer of the decoder."""
        like, cache = self.tokens.weight, []
        for block in self.decoder.blocks:
            own = block.attention
            shape = (batch, own.shared_heads, capacity, own.key_size)
            made = (zeros(shape, dtype=like.dtype, device=like.device) for _ in range(2))
            cache.append(Past(*made))
        return cache

    @jit
    def step(self, token: Tensor, position: Tensor, cache: Cache, cross: list[Any]) -> Tensor:
        """Take in one token [batch] at a position, and score what follows."""
        with no_grad():
            positions, capacity = position.reshape((1,)), int(cache[0].keys.shape[2])
            visible = seen(arange(capacity) <= positions.unsqueeze(-1))
            x = self._embedded(token.unsqueeze(-1))
            hidden = self.decoder(x, positions, visible, capacity, cache, cross)
            return self.scores(hidden)[:, 0]

    def generate(
        self, source: Tensor, max_new_tokens: int, mask: Tensor | None = None,
        eos: int | None = None,
    ) -> Tensor:  # fmt: skip
        """The start and the likeliest tokens after it, [batch, 1 + new]; rows end with `eos`."""
        with no_grad():
            cross = self.crossed(self.encoded(source, mask), mask)
        batch = int(source.shape[0])
        cache = self.new_cache(batch, min(self.context, max_new_tokens + 1))
        token = full((batch,), self.start, dtype=int64, device=source.device)
        columns, finished = [token], np.zeros(batch, bool)
        for index in range(max_new_tokens):
            token = argmax(self.step(token, tensor(index), cache, cross), -1)
            if eos is not None:
                values = np.where(finished, eos, token.cpu().numpy())
                finished |= values == eos
                token = tensor(values, device=source.device)
            columns.append(token)
            if finished.all():
                break
        return stack(columns, 1)
