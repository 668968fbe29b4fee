"""Common operations at the sizes of models: what breadth is measured by on a GPU.

Each is written once for torch and ridgeline, `lib` being either. Inputs are cut from one table of
random numbers, so that making them takes no time beside measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

Function = Callable[..., Any]
Make = Callable[[Any], Function]
_PLANE_SIZE = 1 << 24
_TABLE = _PLANE_SIZE + (1 << 20)
_PLANE, _TALL, _WIDE, _TINY = (4096, 4096), (1 << 20, 16), (16, 1 << 20), (64, 64)
_IMAGES = (32, 64, 56, 56)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its inputs, the function for a library, whether ours is under jit."""

    name: str
    inputs: Callable[[], list[Any]]
    make: Make
    dtype: str = "float32"
    jit: bool = True
    limit: float = 1e-4
    tf32: bool = False  # float32 convolutions are shortened, as torch does unless it is told not to
    shown: Callable[[Any], Any] = lambda value: value  # what of a result is compared

    @property
    def allowed(self) -> float:
        """The largest error against torch's result of the same type."""
        limit = 2e-3 if self.tf32 else self.limit
        return {"bfloat16": 2e-2, "float64": 1e-10}.get(self.dtype, limit)


@cache
def _table() -> Any:
    return np.random.default_rng(11).standard_normal(_TABLE, np.float32)


def normal(*shape: int, number: int = 0) -> Any:
    """Random numbers; those of another number begin elsewhere in the table."""
    count = prod(shape)
    begin = number * 7919 % (_TABLE - min(count, _TABLE) + 1)
    return np.resize(_table()[begin:], count).reshape(shape)


def integers(most: int, *shape: int) -> Any:
    """Random numbers from 0 on."""
    return np.random.default_rng(12).integers(0, most, shape)


def _of(name: str, function: Function, *shapes: tuple[int, ...] | Any, **more: Any) -> Operation:
    """An operation of tensors of these shapes; arrays stand for themselves."""

    def inputs() -> list[Any]:
        return [
            normal(*given, number=place) if isinstance(given, tuple) else given
            for place, given in enumerate(shapes)
        ]

    return Operation(name, inputs, lambda lib: lambda *x: function(lib, *x), **more)


def _trained(name: str, function: Function, count: int, *shapes: Any, **more: Any) -> Operation:
    """A function and the gradients of its first operands; the last operand is the seed."""

    def both(lib: Any, *operands: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in operands[:count]]
        result = function(lib, *leaves, *operands[count:-1])
        return result.detach(), *lib.autograd.grad(result, leaves, operands[-1])

    return _of(name, both, *shapes, **more)


def _pointwise() -> Iterator[Operation]:
    add, mul = (lambda lib, x, y: x + y), (lambda lib, x, y: x * y)
    yield _of("add", add, _PLANE, _PLANE)
    yield _of("add, bf16", add, _PLANE, _PLANE, dtype="bfloat16")
    yield _of("mul by a row", mul, _PLANE, (4096,))
    yield _of("mul by a column", mul, _PLANE, (4096, 1))
    yield _of("mul by a column, bf16", mul, _PLANE, (4096, 1), dtype="bfloat16")
    yield _of("where", lambda lib, x, y: lib.where(x > 0, x, y), _PLANE, _PLANE)
    yield _of("masked_fill", lambda lib, x, y: x.masked_fill(y > 0, -1e9), _PLANE, _PLANE)
    yield _of("tril", lambda lib, x: lib.tril(x), _PLANE)
    yield _of("one_hot", lambda lib, i: lib.nn.functional.one_hot(i, 1000), integers(1000, 8192))
    yield _of("dropout", lambda lib, x: lib.nn.functional.dropout(x, 0.1), _PLANE, limit=1e-3,
              shown=np.count_nonzero)  # fmt: skip


def _movement() -> Iterator[Operation]:
    yield _of("transpose", lambda lib, x: x.T.contiguous(), _PLANE)
    yield _of("transpose, bf16", lambda lib, x: x.T.contiguous(), _PLANE, dtype="bfloat16")
    yield _of("transpose of a batch", lambda lib, x: x.mT.contiguous(), (1024, 128, 128))
    yield _of("NCHW to NHWC", lambda lib, x: x.permute(0, 2, 3, 1).contiguous(), _IMAGES)
    yield _of("NHWC to NCHW", lambda lib, x: x.permute(0, 3, 1, 2).contiguous(), (32, 56, 56, 64))
    yield _of("heads", lambda lib, x: x.permute(0, 2, 1, 3).contiguous(), (16, 1024, 16, 64))
    yield _of("cat", lambda lib, x, y: lib.cat([x, y], 1), (4096, 2048), (4096, 2048))
    yield _of("stack", lambda lib, x, y: lib.stack([x, y], -1), (2048, 4096), (2048, 4096))
    yield _of("pad", lambda lib, x: lib.nn.functional.pad(x, (1, 1, 1, 1)), _IMAGES)
    yield _of("flip", lambda lib, x: x.flip(1), _PLANE)
    yield _of("roll", lambda lib, x: x.roll(7, 1), _PLANE)
    yield _of("every other column", lambda lib, x: x[:, ::2].contiguous(), _PLANE)


