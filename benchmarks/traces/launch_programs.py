"""Planted problems between host and device: waiting, launching, compiling, holding memory."""

from __future__ import annotations

import math
import time

import torch
import torch.nn.functional as F
from harness import Program, Step
from torch import nn


def stack(device: torch.device, width: int, depth: int) -> nn.Sequential:
    """Linear layers with ReLU between them, in bfloat16 on a GPU."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers).to(device=device, dtype=dtype)


def inputs(model: nn.Sequential, rows: int) -> torch.Tensor:
    weight = next(model.parameters())
    return torch.randn(rows, weight.shape[1], device=weight.device, dtype=weight.dtype)


def item_per_step(device: torch.device, repaired: bool) -> Step:
    """The loss read back before the host does its bookkeeping, against one kept on the device."""
    model = stack(device, 4096, 4)
    batch = inputs(model, 8192)
    average = torch.zeros((), device=device)
    history: list[float] = []

    def bookkeeping() -> None:
        history.append(sum(map(math.sqrt, range(40_000))))

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        if repaired:
            average.lerp_(loss.detach().float(), 0.1)
        else:
            history.append(loss.item())
        bookkeeping()

    return step


def device_syncs(device: torch.device, repaired: bool) -> Step:
    """`torch.cuda.synchronize()` left in after each layer, against none."""
    model = stack(device, 4096, 8)
    batch = inputs(model, 2048)

    def step() -> None:
        hidden = batch
        with torch.no_grad():
            for layer in model:
                hidden = layer(hidden)
                if not repaired:
                    torch.cuda.synchronize()

    return step


def allocator_churn(device: torch.device, repaired: bool) -> Step:
    """`torch.cuda.empty_cache()` every step, against leaving the cache alone."""
    model = stack(device, 4096, 6)
    batch = inputs(model, 4096)

    def step() -> None:
        model(batch).square().mean().backward()
        if not repaired:
            torch.cuda.empty_cache()

    return step


def tiny_kernels(device: torch.device, repaired: bool) -> Step:
    """Pointwise work on 100 small tensors one by one, against the same work in one batch."""
    model = stack(device, 4096, 2)
    batch = inputs(model, 4096)
    parts = [torch.randn(4096, device=device) for _ in range(100)]
    whole = torch.stack(parts)

    def smooth(part: torch.Tensor) -> torch.Tensor:
        return torch.tanh(part * 0.5 + 0.25).add_(part)

    def step() -> None:
        with torch.no_grad():
            if repaired:
                smooth(whole)
            else:
                for part in parts:
                    smooth(part)
            model(batch)

    return step


def per_tensor_optimizer(device: torch.device, repaired: bool) -> Step:
    """AdamW that walks over parameters one by one, against the fused form."""
    model = stack(device, 1024, 30)
    batch = inputs(model, 8192)
    how = {"fused": True} if repaired else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def select_loop(device: torch.device, repaired: bool) -> Step:
    """A Python loop over the rows of a tensor, against one call on all of them."""
    cuda = device.type == "cuda"
    model = stack(device, 4096 if cuda else 128, 2)
    batch = inputs(model, 4096 if cuda else 64)
    table = torch.randn(96, 4096 if cuda else 256, device=device)

    def step() -> None:
        with torch.no_grad():
            if repaired:
                F.normalize(table, dim=1)
            else:
                torch.stack([F.normalize(table[row], dim=0) for row in range(len(table))])
            model(batch)

    return step


def recompilation(device: torch.device, repaired: bool) -> Step:
    """A compiled function that sees a new length every step, against padded lengths."""
    torch._dynamo.config.recompile_limit = 256
    torch._dynamo.config.accumulated_recompile_limit = 512
    weight = torch.randn(1024, 1024, device=device)
    length = iter(range(256, 100_000))

    @torch.compile(backend="aot_eager", dynamic=False)
    def block(rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(rows @ weight)
        return (hidden * hidden.sigmoid()).sum()

    def step() -> None:
        rows = 512 if repaired else next(length)
        with torch.no_grad():
            block(torch.randn(rows, 1024, device=device))

    return step


def memory_growth(device: torch.device, repaired: bool) -> Step:
    """A list of losses that keeps every step's graph alive, against detached losses."""
    cuda = device.type == "cuda"
    model = stack(device, 4096 if cuda else 256, 6)
    batch = inputs(model, 4096 if cuda else 512)
    losses: list[torch.Tensor] = []

    def step() -> None:
        loss = model(batch).square().mean()
        torch.autograd.grad(loss, model[0].weight, retain_graph=not repaired)
        losses.append(loss.detach() if repaired else loss)

    return step


def blocking_checkpoint(device: torch.device, repaired: bool) -> Step:
    """A checkpoint that stops training for 0.6 s, against one written beside it."""
    model = stack(device, 4096, 6)
    batch = inputs(model, 8192)
    count = iter(range(1_000_000))

    def step() -> None:
        for _ in range(8):
            model(batch).square().mean().backward()
        if not repaired and next(count) % 6 == 5:
            time.sleep(0.6)

    return step


PROGRAMS = (
    Program("item_per_step", "S1", item_per_step),
    Program("device_syncs", "S2", device_syncs),
    Program("allocator_churn", "S3", allocator_churn),
    Program("tiny_kernels", "L2", tiny_kernels),
    Program("per_tensor_optimizer", "L7", per_tensor_optimizer),
    Program("select_loop", "L8", select_loop, ("cuda", "cpu")),
    Program("recompilation", "L9", recompilation, ("cuda", "cpu")),
    Program("blocking_checkpoint", "L6", blocking_checkpoint),
    Program("memory_growth", "M3", memory_growth, ("cuda", "cpu"), memory=True),
)
