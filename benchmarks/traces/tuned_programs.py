"""Programs with nothing left to advise: no finding above 5% of a step is expected."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from harness import Program, Step
from torch import nn


class Block(nn.Module):
    """A pre-norm transformer block with fused attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        batch, length, width = rows.shape
        split = self.qkv(self.first(rows)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = rows + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return rows + self.down(F.gelu(self.up(self.second(rows)), approximate="tanh"))


def well_tuned(device: torch.device, repaired: bool) -> Step:
    """A compiled bfloat16 transformer with a fused optimizer and nothing read back."""
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    width, heads, depth, shape = (2048, 16, 4, (16, 1024)) if cuda else (128, 4, 2, (4, 64))
    model = nn.Sequential(*[Block(width, heads) for _ in range(depth)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if cuda else model
    rows = torch.randn(*shape, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            loss = forward(rows).square().mean()
        loss.backward()
        optimizer.step()

    return step


PROGRAMS = (Program("well_tuned", "none", well_tuned, ("cuda", "cpu")),)
