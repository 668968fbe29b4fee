"""A GPT training step with AdamW: 6 layers, width 384, 6 heads, vocabulary 256, 8×256 tokens.

Learned positions, norms first, tied head, gelu by tanh, no dropout. One definition serves torch
and ridgeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import torch_module
from benchmarks.workload import (
    COMPILED,
    DEFERRED,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    Workload,
    generator,
    once_called,
)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a model and its batch are."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    length: int


SMALL = Size(layers=6, width=384, heads=6, vocabulary=256, batch=8, length=256)
SETTINGS = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
CHECKED = ("loss", "blocks.0.qkv.weight", "blocks.5.down.bias", "token.weight")


def network(nn: Any, size: Size = SMALL) -> Any:
    """The model in torch's or ridgeline's modules."""
    width = size.width
    function = nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length = x.shape[0], x.shape[1]
            parts = self.qkv(self.norm1(x)).reshape(
                batch, length, 3, size.heads, width // size.heads
            )
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            seen = function.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
            wide = function.gelu(self.up(self.norm2(x)), approximate="tanh")
            return x + self.down(wide)

    class GPT(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, width)
            self.place = nn.Embedding(size.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place.weight
            for block in self.blocks:
                x = block(x)
            return function.linear(self.norm(x), self.token.weight)

    return GPT()


def inputs() -> Arrays:
    """Tokens, the tokens that follow, and weights of GPT-2's initial distribution."""
    source = generator()
    text = source.integers(0, SMALL.vocabulary, (SMALL.batch, SMALL.length + 1))
    arrays: Arrays = {"tokens": text[:, :-1].copy(), "targets": text[:, 1:].copy()}
    torch = torch_module()
    for name, value in network(torch.nn).state_dict().items():
        shape = tuple(value.shape)
        if name.endswith("bias"):
            arrays[name] = np.zeros(shape, np.float32)
        elif "norm" in name:
            arrays[name] = np.ones(shape, np.float32)
        else:
            arrays[name] = (source.standard_normal(shape) * 0.02).astype(np.float32)
    return arrays


def _runner(lib: Any, model: Any, arrays: Arrays, wrap: Any, tensor: Any) -> Runner:
    optimizer = lib.optim.AdamW(model.parameters(), **SETTINGS)

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        scores = model(tokens)
        loss = lib.nn.functional.cross_entropy(
            scores.reshape(SMALL.batch * SMALL.length, SMALL.vocabulary),
            targets.reshape(SMALL.batch * SMALL.length),
        )
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    kept: Arrays = {}
    tokens, targets = tensor(arrays["tokens"]), tensor(arrays["targets"])

    def call() -> float:
        loss = float(run(tokens, targets).item())
        if not kept:
            state = model.state_dict()
            kept["loss"] = np.asarray(loss)
            kept.update({k: state[k].detach().numpy().copy() for k in CHECKED if k != "loss"})
        return loss

    return Runner(call, lambda: kept)


def torch_step(compiled: bool = False, dtype: str = "float32") -> Builder:
    """torch, eager or compiled."""

    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        model = network(torch.nn)
        names = set(arrays) - {"tokens", "targets"}
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in names})
        model = model.to(getattr(torch, dtype))
        wrap = torch.compile if compiled else (lambda step: step)
        return _runner(torch, model, arrays, wrap, torch.from_numpy)

    return build


def ridgeline_step(jit: bool) -> Builder:
    """ridgeline, with or without the decorator."""

    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        model = network(rl.nn)
        names = set(arrays) - {"tokens", "targets"}
        model.load_state_dict({name: rl.tensor(arrays[name]) for name in names})
        return _runner(rl, model, arrays, rl.jit if jit else (lambda step: step), rl.tensor)

    return build


WORKLOAD = Workload(
    name="gpt_step",
    title="GPT 6×384 train step 8×256",
    inputs=inputs,
    reference=once_called(torch_step(dtype="float64")),
    builders={
        OURS: ridgeline_step(jit=True),
        DEFERRED: ridgeline_step(jit=False),
        TORCH: torch_step(),
        COMPILED: torch_step(compiled=True),
    },
    # Adam's first step is lr * sign(gradient): where a gradient is almost zero the sign is chance
    tolerance=1e-3,
    flops=6.0 * 10_740_480 * SMALL.batch * SMALL.length
    + 12.0 * SMALL.layers * SMALL.width * SMALL.length * SMALL.batch * SMALL.length,
)
