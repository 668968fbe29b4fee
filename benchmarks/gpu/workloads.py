"""What is measured on a GPU: memory-bound kernels, products, attention, steps of whole models.

A workload is a function written once for torch and ridgeline, the same for JAX where that is
short, NumPy inputs, an element type, and the bytes or operations it cannot do without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads import lenet_step

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One piece of work; `limit` bounds the error against torch in float64 or the widest there is.

    `compile` is torch.compile's mode, `compiled` the function with parts compiled where that is not
    done to the whole, `shown` what of a result is compared.
    """

    name: str
    inputs: Callable[[], list[Any]]
    make: Callable[[Any], Function]
    dtype: str = "bfloat16"
    jax: Callable[[Any], Function] | None = None
    compile: str = "default"
    compiled: Callable[[Any, str], Function] | None = None
    limit: float = 2e-2
    shown: Callable[[Any], Any] = lambda value: value
    bytes: float = 0.0
    flops: float = 0.0


def _normal(*shape: int) -> Any:
    return np.random.default_rng(20).standard_normal(shape, np.float32)


def _deciles(values: Any) -> Any:
    """Where nine tenths of random numbers are cut; all candidates draw from one distribution."""
    return np.quantile(values.reshape(-1)[::16], np.linspace(0.1, 0.9, 9))


DRAWN = 1 << 26
ROWS, COLUMNS = 16384, 8192
_PLANE = 2.0 * 2 * ROWS * COLUMNS


def _layer_norm(jax: Any) -> Function:
    def norm(x: Any, w: Any, b: Any) -> Any:
        wide = x.astype("float32")
        mean = wide.mean(1, keepdims=True)
        centred = wide - mean
        scale = jax.lax.rsqrt((centred * centred).mean(1, keepdims=True) + 1e-5)
        return (centred * scale * w + b).astype(x.dtype)

    return norm


def _gradients(function: Callable[[Any], Function], count: int) -> Callable[[Any], Function]:
    """A function followed by the gradients of its first `count` operands; the last is the seed."""

    def make(lib: Any) -> Function:
        forward = function(lib)

        def run(*operands: Any) -> Any:
            leaves = [x.detach().requires_grad_() for x in operands[:count]]
            result = forward(*leaves, *operands[count:-1])
            return lib.autograd.grad(result, leaves, operands[-1])

        return run

    return make


def _dropout(lib: Any) -> Function:
    return lambda x: lib.nn.functional.dropout(x, 0.1)


def _dropout_training(lib: Any) -> Function:
    def run(x: Any, seed: Any) -> Any:
        leaf = x.detach().requires_grad_()
        result = _dropout(lib)(leaf)
        return result, lib.autograd.grad(result, leaf, seed)[0]

    return run


def _cross_entropy(lib: Any) -> Function:
    def run(scores: Any, labels: Any) -> Any:
        leaf = scores.detach().requires_grad_()
        loss = lib.nn.functional.cross_entropy(leaf.float(), labels)
        return loss, lib.autograd.grad(loss, leaf)[0]

    return run


def _linear_gelu(lib: Any) -> Function:
    return lambda x, w, b: lib.nn.functional.gelu(
        lib.nn.functional.linear(x, w, b), approximate="tanh"
    )


def _attention(lib: Any) -> Function:
    return lambda q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _masked_attention(lib: Any) -> Function:
    return lambda q, k, v, kept: lib.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=kept
    )


def _padding() -> Any:
    """Which keys each of 16 texts has: 512 to 1024."""
    lengths = np.random.default_rng(4).integers(512, 1025, (16, 1, 1, 1))
    return np.arange(1024) < lengths


def _labels() -> Any:
    return np.random.default_rng(3).integers(0, 128256, 4096)


def _product(name: str, m: int, n: int, k: int) -> Workload:
    return Workload(
        name, lambda: [_normal(m, k), _normal(n, k)], lambda lib: lambda x, w: x @ w.T,
        jax=lambda jax: lambda x, w: x @ w.T, flops=2.0 * m * n * k,
    )  # fmt: skip


def _heads(*shape: int) -> list[Any]:
    return [_normal(*shape) for _ in range(3)]


def _convolutions(lib: Any) -> Function:
    """Two 3×3 convolutions with a ReLU between them; inputs and results have channels first."""

    def run(x: Any, v: Any, w: Any) -> Any:
        functional = lib.nn.functional
        if lib.__name__ == "torch":  # its best setting
            x = x.contiguous(memory_format=lib.channels_last)
        inner = functional.relu(functional.conv2d(x, v, padding=1))
        return functional.conv2d(inner, w, padding=1)

    return run


def _image_and_filters() -> list[Any]:
    filters = [_normal(128, 128, 3, 3) / np.float32(1152**0.5) for _ in range(2)]
    return [_normal(128, 128, 56, 56), *filters]


def _lenet_inference(lib: Any) -> Function:
    model = lenet_step.network(lib.nn)
    weights = lenet_step.inputs()
    as_tensor = lib.from_numpy
    model.load_state_dict({name: as_tensor(weights[name]) for name in lenet_step.SHAPES})
    model.to("cuda")

    def run(x: Any) -> Any:
        with lib.no_grad():
            return model(x)

    return run


