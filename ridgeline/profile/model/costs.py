"""FLOPs and compulsory bytes of an op, from the shapes and dtypes a trace records.

Each input is read once and each output written once. The numbers are *modelled*: the trace says
what was asked for, not what the kernel did.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ridgeline.profile.trace.model import OpArguments

ITEM_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8,
    "int": 4, "short int": 2, "bool": 1, "unsigned char": 1, "signed char": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
}  # fmt: skip
SHORT_TYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16",
    "c10::Float8_e4m3fn": "float8", "c10::Float8_e5m2": "float8",
}  # fmt: skip
SIXTEEN_BIT = ("c10::BFloat16", "c10::Half")


@dataclass(frozen=True)
class Cost:
    """What one call of an op needs at least; `family` names the formula."""

    family: str
    flops: float
    bytes: float
    type: str


def numel(dims: tuple[int, ...]) -> int:
    """Elements of a tensor."""
    return math.prod(dims)


def _size(arguments: OpArguments, index: int) -> int:
    """Bytes of input `index`; 0 where it is not a tensor."""
    if index >= len(arguments.dims) or index >= len(arguments.types):
        return 0
    return numel(arguments.dims[index]) * ITEM_BYTES.get(arguments.types[index], 0)


def _type(arguments: OpArguments) -> str:
    """The first floating type among the inputs."""
    for name in arguments.types:
        if name in SHORT_TYPES:
            return name
    return ""


def _product(family: str, batch: int, m: int, n: int, k: int, dtype: str) -> Cost:
    item = ITEM_BYTES.get(dtype, 4)
    moved = batch * item * (m * k + k * n + m * n)
    return Cost(family, 2.0 * batch * m * n * k, float(moved), dtype)


def product_sizes(name: str, arguments: OpArguments) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of a matrix product, or None."""
    first = 1 if name in ("aten::addmm", "aten::baddbmm", "aten::_addmm_activation") else 0
    if len(arguments.dims) < first + 2:
        return None
    left, right = arguments.dims[first], arguments.dims[first + 1]
    if len(left) == 2 and len(right) == 2 and left[1] == right[0]:
        return 1, left[0], right[1], left[1]
    if len(left) == 3 and len(right) == 3 and left[0] == right[0] and left[2] == right[1]:
        return left[0], left[1], right[2], left[2]
    return None


def _matmul(name: str, arguments: OpArguments) -> Cost | None:
    sizes = product_sizes(name, arguments)
    return _product("matmul", *sizes, _type(arguments)) if sizes else None


def _integers(text: str) -> list[int]:
    # No stride or padding has more digits; Python refuses to convert thousands of them.
    return [int(number) for number in re.findall(r"-?\d{1,9}", text)]


def _convolved(name: str, arguments: OpArguments) -> tuple[int, ...] | None:
    """The output shape of a forward convolution from its recorded stride, padding, dilation."""
    x, w = arguments.dims[:2]
    if name == "aten::convolution":
        options = arguments.concrete[3:6]
    else:
        # cuDNN's op lists padding before stride.
        options = (*arguments.concrete[3:4], *arguments.concrete[2:3], *arguments.concrete[4:5])
    rank = len(x) - 2
    if len(options) < 3 or len(w) != len(x):
        return None
    stride, padding, dilation = (_integers(text) for text in options)
    if not (len(stride) == len(padding) == len(dilation) == rank):
        return None
    spatial = [
        (x[2 + i] + 2 * padding[i] - dilation[i] * (w[2 + i] - 1) - 1) // max(1, stride[i]) + 1
        for i in range(rank)
    ]
    return (x[0], w[0], *spatial)


def _convolution(name: str, arguments: OpArguments) -> Cost | None:
    backward = name == "aten::convolution_backward"
    image, weight = (1, 2) if backward else (0, 1)
    if len(arguments.dims) < 3 or len(arguments.dims[image]) < 3:
        return None
    if backward:
        out: tuple[int, ...] | None = arguments.dims[0]
    else:
        out = _convolved(name, arguments) or _same_size(arguments, image, weight)
    if not out:
        return None
    w, dtype = arguments.dims[weight], _type(arguments)
    item = ITEM_BYTES.get(dtype, 4)
    flops = 2.0 * numel(out) * numel(w[1:])
    moved = item * (numel(arguments.dims[image]) + numel(w) + numel(out))
    # The backward makes two products of the same size: for the image and for the weight.
    passes = 2 if backward else 1
    return Cost("convolution", passes * flops, passes * float(moved), dtype)


def _same_size(arguments: OpArguments, image: int, weight: int) -> tuple[int, ...]:
    """Without recorded strides: as large as the input, an upper bound for usual strides."""
    x = arguments.dims[image]
    return (x[0], arguments.dims[weight][0], *x[2:])


