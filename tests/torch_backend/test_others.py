"""Calls of torch's that are made of others here give what torch's do, and torch makes none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ridgeline import torch_backend
from tests.torch_backend.modules import assert_close

aten = torch.ops.aten
POSITIVE = torch.randn(4, 6) > 0


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "one value through a mask": lambda x: x.clone().index_put_((POSITIVE,), torch.tensor([3.0])),
    "added through a mask": lambda x: aten.index_put(
        x, [POSITIVE], torch.tensor(3.0), accumulate=True
    ),
    "through a mask of columns": lambda x: aten.index_put(
        x, [None, POSITIVE[0]], torch.tensor(3.0)
    ),
    "memory by strides": lambda x: torch.empty_strided((2, 3), (1, 2)).fill_(x[0, 0].item()),
    "new memory by strides": lambda x: aten.new_empty_strided(x, (2, 3), (1, 2)).fill_(1.0),
    "several axes": lambda x: x[None, :, None].squeeze(0, 2),
    "a copied view": lambda x: aten.view_copy(x, dtype=torch.int32),
    "nothing in pieces of nothing": lambda x: torch.split(x[:, :0], 0, 1),
    "the data of a tensor": lambda x: (x.clone().data.add_(1), x),
    "another element type": lambda x: (x.view(torch.int32), x.view(torch.int32) + 1),
    "a type with data": lambda x: torch.LongTensor([1, 2]) + x.long()[0, :2],
    "resized": lambda x: aten.resize(x, [2, 3]),
    "a resize backwards": lambda x: aten.upsample_nearest2d_backward(
        x[None, None], [4, 6], [1, 1, 2, 3]
    ),
    "buckets of other types": lambda x: torch.bucketize(
        (x * 3).char(), torch.tensor([-1, 1, 2], dtype=torch.int16)
    ),
    "as often as counts say": lambda x: torch.repeat_interleave(
        x, torch.tensor([2, 0, 3, 1]), 0, output_size=6
    ),
    "the norm of one": lambda x: torch.norm(x[:, None] * 0.1, p=-41.0, dim=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_gives_what_torch_gives(name: str) -> None:
    x = torch.randn(4, 6)
    got, want = torch.compile(CALLS[name], backend="ridgeline")(x), CALLS[name](x)
    assert_close(got, want)
    assert set(torch_backend.by_torch()) <= {"Tensor.item"}


@pytest.mark.parametrize("channels", [False, True])
def test_gradients_pass_a_grid_of_integers_inside_it(channels: bool) -> None:
    def rounded(x: Tensor) -> Tensor:
        if channels:
            scale, zero = torch.tensor([0.1, 0.02]), torch.tensor([0, 3], dtype=torch.int32)
            return torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7)
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)

    one = torch.randn(5, 2, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    got, want = torch.compile(rounded, backend="ridgeline")(one), rounded(other)
    assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    assert_close(one.grad, other.grad)
    assert not torch_backend.by_torch()
