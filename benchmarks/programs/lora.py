"""Low-rank adapters on a frozen transformer, put in place by forward hooks on its layers."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 8
    length: int = 64
    width: int = 256
    heads: int = 4
    layers: int = 4
    words: int = 1000
    rank: int = 8


DEFAULT = Sizes()
SMALL = Sizes(batch=4, length=8, width=32, heads=2, layers=1, words=50, rank=4)
ALPHA = 16


class Layer(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.heads = sizes.heads
        self.norm1, self.norm2 = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.q_proj = nn.Linear(sizes.width, sizes.width)
        self.k_proj = nn.Linear(sizes.width, sizes.width)
        self.v_proj = nn.Linear(sizes.width, sizes.width)
        self.out_proj = nn.Linear(sizes.width, sizes.width)
        self.up, self.down = (
            nn.Linear(sizes.width, 4 * sizes.width),
            nn.Linear(4 * sizes.width, sizes.width),
        )

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm1(x)
        q, k, v = (
            proj(h).view(b, t, self.heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(h.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.words, sizes.width)
        self.layers = nn.ModuleList([Layer(sizes) for _ in range(sizes.layers)])
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class LoRA(nn.Module):
    """What a hook adds to the output of a linear layer."""

    def __init__(self, linear, rank):
        super().__init__()
        self.A = nn.Parameter(torch.empty(rank, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.scaling = ALPHA / rank
        linear.register_forward_hook(self.hook)

    def hook(self, module, inputs, output):
        return output + (inputs[0] @ self.A.T @ self.B.T) * self.scaling


def add_lora(model, rank):
    """Freeze a model, and adapt its queries and values."""
    for parameter in model.parameters():
        parameter.requires_grad = False
    adapted = [m for name, m in model.named_modules() if name.endswith(("q_proj", "v_proj"))]
    return nn.ModuleList([LoRA(linear, rank) for linear in adapted])


def make(sizes: Sizes) -> Step:
    tokens = source(1).integers(0, sizes.words, (16 * sizes.batch, sizes.length + 1))
    data = tensor(tokens)
    model = initialise(Model(sizes))
    adapters = initialise(add_lora(model, sizes.rank), 0.02)
    optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-3)

    @compiled
    def train(inputs, targets):
        optimizer.zero_grad()
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % len(data)
        batch = data[begin : begin + sizes.batch]
        return train(batch[:, :-1], batch[:, 1:])

    return step