def _attention(name: str, arguments: OpArguments) -> Cost | None:
    backward = "backward" in name
    tensors = [dims for dims in arguments.dims if len(dims) == 4]
    if len(tensors) < (4 if backward else 3):
        return None
    query, key = (tensors[1], tensors[2]) if backward else (tensors[0], tensors[1])
    batch, heads, rows, width = query
    if "_flash_attention" in name or "_efficient_attention" in name:
        # These take (batch, rows, heads, width) instead.
        if "scaled_dot" not in name:
            rows, heads = heads, rows
        columns = key[1] if "scaled_dot" not in name else key[2]
    else:
        columns = key[2]
    dtype = _type(arguments)
    item = ITEM_BYTES.get(dtype, 2)
    # Causal masks are not recorded: half of this may be enough, which the lower bound assumes.
    flops = 2.0 * batch * heads * rows * columns * width * (2.5 if backward else 1.0)
    moved = item * batch * heads * width * (rows + columns) * (4 if backward else 2)
    return Cost("attention", flops, float(moved), dtype)


def _normalisation(name: str, arguments: OpArguments) -> Cost | None:
    if not arguments.dims or not arguments.dims[0]:
        return None
    # Backward ops read the gradient and the input and write one gradient.
    tensors = 3 if "backward" in name else 2
    size = _size(arguments, 0)
    flops = 8.0 * numel(arguments.dims[0])
    return Cost("normalisation", flops, float(tensors * size), _type(arguments)) if size else None


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The broadcast shape; sizes that disagree give the larger, as this is only a model."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded))


def _pointwise(name: str, arguments: OpArguments) -> Cost | None:
    tensors = [
        (dims, ITEM_BYTES[kind])
        for dims, kind in zip(arguments.dims, arguments.types)
        if kind in ITEM_BYTES
    ]
    if not tensors:
        return None
    out = broadcast([dims for dims, _ in tensors])
    item = tensors[0][1]
    if name in ("aten::copy_", "aten::fill_", "aten::zero_"):
        read = sum(numel(dims) * size for dims, size in tensors[1:])
        return Cost("pointwise", 0.0, float(read + numel(tensors[0][0]) * item), _type(arguments))
    read = sum(numel(dims) * size for dims, size in tensors)
    return Cost("pointwise", float(numel(out)), float(read + numel(out) * item), _type(arguments))


_UNARY_AND_BINARY = (
    "add", "sub", "mul", "div", "relu", "gelu", "silu", "tanh", "sigmoid", "exp", "log",
    "sqrt", "rsqrt", "neg", "abs", "pow", "square", "clamp", "clamp_min", "clamp_max",
    "where", "maximum", "minimum", "threshold_backward", "gelu_backward", "silu_backward",
    "tanh_backward", "sigmoid_backward", "native_dropout", "native_dropout_backward",
    "dropout", "masked_fill", "leaky_relu", "elu", "hardtanh", "softplus", "erf", "sin",
    "cos", "reciprocal", "lerp", "addcmul", "addcdiv", "copy_", "fill_", "zero_", "rsub",
    "bitwise_and", "logical_and", "eq", "ne", "lt", "gt", "le", "ge", "cat",
)  # fmt: skip

POINTWISE = frozenset(
    f"aten::{name}{suffix}"
    for name in _UNARY_AND_BINARY
    for suffix in (("",) if name.endswith("_") else ("", "_"))
)
MATMULS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation")
)
CONVOLUTIONS = frozenset(
    f"aten::{name}"
    for name in (
        "cudnn_convolution", "convolution_backward", "cudnn_convolution_add_relu",
        "cudnn_convolution_relu", "miopen_convolution", "_conv_depthwise2d", "conv_depthwise3d",
        "slow_conv2d_forward", "_slow_conv2d_forward", "mkldnn_convolution", "convolution",
    )
)  # fmt: skip
NORMALISATIONS = frozenset(
    f"aten::{name}{suffix}"
    for name in (
        "native_layer_norm", "native_batch_norm", "cudnn_batch_norm", "native_group_norm",
        "_softmax", "_log_softmax", "_fused_rms_norm", "batch_norm_elemt",
    )
    for suffix in ("", "_backward", "_backward_data")
)  # fmt: skip
ATTENTIONS = frozenset(
    f"aten::{name}{suffix}"
    for name in (
        "_flash_attention_forward", "_flash_attention", "_efficient_attention_forward",
        "_efficient_attention", "_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward",
        "_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu",
    )
    for suffix in ("", "_backward")
)  # fmt: skip

_MODELS: tuple[tuple[frozenset[str], Callable[[str, OpArguments], Cost | None]], ...] = (
    (MATMULS, _matmul),
    (CONVOLUTIONS, _convolution),
    (ATTENTIONS, _attention),
    (NORMALISATIONS, _normalisation),
    (POINTWISE, _pointwise),
)


def cost_of(name: str, arguments: OpArguments) -> Cost | None:
    """The modelled cost of an op, or None where there is no formula or no shapes."""
    for names, model in _MODELS:
        if name in names:
            cost = model(name, arguments)
            # A damaged stride can give an output of negative size.
            return cost if cost and min(cost.flops, cost.bytes) >= 0 else None
    return None
