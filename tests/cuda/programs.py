"""Graphs of every kernel family, forward and backward, at any size: what GPU tests go through."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.functions.registry import TABLE
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops import contract as C, elementwise as E, reduce as R, scan as S
from ridgeline.ops.differentiate import reverse
from tests.compiler.programs import conv

Example = tuple[list[Node], list[Node]]


def given(dtype: DType, *shape: int) -> Node:
    """An input."""
    return leaf(TensorType(shape, dtype))


def call(name: str, *arguments: object) -> Node:
    """A public function, on nodes."""
    return TABLE[name].body(*arguments)  # type: ignore[no-any-return]


def gradients(output: Node, cotangent: Node, *wrt: Node) -> list[Node]:
    """Reverse mode."""
    found = reverse([output], [cotangent], list(wrt))
    assert all(node is not None for node in found)
    return [node for node in found if node is not None]


def pointwise(rows: int, columns: int, dtype: DType) -> Example:
    """gelu(x * a + b)."""
    x, a, b = given(dtype, rows, columns), given(dtype, columns), given(dtype, columns)
    return [call("gelu", call("add", call("mul", x, a), b))], [x, a, b]


def softmax(rows: int, columns: int, dtype: DType) -> Example:
    """Softmax of rows."""
    x = given(dtype, rows, columns)
    return [call("softmax", x, -1)], [x]


def softmax_backward(rows: int, columns: int, dtype: DType) -> Example:
    """The gradient of softmax."""
    x, ct = given(dtype, rows, columns), given(dtype, rows, columns)
    return gradients(call("softmax", x, -1), ct, x), [x, ct]


def softmax_of_rolled(rows: int, columns: int, dtype: DType) -> Example:
    """Softmax of costly values that are read at other places than they are stored at."""
    x = given(dtype, rows, columns)
    return [call("softmax", call("roll", call("exp", call("tanh", x)), 3, 1), -1)], [x]


def softmax_of_columns(rows: int, columns: int, dtype: DType) -> Example:
    """Softmax where rows lie side by side."""
    x = given(dtype, rows, columns)
    return [call("softmax", x, 0)], [x]


def gelu_backward(rows: int, columns: int, dtype: DType) -> Example:
    """An activation after a bias, and the gradients of both: a column sum beside a full store."""
    x, b, ct = given(dtype, rows, columns), given(dtype, columns), given(dtype, rows, columns)
    y = call("gelu", call("add", x, b), "tanh")
    return [y, *gradients(y, ct, x, b)], [x, b, ct]


def layer_norm(rows: int, columns: int, dtype: DType) -> Example:
    """Layer norm with weight and bias."""
    x, w, b = given(dtype, rows, columns), given(dtype, columns), given(dtype, columns)
    return [call("layer_norm", x, (columns,), w, b)], [x, w, b]


def layer_norm_backward(rows: int, columns: int, dtype: DType) -> Example:
    """The three gradients of layer norm."""
    x, w, b = given(dtype, rows, columns), given(dtype, columns), given(dtype, columns)
    ct = given(dtype, rows, columns)
    return gradients(call("layer_norm", x, (columns,), w, b), ct, x, w, b), [x, w, b, ct]


def rms_norm(rows: int, columns: int, dtype: DType) -> Example:
    """RMS norm with weight."""
    x, w = given(dtype, rows, columns), given(dtype, columns)
    return [call("rms_norm", x, (columns,), w)], [x, w]


def rms_norm_backward(rows: int, columns: int, dtype: DType) -> Example:
    """The gradients of RMS norm."""
    x, w, ct = given(dtype, rows, columns), given(dtype, columns), given(dtype, rows, columns)
    return gradients(call("rms_norm", x, (columns,), w), ct, x, w), [x, w, ct]


def cross_entropy(rows: int, columns: int, dtype: DType) -> Example:
    """Cross-entropy with class numbers."""
    x, target = given(dtype, rows, columns), given(dtypes.int64, rows)
    return [call("cross_entropy", x, target)], [x, target]


def cross_entropy_backward(rows: int, columns: int, dtype: DType) -> Example:
    """The loss and its gradient."""
    x, target, ct = given(dtype, rows, columns), given(dtypes.int64, rows), given(dtype)
    loss = call("cross_entropy", x, target)
    return [loss, *gradients(loss, ct, x)], [x, target, ct]


def column_sum(rows: int, columns: int, dtype: DType) -> Example:
    """The gradient of a bias."""
    x = given(dtype, rows, columns)
    return [R.sum_(x, (0,))], [x]


def total(rows: int, columns: int, dtype: DType) -> Example:
    """The sum of everything."""
    x = given(dtype, rows, columns)
    return [R.sum_(x, (0, 1))], [x]


def argmax(rows: int, columns: int, dtype: DType) -> Example:
    """The largest element of each row and where it is."""
    x = given(dtype, rows, columns)
    return list(R.arg_reduce(x, "argmax", 1)), [x]


def cumulative_sum(rows: int, columns: int, dtype: DType) -> Example:
    """Prefix sums of rows."""
    x = given(dtypes.float32, rows, columns)
    return [S.scan(x, "sum", 1)], [x]


def embedding(rows: int, columns: int, dtype: DType) -> Example:
    """Rows of a table."""
    table, index = given(dtype, 50, columns), given(dtypes.int64, rows)
    return [call("index_select", table, 0, index)], [table, index]


def embedding_backward(rows: int, columns: int, dtype: DType) -> Example:
    """The gradient of the table."""
    table, index = given(dtypes.float32, 50, columns), given(dtypes.int64, rows)
    ct = given(dtypes.float32, rows, columns)
    return gradients(call("index_select", table, 0, index), ct, table), [table, index, ct]


def matmul(rows: int, columns: int, dtype: DType) -> Example:
    """relu(x @ w + b)."""
    x, w, b = given(dtype, rows, columns), given(dtype, columns, rows), given(dtype, rows)
    return [call("relu", call("add", C.matmul(x, w), b))], [x, w, b]


def matmul_backward(rows: int, columns: int, dtype: DType) -> Example:
    """Both gradients of a product."""
    x, w = given(dtype, rows, columns), given(dtype, columns, rows)
    ct = given(dtype, rows, rows)
    return gradients(C.matmul(x, w), ct, x, w), [x, w, ct]


def convolution(rows: int, columns: int, dtype: DType) -> Example:
    """A convolution with bias and its two gradients."""
    x, w = given(dtype, 4, rows // 4, 10, 12), given(dtype, 20, rows // 4, 3, 3)
    y = conv(x, w)
    ct = given(dtype, *(int(s) for s in y.shape))  # type: ignore[arg-type]
    return [y, *gradients(y, ct, x, w)], [x, w, ct]


def max_pool(rows: int, columns: int, dtype: DType) -> Example:
    """Max pooling and its gradient."""
    x, ct = given(dtype, 2, rows // 4, 12, 12), given(dtype, 2, rows // 4, 6, 6)
    y = call("max_pool2d", x, 2)
    return [y, *gradients(y, ct, x)], [x, ct]


def batch_statistics(rows: int, columns: int, dtype: DType) -> Example:
    """Sums over batch and pixels, as batch norm needs them."""
    x = given(dtype, rows, 6, 5, 8)
    return [R.sum_(x, (0, 2, 3)), R.sum_(E.mul(x, x), (0, 2, 3))], [x]


FAMILIES: dict[str, Callable[[int, int, DType], Example]] = {
    f.__name__: f
    for f in (
        pointwise, gelu_backward, softmax, softmax_backward, softmax_of_rolled, softmax_of_columns,
        layer_norm, layer_norm_backward, rms_norm, rms_norm_backward, cross_entropy,
        cross_entropy_backward, column_sum, total, argmax, cumulative_sum, embedding,
        embedding_backward, matmul, matmul_backward, convolution, max_pool, batch_statistics,
    )
}  # fmt: skip
