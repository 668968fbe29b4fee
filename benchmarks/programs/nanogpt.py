"""A character-level GPT: batches cut from one long text, AdamW in two groups, clipped gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 65
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    bias: bool = False
    batch: int = 12


DEFAULT = GPTConfig()
GENERATED = 4  # tokens a step
SMALL = GPTConfig(block_size=16, n_layer=1, n_head=2, n_embd=32, batch=4)


class LayerNorm(nn.Module):
    """Layer norm whose bias may be left out."""

    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd = config.n_head, config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                "ln_f": LayerNorm(config.n_embd, bias=config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight  # one table for both ends

    def forward(self, idx, targets=None):
        _, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer["wte"](idx) + self.transformer["wpe"](pos)
        for block in self.transformer["h"]:
            x = block(x)
        x = self.transformer["ln_f"](x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        """Extend `idx` one token at a time; gives the tokens and the last one's logits."""
        logits = None
        for _ in range(max_new_tokens):
            short = idx.size(1) <= self.config.block_size
            idx_cond = idx if short else idx[:, -self.config.block_size :]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx, logits

    def configure_optimizers(self, weight_decay, learning_rate, betas):
        params = [p for _, p in self.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)


def get_lr(it, learning_rate=1e-3, warmup=10, decay=2000, least=1e-4):
    """A linear start, then down along a cosine."""
    if it < warmup:
        return learning_rate * (it + 1) / (warmup + 1)
    ratio = min((it - warmup) / (decay - warmup), 1.0)
    return least + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - least)


def make(sizes: GPTConfig) -> Step:
    data = source(1).integers(0, sizes.vocab_size, 20_000)
    model = initialise(GPT(sizes), 0.02)
    optimizer = model.configure_optimizers(1e-1, 1e-3, (0.9, 0.99))

    def get_batch(number):
        ix = source(2, number).integers(0, len(data) - sizes.block_size, sizes.batch)
        x = tensor(np.stack([data[i : i + sizes.block_size] for i in ix]))
        y = tensor(np.stack([data[i + 1 : i + 1 + sizes.block_size] for i in ix]))
        return x, y

    @compiled
    def train(x, y):
        _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def step(number: int):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(number)
        return train(*get_batch(number))

    return step


def make_generate(sizes: GPTConfig) -> Step:
    """Text is written, a few tokens a step; the context grows to twice a block and begins anew."""
    model = initialise(GPT(sizes), 0.02).eval()
    generate = compiled(model.generate, dynamic={"idx": 1})
    state = {"idx": None}

    def step(number: int):
        idx = state["idx"]
        if idx is None or idx.size(1) >= 2 * sizes.block_size:
            idx = tensor(np.zeros((1, 1), np.int64))
        state["idx"], logits = generate(idx, GENERATED, temperature=0.8, top_k=20)
        return torch.logsumexp(logits, -1).sum()

    return step
