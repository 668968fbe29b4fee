"""Planted problems inside the kernels: precision, sizes, layouts, unfused compositions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from harness import Program, Step
from torch import nn


def no_tf32(device: torch.device, repaired: bool) -> Step:
    """float32 products on the plain cores, against TF32."""
    torch.set_float32_matmul_precision("high" if repaired else "highest")
    left, right = (torch.randn(4096, 4096, device=device) for _ in range(2))

    def step() -> None:
        torch.relu(left @ right) @ right

    return step


def conv_net(channels: int, depth: int, bias: bool) -> nn.Sequential:
    """3×3 convolutions with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers.append(nn.Conv2d(channels, channels, 3, padding=1, bias=bias))
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers)


def no_amp(device: torch.device, repaired: bool) -> Step:
    """float32 convolutions with no tensor cores, against bfloat16 autocast."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    layers = [nn.Conv2d(256, 256, 3, padding=1, bias=False) for _ in range(4)]
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    images = torch.randn(64, 256, 28, 28, device=device)
    images = images.to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=repaired):
            loss = model(images).square().mean()
        loss.backward()

    return step


def odd_sizes(device: torch.device, repaired: bool) -> Step:
    """A vocabulary and width that no tensor core tile divides, against padded ones."""
    width, vocabulary = (2048, 50304) if repaired else (2047, 50257)
    hidden = torch.randn(4096, width, device=device, dtype=torch.bfloat16)
    table = torch.randn(width, vocabulary, device=device, dtype=torch.bfloat16)

    def step() -> None:
        hidden @ table

    return step


def stray_double(device: torch.device, repaired: bool) -> Step:
    """A float64 constant that drags a product into double precision, against float32."""
    torch.set_float32_matmul_precision("high")
    dtype = torch.float32 if repaired else torch.float64
    left, right = (torch.randn(2048, 2048, device=device, dtype=dtype) for _ in range(2))

    def step() -> None:
        for _ in range(4):
            (left @ right).sum()

    return step


def channels_first(device: torch.device, repaired: bool) -> Step:
    """bfloat16 convolutions in NCHW, against channels_last."""
    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if repaired else torch.contiguous_format
    model = conv_net(128, 4, bias=False).to(device, torch.bfloat16, memory_format=layout)
    images = torch.randn(64, 128, 56, 56, device=device, dtype=torch.bfloat16)
    images = images.to(memory_format=layout)

    def step() -> None:
        model(images).square().mean().backward()

    return step


def bias_before_norm(device: torch.device, repaired: bool) -> Step:
    """Convolution biases that the next batch norm subtracts again, against none."""
    torch.backends.cudnn.benchmark = True
    model = conv_net(128, 4, bias=not repaired)
    model = model.to(device, torch.bfloat16, memory_format=torch.channels_last)
    images = torch.randn(64, 128, 56, 56, device=device, dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)

    def step() -> None:
        model(images).square().mean().backward()

    return step


def unfused_attention(device: torch.device, repaired: bool) -> Step:
    """softmax(QKᵀ)V through a stored score matrix, against the fused call."""
    cuda = device.type == "cuda"
    shape = (8, 16, 2048, 64) if cuda else (2, 4, 512, 32)
    dtype = torch.bfloat16 if cuda else torch.float32
    query, key, value = (
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )

    def step() -> None:
        if repaired:
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(shape[-1])
            mixed = torch.softmax(scores, dim=-1) @ value
        mixed.sum().backward()
        query.grad = key.grad = value.grad = None

    return step


def pointwise_chain(device: torch.device, repaired: bool) -> Step:
    """Six pointwise kernels over one large tensor, against the compiler's single one."""
    rows = torch.randn(1 << 25, device=device)

    def activation(rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(rows * 0.7978 + 0.0356 * rows * rows * rows).add(1.0).mul(rows)

    fused = torch.compile(activation) if repaired else activation

    def step() -> None:
        fused(rows)

    return step


def small_grid(device: torch.device, repaired: bool) -> Step:
    """A softmax over eight long rows at a time, against all rows in one call."""
    rows = torch.randn(256, 1 << 17, device=device)

    def step() -> None:
        if repaired:
            torch.softmax(rows, dim=1)
        else:
            for row in rows.split(8):
                torch.softmax(row, dim=1)

    return step


PROGRAMS = (
    Program("no_tf32", "C2", no_tf32),
    Program("no_amp", "C1", no_amp),
    Program("odd_sizes", "C3", odd_sizes),
    Program("stray_double", "C4", stray_double),
    Program("channels_first", "C5", channels_first),
    Program("bias_before_norm", "C6", bias_before_norm),
    Program("unfused_attention", "C7", unfused_attention, ("cuda", "cpu")),
    Program("pointwise_chain", "C8", pointwise_chain),
    Program("small_grid", "K4", small_grid),
)
