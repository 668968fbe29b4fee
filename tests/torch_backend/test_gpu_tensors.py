"""Graphs over tensors on a GPU that is not there: torch's memory and streams, and who owns what."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ridgeline.torch_backend as backend
from ridgeline.errors import IndexRangeError
from ridgeline.runtime.cuda.memory import allocate
from ridgeline.torch_backend import gpu
from tests.cuda import machines
from tests.cuda.fake_driver import FakeDriver

F = torch.nn.functional
DEFAULT, OTHER = 7, 8  # handles of streams


class TorchOnGpu:
    """Torch, with tensors of the host that stand for such of a GPU of a driver that pretends."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver, self.current, self.taken = driver, DEFAULT, 0
        self._blocks: dict[int, tuple[int, int]] = {}  # by where contents are: address and size

    def raw_stream(self, number: int) -> int:
        return self.current

    def new_bytes(self, nbytes: int, number: int) -> torch.Tensor:
        """Memory that torch's allocator would give."""
        self.taken += 1
        address = self.driver._allocate(nbytes, self.driver.gpus[number])
        place = self.driver.shown(address) if nbytes else 0
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        memory = (ctypes.c_char * nbytes).from_address(place)
        self._blocks[place] = address, nbytes
        return torch.frombuffer(memory, dtype=torch.uint8)

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor on the GPU."""
        raw = self.new_bytes(source.nbytes, 0)
        made = raw.view(source.dtype).view(source.shape)
        with torch.no_grad():
            made.copy_(source)
        return made.requires_grad_(source.requires_grad)

    def _block(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        at = tensor.data_ptr()
        for place, (address, size) in self._blocks.items():
            if place <= at < place + size:
                return place, address
        return None

    def device_of(self, tensor: torch.Tensor) -> Any:
        there = self._block(tensor) is not None
        return SimpleNamespace(type="cuda", index=0) if there else tensor.device

    def address_of(self, tensor: torch.Tensor) -> int:
        found = self._block(tensor)
        return 0 if found is None else found[1] + tensor.data_ptr() - found[0]

    def aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.tensor(tensor.detach())


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchOnGpu]:
    """A GPU, with torch's tensors on it."""
    torch._dynamo.reset()
    backend.reset()
    with (
        machines.pretended_gpus() as driver,
        machines.pretended_code(driver, str(tmp_path)),
        monkeypatch.context() as patch,
    ):
        made = TorchOnGpu(driver)
        aligned = gpu.aligned
        for name in ("raw_stream", "new_bytes", "device_of", "address_of"):
            patch.setattr(gpu, name, getattr(made, name))
        patch.setattr(gpu, "_streams", {})
        patch.setattr(gpu, "missing", lambda: "")
        # a copy of what begins elsewhere is torch's to make, on the tensor's device
        moved = lambda t: made.aligned(t) if aligned(t) is not t else t  # noqa: E731
        for place in ("forms.gpu", "tensor_programs"):
            patch.setattr(f"ridgeline.torch_backend.{place}.aligned", moved)
        yield made
        torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend="ridgeline")


def test_results_are_memory_of_torchs_allocator(there: TorchOnGpu) -> None:
    x, y = torch.randn(5, 7), torch.randn(7)
    run = compiled(lambda a, b: ((a * b).softmax(-1), a.sum(0)))
    given = there.tensor(x), there.tensor(y)
    for _ in range(3):
        soft, total = run(*given)
        torch.testing.assert_close(soft, (x * y).softmax(-1))
        torch.testing.assert_close(total, x.sum(0))
        assert there.device_of(soft).type == there.device_of(total).type == "cuda"
    assert not backend.by_torch()
    assert not there.driver.calls.get("cuMemAllocAsync")  # nothing is taken beside torch


def test_training(there: TorchOnGpu) -> None:
    """Gradients, with what the forward pass keeps on the device."""
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x, y = torch.randn(6, 4), torch.randint(3, (6,))

    def loss(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(F.linear(x, weights[0], weights[1]))
        return F.cross_entropy(F.linear(hidden, weights[2], weights[3]), y)

    own = [p.detach().clone().requires_grad_() for p in plain.parameters()]
    held = [there.tensor(p) for p in own]
    want = loss(x, y, *own)
    got = compiled(loss)(there.tensor(x), there.tensor(y), *held)
    torch.testing.assert_close(got, want)
    want.backward()
    got.backward(there.tensor(torch.ones(())))
    for mine, theirs in zip(held, own):
        torch.testing.assert_close(mine.grad, theirs.grad)
        assert there.device_of(mine.grad).type == "cuda"
    assert not backend.by_torch()


def test_programs_follow_torchs_current_stream(there: TorchOnGpu) -> None:
    run = compiled(lambda a: a.exp() + 1)
    x = there.tensor(torch.randn(9))
    run(x)
    there.current = OTHER
    torch.testing.assert_close(run(x), x.exp() + 1)
    assert [stream.address for stream in gpu._streams.values()] == [DEFAULT, OTHER]


def test_writes_and_views_that_begin_anywhere(there: TorchOnGpu) -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(b)
        return a * 2

    base, x = there.tensor(torch.arange(12.0)), there.tensor(torch.ones(9))
    result = compiled(add)(base[3:], x)
    torch.testing.assert_close(base, torch.tensor([0.0, 1, 2, *range(4, 13)]))
    torch.testing.assert_close(result, 2 * base[3:])


def test_an_index_out_of_range_is_raised_by_the_next_call(there: TorchOnGpu) -> None:
    table, run = there.tensor(torch.randn(5, 3)), compiled(lambda i, w: F.embedding(i, w))
    with pytest.raises(IndexRangeError):
        for _ in range(2):
            run(there.tensor(torch.tensor([1, 5])), table)
    torch.testing.assert_close(run(there.tensor(torch.tensor([4])), table), table[4:])


def test_own_streams_keep_their_own_memory(there: TorchOnGpu) -> None:
    from ridgeline.runtime.cuda.device import device

    made = allocate(device(0).main_stream, 64)
    assert there.driver.calls["cuMemAllocAsync"] == 1 and made.nbytes == 64
