"""A vision transformer whose patches and heads are rearranged by einops."""

from __future__ import annotations

from dataclasses import dataclass

from einops import rearrange, repeat

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 1
    image: int = 256
    patch: int = 32
    classes: int = 1000
    dim: int = 1024
    depth: int = 6
    heads: int = 16
    dim_head: int = 64
    mlp: int = 2048


DEFAULT = Sizes()
SMALL = Sizes(batch=4, image=16, patch=4, classes=10, dim=32, depth=1, heads=2, dim_head=16, mlp=64)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, dim)
        )

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        x = self.norm(x)
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=self.heads) for t in qkv)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        out = torch.matmul(self.attend(dots), v)
        return self.to_out(rearrange(out, "b h n d -> b n (h d)"))


class ViT(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.patch = sizes.patch
        pixels, patches = 3 * sizes.patch**2, (sizes.image // sizes.patch) ** 2
        self.to_patch_embedding = nn.Sequential(
            nn.LayerNorm(pixels), nn.Linear(pixels, sizes.dim), nn.LayerNorm(sizes.dim)
        )
        self.pos_embedding = nn.Parameter(torch.zeros(1, patches + 1, sizes.dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, sizes.dim))
        self.layers = nn.ModuleList(
            [
                nn.ModuleList(
                    [
                        Attention(sizes.dim, sizes.heads, sizes.dim_head),
                        FeedForward(sizes.dim, sizes.mlp),
                    ]
                )
                for _ in range(sizes.depth)
            ]
        )
        self.norm = nn.LayerNorm(sizes.dim)
        self.mlp_head = nn.Linear(sizes.dim, sizes.classes)

    def forward(self, img):
        x = rearrange(img, "b c (h p) (w q) -> b (h w) (p q c)", p=self.patch, q=self.patch)
        x = self.to_patch_embedding(x)
        cls_tokens = repeat(self.cls_token, "1 1 d -> b 1 d", b=x.shape[0])
        x = torch.cat((cls_tokens, x), dim=1) + self.pos_embedding
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.mlp_head(self.norm(x)[:, 0])


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    count = 8 * sizes.batch
    images = tensor(numbers.standard_normal((count, 3, sizes.image, sizes.image)))
    labels = tensor(numbers.integers(0, sizes.classes, count))
    model = initialise(ViT(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-5)

    @compiled
    def train(data, label):
        loss = F.cross_entropy(model(data), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % count
        chosen = slice(begin, begin + sizes.batch)
        return train(images[chosen], labels[chosen])

    return step
