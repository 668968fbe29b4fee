"""Planted problems in feeding the device: loaders, decoding, copies."""

from __future__ import annotations

import time

import torch
from harness import Program, Step
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 1024


class Stored(Dataset[torch.Tensor]):
    """Samples that take `seconds` each to fetch and decode."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((FEATURES,), float(index % 7)).sort().values


def head(device: torch.device) -> nn.Module:
    """A network large enough to keep a GPU busy for a millisecond or so."""
    width = 8192 if device.type == "cuda" else 512
    layers = [nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, FEATURES)]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return nn.Sequential(*layers).to(device=device, dtype=dtype)


def train_from(loader: DataLoader[torch.Tensor], device: torch.device, repeat: int) -> Step:
    """A training step that draws its batch from the loader."""
    model = head(device)
    batches = iter(loader)
    dtype = next(model.parameters()).dtype

    def step() -> None:
        batch = next(batches).to(device, non_blocking=True)
        activations = batch.to(dtype).repeat(repeat, 1)
        loss = model(activations).square().mean()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def no_workers(device: torch.device, repaired: bool) -> Step:
    """Decoding in the training process, against worker processes."""
    cuda = device.type == "cuda"
    workers = {"num_workers": 8 if cuda else 2, "persistent_workers": True, "prefetch_factor": 4}
    loader = DataLoader(
        Stored(0.0003 if cuda else 0.002),
        batch_size=64 if cuda else 16,
        pin_memory=cuda,
        **(workers if repaired else {}),
    )
    return train_from(loader, device, 512 if cuda else 48)


def slow_decode(device: torch.device, repaired: bool) -> Step:
    """Workers that cannot keep up, against samples decoded ahead of time."""
    cuda = device.type == "cuda"
    loader = DataLoader(
        Stored(0.00002 if repaired else 0.001 if cuda else 0.02),
        batch_size=64 if cuda else 16,
        pin_memory=cuda,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=4 if cuda or repaired else 1,
    )
    return train_from(loader, device, 512 if cuda else 48)


def pageable_copies(device: torch.device, repaired: bool) -> Step:
    """Batches in ordinary memory, against page-locked ones copied without waiting."""
    rows = 16384
    host = torch.randn(rows, FEATURES)
    host = host.pin_memory() if repaired else host
    model = head(device)

    def step() -> None:
        batch = host.to(device, non_blocking=repaired)
        model(batch.to(torch.bfloat16)).square().mean().backward()

    return step


def small_copies(device: torch.device, repaired: bool) -> Step:
    """Two hundred small tensors copied one by one, against one packed copy."""
    pieces = [torch.randn(4096).pin_memory() for _ in range(200)]
    packed = torch.cat(pieces).pin_memory()
    model = head(device)

    def step() -> None:
        if repaired:
            features = packed.to(device, non_blocking=True)
        else:
            features = torch.cat([piece.to(device, non_blocking=True) for piece in pieces])
        rows = features[: 512 * FEATURES].view(512, FEATURES).to(torch.bfloat16)
        model(rows.repeat(8, 1)).square().mean().backward()

    return step


def exposed_copies(device: torch.device, repaired: bool) -> Step:
    """A pinned copy in front of the kernels, against one for the next step beside them."""
    host = torch.randn(32768, FEATURES, dtype=torch.bfloat16).pin_memory()
    model = head(device)
    side = torch.cuda.Stream()
    ready: list[torch.Tensor] = [host.to(device)]

    def plain() -> None:
        batch = host.to(device, non_blocking=True)
        model(batch).square().mean().backward()

    def prefetched() -> None:
        torch.cuda.current_stream().wait_stream(side)
        batch = ready.pop()
        batch.record_stream(torch.cuda.current_stream())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ready.append(host.to(device, non_blocking=True))
        model(batch).square().mean().backward()

    return prefetched if repaired else plain


def filled_on_host(device: torch.device, repaired: bool) -> Step:
    """Masks made on the host and copied over, against masks made in place."""
    model = head(device)
    batch = torch.randn(8192, FEATURES, device=device, dtype=torch.bfloat16)

    def step() -> None:
        if repaired:
            mask = torch.ones(8192, FEATURES, device=device)
        else:
            mask = torch.ones(8192, FEATURES).to(device)
        model(batch * mask.to(torch.bfloat16)).square().mean().backward()

    return step


PROGRAMS = (
    Program("no_workers", "D2", no_workers, ("cuda", "cpu")),
    Program("slow_decode", "D1", slow_decode, ("cuda", "cpu")),
    Program("pageable_copies", "D3", pageable_copies),
    Program("small_copies", "D5", small_copies),
    Program("exposed_copies", "D4", exposed_copies),
    Program("filled_on_host", "D6", filled_on_host),
)
