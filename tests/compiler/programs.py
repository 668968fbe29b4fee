"""Small graphs over every family of kernels, and the NumPy interpreter as the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.node import PROJ, Node, TensorType, leaf, topological
from ridgeline.ops import contract as C, elementwise as E, movement as M, reduce as R

Example = tuple[list[Node], list[Node]]


def f32(*shape: int) -> Node:
    """A float32 input."""
    return leaf(TensorType(shape, dtypes.float32))


def typed(dtype: DType, *shape: int) -> Node:
    """An input of some element type."""
    return leaf(TensorType(shape, dtype))


def evaluate(outputs: Sequence[Node], values: dict[Node, Any]) -> list[np.ndarray[Any, Any]]:
    """The value of a graph by its definition."""
    env = dict(values)
    for node in topological(outputs):
        if node in env:
            continue
        if node.op is PROJ:
            env[node] = env[node.inputs[0]][node.attrs.output]
            continue
        result = node.op.value(node, [env[i] for i in node.inputs])
        env[node] = result if len(node.types) > 1 else result[0]
    return [np.asarray(env[o]) for o in outputs]


def conv(x: Node, w: Node, stride: int = 1, dilation: int = 1) -> Node:
    """A valid 2-d convolution as one contraction."""
    n, ci, h, wd = (int(s) for s in x.shape)  # type: ignore[arg-type]
    co, _, kh, kw = (int(s) for s in w.shape)  # type: ignore[arg-type]
    oh = (h - dilation * (kh - 1) - 1) // stride + 1
    ow = (wd - dilation * (kw - 1) - 1) // stride + 1
    window = [C.AxisMap(((a, stride), (b, dilation))) for a, b in ((2, 5), (3, 6))]
    attrs = C.ContractAttrs(
        (n, co, oh, ow, ci, kh, kw),
        (0, 1, 2, 3),
        (C.axis(0), C.axis(4), *window),
        (C.axis(1), C.axis(4), C.axis(5), C.axis(6)),
    )
    return C.contract(x, w, attrs)


def softmax(x: Node) -> Node:
    """Row softmax built from primitives."""
    axis = len(x.shape) - 1
    top = R.expand_back(R.reduce(x, "max", (axis,)), x.shape, (axis,))
    e = E.apply("exp", E.sub(x, top))
    return E.div(e, R.expand_back(R.sum_(e, (axis,)), x.shape, (axis,)))


def layer_norm(x: Node) -> Node:
    """Normalised rows built from primitives."""
    axis = len(x.shape) - 1
    count = float(x.shape[axis])  # type: ignore[arg-type]
    mean = R.expand_back(E.scale(R.sum_(x, (axis,)), 1 / count), x.shape, (axis,))
    centred = E.sub(x, mean)
    variance = E.scale(R.sum_(E.mul(centred, centred), (axis,)), 1 / count)
    deviation = E.apply("sqrt", E.add(variance, E.full_like(variance, 1e-5)))
    return E.div(centred, R.expand_back(deviation, x.shape, (axis,)))


def relu(x: Node) -> Node:
    """max(x, 0) as a choice."""
    return E.select(E.apply("lt", E.full_like(x, 0), x), x, E.full_like(x, 0))


def catalogue() -> dict[str, Example]:
    """Named graphs: every family, ragged sizes, views, several results."""
    found: dict[str, Example] = {}

    def put(name: str, outputs: Sequence[Node], *inputs: Node) -> None:
        found[name] = (list(outputs), list(inputs))

    x, y = f32(64, 100), f32(64, 100)
    put("add", [E.add(x, y)], x, y)
    put("two results", [E.add(x, y), E.mul(x, y)], x, y)
    a, b = f32(7, 33), f32(33, 7)
    put("transpose", [E.add(M.permute(a, (1, 0)), b)], a, b)
    put("broadcast", [E.mul(a, M.broadcast(c := f32(33), (7, 33), (1,)))], a, c)
    put("flip and step", [M.slice_(a, (6, 1), (7, 16), (-1, 2))], a)
    put("pad", [M.pad(a, (1, 2), (3, 0), (1, 0), 2.5)], a)
    put("concat", [M.concat([a, d := f32(7, 5), a], 1)], a, d)
    put("split reshape", [E.add(M.reshape(M.permute(a, (1, 0)), (3, 77)), e := f32(3, 77))], a, e)
    put("row sum", [R.sum_(x, (1,))], x)
    put("column sum", [R.sum_(x, (0,))], x)
    put("total", [R.sum_(x, (0, 1))], x)
    put("mean over batch and pixels", [R.sum_(g := f32(4, 6, 13, 13), (0, 2, 3)), relu(g)], g)
    put(
        "row max and shifted", [E.sub(x, R.expand_back(R.reduce(x, "max", (1,)), x.shape, (1,)))], x
    )
    put("product", [R.reduce(f := f32(9, 11), "prod", (1,))], f)
    value, place = R.arg_reduce(h := f32(50, 37), "argmax", 1)
    put("argmax", [value, place], h)
    value, place = R.arg_reduce(h, "argmin", 0)
    put("argmin of columns", [value, place], h)
    put("softmax", [softmax(s := f32(5, 300))], s)
    put("layer norm", [layer_norm(s)], s)
    m, n, bias = f32(64, 576), f32(576, 120), f32(120)
    linear = E.add(C.matmul(m, n), M.broadcast(bias, (64, 120), (1,)))
    put("linear relu", [relu(linear)], m, n, bias)
    put("matrix vector", [C.matmul(f32_1 := f32(1, 77), f32_2 := f32(77, 10))], f32_1, f32_2)
    put("transposed product", [C.matmul(M.permute(x, (1, 0)), y)], x, y)
    put("product with transpose", [C.matmul(x, M.permute(y, (1, 0)))], x, y)
    p, q = f32(3, 17, 19), f32(3, 19, 23)
    put("batched product", [C.matmul(p, q)], p, q)
    for stride, dilation in ((1, 1), (2, 1), (1, 2), (2, 3)):
        image, weight = f32(2, 3, 15, 17), f32(5, 3, 3, 2)
        out = conv(image, weight, stride, dilation)
        put(f"conv stride {stride} dilation {dilation}", [out], image, weight)
        ct = f32(*(int(s) for s in out.shape))  # type: ignore[arg-type]
        assert out.op.vjp is not None
        gx, gw = out.op.vjp(out, [ct])
        assert gx is not None and gw is not None
        put(f"conv data gradient {stride} {dilation}", [gx], ct, weight)
        put(f"conv weight gradient {stride} {dilation}", [gw], ct, image)
    small, taps = f32(1, 2, 7, 9), f32(3, 2, 3, 2)
    out = conv(small, taps, 2)
    put("small conv", [out], small, taps)
    ct = f32(*(int(s) for s in out.shape))  # type: ignore[arg-type]
    assert out.op.vjp is not None
    gx, gw = out.op.vjp(out, [ct])
    assert gx is not None and gw is not None
    put("small conv data gradient", [gx], ct, taps)
    put("small conv weight gradient", [gw], ct, small)
    put(
        "small batched product",
        [C.matmul(f32_3 := f32(2, 7, 5), f32_4 := f32(2, 5, 9))],
        f32_3,
        f32_4,
    )
    pooled = M.reshape(M.slice_(g, (0, 0, 0, 0), (4, 6, 12, 12), (1,) * 4), (4, 6, 6, 2, 6, 2))
    put("average pool", [R.sum_(pooled, (3, 5))], g)
    i, j = typed(dtypes.int32, 40), typed(dtypes.int32, 40)
    put("integer division", [E.apply("floordiv", i, j), E.apply("mod", i, j)], i, j)
    half = typed(dtypes.bfloat16, 6, 50)
    put("bfloat16 row sum", [R.sum_(half, (1,))], half)
    flags = typed(dtypes.bool_, 6, 50)
    put("any", [R.reduce(flags, "any", (1,))], flags)
    put("iota", [E.mul(E.iota((5, 7), 1, dtypes.int64), E.iota((5, 7), 0, dtypes.int64))])
    empty = f32(4, 0)
    put("empty sum", [R.sum_(empty, (1,))], empty)
    put("empty map", [E.add(empty, empty)], empty)
    return found


def inputs_for(inputs: Sequence[Node], seed: int) -> list[np.ndarray[Any, Any]]:
    """Values that suit every op: away from zero in size, of both signs."""
    rng = np.random.default_rng(seed)
    arrays = []
    for node in inputs:
        if node.dtype.kind == "float":
            raw = rng.uniform(0.25, 2.0, node.shape) * rng.choice([-1.0, 1.0], node.shape)
        elif node.dtype.kind == "bool":
            raw = rng.random(node.shape) < 0.02
        else:
            raw = rng.integers(-5, 6, node.shape)
        arrays.append(np.asarray(raw).astype(node.dtype.numpy))
    return arrays