def _folds() -> Iterator[Operation]:
    shapes = {"": _PLANE, ", tall": _TALL, ", wide": _WIDE, ", tiny": _TINY}
    for word, shape in shapes.items():
        yield _of(f"sum of rows{word}", lambda lib, x: x.sum(1), shape)
        yield _of(f"sum of columns{word}", lambda lib, x: x.sum(0), shape)
        yield _of(f"sum{word}", lambda lib, x: x.sum(), shape, limit=1e-2)
    yield _of("mean of rows, bf16", lambda lib, x: x.mean(1), _PLANE, dtype="bfloat16")
    yield _of("max of columns", lambda lib, x: x.amax(0), _PLANE)
    yield _of("argmax of rows", lambda lib, x: x.argmax(1), _PLANE)
    yield _of("argmax of columns", lambda lib, x: x.argmax(0), _PLANE)
    yield _of("var of rows", lambda lib, x: x.var(1), _PLANE)
    yield _of("var of columns", lambda lib, x: x.var(0), _PLANE)
    yield _of("logsumexp", lambda lib, x: x.logsumexp(1), _PLANE)
    yield _of("cumsum of rows", lambda lib, x: x.cumsum(1), _PLANE)
    yield _of("cumsum of columns", lambda lib, x: x.cumsum(0), _PLANE)
    yield _of("cumsum of 4M", lambda lib, x: x.cumsum(0), (1 << 22,), limit=1e-3)
    for columns in (10, 1000, 50257):
        rows = _PLANE_SIZE // columns
        yield _of(f"softmax of {columns}", lambda lib, x: x.softmax(1), (rows, columns))
    yield _of("log_softmax of columns", lambda lib, x: x.log_softmax(0), _PLANE)
    yield _of("softmax of channels", lambda lib, x: x.softmax(1), _IMAGES)


def _orders() -> Iterator[Operation]:
    yield _of("sort of rows of 128", lambda lib, x: lib.sort(x, 1)[0], (16384, 128))
    yield _of("sort of rows of 4096", lambda lib, x: lib.sort(x, 1)[0], (256, 4096))
    yield _of("sort of 1M", lambda lib, x: lib.sort(x, 0)[0], (1 << 20,))
    yield _of("argsort of 1M", lambda lib, i: lib.argsort(i, 0), integers(1 << 40, 1 << 20))
    yield _of("topk of 50k", lambda lib, x: lib.topk(x, 50, 1)[0], (64, 50257))
    yield _of("topk of one row", lambda lib, x: lib.topk(x, 40, 1)[0], (1, 128256))
    yield _of("topk of 1000 columns", lambda lib, x: lib.topk(x, 5, 1)[0], (8192, 1000))
    yield _of("topk of 64 experts", lambda lib, x: lib.topk(x, 8, 1)[0], (16384, 64))
    yield _of("bincount", lambda lib, i: lib.bincount(i, minlength=1000), integers(1000, 1 << 20),
              jit=False)  # fmt: skip


def _message(lib: Any, x: Any, source: Any, target: Any) -> Any:
    """What graph networks do: every node adds up the rows of those that point to it."""
    return lib.zeros_like(x).index_add(0, target, x.index_select(0, source))


def _indices() -> Iterator[Operation]:
    words = integers(50257, 16, 512)
    places = integers(4096, 4096, 4096)

    def embed(lib: Any, table: Any, i: Any) -> Any:
        return lib.nn.functional.embedding(i, table)

    yield _of("embedding", embed, (50257, 256), words)
    yield _trained("embedding, trained", embed, 1, (50257, 256), words, (16, 512, 256))
    yield _of("gather", lambda lib, x, i: x.gather(1, i), _PLANE, places)
    yield _of("scatter_add", lambda lib, x, i, y: x.scatter_add(1, i, y), _PLANE, places, _PLANE)
    yield _of("index_select", lambda lib, x, i: x.index_select(0, i), _PLANE, places[0])
    yield _of("index_add", lambda lib, x, i, y: x.index_add(0, i, y), _PLANE, places[0], _PLANE)
    ends = integers(100_000, 2, 800_000)
    yield _of("index_add of gathered rows", _message, (100_000, 64), ends[0], ends[1])
    yield _trained("index_add of gathered rows, trained", _message, 1, (100_000, 64), ends[0],
                   ends[1], (100_000, 64))  # fmt: skip


