"""Right calls of public functions, as data that either library can be called with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor to be made: whole numbers from `low` on that repeat, in a shape and element type."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: int = 1
    count: int = 5  # how many different numbers

    def array(self) -> np.ndarray:
        """The elements in double precision."""
        size = int(np.prod(self.shape))
        return (np.arange(size) % max(self.count, 1) + self.low).reshape(self.shape)

    def made(self, library: Any) -> Any:
        """The tensor, of either library."""
        numbers = library.tensor(self.array().tolist(), dtype=library.float64)
        return numbers.reshape(self.shape).to(getattr(library, self.dtype))

    def like(self, **changes: Any) -> Values:
        """With another shape, type or range."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its place under a library, and what it is given."""

    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    def function(self, library: Any) -> Any:
        """What is called."""
        found = library
        for part in self.name.split("."):
            found = getattr(found, part)
        return found

    def __str__(self) -> str:
        shown = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs]
        return f"{self.name}({', '.join(shown)})"


def _call(name: str, *args: Any, **kwargs: Any) -> Call:
    return Call(name, args, tuple(kwargs.items()))


X = Values((2, 3))
Y = Values((2, 3), low=2)
ROW = Values((3,))
SQUARE = Values((3, 3), count=7)
WHOLE = Values((2, 3), "int64")
MASK = Values((2, 3), "bool", 0, 2)
PLACES = Values((2, 3), "int64", 0, 2)
PLACE = Values((2,), "int64", 0, 2)
IMAGE = Values((1, 2, 5, 5))
UNIT = Values((2, 3), "float32", 0, 2)
CLASSES = Values((2,), "int64", 0, 3)

