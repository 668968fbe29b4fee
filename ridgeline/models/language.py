"""Language models that read from left to right: one skeleton, built as a family's parts say."""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.errors import ShapeError
from ridgeline.models.described import DescribedModel
from ridgeline.models.norms import norm
from ridgeline.models.parts import Rotary, of_layer
from ridgeline.models.positions import frequencies, rotation, slopes
from ridgeline.models.transformer import Cache, PassInfo, Past, TransformerBlock, initialise, seen
from ridgeline.nn.functional import linear, tanh
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import arange, zeros
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit

Kind = tuple[int | None, Rotary | None]  # what layers differ in: a window, a rotation


class LanguageModel(DescribedModel):
    """Tokens [batch, length] in, scores [batch, length, vocabulary] of each next token out.

    In other forms it gives the hidden states, or scores of classes for a text or each token.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        parts, self.form = self.parts, self.description.form
        self.context = parts.context
        narrow = parts.embedding_width or parts.width
        self.tokens = nn.Embedding(parts.vocabulary, narrow)
        if parts.positions == "learned":
            self.positions = nn.Embedding(parts.context + parts.position_offset, parts.width)
        self.embedding_norm = norm(parts) if parts.embedding_norm else None
        differs = narrow != parts.width
        self.project_in = nn.Linear(narrow, parts.width, False) if differs else None
        self.project_out = nn.Linear(parts.width, narrow, False) if differs else None
        self.drop = nn.Dropout(parts.embedding_dropout)
        self.blocks = nn.ModuleList(TransformerBlock(parts, layer) for layer in range(parts.layers))
        self.norm = norm(parts) if parts.final_norm else None
        own_head = self.form == "words" and not parts.tied
        self.head = nn.Linear(narrow, parts.vocabulary, parts.head_bias) if own_head else None
        if self.form.endswith("classes"):
            biased = self.form == "token classes"
            self.classifier = nn.Linear(parts.width, self.description.labels, biased)
        self._kinds: list[Kind] = [
            (of_layer(parts.windows, n), of_layer(parts.rotaries, n)) for n in range(parts.layers)
        ]
        self._pad = self.description.settings.get("pad_token_id", "float", None)
        self._turns: dict[Rotary, str] = {}
        for rotary in dict.fromkeys(turned for _, turned in self._kinds if turned is not None):
            self._add_turns(rotary)
        if parts.positions == "alibi":
            falls = slopes(parts.heads) * parts.alibi_scale
            self.register_buffer("slopes", tensor(falls).reshape((1, -1, 1, 1)), persistent=False)
        initialise(self, parts.spread)

    def _add_turns(self, rotary: Rotary) -> None:
        self._turns[rotary] = name = f"turns{len(self._turns)}"
        self.register_buffer(name, tensor(frequencies(rotary)), persistent=False)
        if rotary.kind == "longrope":
            long = frequencies(rotary, rotary.original + 1)
            self.register_buffer(f"{name}_long", tensor(long), persistent=False)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` [batch, length] is nonzero at tokens that count."""
        length = tokens.shape[1]
        if length > self.context:
            raise ShapeError(f"{length} tokens are more than the model's {self.context} positions")
        columns = arange(length)
        positions = columns
        if mask is not None and self.parts.counted:
            positions = ((mask != 0).cumsum(1) - 1).clamp(min=-self.parts.position_offset)
            positions = positions * (mask != 0) - (mask == 0) * 1
        counts = None if mask is None else (mask != 0)[:, None, None, :]
        what = self._passes(columns, int(length), positions, counts, cached=False)
        hidden = self._hidden(tokens, positions, what, [None] * len(self.blocks))
        if self.form == "states":
            return hidden
        if self.form == "words":
            return self.scores(hidden)
        found: Tensor = self.classifier(hidden)
        return found if self.form == "token classes" else _last(found, tokens, self._pad)

    def embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What goes into the first block."""
        x: Tensor = self.tokens(tokens)
        if self.project_in is not None:
            x = self.project_in(x)
        if self.parts.embedding_scale != 1.0:
            x = x * tensor(self.parts.embedding_scale, dtype=x.dtype, device=x.device)
        if self.parts.positions == "learned":
            x = x + self.positions(positions + self.parts.position_offset)
        result: Tensor = self.drop(x if self.embedding_norm is None else self.embedding_norm(x))
        return result

    def scores(self, hidden: Tensor) -> Tensor:
        """A number for every word of the vocabulary."""
        head, parts = self.head, self.parts
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        found = linear(hidden, self.tokens.weight) if head is None else head(hidden)
        if parts.score_scale != 1.0:
            found = found * parts.score_scale
        if parts.score_cap is not None:
            found = tanh(found / parts.score_cap) * parts.score_cap
        return found

    def _hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        what: dict[Kind, PassInfo],
        cache: Cache | list[None],
    ) -> Tensor:
        x = self.embedded(tokens, positions)
        for block, kind, past in zip(self.blocks, self._kinds, cache):
            x = block(x, what[kind], past)
        return x if self.norm is None else self.norm(x)

    def _passes(
        self, rows: Tensor, columns: int, positions: Tensor, counts: Tensor | None, cached: bool
    ) -> dict[Kind, PassInfo]:
        """For each kind of layer, what it is told: tokens in `rows` see some of the `columns`.

        `positions` are the tokens' positions in their texts; `counts` says which columns hold any.
        """
        made = {}
        for window, rotary in dict.fromkeys(self._kinds):
            turn = None
            if rotary is not None:
                turn = rotation(positions, self._frequencies(rotary, columns), rotary)
            whole = window is None or window >= columns
            plain = whole and not cached and counts is None and self.parts.positions != "alibi"
            mask = None if plain else self._mask(rows, columns, None if whole else window, counts)
            made[window, rotary] = PassInfo(plain, mask, rows if cached else None, turn)
        return made

    def _frequencies(self, rotary: Rotary, length: int) -> Tensor:
        long = rotary.kind == "longrope" and length > rotary.original
        found: Tensor = getattr(self, self._turns[rotary] + ("_long" if long else ""))
        return found

    def _mask(
        self, rows: Tensor, columns: int, window: int | None, counts: Tensor | None
    ) -> Tensor:
        own, other = rows.unsqueeze(-1), arange(columns)
        visible = other <= own
        if window is not None:
            visible = visible & (other > own - window)
        if counts is not None:
            visible = (visible & counts) | (other == own)  # what does not count sees itself: no NaN
        mask = seen(visible)
        if self.parts.positions == "alibi":
            mask = mask + self.slopes * (other - own).to(dtype=self.slopes.dtype)
        return mask

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """Room for the keys and values of `capacity` positions in every layer."""
        like, cache = self.tokens.weight, []
        for block in self.blocks:
            own = block.attention
            shape, sizes = (batch, own.shared_heads, capacity), (own.key_size, own.value_size)
            made = (zeros((*shape, n), dtype=like.dtype, device=like.device) for n in sizes)
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
            positions = arange(tokens.shape[1]) + start
            own = positions if skipped is None else (positions - skipped.unsqueeze(-1)).clamp(min=0)
            capacity = int(cache[0].keys.shape[2])
            counts = None
            if skipped is not None:
                counts = arange(capacity) >= skipped.reshape((-1, 1, 1, 1))
            what = self._passes(positions, capacity, own, counts, cached=True)
            hidden = self._hidden(tokens, own, what, cache)
            return self.scores(hidden.index_select(1, last.reshape((1,))))[:, 0]


def _last(found: Tensor, tokens: Tensor, pad: int | None) -> Tensor:
    """The row of each text's last token that is no padding."""
    if pad is None:
        return found[:, -1]
    positions = (arange(tokens.shape[1]) * (tokens != pad)).argmax(-1)
    return found.gather(1, positions[:, None, None].expand((-1, 1, found.shape[-1])))[:, 0]
