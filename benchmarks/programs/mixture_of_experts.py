"""A sparse mixture of experts: each token goes to two, so the sizes follow the data."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    tokens: int = 512
    dim: int = 128
    hidden: int = 256
    experts: int = 8
    top_k: int = 2
    classes: int = 10


DEFAULT, SMALL = Sizes(), Sizes(tokens=32, dim=16, hidden=32, experts=4)


class Expert(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.w1 = nn.Linear(sizes.dim, sizes.hidden, bias=False)
        self.w2 = nn.Linear(sizes.hidden, sizes.dim, bias=False)
        self.w3 = nn.Linear(sizes.dim, sizes.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoeLayer(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.experts = nn.ModuleList([Expert(sizes) for _ in range(sizes.experts)])
        self.gate = nn.Linear(sizes.dim, sizes.experts, bias=False)
        self.top_k = sizes.top_k

    def forward(self, inputs):
        gate_logits = self.gate(inputs)
        weights, selected_experts = torch.topk(gate_logits, self.top_k)
        weights = F.softmax(weights, dim=1)
        results = torch.zeros_like(inputs)
        for i, expert in enumerate(self.experts):
            batch_idx, nth_expert = torch.where(selected_experts == i)
            results[batch_idx] += weights[batch_idx, nth_expert, None] * expert(inputs[batch_idx])
        return results


class Model(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.moe = MoeLayer(sizes)
        self.norm = nn.LayerNorm(sizes.dim)
        self.head = nn.Linear(sizes.dim, sizes.classes)

    def forward(self, x):
        return self.head(self.norm(x + self.moe(x)))


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    count = 8 * sizes.tokens
    data = tensor(numbers.standard_normal((count, sizes.dim)))
    labels = tensor(numbers.integers(0, sizes.classes, count))
    model = initialise(Model(sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @compiled
    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.tokens % count
        chosen = slice(begin, begin + sizes.tokens)
        return train(data[chosen], labels[chosen])

    return step
