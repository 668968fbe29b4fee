"""autocast on the CPU against torch's: element types of results, values, gradients, jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
MATRIX, IMAGE = RNG.normal(size=(6, 6)), RNG.normal(size=(2, 3, 8, 8))

Case = Callable[[Any, Any, Any], Any]
CASES: dict[str, tuple[Case, np.ndarray]] = {
    "matmul": (lambda lib, F, x: x @ x, MATRIX),
    "mm": (lambda lib, F, x: lib.mm(x, x), MATRIX),
    "linear": (lambda lib, F, x: F.linear(x, x, x[0]), MATRIX),
    "bmm": (lambda lib, F, x: lib.bmm(x[None], x[None]), MATRIX),
    "conv": (lambda lib, F, x: F.conv2d(x, x[:, :, :3, :3]), IMAGE),
    "add": (lambda lib, F, x: x + x, MATRIX),
    "softmax of a product": (lambda lib, F, x: (x @ x).softmax(-1), MATRIX),
    "sum of a product": (lambda lib, F, x: (x @ x).sum(), MATRIX),
    "relu of a product": (lambda lib, F, x: (x @ x).relu(), MATRIX),
    "mse": (lambda lib, F, x: F.mse_loss(x @ x, x), MATRIX),
    "smooth l1": (lambda lib, F, x: F.smooth_l1_loss(x @ x, x), MATRIX),
    "cumsum": (lambda lib, F, x: (x @ x).cumsum(0), MATRIX),
    "prod": (lambda lib, F, x: (x @ x).prod(0), MATRIX),
    "trace": (lambda lib, F, x: (x @ x).trace(), MATRIX),
    "logsumexp": (lambda lib, F, x: (x @ x).logsumexp(0), MATRIX),
    "exp": (lambda lib, F, x: (x @ x).exp(), MATRIX),
    "layer norm": (lambda lib, F, x: F.layer_norm(x @ x, (6,)), MATRIX),
    "gelu": (lambda lib, F, x: F.gelu(x @ x), MATRIX),
    "cross entropy": (lambda lib, F, x: F.cross_entropy(x @ x, x.softmax(-1)), MATRIX),
    "cat": (lambda lib, F, x: lib.cat([x @ x, x]), MATRIX),
    "stack": (lambda lib, F, x: lib.stack([x @ x, x @ x]), MATRIX),
    "attention": (lambda lib, F, x: F.scaled_dot_product_attention(*[x[None]] * 3), MATRIX),
    "float64 stays": (lambda lib, F, x: x.double() + (x @ x), MATRIX),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_types_and_values_are_torchs(name: str) -> None:
    case, values = CASES[name]
    mine, theirs = rl.tensor(values, dtype=rl.float32), torch.tensor(values, dtype=torch.float32)
    with rl.autocast("cpu", dtype=rl.bfloat16):
        own = case(rl, nn.functional, mine)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        other = case(torch, torch.nn.functional, theirs)
    assert own.dtype.name == str(other.dtype).removeprefix("torch.")
    exact = case(torch, torch.nn.functional, theirs.double()).numpy()
    error, reference = (
        np.linalg.norm(np.asarray(got, np.float64) - exact)
        for got in (own.float().numpy(), other.float().numpy())
    )
    assert error <= 2 * reference + 1e-6 * np.linalg.norm(exact)


def test_gradients_have_the_parameters_type() -> None:
    layer = nn.Linear(4, 3)
    with rl.autocast("cpu", dtype=rl.bfloat16):
        loss = layer(rl.ones(2, 4)).float().sum()
    loss.backward()
    assert layer.weight.dtype is rl.float32 and layer.weight.grad.dtype is rl.float32
    np.testing.assert_array_equal(layer.weight.grad.numpy(), np.full((3, 4), 2.0))


def test_blocks_nest_and_end() -> None:
    x = rl.ones(2, 2)
    with rl.autocast("cpu"):
        assert rl.is_autocast_enabled("cpu") and not rl.is_autocast_enabled("cuda")
        with rl.autocast("cpu", enabled=False):
            assert (x @ x).dtype is rl.float32
        with rl.autocast("cpu", dtype=rl.float16):
            assert (x @ x).dtype is rl.float16
        assert (x @ x).dtype is rl.bfloat16
        with rl.autocast("cuda", dtype=rl.float16):
            assert (x @ x).dtype is rl.bfloat16
    assert (x @ x).dtype is rl.float32 and rl.get_autocast_dtype("cpu") is rl.bfloat16


def test_as_a_decorator_and_inside_jit() -> None:
    x = rl.tensor(MATRIX, dtype=rl.float32)

    @rl.autocast("cpu", dtype=rl.bfloat16)
    def product(x: rl.Tensor) -> rl.Tensor:
        return x @ x

    jitted = rl.jit(product)
    assert product(x).dtype is jitted(x).dtype is rl.bfloat16
    np.testing.assert_array_equal(jitted(x).float().numpy(), product(x).float().numpy())


def test_jit_traces_again_when_autocast_is_switched() -> None:
    x = rl.tensor(MATRIX, dtype=rl.float32)
    jitted = rl.jit(lambda x: x @ x)
    assert jitted(x).dtype is rl.float32
    with rl.autocast("cpu"):
        assert jitted(x).dtype is rl.bfloat16
    assert jitted(x).dtype is rl.float32
    assert jitted.traces == 2


def test_what_autocast_refuses() -> None:
    with pytest.raises(rl.RidgelineError, match="bfloat16 or float16"):
        rl.autocast("cpu", dtype=rl.float64)
    with pytest.raises(rl.RidgelineError, match="no device"):
        rl.autocast("gpu")
