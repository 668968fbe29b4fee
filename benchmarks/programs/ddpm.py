"""Denoising diffusion: a UNet with time embeddings, group norms and attention learns the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.programs.switch import (
    F,
    Step,
    compiled,
    device,
    initialise,
    nn,
    source,
    tensor,
    torch,
)


@dataclass(frozen=True)
class Sizes:
    batch: int = 8
    image: int = 32
    channels: int = 3
    dim: int = 64
    multiples: tuple[int, ...] = (1, 2, 4)
    groups: int = 8


DEFAULT = Sizes()
SMALL = Sizes(batch=2, image=8, channels=1, dim=8, multiples=(1, 2), groups=4)
TIMESTEPS = 1000


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        scale = math.log(10000) / (half - 1)
        freqs = torch.exp(torch.arange(half, device=time.device) * -scale)
        angles = time[:, None] * freqs[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, before, after, time_dim, groups):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, after * 2))
        self.proj1 = nn.Conv2d(before, after, 3, padding=1)
        self.norm1 = nn.GroupNorm(groups, after)
        self.proj2 = nn.Conv2d(after, after, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, after)
        self.act = nn.SiLU()
        self.res_conv = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time_emb):
        scale, shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
        h = self.norm1(self.proj1(x))
        h = self.act(h * (scale + 1) + shift)
        h = self.act(self.norm2(self.proj2(h)))
        return h + self.res_conv(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(1, dim)
        self.to_qkv = nn.Conv2d(dim, dim * 3, 1, bias=False)
        self.to_out = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w)
        q, k, v = qkv.unbind(1)
        sim = torch.einsum("bhdi,bhdj->bhij", q * (c // self.heads) ** -0.5, k)
        out = torch.einsum("bhij,bhdj->bhdi", sim.softmax(dim=-1), v)
        return x + self.to_out(out.reshape(b, c, h, w))


class Unet(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        dim, time_dim, groups = sizes.dim, sizes.dim * 4, sizes.groups
        widths = [dim, *(dim * m for m in sizes.multiples)]
        pairs = list(pairwise(widths))
        self.init_conv = nn.Conv2d(sizes.channels, dim, 7, padding=3)
        self.time_mlp = nn.Sequential(
            SinusoidalPosEmb(dim),
            nn.Linear(dim, time_dim),
            nn.GELU(),
            nn.Linear(time_dim, time_dim),
        )
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for before, after in pairs:
            self.downs.append(
                nn.ModuleList(
                    [
                        ResnetBlock(before, before, time_dim, groups),
                        nn.Conv2d(before, after, 4, 2, 1),
                    ]
                )
            )
        self.mid_block1 = ResnetBlock(widths[-1], widths[-1], time_dim, groups)
        self.mid_attn = Attention(widths[-1])
        self.mid_block2 = ResnetBlock(widths[-1], widths[-1], time_dim, groups)
        for before, after in reversed(pairs):
            self.ups.append(
                nn.ModuleList(
                    [
                        nn.Sequential(
                            nn.Upsample(scale_factor=2, mode="nearest"),
                            nn.Conv2d(after, before, 3, padding=1),
                        ),
                        ResnetBlock(before * 2, before, time_dim, groups),
                    ]
                )
            )
        self.final_conv = nn.Conv2d(dim, sizes.channels, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        h = []
        for block, downsample in self.downs:
            x = block(x, t)
            h.append(x)
            x = downsample(x)
        x = self.mid_block2(self.mid_attn(self.mid_block1(x, t)), t)
        for upsample, block in self.ups:
            x = torch.cat((upsample(x), h.pop()), dim=1)
            x = block(x, t)
        return self.final_conv(x)


def extract(a, t, x_shape):
    """The entries of a table for some time steps, shaped to multiply images."""
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def make(sizes: Sizes) -> Step:
    count = 4 * sizes.batch
    shape = (count, sizes.channels, sizes.image, sizes.image)
    images = tensor(source(1).uniform(-1, 1, shape))
    alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, TIMESTEPS))
    kept, noised = tensor(np.sqrt(alphas)), tensor(np.sqrt(1 - alphas))
    model = initialise(Unet(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.99))

    @compiled
    def train(x_start):
        t = torch.randint(0, TIMESTEPS, (sizes.batch,), device=device)
        noise = torch.randn_like(x_start)
        x = extract(kept, t, x_start.shape) * x_start + extract(noised, t, x_start.shape) * noise
        loss = F.mse_loss(model(x, t), noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def step(number: int):
        begin = number * sizes.batch % count
        return train(images[begin : begin + sizes.batch])

    return step
