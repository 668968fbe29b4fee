"""Text in which every token sees every other: BERT and its relatives, from one skeleton."""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.models.described import DescribedModel
from ridgeline.models.feed_forward import activation
from ridgeline.models.norms import norm
from ridgeline.models.positions import RelativeBias
from ridgeline.models.transformer import PassInfo, TransformerBlock, initialise, seen
from ridgeline.nn.functional import linear
from ridgeline.tensors.public import arange, zeros, zeros_like
from ridgeline.tensors.tensor import Tensor


class TextEncoder(DescribedModel):
    """Tokens [batch, length] in; out comes what its form says.

    The hidden states, with a summary of the first one where the family has it; scores of every
    word at every place; scores of classes for a text or for each token; or of where an answer
    begins and of where it ends.
    """

    ignored = (
        r"position_ids$|^cls\.(seq_relationship|predictions\.decoder)\.|pooler\.|^lm_head\.decoder\."
        r"|^vocab_projector\.weight|^generator_lm_head\.weight|^predictions\.decoder\.|^sop_classifier"
    )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        parts, form = self.parts, self.description.form
        self.form, width, narrow = form, parts.width, parts.embedding_width or parts.width
        self.tokens = nn.Embedding(parts.vocabulary, narrow)
        if parts.positions == "learned":
            self.positions = nn.Embedding(parts.context, narrow)
        if parts.types:
            self.types = nn.Embedding(parts.types, narrow)
        self.norm = norm(parts, narrow)
        self.project = nn.Linear(narrow, width) if narrow != width else None
        self.drop = nn.Dropout(parts.dropout)
        count = 1 if parts.shared_layers else parts.layers
        self.blocks = nn.ModuleList(TransformerBlock(parts, layer) for layer in range(count))
        self.bias = RelativeBias(parts.relative, parts.heads) if parts.relative else None
        pools = form == "classes" or (form == "states" and parts.pooled)
        self.pooler = nn.Linear(width, width) if pools else None
        self.pool = activation(parts.summary if form == "classes" else parts.pooled or "tanh")
        if form == "words":
            self.transform, self.transform_norm = nn.Linear(width, narrow), norm(parts, narrow)
            self.word_bias = nn.Parameter(zeros((parts.vocabulary,)))
        if form == "real or not":
            self.transform, self.classifier = nn.Linear(width, width), nn.Linear(width, 1)
        if form in ("classes", "token classes", "spans"):
            labels = 2 if form == "spans" else self.description.labels
            self.classifier = nn.Linear(width, labels)
        self.activation = activation(parts.activation)
        initialise(self, parts.spread)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, types: Any = None) -> Any:
        """`mask` [batch, length] is nonzero at tokens that count; `types` tells two texts apart."""
        x = self._embedded(tokens, types)
        visible = None if mask is None else seen(mask[:, None, None, :] != 0)
        if self.bias is not None:
            bias = self.bias(tokens.shape[1], tokens.shape[1])
            visible = bias if visible is None else visible + bias
        what, own = PassInfo(mask=visible), self.parts
        for layer in range(own.layers):
            x = self.blocks[0 if own.shared_layers else layer](x, what)
        return self._given(x)

    def _embedded(self, tokens: Tensor, types: Tensor | None) -> Tensor:
        x, own = self.tokens(tokens), self.parts
        if own.types:
            x = x + self.types(zeros_like(tokens) if types is None else types)
        if own.padding is not None:  # positions count tokens that are none of padding
            real = tokens != own.padding
            x = x + self.positions(real.cumsum(1) * real + own.padding)
        elif own.positions == "learned":
            x = x + self.positions(arange(tokens.shape[1]))
        x = self.drop(self.norm(x))
        result: Tensor = x if self.project is None else self.project(x)
        return result

    def _given(self, x: Tensor) -> Any:
        """What the form makes of the last block's states."""
        if self.form == "words":
            x = self.transform_norm(self.activation(self.transform(x)))
            return linear(x, self.tokens.weight, self.word_bias)
        if self.form == "real or not":
            return self.classifier(self.activation(self.transform(x)))[..., 0]
        if self.form == "token classes":
            return self.classifier(self.drop(x))
        if self.form == "spans":
            found = self.classifier(x)
            return found[..., 0], found[..., 1]
        if self.pooler is None:
            return x
        pooled = self.pool(self.pooler(x[:, 0]))
        return (x, pooled) if self.form == "states" else self.classifier(self.drop(pooled))
