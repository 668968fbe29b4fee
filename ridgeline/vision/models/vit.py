"""Vision transformers, with torchvision's names of weights."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

from ridgeline import nn
from ridgeline.tensors.public import cat, empty, zeros
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.models.registry import named
from ridgeline.vision.ops.misc import MLP

_norm = partial(nn.LayerNorm, eps=1e-6)


class EncoderBlock(nn.Module):
    """Attention and a feed-forward part, each behind a normalisation and beside a shortcut."""

    def __init__(
        self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float,
        attention_dropout: float, norm_layer: Any = _norm,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.dropout, self.ln_2 = nn.Dropout(dropout), norm_layer(hidden_dim)
        self.mlp = MLP(hidden_dim, [mlp_dim, hidden_dim], activation_layer=nn.GELU, inplace=None,
                       dropout=dropout)  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """The tokens [n, length, width] after both parts."""
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        made: Tensor = x + self.mlp(self.ln_2(x))
        return made


class Encoder(nn.Module):
    """Positions added to tokens, and blocks over them."""

    def __init__(
        self, seq_length: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int,
        dropout: float, attention_dropout: float, norm_layer: Any = _norm,
    ) -> None:  # fmt: skip
        super().__init__()
        self.pos_embedding = nn.Parameter(empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        parts = (num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        blocks = [(f"encoder_layer_{n}", EncoderBlock(*parts)) for n in range(num_layers)]
        self.layers, self.ln = nn.Sequential(OrderedDict(blocks)), norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        """The tokens after all blocks."""
        made: Tensor = self.ln(self.layers(self.dropout(input + self.pos_embedding)))
        return made


class VisionTransformer(nn.Module):
    """Squares of a picture as tokens, and a class token whose value gives the scores."""

    def __init__(
        self, image_size: int, patch_size: int, num_layers: int, num_heads: int, hidden_dim: int,
        mlp_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0,
        num_classes: int = 1000, representation_size: int | None = None, norm_layer: Any = _norm,
    ) -> None:  # fmt: skip
        super().__init__()
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(
            length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout,
            norm_layer,
        )  # fmt: skip
        self.seq_length = length
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
        head = nn.Linear(representation_size or hidden_dim, num_classes)
        for weight in head.parameters():
            nn.init.zeros_(weight)
        heads["head"] = head
        self.heads = nn.Sequential(heads)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        found: Tensor = self.heads(self.encoder(tokens)[:, 0])
        return found


def _vit(patch: int, layers: int, heads: int, width: int, wide: int, image_size: int = 224,
         **options: Any) -> VisionTransformer:  # fmt: skip
    return VisionTransformer(image_size, patch, layers, heads, width, wide, **options)


vit_b_16 = named("vit_b_16", partial(_vit, 16, 12, 12, 768, 3072), "ViT-B/16.")
vit_b_32 = named("vit_b_32", partial(_vit, 32, 12, 12, 768, 3072), "ViT-B/32.")
vit_l_16 = named("vit_l_16", partial(_vit, 16, 24, 16, 1024, 4096), "ViT-L/16.")
vit_l_32 = named("vit_l_32", partial(_vit, 32, 24, 16, 1024, 4096), "ViT-L/32.")
vit_h_14 = named("vit_h_14", partial(_vit, 14, 32, 16, 1280, 5120), "ViT-H/14.")