def _lenet_step(lib: Any, mode: str = "") -> Function:
    """A training step; with a mode torch compiles the loss and its gradient, not the update.

    torch refuses whole steps as one CUDA graph: gradients are results of the step before.
    """
    model = lenet_step.network(lib.nn)
    weights = lenet_step.inputs()
    model.load_state_dict({name: lib.from_numpy(weights[name]) for name in lenet_step.SHAPES})
    model.to("cuda")
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss_of(x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy(model(x), y)

    forward = lib.compile(loss_of, mode=mode) if mode else loss_of

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _lenet_inputs() -> list[Any]:
    arrays = lenet_step.inputs()
    return [arrays["images"], arrays["labels"]]


_ALL = [
    Workload(
        "gelu", lambda: [_normal(1 << 26), _normal(1 << 26), _normal(1 << 26)],
        lambda lib: lambda x, a, b: lib.nn.functional.gelu(x * a + b, approximate="tanh"),
        "float32", lambda jax: lambda x, a, b: jax.nn.gelu(x * a + b), limit=1e-5,
        bytes=16.0 * (1 << 26),
    ),
    Workload(
        "rand", list, lambda lib: lambda: lib.rand(DRAWN, device="cuda"), "float32", limit=5e-3,
        shown=_deciles, bytes=4.0 * DRAWN,
    ),
    Workload(
        "randn", list, lambda lib: lambda: lib.randn(DRAWN, device="cuda"), "float32", limit=5e-3,
        shown=_deciles, bytes=4.0 * DRAWN,
    ),
    Workload(
        "dropout", lambda: [_normal(ROWS // 4, COLUMNS)], _dropout, shown=_deciles,
        bytes=_PLANE / 4,
    ),
    Workload(
        "dropout_training", lambda: [_normal(ROWS // 4, COLUMNS)] * 2, _dropout_training,
        shown=_deciles, bytes=_PLANE / 2,
    ),
    Workload(
        "softmax", lambda: [_normal(ROWS, COLUMNS)], lambda lib: lambda x: x.softmax(-1),
        jax=lambda jax: lambda x: jax.nn.softmax(x, -1), bytes=_PLANE,
    ),
    Workload(
        "layer_norm", lambda: [_normal(ROWS, COLUMNS), _normal(COLUMNS), _normal(COLUMNS)],
        lambda lib: lambda x, w, b: lib.nn.functional.layer_norm(x, (COLUMNS,), w, b),
        jax=_layer_norm, bytes=_PLANE,
    ),
    Workload(
        "rms_norm", lambda: [_normal(ROWS, COLUMNS), _normal(COLUMNS)],
        lambda lib: lambda x, w: lib.nn.functional.rms_norm(x, (COLUMNS,), w, 1e-5), bytes=_PLANE,
    ),
    Workload(
        "layer_norm_backward",
        lambda: [_normal(ROWS, COLUMNS), _normal(COLUMNS), _normal(COLUMNS),
                 _normal(ROWS, COLUMNS)],
        _gradients(lambda lib: lambda x, w, b: lib.nn.functional.layer_norm(x, (COLUMNS,), w, b),
                   3),
        bytes=2 * _PLANE,
    ),
    Workload(
        "cross_entropy", lambda: [_normal(4096, 128256), _labels()], _cross_entropy,
        bytes=2.0 * 3 * 4096 * 128256,
    ),
    _product("gemm_4096", 4096, 4096, 4096),
    _product("gemm_8192", 8192, 8192, 8192),
    Workload(
        "linear_gelu", lambda: [_normal(16384, 4096), _normal(4096, 4096), _normal(4096)],
        _linear_gelu, jax=lambda jax: lambda x, w, b: jax.nn.gelu(x @ w.T + b),
        flops=2.0 * 16384 * 4096 * 4096,
    ),
    Workload(
        "attention", lambda: _heads(16, 12, 1024, 64), _attention,
        flops=2.0 * 2 * 16 * 12 * 1024 * 1024 * 64 / 2,
    ),
    Workload(
        "attention_backward", lambda: [*_heads(16, 12, 1024, 64), _normal(16, 12, 1024, 64)],
        _gradients(_attention, 3),
        flops=3.5 * 2 * 2 * 16 * 12 * 1024 * 1024 * 64 / 2,
    ),
    Workload(
        "attention_wide", lambda: _heads(8, 16, 4096, 128), _attention,
        flops=2.0 * 2 * 8 * 16 * 4096 * 4096 * 128 / 2,
    ),
    Workload(
        "attention_wide_backward",
        lambda: [*_heads(8, 16, 4096, 128), _normal(8, 16, 4096, 128)], _gradients(_attention, 3),
        flops=3.5 * 2 * 2 * 8 * 16 * 4096 * 4096 * 128 / 2,
    ),
    Workload(
        "attention_masked", lambda: [*_heads(16, 12, 1024, 64), _padding()], _masked_attention,
        flops=2.0 * 2 * 16 * 12 * 1024 * 1024 * 64,
    ),
    Workload(
        "convolutions", _image_and_filters, _convolutions,
        flops=2.0 * 2 * 128 * 128 * 56 * 56 * 1152,
    ),
    Workload(
        "convolutions_backward",
        lambda: [*_image_and_filters(), _normal(128, 128, 56, 56)],
        # a ReLU goes by the sign of a rounded number: where float32 has the other sign, a gradient
        # is passed on or it is not; torch in bfloat16 differs from float32 by 0.039
        _gradients(_convolutions, 3), limit=6e-2,
        flops=3.0 * 2 * 2 * 128 * 128 * 56 * 56 * 1152,
    ),
    Workload(
        "lenet_inference", lambda: [_normal(1, 1, 32, 32)], _lenet_inference, "float32",
        compile="reduce-overhead", limit=1e-3,
    ),
    Workload(
        "lenet_step", _lenet_inputs, _lenet_step, "float32", compile="reduce-overhead",
        compiled=_lenet_step, limit=1e-3,
    ),
]  # fmt: skip
WORKLOADS = {workload.name: workload for workload in _ALL}
