"""torch as the oracle: the same layer with the same weights, in float32 and float64.

Two ways to compute agree when each one's error against float64 is at most twice the other's, plus
a few units in the last place of the largest element: that is what `assert_as_good` demands of us,
with torch's own float32 error as the measure.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.tensors.tensor import Tensor, tensor

torch.set_num_threads(1)  # the layers are tiny; spinning threads only disturb other tests
ULP = float(np.finfo(np.float32).eps)
FEW = 4.0


def assert_as_good(ours: Any, theirs: Any, exact: Any, what: str) -> None:
    """Our error is at most twice torch's, by norm, plus a few ulp."""
    got, peer, want = (np.asarray(v, np.float64) for v in (ours, theirs, exact))
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    if not want.size:
        return
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True), what
    size = float(np.linalg.norm(want[finite]))
    error = float(np.linalg.norm((got - want)[finite]))
    allowed = 2 * float(np.linalg.norm((peer - want)[finite])) + FEW * ULP * size
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}, norm {size:.3g}"


def ours(value: Any) -> Any:
    """torch tensors as ridgeline tensors; other values as they are."""
    if isinstance(value, torch.Tensor):
        made = tensor(value.detach().numpy().copy())
        return made.requires_grad_() if value.requires_grad else made
    return value


def wide(value: Any) -> Any:
    """A floating torch tensor in float64, as a leaf of its own."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


def load(layer: nn.Module, theirs: torch.nn.Module) -> None:
    """Give our layer torch's state; keys and shapes must be equal."""
    state = {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    assert list(layer.state_dict()) == list(state)
    layer.load_state_dict(state)


def results(output: Any) -> list[Any]:
    """The tensors of an output, in order."""
    if not isinstance(output, tuple | list):
        return [output]
    return [part for member in output for part in results(member)]


def number(value: Any) -> Any:
    """A tensor of either library as an array."""
    return as_array(value) if isinstance(value, Tensor) else value.detach().numpy()


def compare(layer: nn.Module, theirs: torch.nn.Module, *inputs: Any) -> None:
    """Outputs, input gradients, parameter gradients and buffers of one call are as good."""
    load(layer, theirs)
    exact = copy.deepcopy(theirs).double()
    mine, peer, high = [ours(i) for i in inputs], list(inputs), [wide(i) for i in inputs]
    outs = [results(m(*args)) for m, args in ((layer, mine), (theirs, peer), (exact, high))]
    for number_of, (a, b, c) in enumerate(zip(*outs)):
        assert_as_good(number(a), number(b), number(c), f"output {number_of}")
    if any(out.requires_grad for out in outs[1]):
        for group in outs:
            weighed(group).backward()
        for place, (a, b, c) in enumerate(zip(mine, peer, high)):
            if isinstance(b, torch.Tensor) and b.requires_grad:
                triple = (number(t.grad) for t in (a, b, c))
                assert_as_good(*triple, f"gradient of input {place}")
        named = dict(exact.named_parameters())
        peers = dict(theirs.named_parameters())
        for name, parameter in layer.named_parameters():
            if peers[name].grad is not None:
                triple = (number(t.grad) for t in (parameter, peers[name], named[name]))
                assert_as_good(*triple, f"gradient of {name}")
    for (name, a), b, c in zip(layer.named_buffers(), theirs.buffers(), exact.buffers()):
        assert_as_good(number(a), number(b), number(c), f"buffer {name}")


def weighed(outputs: list[Any]) -> Any:
    """A scalar that depends on every element in its own way."""
    total: Any = 0.0
    for output in outputs:
        if not output.requires_grad:
            continue
        count = output.numel()
        ramp = np.linspace(-1, 1, count) + 0.25
        shaped = ramp.reshape(tuple(output.shape))
        if isinstance(output, Tensor):
            weights: Any = tensor(shaped.astype(output.dtype.numpy))
        else:
            weights = torch.tensor(shaped, dtype=output.dtype)
        total = total + (output * weights).sum()
    return total
