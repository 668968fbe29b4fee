"""Images as rows of patches that a transformer reads, alone or beside texts: ViT, DeiT, CLIP, …"""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.models.described import DescribedModel
from ridgeline.models.families import FAMILIES
from ridgeline.models.feed_forward import feed_forward
from ridgeline.models.norms import norm
from ridgeline.models.parts import Image, Parts
from ridgeline.models.transformer import (
    CrossAttention,
    PassInfo,
    TransformerBlock,
    initialise,
    seen,
)
from ridgeline.tensors.public import arange, cat, zeros
from ridgeline.tensors.tensor import Tensor


class ProbePooling(nn.Module):
    """A summary of hidden states by one learned query."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.probe = nn.Parameter(zeros((1, 1, parts.width)))
        self.attention, self.norm = CrossAttention(parts), norm(parts)
        self.feed_forward = feed_forward(parts)

    def forward(self, x: Tensor) -> Tensor:
        probe = self.probe.expand((x.shape[0], 1, x.shape[2]))
        found = self.attention(probe, PassInfo(), self.attention.unfold(x))
        result: Tensor = (found + self.feed_forward(self.norm(found)))[:, 0]
        return result


class SeesImages(nn.Module):
    """What models of images share; their modules are made by `build`."""

    def build(self, parts: Parts, image: Image) -> None:
        """Make the modules from the patches to the last norm."""
        width, side = parts.width, image.size // image.patch
        self.image, own = image, (width,) if image.flat else (1, 1, width)
        self.patches = nn.Conv2d(image.channels, width, image.patch, image.patch, bias=image.bias)
        if image.summary:
            self.summary = nn.Parameter(zeros(own))
        if image.distilled:
            self.distilled = nn.Parameter(zeros(own))
        count = side * side + image.summary + image.distilled
        self.positions = nn.Parameter(zeros((*own[:-1][1:], count, width)))
        self.drop = nn.Dropout(parts.dropout)
        self.norm_before = norm(parts) if image.norm_before else None
        self.blocks = nn.ModuleList(TransformerBlock(parts, layer) for layer in range(parts.layers))
        self.norm = norm(parts)

    def build_pooling(self, parts: Parts) -> None:
        """Make the modules of the summary."""
        kind = self.image.pooling
        if kind in ("dense", "probe"):
            dense = kind == "dense"
            self.pooler = nn.Linear(parts.width, parts.width) if dense else ProbePooling(parts)

    def states(self, images: Tensor) -> Tensor:
        """The hidden states after the last block."""
        x: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        batch, width = x.shape[0], x.shape[2]
        extra = [getattr(self, name, None) for name in ("summary", "distilled")]
        tokens = [t.reshape((1, 1, -1)).expand((batch, 1, width)) for t in extra if t is not None]
        x = self.drop((cat([*tokens, x], 1) if tokens else x) + self.positions)
        x = x if self.norm_before is None else self.norm_before(x)
        for block in self.blocks:
            x = block(x, PassInfo())
        return x

    def pooled(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and their summary."""
        x, kind = self.states(images), self.image.pooling
        if kind == "norm":
            return x, self.norm(x[:, 0])
        x = self.norm(x)
        if kind == "probe":
            return x, self.pooler(x)
        return x, x[:, 0] if kind == "first" else self.pooler(x[:, 0]).tanh()


class VisionModel(SeesImages, DescribedModel):
    """Images [n, channels, size, size] in; scores of the classes out, or hidden states.

    In its plain form it gives the hidden states and a summary of them, in another only the
    summary, projected to where texts can be compared with it.
    """

    ignored = r"pooler\.|mask_token$|position_ids$|^(text_model|text_projection|logit_)"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        parts, self.form = self.parts, self.description.form
        assert parts.image is not None
        self.build(parts, parts.image)
        if self.form in ("states", "projection"):
            self.build_pooling(parts)
        if self.form == "projection":
            self.projection = nn.Linear(parts.width, parts.projected or parts.width, False)
        labels, first = self.description.labels, parts.image.pooling == "first"
        if self.form.endswith("classes"):
            self.classifier = nn.Linear(parts.width * (1 + first), labels)
        if self.form == "taught classes":
            self.distilled_classifier = nn.Linear(parts.width, labels)
        initialise(self, parts.spread)
        for name in ("summary", "distilled", "positions"):
            if hasattr(self, name):
                nn.init.normal_(getattr(self, name), 0.0, parts.spread)

    def forward(self, images: Tensor) -> Any:
        if self.form == "states":
            return self.pooled(images)
        if self.form == "projection":
            return self.projection(self.pooled(images)[1])
        x = self.norm(self.states(images))
        if self.image.pooling == "first":  # beside the summary, what the patches say together
            return self.classifier(cat([x[:, 0], x[:, 1:].mean(1)], 1))
        found = self.classifier(x[:, 0])
        return found if self.form == "classes" else (found + self.distilled_classifier(x[:, 1])) / 2


