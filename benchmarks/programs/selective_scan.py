"""A state-space language model whose recurrence is a Python loop over positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class ModelArgs:
    batch: int = 4
    length: int = 64
    d_model: int = 128
    n_layer: int = 2
    vocab_size: int = 256
    d_state: int = 16
    d_conv: int = 4

    @property
    def d_inner(self):
        return 2 * self.d_model

    @property
    def dt_rank(self):
        return -(-self.d_model // 16)


DEFAULT = ModelArgs()
SMALL = ModelArgs(batch=2, length=8, d_model=16, n_layer=1, vocab_size=32, d_state=4)


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        d = args.d_inner
        self.in_proj = nn.Linear(args.d_model, d * 2, bias=False)
        self.conv1d = nn.Conv1d(d, d, args.d_conv, groups=d, padding=args.d_conv - 1)
        self.x_proj = nn.Linear(d, args.dt_rank + args.d_state * 2, bias=False)
        self.dt_proj = nn.Linear(args.dt_rank, d)
        self.log_a = nn.Parameter(tensor(np.log(np.arange(1, args.d_state + 1.0))))
        self.D = nn.Parameter(torch.ones(d))
        self.out_proj = nn.Linear(d, args.d_model, bias=False)

    def forward(self, x):
        length = x.shape[1]
        x, res = self.in_proj(x).split([self.args.d_inner, self.args.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :length].transpose(1, 2)
        y = self.ssm(F.silu(x))
        return self.out_proj(y * F.silu(res))

    def ssm(self, x):
        n, rank = self.args.d_state, self.args.dt_rank
        A = -torch.exp(self.log_a).expand(self.args.d_inner, n)
        delta, B, C = self.x_proj(x).split([rank, n, n], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        return self.selective_scan(x, delta, A, B, C, self.D)

    def selective_scan(self, u, delta, A, B, C, D):
        (b, length, d_in), n = u.shape, A.shape[1]
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        x = torch.zeros((b, d_in, n), device=u.device)
        ys = []
        for i in range(length):
            x = deltaA[:, i] * x + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", x, C[:, i, :]))
        return torch.stack(ys, dim=1) + u * D


class Mamba(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab_size, args.d_model)
        self.layers = nn.ModuleList([MambaBlock(args) for _ in range(args.n_layer)])
        self.norms = nn.ModuleList([RMSNorm(args.d_model) for _ in range(args.n_layer)])
        self.norm_f = RMSNorm(args.d_model)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for norm, layer in zip(self.norms, self.layers):
            x = layer(norm(x)) + x
        return F.linear(self.norm_f(x), self.embedding.weight)


def make(sizes: ModelArgs) -> Step:
    data = tensor(source(1).integers(0, sizes.vocab_size, (16 * sizes.batch, sizes.length + 1)))
    model = initialise(Mamba(sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @compiled
    def train(inputs, targets):
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % len(data)
        batch = data[begin : begin + sizes.batch]
        return train(batch[:, :-1], batch[:, 1:])

    return step