def _norms() -> Iterator[Operation]:
    def layer(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.nn.functional.layer_norm(x, (1024,), w, b)

    def group(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.nn.functional.group_norm(x, 8, w, b)

    def batch(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.nn.functional.batch_norm(x, None, None, w, b, training=True)

    def instance(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.nn.functional.instance_norm(x, None, None, w, b)

    lines, channels = (16384, 1024), (64,)
    yield _trained("layer_norm, trained", layer, 3, lines, (1024,), (1024,), lines, limit=1e-3)
    for name, norm in (("group", group), ("batch", batch), ("instance", instance)):
        shapes = _IMAGES, channels, channels, _IMAGES
        yield _trained(f"{name}_norm, trained", norm, 3, *shapes, limit=1e-3)


def _pools() -> Iterator[Operation]:
    halves = (*_IMAGES[:2], 28, 28)
    yield _trained(
        "max_pool2d, trained", lambda lib, x: lib.nn.functional.max_pool2d(x, 3, 2, 1), 1,
        _IMAGES, halves,
    )  # fmt: skip
    yield _trained(
        "avg_pool2d, trained", lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), 1, _IMAGES, halves
    )
    yield _trained(
        "adaptive_avg_pool2d, trained", lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 1),
        1, _IMAGES, (*_IMAGES[:2], 1, 1),
    )  # fmt: skip
    yield _of(
        "interpolate, bilinear",
        lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), halves,
    )  # fmt: skip


def _losses() -> Iterator[Operation]:
    one = np.ones((), np.float32)
    scores = (16384, 1000)
    for name in ("mse_loss", "l1_loss"):
        yield _trained(
            f"{name}, trained", lambda lib, x, y, n=name: getattr(lib.nn.functional, n)(x, y), 1,
            _PLANE, _PLANE, one, limit=1e-3,
        )  # fmt: skip
    yield _trained(
        "bce with logits, trained",
        lambda lib, x, y: lib.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid()), 1,
        _PLANE, _PLANE, one, limit=1e-3,
    )  # fmt: skip
    yield _trained(
        "nll_loss, trained", lambda lib, x, i: lib.nn.functional.nll_loss(x, i), 1, scores,
        integers(1000, 16384), one, limit=1e-3,
    )  # fmt: skip
    yield _trained(
        "kl_div, trained",
        lambda lib, x, y: lib.nn.functional.kl_div(
            x.log_softmax(1), y.softmax(1), reduction="batchmean"
        ),
        1, scores, scores, one, limit=1e-3,
    )  # fmt: skip


def _products() -> Iterator[Operation]:
    def product(lib: Any, x: Any, y: Any) -> Any:
        return x @ y

    def turned(lib: Any, x: Any, y: Any) -> Any:
        return x @ y.T

    square = (2048, 2048)
    yield _of("matmul 2048", product, square, square)
    yield _of("matmul 2048, float64", product, square, square, dtype="float64")
    yield _of("matmul 2048, bf16", product, square, square, dtype="bfloat16")
    yield _of("matmul, left turned", lambda lib, x, y: x.T @ y, square, square)
    yield _of("matmul, right turned", turned, square, square)
    yield _of("matmul, both turned, bf16", lambda lib, x, y: x.T @ y.T, square, square,
              dtype="bfloat16")  # fmt: skip
    yield _of("matmul of 1024 × 64³", product, (1024, 64, 64), (1024, 64, 64))
    yield _of("matmul of 1024 × 64³, bf16", product, (1024, 64, 64), (1024, 64, 64),
              dtype="bfloat16")  # fmt: skip
    for rows in (1, 16):
        yield _of(f"{rows} row @ 4096²", turned, (rows, 4096), _PLANE)
        yield _of(f"{rows} row @ 4096², bf16", turned, (rows, 4096), _PLANE, dtype="bfloat16")
    yield _of("matrix @ vector", product, _PLANE, (4096,))
    yield _of("outer", lambda lib, x, y: lib.outer(x, y), (4096,), (4096,))
    yield _of("einsum bhqd,bhkd->bhqk", lambda lib, x, y: lib.einsum("bhqd,bhkd->bhqk", x, y),
              (8, 16, 256, 64), (8, 16, 256, 64))  # fmt: skip
    yield _of("einsum bqhd,bkhd->bhqk", lambda lib, x, y: lib.einsum("bqhd,bkhd->bhqk", x, y),
              (8, 256, 16, 64), (8, 256, 16, 64))  # fmt: skip
    yield _of("einsum bi,oij,bj->bo", lambda lib, x, w, y: lib.einsum("bi,oij,bj->bo", x, w, y),
              (1024, 128), (256, 128, 128), (1024, 128))  # fmt: skip
    yield _of("einsum ij,jk,kl->il", lambda lib, x, y, z: lib.einsum("ij,jk,kl->il", x, y, z),
              (2048, 2048), (2048, 2048), (2048, 16))  # fmt: skip
    yield _of("einsum bij,bj->bi", lambda lib, x, y: lib.einsum("bij,bj->bi", x, y),
              (64, 512, 512), (64, 512))  # fmt: skip


