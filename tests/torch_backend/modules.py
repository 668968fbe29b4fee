"""Small models, as users write them, with what goes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.other = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.first(x)).relu_()
        return torch.relu(self.other(self.second(hidden)) + x)


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.joined(x).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().view(batch, length, width))


class SmallGPT(nn.Module):
    def __init__(self, words: int = 16, width: int = 8, length: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.attention, self.norm = CausalAttention(width, 2), nn.LayerNorm(width)
        self.other = nn.LayerNorm(width)
        self.hidden = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text) + self.places(torch.arange(text.shape[1]))
        x = x + self.attention(self.norm(x))
        return self.head(x + self.hidden(self.other(x)))


class HandWrittenLSTM(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(3, 4 * width), nn.Linear(width, 4 * width)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        hidden = state = x.new_zeros(x.shape[0], self.width)
        for place in range(x.shape[1]):
            gates = self.inside(x[:, place]) + self.outside(hidden)
            enter, forget, cell, leave = gates.chunk(4, dim=1)
            state = forget.sigmoid() * state + enter.sigmoid() * cell.tanh()
            hidden = leave.sigmoid() * state.tanh()
        return hidden


class MaskedPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4, padding_idx=0)
        self.head = nn.Linear(4, 2)

    def forward(self, text: Tensor) -> Tensor:
        mask = (text != 0).unsqueeze(-1).float()
        total = (self.words(text) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.head(total).log_softmax(dim=-1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.inner = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        above = F.silu(self.down(x))
        below = F.silu(self.inner(F.max_pool2d(above, 2)))
        return self.out(torch.cat((above, self.up(below)), dim=1))


Made = tuple[Callable[[], nn.Module], Callable[[], Tensor]]


def _of(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def _text(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, 10, shape)


MODELS: dict[str, Made] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), _of(3, 8)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(36, 3)),
        _of(2, 1, 8, 8)),
    "residual block": (ResidualBlock, _of(2, 4, 8, 8)),
    "channels last": (
        lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
        lambda: torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)),
    "one axis": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ELU()),
        _of(2, 2, 7)),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), _of(2, 4, 8)),
    "attention": (lambda: CausalAttention(8, 2), _of(2, 5, 8)),
    "gpt": (SmallGPT, _text(2, 6)),
    "recurrent": (HandWrittenLSTM, _of(2, 3, 3)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)), _text(2, 3)),
    "masked pooling": (MaskedPooling, _text(3, 4)),
    "norms": (
        lambda: nn.Sequential(
            nn.LayerNorm(8), nn.GELU(), nn.GroupNorm(2, 4), nn.RMSNorm(8), nn.Softmax(-1)),
        _of(2, 4, 8)),
    "pooling": (
        lambda: nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                              nn.Linear(3, 2), nn.Hardswish()),
        _of(2, 3, 8, 8)),
    "unet": (UNet, _of(1, 2, 8, 8)),
    "upsampling": (
        lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2, 2, 3),
                              nn.PReLU(), nn.PixelUnshuffle(2)),
        _of(1, 2, 5, 5)),
}  # fmt: skip


def built(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, given = MODELS[name]
    return model(), given()


def assert_close(one: Any, other: Any, scale: float = 1.0) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4 * scale, atol=1e-5 * scale)
