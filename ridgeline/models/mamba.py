"""Mamba: a state that each token changes by as much as it decides, in place of attention."""

from __future__ import annotations

import math
from typing import Any

from ridgeline import nn
from ridgeline.models.described import DescribedModel
from ridgeline.models.feed_forward import activation
from ridgeline.models.norms import norm
from ridgeline.models.parts import Parts
from ridgeline.models.transformer import Cache, Past, initialise
from ridgeline.nn.functional import linear, softplus
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import arange, cat, ones, zeros
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.control_flow import scan
from ridgeline.tracing.jit import jit


class Mixer(nn.Module):
    """A short convolution, then a linear recurrence whose factors come from the token."""

    def __init__(self, parts: Parts, settings: Any) -> None:
        super().__init__()
        width, inner = parts.width, parts.inner
        self.inner, self.size = inner, settings.count("state_size", 16)
        self.window = settings.count("conv_kernel", 4)
        given = settings.values.get("time_step_rank", "auto")
        auto = math.ceil(width / 16)
        self.rank = auto if given == "auto" else settings.count("time_step_rank", auto)
        bias = settings.flag("use_bias", False)
        self.into, self.out = nn.Linear(width, 2 * inner, bias), nn.Linear(inner, width, bias)
        convolved = settings.flag("use_conv_bias", True)
        self.near = nn.Conv1d(inner, inner, self.window, groups=inner, bias=convolved)
        self.chosen = nn.Linear(inner, self.rank + 2 * self.size, False)
        self.pace = nn.Linear(self.rank, inner)
        self.decay = nn.Parameter(zeros((inner, self.size)))
        self.direct = nn.Parameter(ones((inner,)))
        self.activation = activation(parts.activation)

    def forward(self, x: Tensor, active: Tensor, last: Tensor, past: Past) -> Tensor:
        """Tokens [batch, length, width]; `past` is the convolution's tail and the state.

        What is not `active` [batch or 1, length, 1] leaves no trace; `last` is the last place
        that counts.
        """
        both = self.into(x)
        u, gate = both[..., : self.inner] * active, both[..., self.inner :]
        line = cat([past.keys, u.transpose(1, 2)], 2)
        u = self.activation(self.near(line).transpose(1, 2)) * active
        found = self.chosen(u)
        rank, size = self.rank, self.size
        into, out = found[..., rank : rank + size], found[..., rank + size :]
        pace = (softplus(self.pace(found[..., :rank])) * active).unsqueeze(-1)
        kept = (pace * -self.decay.exp()).exp()
        added = pace * into.unsqueeze(2) * u.unsqueeze(-1)
        steps = tuple(t.transpose(0, 1) for t in (kept, added, out))
        state, y = scan(_step, past.values, steps)
        if past.keys.shape[2]:
            past.keys.copy_(line.index_select(2, last + 1 + arange(self.window - 1)))
        past.values.copy_(state)
        result: Tensor = self.out((y.transpose(0, 1) + u * self.direct) * self.activation(gate))
        return result


def _step(state: Tensor, token: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    kept, added, out = token
    state = kept * state + added
    return state, (state * out.unsqueeze(1)).sum(-1)


class MambaBlock(nn.Module):
    """A mixer, added to what goes in."""

    def __init__(self, parts: Parts, settings: Any) -> None:
        super().__init__()
        self.norm, self.mixer = norm(parts), Mixer(parts, settings)

    def forward(self, x: Tensor, *what: Any) -> Tensor:
        result: Tensor = x + self.mixer(self.norm(x), *what)
        return result


class Mamba(DescribedModel):
    """Tokens [batch, length] in, scores [batch, length, vocabulary] of each next token out."""

    ignored = r"^lm_head\.weight$"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        parts, self.form = self.parts, self.description.form
        self.context = parts.context
        self.tokens = nn.Embedding(parts.vocabulary, parts.width)
        settings = self.description.settings
        self.blocks = nn.ModuleList(MambaBlock(parts, settings) for _ in range(parts.layers))
        self.norm = norm(parts)
        own_head = self.form == "words" and not parts.tied
        self.head = nn.Linear(parts.width, parts.vocabulary, False) if own_head else None
        initialise(self, parts.spread)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` [batch, length] is nonzero at tokens that count."""
        batch, length = (int(n) for n in tokens.shape)
        like = self.tokens.weight
        active = ones((1, length, 1), dtype=like.dtype, device=like.device)
        if mask is not None:
            active = (mask != 0).unsqueeze(-1).to(dtype=like.dtype)
        last = arange(1) + (length - 1)
        hidden = self._hidden(tokens, active, last, self.new_cache(batch, length))
        return hidden if self.form == "states" else self.scores(hidden)

    def _hidden(self, tokens: Tensor, active: Tensor, last: Tensor, cache: Cache) -> Tensor:
        x = self.tokens(tokens)
        for block, past in zip(self.blocks, cache):
            x = block(x, active, last, past)
        result: Tensor = self.norm(x)
        return result

    def scores(self, hidden: Tensor) -> Tensor:
        """A number for every word of the vocabulary."""
        return linear(hidden, self.tokens.weight if self.head is None else self.head.weight)

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """The convolutions' tails and the states of every layer, however long the text."""
        like, cache = self.tokens.weight, []
        for block in self.blocks:
            own = block.mixer
            shapes = (batch, own.inner, own.window - 1), (batch, own.inner, own.size)
            made = (zeros(shape, dtype=like.dtype, device=like.device) for shape in shapes)
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

        It is what `LanguageModel.step` is: `last` is the place of the last token that counts, and
        rows may begin with padding, `skipped` [batch].
        """
        with no_grad():
            positions = arange(tokens.shape[1])
            active = (positions <= last).unsqueeze(0)
            if skipped is not None:
                active = active & (positions + start >= skipped.unsqueeze(-1))
            counts = active.unsqueeze(-1).to(dtype=self.tokens.weight.dtype)
            hidden = self._hidden(tokens, counts, last.reshape((1,)), cache)
            return self.scores(hidden.index_select(1, last.reshape((1,))))[:, 0]
