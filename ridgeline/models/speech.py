"""Speech as it was recorded: convolutions, then a transformer. wav2vec 2.0 and HuBERT."""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.models.described import DescribedModel
from ridgeline.models.feed_forward import activation
from ridgeline.models.norms import norm
from ridgeline.models.transformer import PassInfo, TransformerBlock, initialise, seen
from ridgeline.nn.functional import conv1d
from ridgeline.tensors.public import arange, ones, zeros
from ridgeline.tensors.tensor import Tensor


class Hearing(nn.Module):
    """One convolution of the samples, with what normalises it."""

    def __init__(
        self, before: int, after: int, size: int, stride: int, bias: bool, kind: str, act: str
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(before, after, size, stride, bias=bias)
        self.group = nn.GroupNorm(after, after) if kind == "group" else None
        self.layer = nn.LayerNorm(after) if kind == "layer" else None
        self.activation = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.group is not None:
            x = self.group(x)
        if self.layer is not None:
            x = self.layer(x.transpose(1, 2)).transpose(1, 2)
        return self.activation(x)


class NearPositions(nn.Module):
    """Where a frame stands, by a wide convolution whose weights have lengths of their own."""

    def __init__(self, width: int, size: int, groups: int, act: str) -> None:
        super().__init__()
        self.length = nn.Parameter(ones((1, 1, size)))
        self.direction = nn.Parameter(zeros((width, width // groups, size)))
        nn.init.normal_(self.direction, 0.0, 0.02)
        self.bias, self.groups = nn.Parameter(zeros((width,))), groups
        self.size, self.activation = size, activation(act)

    def forward(self, x: Tensor) -> Tensor:
        direction = self.direction
        weight = self.length * direction / direction.square().sum((0, 1), keepdim=True).sqrt()
        found = conv1d(x.transpose(1, 2), weight, self.bias, 1, self.size // 2, 1, self.groups)
        found = found[..., : x.shape[1]]  # an even size gives one frame too many
        return self.activation(found).transpose(1, 2)


class SpeechModel(DescribedModel):
    """Samples [batch, length] in; out: hidden states, or scores of letters or of classes."""

    ignored = r"masked_spec_embed$|^(quantizer|project_hid|project_q)\."

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        c, self.form, parts = self.description.settings, self.description.form, self.parts
        widths = c.get("conv_dim", "Sequence[int]", [512] * 7)
        sizes = c.get("conv_kernel", "Sequence[int]", [10, 3, 3, 3, 3, 2, 2])
        strides = c.get("conv_stride", "Sequence[int]", [5, 2, 2, 2, 2, 2, 2])
        if not len(widths) == len(sizes) == len(strides):
            raise c.refused("conv_stride", strides, [f"{len(widths)} strides, as conv_dim has"])
        kind = c.text("feat_extract_norm", "group", ("group", "layer"))
        bias, act = c.flag("conv_bias", False), c.text("feat_extract_activation", "gelu")
        self.windows, layers, before = list(zip(sizes, strides)), [], 1
        for n, (after, size, stride) in enumerate(zip(widths, sizes, strides)):
            own = "" if kind == "group" and n else kind
            layers.append(Hearing(before, after, size, stride, bias, own, act))
            before = after
        self.hearing = nn.ModuleList(layers)
        normed = c.flag("feat_proj_layer_norm", True)
        self.heard_norm = nn.LayerNorm(before, parts.eps) if normed else None
        self.project = nn.Linear(before, parts.width)
        near, groups = c.count("num_conv_pos_embeddings", 128), "num_conv_pos_embedding_groups"
        self.positions = NearPositions(parts.width, near, c.count(groups, 16), act)
        self.norm, self.drop = norm(parts), nn.Dropout(parts.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(parts, layer) for layer in range(parts.layers))
        if self.form == "words":
            self.head = nn.Linear(parts.width, c.count("vocab_size"))
        if self.form == "classes":
            between = c.count("classifier_proj_size", 256)
            self.transform = nn.Linear(parts.width, between)
            self.classifier = nn.Linear(between, self.description.labels)
        initialise(self, parts.spread)

    def forward(self, samples: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` [batch, length] is nonzero at samples that count, at the beginning of each row."""
        x = samples.unsqueeze(1)
        for layer in self.hearing:
            x = layer(x)
        x = x.transpose(1, 2)
        x = self.project(x if self.heard_norm is None else self.heard_norm(x))
        counts = None if mask is None else self._counting(mask, int(x.shape[1]))
        if counts is not None:
            x = x * counts.unsqueeze(-1)
        x, first = x + self.positions(x), self.parts.residual == "post"
        x = self.drop(self.norm(x) if first else x)
        what = PassInfo(mask=None if counts is None else seen(counts[:, None, None, :]))
        for block in self.blocks:
            x = block(x, what)
        x = x if first else self.norm(x)
        if self.form == "words":
            return self.head(x)  # type: ignore[no-any-return]
        return x if self.form == "states" else self._classes(x, counts)

    def _counting(self, mask: Tensor, frames: int) -> Tensor:
        """Which frames are made of samples that count."""
        lengths = (mask != 0).sum(1)
        for size, stride in self.windows:
            lengths = (lengths - size) // stride + 1
        return arange(frames) < lengths.unsqueeze(-1)

    def _classes(self, x: Tensor, counts: Tensor | None) -> Tensor:
        x = self.transform(x)
        if counts is None:
            pooled = x.mean(1)
        else:
            share = counts.unsqueeze(-1).to(dtype=x.dtype)
            pooled = (x * share).sum(1) / share.sum(1)
        result: Tensor = self.classifier(pooled)
        return result
