"""A small Llama that writes one token a step, with keys and values kept in a cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import (
    F,
    Step,
    compiled,
    device,
    initialise,
    nn,
    tensor,
    torch,
)


@dataclass(frozen=True)
class ModelArgs:
    dim: int = 288
    n_layers: int = 6
    n_heads: int = 6
    vocab_size: int = 32000
    hidden: int = 768
    max_seq_len: int = 256


DEFAULT = ModelArgs()
SMALL = ModelArgs(dim=64, n_layers=2, n_heads=4, vocab_size=512, hidden=172, max_seq_len=64)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def apply_rotary_emb(x, freqs_cos, freqs_sin):
    x_r, x_i = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = freqs_cos[None, :, None, :], freqs_sin[None, :, None, :]
    out_r, out_i = x_r * cos - x_i * sin, x_r * sin + x_i * cos
    return torch.stack([out_r, out_i], dim=-1).flatten(3)


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_heads, self.head_dim = args.n_heads, args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.dim, bias=False)
        self.wk = nn.Linear(args.dim, args.dim, bias=False)
        self.wv = nn.Linear(args.dim, args.dim, bias=False)
        self.wo = nn.Linear(args.dim, args.dim, bias=False)
        shape = (1, args.max_seq_len, args.n_heads, self.head_dim)
        self.register_buffer("cache_k", torch.zeros(shape), persistent=False)
        self.register_buffer("cache_v", torch.zeros(shape), persistent=False)

    def forward(self, x, start_pos, freqs_cos, freqs_sin):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xq = apply_rotary_emb(xq, freqs_cos, freqs_sin)
        xk = apply_rotary_emb(xk, freqs_cos, freqs_sin)
        self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk
        self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv
        keys = self.cache_k[:bsz, : start_pos + seqlen].transpose(1, 2)
        values = self.cache_v[:bsz, : start_pos + seqlen].transpose(1, 2)
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) * self.head_dim**-0.5
        scores = F.softmax(scores, dim=-1)
        output = torch.matmul(scores, values)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.w1 = nn.Linear(args.dim, args.hidden, bias=False)
        self.w2 = nn.Linear(args.hidden, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, args.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention, self.feed_forward = Attention(args), FeedForward(args)
        self.attention_norm, self.ffn_norm = RMSNorm(args.dim), RMSNorm(args.dim)

    def forward(self, x, start_pos, freqs_cos, freqs_sin):
        h = x + self.attention(self.attention_norm(x), start_pos, freqs_cos, freqs_sin)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList([TransformerBlock(args) for _ in range(args.n_layers)])
        self.norm = RMSNorm(args.dim)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        half = args.dim // args.n_heads // 2
        freqs = 1.0 / (10000.0 ** (np.arange(half) / half))
        angles = np.outer(np.arange(args.max_seq_len), freqs)
        self.register_buffer("freqs_cos", tensor(np.cos(angles)), persistent=False)
        self.register_buffer("freqs_sin", tensor(np.sin(angles)), persistent=False)

    def forward(self, tokens, start_pos):
        seqlen = tokens.shape[1]
        h = self.tok_embeddings(tokens)
        freqs_cos = self.freqs_cos[start_pos : start_pos + seqlen]
        freqs_sin = self.freqs_sin[start_pos : start_pos + seqlen]
        for layer in self.layers:
            h = layer(h, start_pos, freqs_cos, freqs_sin)
        return self.output(self.norm(h)[:, [-1], :])


def make(sizes: ModelArgs) -> Step:
    model = initialise(Transformer(sizes), 0.05).eval()
    state = {"token": torch.zeros(1, 1, dtype=torch.int64, device=device)}

    @compiled
    def decode_one_token(token, position):
        logits = model(token, position)[:, -1]
        probs = F.softmax(logits, dim=-1)
        return torch.multinomial(probs, num_samples=1), torch.logsumexp(logits, -1).sum()

    @torch.no_grad()
    def step(number: int):
        state["token"], total = decode_one_token(state["token"], number % sizes.max_seq_len)
        return total

    return step
