"""Graphs of every kernel family with small random shapes, for checks by interpretation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ridgeline import dtypes
from ridgeline.ops import (
    contract as C,
    elementwise as E,
    gather as G,
    movement as M,
    random as X,
    reduce as R,
    scan as S,
    search as Q,
    sort as O,
)
from ridgeline.ops.movement import broadcast_scalar
from tests.compiler.passing import prepared
from tests.compiler.programs import Example, conv, f32, layer_norm, relu, softmax, typed

Build = Callable[[np.random.Generator], Example]
_FAMILIES: dict[str, Build] = {}


def _family(build: Build) -> Build:
    _FAMILIES[build.__name__.replace("_", " ").strip()] = build
    return build


def sizes(rng: np.random.Generator, count: int, most: int = 9) -> list[int]:
    """Random lengths: one, even, odd, just above a vector, and now and then a long one."""
    return [int(rng.choice([1, 2, 3, 5, 8, 9, most])) for _ in range(count)]


@_family
def pointwise(rng: np.random.Generator) -> Example:
    shape = sizes(rng, 3)
    x, y = f32(*shape), f32(*shape)
    return [E.mul(E.add(x, y), E.apply("exp", x)), E.sub(x, y)], [x, y]


@_family
def transposed(rng: np.random.Generator) -> Example:
    a, b = sizes(rng, 2)
    x, y = f32(a, b), f32(b, a)
    return [E.add(M.permute(x, (1, 0)), y)], [x, y]


@_family
def padded(rng: np.random.Generator) -> Example:
    a, b = sizes(rng, 2)
    x = f32(a, b)
    return [M.pad(x, (1, 0), (2, 3), (0, 1), 0.5)], [x]


@_family
def joined(rng: np.random.Generator) -> Example:
    a, b, c = sizes(rng, 3)
    x, y = f32(a, b), f32(a, c)
    return [M.concat([x, y, x], 1)], [x, y]


@_family
def row_sums(rng: np.random.Generator) -> Example:
    a, b = sizes(rng, 2, 40)
    x = f32(a, b)
    return [R.sum_(x, (1,)), R.reduce(x, "max", (1,))], [x]


@_family
def column_sums(rng: np.random.Generator) -> Example:
    a, b = sizes(rng, 2, 40)
    x = f32(a, b)
    return [R.sum_(x, (0,))], [x]


@_family
def totals(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 3))
    return [R.sum_(x, (0, 1, 2)), R.reduce(x, "prod", (0, 1, 2))], [x]


@_family
def largest(rng: np.random.Generator) -> Example:
    a, b = sizes(rng, 2, 40)
    x = f32(a, b)
    return list(R.arg_reduce(x, "argmax", int(rng.integers(2)))), [x]


@_family
def softmaxes(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 2, 40))
    return [softmax(x)], [x]


@_family
def layer_norms(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 2, 40))
    return [layer_norm(x)], [x]


@_family
def flags(rng: np.random.Generator) -> Example:
    x = typed(dtypes.bool_, *sizes(rng, 2))
    return [R.reduce(x, "any", (1,)), R.reduce(x, "all", (0,))], [x]


@_family
def products(rng: np.random.Generator) -> Example:
    m, k, n = sizes(rng, 3)
    a, b, bias = f32(m, k), f32(k, n), f32(n)
    total = E.add(C.matmul(a, b), M.broadcast(bias, (m, n), (1,)))
    return [relu(total)], [a, b, bias]


@_family
def products_with_transpose(rng: np.random.Generator) -> Example:
    m, k, n = sizes(rng, 3)
    a, b = f32(m, k), f32(n, k)
    return [C.matmul(a, M.permute(b, (1, 0)))], [a, b]


@_family
def packed_products(rng: np.random.Generator) -> Example:
    m, n = int(rng.integers(100, 110)), int(rng.integers(70, 80))
    a, b = f32(m, 66), f32(66, n)
    return [C.matmul(a, b)], [a, b]


@_family
def batched_products(rng: np.random.Generator) -> Example:
    b, m, k, n = sizes(rng, 4, 9)
    x, y = f32(b, m, k), f32(b, k, n)
    return [C.matmul(x, y)], [x, y]


@_family
def bfloat16_products(rng: np.random.Generator) -> Example:
    m, k, n = sizes(rng, 3)
    x, y = typed(dtypes.bfloat16, m, k), typed(dtypes.bfloat16, k, n)
    return [C.matmul(x, y)], [x, y]


@_family
def convolutions(rng: np.random.Generator) -> Example:
    stride, dilation = (int(n) for n in rng.integers(1, 3, 2))
    x, w = f32(2, 2, 9, 8), f32(int(rng.integers(1, 6)), 2, 3, 2)
    out = conv(x, w, stride, dilation)
    ct = f32(*(int(s) for s in out.shape))  # type: ignore[arg-type]
    assert out.op.vjp is not None
    gx, gw = out.op.vjp(out, [ct])
    assert gx is not None and gw is not None
    return [out, gx, gw], [x, w, ct]


@_family
def running_sums(rng: np.random.Generator) -> Example:
    shape, axis = sizes(rng, 2), int(rng.integers(2))
    x = f32(*shape)
    return [S.scan(x, "sum", axis, True), S.scan(x, "prod", axis)], [x]


@_family
def running_extremes(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 2))
    return list(S.extreme_scan(x, "max", int(rng.integers(2)))), [x]


@_family
def running_logarithms(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 2))
    return [S.scan(x, "logaddexp", int(rng.integers(2)))], [x]


@_family
def recurrences(rng: np.random.Generator) -> Example:
    shape = sizes(rng, 2)
    a, b = f32(*shape), f32(*shape)
    return [S.linear_scan(a, b, int(rng.integers(2)))], [a, b]


@_family
def gathers(rng: np.random.Generator) -> Example:
    rows, width, picks = sizes(rng, 3)
    table, which = f32(rows + 2, width), typed(dtypes.int64, picks)
    return [E.add(g := G.gather(table, [which], [0]), g)], [table, which]


@_family
def scatters(rng: np.random.Generator) -> Example:
    rows, width, picks = sizes(rng, 3)
    base, updates, which = f32(rows + 2, width), f32(picks, width), typed(dtypes.int64, picks)
    mode = str(rng.choice(["set", "add", "max"]))
    return [G.scatter(base, updates, [which], [0], mode)], [base, updates, which]


@_family
def scattered_flags(rng: np.random.Generator) -> Example:
    picks = int(rng.integers(1, 9))
    base, updates = typed(dtypes.bool_, 5), typed(dtypes.bool_, picks)
    which = typed(dtypes.int64, picks)
    return [G.scatter(base, updates, [which], [0], "set")], [base, updates, which]


@_family
def sorted_rows(rng: np.random.Generator) -> Example:
    x = f32(*sizes(rng, 2, 40))
    return list(O.sort(x, int(rng.integers(2)), bool(rng.integers(2)))), [x]


@_family
def sorted_long_rows(rng: np.random.Generator) -> Example:
    x = typed(dtypes.float16, 1, int(rng.integers(257, 270)))
    return list(O.sort(x, 1, bool(rng.integers(2)))), [x]


@_family
def smallest(rng: np.random.Generator) -> Example:
    x = typed(dtypes.int16, 1, int(rng.integers(257, 270)))
    return list(O.sort(x, 1, bool(rng.integers(2)), int(rng.integers(1, 9)))), [x]


@_family
def searches(rng: np.random.Generator) -> Example:
    sequence, values = f32(int(rng.integers(1, 20))), f32(*sizes(rng, 2))
    return [Q.search(sequence, values, bool(rng.integers(2)))], [sequence, values]


@_family
def random_bits(rng: np.random.Generator) -> Example:
    key, offset = typed(dtypes.uint64), typed(dtypes.uint64)
    shape = tuple(sizes(rng, 2))
    return [X.random_bits(key, offset, shape, n) for n in (None, 0, 1)], [key, offset]


@_family
def scalars(rng: np.random.Generator) -> Example:
    x, rate = f32(*sizes(rng, 2)), f32()
    return [E.mul(x, broadcast_scalar(rate, x.shape))], [x, rate]


NAMES = tuple(_FAMILIES)


def graph(name: str, seed: int) -> Example:
    """A random graph of a family, as the compiler takes it."""
    outputs, inputs = _FAMILIES[name](np.random.default_rng([seed, NAMES.index(name)]))
    return prepared(outputs, inputs), inputs