CALLS: tuple[Call, ...] = (
    *(_call(f"Tensor.{n}", X) for n in (
        "abs", "exp", "neg", "sqrt", "sigmoid", "tanh", "relu", "floor", "sign", "reciprocal",
        "square", "isnan", "logical_not", "numel", "dim", "flatten", "t", "clone", "detach",
        "contiguous", "float", "bool", "all", "any", "sum", "mean", "std", "var", "prod", "max",
        "min", "argmax", "median",
    )),
    *(_call(f"Tensor.{n}", X, Y) for n in (
        "add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "lt", "ge", "atan2", "fmod",
        "remainder", "floor_divide", "hypot", "logaddexp", "copysign", "logical_and", "add_",
        "mul_", "sub_", "div_", "copy_",
    )),
    *(_call(f"Tensor.{n}", WHOLE, Values((2, 3), "int64", 1, 3)) for n in (
        "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "gcd", "pow", "add_",
        "bitwise_left_shift",
    )),
    *(_call(f"Tensor.{n}", X, 1) for n in (
        "sum", "mean", "prod", "cumsum", "cumprod", "softmax", "log_softmax", "argmax", "argmin",
        "argsort", "sort", "median", "mode", "logsumexp", "unsqueeze", "squeeze", "flip", "norm",
        "all", "any", "std", "var", "amax", "amin", "max", "min", "unbind", "cummax", "size",
    )),
    _call("Tensor.reshape", X, (3, 2)), _call("Tensor.view", X, (3, 2)),
    _call("Tensor.expand", Values((1, 3)), (2, 3)), _call("Tensor.permute", X, (1, 0)),
    _call("Tensor.transpose", X, 0, 1), _call("Tensor.narrow", X, 1, 0, 2),
    _call("Tensor.select", X, 1, 2), _call("Tensor.split", X, 2, 1), _call("Tensor.chunk", X, 2, 1),
    _call("Tensor.repeat", X, (2, 1)), _call("Tensor.roll", X, 1, 1),
    _call("Tensor.unfold", X, 1, 2, 1), _call("Tensor.movedim", X, 0, 1),
    _call("Tensor.index_select", X, 1, PLACE), _call("Tensor.gather", X, 1, PLACES),
    _call("Tensor.scatter", X, 1, PLACES, Y), _call("Tensor.scatter_add", X, 1, PLACES, Y),
    _call("Tensor.index_add", X, 1, PLACE, Values((2, 2))), _call("Tensor.take", X, PLACE),
    _call("Tensor.masked_fill", X, MASK, 2.0), _call("Tensor.masked_select", X, MASK),
    _call("Tensor.index_fill", X, 1, PLACE, 3.0), _call("Tensor.topk", X, 2, 1),
    _call("Tensor.kthvalue", X, 2, 1), _call("Tensor.clamp", X, 1, 3), _call("Tensor.fill_", X, 3),
    _call("Tensor.diagonal", SQUARE), _call("Tensor.tril", SQUARE), _call("Tensor.trace", SQUARE),
    _call("Tensor.matmul", X, Values((3, 2))), _call("Tensor.mm", X, Values((3, 2))),
    _call("Tensor.mv", X, ROW), _call("Tensor.dot", ROW, ROW),
    _call("Tensor.bmm", Values((2, 2, 3)), Values((2, 3, 2))), _call("Tensor.outer", ROW, ROW),
    _call("Tensor.addmm", SQUARE, SQUARE, SQUARE), _call("Tensor.item", Values(())),
    _call("Tensor.tolist", X), _call("Tensor.requires_grad_", X), _call("Tensor.__getitem__", X, 1),
    _call("Tensor.__getitem__", X, PLACE), _call("Tensor.__setitem__", X, 1, 2.0),

    _call("Tensor.__getitem__", X, (0, 1)), _call("Tensor.__len__", X),
    _call("Tensor.__int__", Values(())),
    _call("Tensor.nan_to_num", X), _call("Tensor.lerp", X, Y, 0.5), _call("Tensor.heaviside", X, Y),
    _call("Tensor.new_zeros", X, (2, 2)), _call("Tensor.new_full", X, (2, 2), 3.0),
    _call("zeros", (2, 3)), _call("ones", 2, 3), _call("full", (2, 3), 1.5), _call("eye", 3),
    _call("arange", 1, 7, 2), _call("linspace", 0, 1, 5), _call("tensor", [1, 2]),
    _call("zeros_like", X), _call("full_like", X, 2), _call("rand", 2, 3),
    _call("randint", 0, 5, (2,)),
    _call("randperm", 4), _call("where", MASK, X, Y), _call("cat", (X, Y), 1),
    _call("stack", (X, Y), 0), _call("einsum", "ij,jk->ik", X, Values((3, 2))),
    _call("bincount", CLASSES), _call("meshgrid", ROW, ROW, indexing="ij"),
    _call("searchsorted", ROW, X), _call("histc", X, 4, 0, 5), _call("diff", X),
    _call("cross", X, Y, dim=1), _call("cdist", X, Y), _call("tensordot", X, Y, 2),
    _call("kron", X, Y),
    _call("linalg.inv", SQUARE), _call("linalg.det", SQUARE), _call("linalg.solve", SQUARE, SQUARE),
    _call("linalg.norm", X), _call("linalg.qr", X), _call("fft.fft", X), _call("fft.rfft", X, 4),
    _call("nn.functional.relu", X), _call("nn.functional.softmax", X, 1),
    _call("nn.functional.linear", X, Values((4, 3)), Values((4,))),
    _call("nn.functional.conv2d", IMAGE, Values((3, 2, 3, 3)), Values((3,)), 1, 1),
    _call("nn.functional.conv1d", Values((1, 2, 5)), Values((3, 2, 3))),
    _call("nn.functional.max_pool2d", IMAGE, 2), _call("nn.functional.avg_pool2d", IMAGE, 2),
    _call("nn.functional.embedding", PLACE, X), _call("nn.functional.one_hot", CLASSES, 3),
    _call("nn.functional.cross_entropy", X, CLASSES), _call("nn.functional.nll_loss", X, CLASSES),
    _call("nn.functional.mse_loss", X, Y), _call("nn.functional.binary_cross_entropy", UNIT, UNIT),
    _call("nn.functional.binary_cross_entropy_with_logits", X, UNIT),
    _call("nn.functional.kl_div", X, Y), _call("nn.functional.multi_margin_loss", X, CLASSES),
    _call("nn.functional.layer_norm", X, (3,)), _call("nn.functional.batch_norm", X, ROW, ROW),
    _call("nn.functional.group_norm", IMAGE, 2), _call("nn.functional.pad", X, (1, 1)),
    _call("nn.functional.dropout", X, 0.5),
    _call("nn.functional.interpolate", IMAGE, scale_factor=2),
    _call("nn.functional.normalize", X), _call("nn.functional.glu", Values((2, 4))),
    _call("nn.functional.gelu", X), _call("nn.functional.cosine_similarity", X, Y),
    _call("nn.Linear", 3, 4), _call("nn.Conv2d", 2, 3, 3), _call("nn.Embedding", 5, 3),
    _call("nn.LayerNorm", 3), _call("nn.BatchNorm1d", 3), _call("nn.Dropout", 0.5),
)  # fmt: skip