class ReadsText(nn.Module):
    """The texts beside images; the modules are made by `build_text`."""

    def build_text(self, parts: Parts, end: int | None) -> None:
        """Make the modules from the tokens to the last norm."""
        self.tokens = nn.Embedding(parts.vocabulary, parts.width)
        self.positions = nn.Embedding(parts.context, parts.width)
        self.blocks = nn.ModuleList(TransformerBlock(parts, layer) for layer in range(parts.layers))
        self.norm, self.causal, self.end = norm(parts), parts.causal, end
        if not parts.causal:
            self.pooler = nn.Linear(parts.width, parts.projected or parts.width)

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Hidden states, and the one that stands for the text."""
        positions = arange(tokens.shape[1])
        x = self.tokens(tokens) + self.positions(positions)
        visible = None if mask is None else (mask != 0)[:, None, None, :]
        if self.causal:
            before = positions <= positions.unsqueeze(-1)
            visible = before if visible is None else before & visible
        what = PassInfo(mask=None if visible is None else seen(visible))
        for block in self.blocks:
            x = block(x, what)
        x = self.norm(x)
        if not self.causal:
            return x, self.pooler(x[:, -1])
        # files of the first models name an end that they do not use: the largest token ends texts
        last = (tokens if self.end in (None, 2) else (tokens == self.end) * 1).argmax(-1)
        return x, x.gather(1, last[:, None, None].expand((-1, 1, x.shape[2])))[:, 0]


class TextTower(ReadsText, DescribedModel):
    """Tokens in; hidden states and one for the text out, or that one projected."""

    ignored = r"position_ids$|^(vision_model|visual_projection|logit_)"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.form = self.description.form
        self.build_text(self.parts, _end(self.description.settings))
        if self.form == "projection":
            width = self.parts.width
            self.projection = nn.Linear(width, self.parts.projected or width, False)
        initialise(self, self.parts.spread)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Any:
        """`mask` [batch, length] is nonzero at tokens that count."""
        found = self.read(tokens, mask)
        return self.projection(found[1]) if self.form == "projection" else found


class _Images(SeesImages):
    def __init__(self, parts: Parts) -> None:
        super().__init__()
        assert parts.image is not None
        self.build(parts, parts.image)
        self.build_pooling(parts)


class _Texts(ReadsText):
    def __init__(self, parts: Parts, end: int | None) -> None:
        super().__init__()
        self.build_text(parts, end)


class TwoTowers(DescribedModel):
    """Texts and images in; out: how well each image fits each text, and the reverse.

    With them come the vectors of images and of texts, each of length one.
    """

    ignored = r"position_ids$"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        settings, kind = self.description.settings, self.description.family.stem.lower()
        beside = settings.group("text_config", {})
        texts = FAMILIES[f"{kind}_text_model"].described(beside)
        self.vision, self.text = _Images(self.parts), _Texts(texts, _end(beside))
        if texts.causal:
            width = settings.count("projection_dim", 512)
            self.vision_projection = nn.Linear(self.parts.width, width, False)
            self.text_projection = nn.Linear(texts.width, width, False)
            self.scale = nn.Parameter(zeros(()))
        else:
            self.scale, self.bias = nn.Parameter(zeros((1,))), nn.Parameter(zeros((1,)))
        self.projects = texts.causal
        initialise(self, 0.02)

    def forward(
        self, tokens: Tensor, images: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        texts, seen_images = self.text.read(tokens, mask)[1], self.vision.pooled(images)[1]
        if self.projects:
            texts, seen_images = self.text_projection(texts), self.vision_projection(seen_images)
        texts = texts / texts.norm(dim=-1, keepdim=True)
        seen_images = seen_images / seen_images.norm(dim=-1, keepdim=True)
        scores = seen_images @ texts.T * self.scale.exp()
        scores = scores if self.projects else scores + self.bias
        return scores, scores.T, seen_images, texts


def _end(settings: Any) -> int | None:
    found: int | None = settings.get("eos_token_id", "float", None)
    return found