def _convolutions() -> Iterator[Operation]:
    def convolution(kind: str, **options: Any) -> Function:
        return lambda lib, x, w: getattr(lib.nn.functional, kind)(x, w, **options)

    plain: list[tuple[str, Function, tuple[int, ...], tuple[int, ...]]] = [
        ("conv1d", convolution("conv1d", padding=2), (32, 128, 1024), (128, 128, 5)),
        ("conv2d 3×3", convolution("conv2d", padding=1), _IMAGES, (64, 64, 3, 3)),
        ("conv2d 1×1", convolution("conv2d"), _IMAGES, (256, 64, 1, 1)),
        ("conv3d", convolution("conv3d", padding=1), (4, 32, 16, 32, 32), (32, 32, 3, 3, 3)),
        ("conv_transpose2d", convolution("conv_transpose2d", stride=2, padding=1),
         (32, 64, 28, 28), (64, 64, 4, 4)),
    ]  # fmt: skip
    for name, function, image, filters in plain:
        yield _of(name, function, image, filters)
        yield _of(f"{name}, tf32", function, image, filters, tf32=True)
    depthwise = convolution("conv2d", padding=1, groups=64)
    yield _of("depthwise conv2d", depthwise, _IMAGES, (64, 1, 3, 3))
    yield _trained("depthwise conv2d, trained", depthwise, 2, _IMAGES, (64, 1, 3, 3), _IMAGES,
                   limit=1e-3)  # fmt: skip
    yield _of("grouped conv2d", convolution("conv2d", padding=1, groups=8), _IMAGES, (64, 8, 3, 3))


def _adamw(lib: Any) -> Function:
    parameters = [lib.nn.Parameter(lib.zeros(shape, device="cuda")) for shape in _parameters()]
    optimizer = lib.optim.AdamW(parameters, lr=1e-3)

    def step(*gradients: Any) -> Any:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        return parameters[0].detach(), parameters[-1].detach()

    return step


def _clip(lib: Any) -> Function:
    parameters = [lib.nn.Parameter(lib.zeros(shape, device="cuda")) for shape in _parameters()]

    def clip(*gradients: Any) -> Any:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return lib.nn.utils.clip_grad_norm_(parameters, 1.0)

    return clip


def _parameters() -> list[tuple[int, ...]]:
    """The shapes of a transformer of a few layers: 150 parameters."""
    return [(768, 768), (768,), (768,), (3072, 768), (3072,)] * 30


def _gradients() -> list[Any]:
    return [normal(*shape) for shape in _parameters()]


def _steps() -> Iterator[Operation]:
    def lstm(lib: Any, x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
        i, f, g, o = (x @ w.T + h @ u.T).chunk(4, 1)
        new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * new.tanh(), new

    state, weights = (64, 512), (2048, 512)
    yield _of("LSTM cell", lstm, state, state, state, weights, weights, limit=1e-3)
    yield _of("RNN cell", lambda lib, x, h, w, u: (x @ w.T + h @ u.T).tanh(), state, state,
              (512, 512), (512, 512), limit=1e-3)  # fmt: skip
    yield Operation("AdamW of 150", _gradients, _adamw)
    yield Operation("clip_grad_norm of 150", _gradients, _clip)


def _chain(lib: Any, x: Any, y: Any) -> Any:
    for _ in range(3):
        x = (x + y) * 0.5 - y
    return x.sum().item()


def _copy(pinned: bool) -> Make:
    def make(lib: Any) -> Function:
        host = lib.from_numpy(normal(*_PLANE))
        if pinned:
            host = host.pin_memory()
        return lambda: host.to("cuda")

    return make


def _hosts() -> Iterator[Operation]:
    """What passes between the host and the GPU.

    Without jit, to the host: what a line of an interactive session waits for.
    """
    yield Operation("64 MiB to the GPU", list, _copy(False))
    yield Operation("64 MiB to the GPU, pinned", list, _copy(True))
    yield _of("64 MiB to the host", lambda lib, x: x.cpu(), _PLANE)
    yield _of("read a value", lambda lib, x: x.item(), (1,), jit=False)
    yield _of("one op, read", lambda lib, x, y: (x + y).item(), (1,), (1,), jit=False)
    yield _of("ten ops, read", _chain, (1024,), (1024,), jit=False, limit=1e-3)


FAMILIES = {
    f.__name__.strip("_"): f
    for f in (
        _orders, _folds, _movement, _indices, _pools, _products, _convolutions, _norms, _losses,
        _pointwise, _steps, _hosts,
    )
}  # fmt: skip
