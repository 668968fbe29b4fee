"""Random graphs: views, pointwise ops, reductions and contractions over small integer values.

Values are integers of bounded size, held as float32 or int32, so that every way to run must agree
to the bit whatever the order of summation.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops import (
    contract as C,
    elementwise as E,
    gather as G,
    movement as M,
    reduce as R,
    scan as S,
)

MOST_ELEMENTS = 4000


def random_graph(seed: int, size: int = 12) -> tuple[list[Node], list[Node]]:
    """Outputs and inputs of a random program with about `size` ops."""
    rng = random.Random(seed)
    inputs = [_leaf(rng) for _ in range(rng.randint(1, 3))]
    pool = list(inputs)
    while len(pool) < size + len(inputs):
        step = rng.choice(_STEPS)
        made = step(rng, pool)
        if made is not None and _elements(made) <= MOST_ELEMENTS:
            pool.append(_bounded(made))
    outputs = rng.sample(pool[len(inputs) :], k=min(rng.randint(1, 3), size))
    return outputs, inputs


def _leaf(rng: random.Random) -> Node:
    shape = tuple(rng.choice((1, 2, 3, 5, 8, 17, 33)) for _ in range(rng.randint(1, 4)))
    while _count(shape) > MOST_ELEMENTS:
        shape = shape[1:]
    return leaf(TensorType(shape, rng.choice((dtypes.float32, dtypes.float32, dtypes.int32))))


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _elements(node: Node) -> int:
    return _count(node.shape)  # type: ignore[arg-type]


def _bounded(node: Node) -> Node:
    """Keep magnitudes small: the remainder by a prime is exact for floats and integers."""
    if node.dtype.kind == "bool":
        return E.cast(node, dtypes.float32)
    return E.apply("mod", node, E.full_like(node, 7)) if _GROWS(node) else node


def _GROWS(node: Node) -> bool:
    return node.op.name in ("mul", "reduce", "contract", "add", "sub", "scatter", "scan")


def _unary(rng: random.Random, pool: list[Node]) -> Node:
    a = rng.choice(pool)
    name = rng.choice(("neg", "abs", "sign", "floor", "relu", "square"))
    if name == "relu":
        return E.select(E.apply("lt", E.full_like(a, 1), a), a, E.full_like(a, 0))
    if name == "square":
        return E.mul(a, a)
    if name == "floor" and a.dtype.kind != "float":
        name = "neg"
    return E.apply(name, a)


def _binary(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    others = [b for b in pool if b.shape == a.shape and b.dtype is a.dtype]
    b = rng.choice(others)
    name = rng.choice(("add", "sub", "mul", "max", "min", "lt", "eq"))
    return E.apply(name, a, b)


def _broadcast(rng: random.Random, pool: list[Node]) -> Node | None:
    """A pair of one full and one smaller operand, joined."""
    a = rng.choice(pool)
    for b in rng.sample(pool, len(pool)):
        rank = len(a.shape)
        fits = b.dtype is a.dtype and len(b.shape) <= rank
        if fits and all(s in (1, a.shape[rank - len(b.shape) + i]) for i, s in enumerate(b.shape)):
            return E.add(a, M.broadcast_to(b, a.shape))
    return None


def _permute(rng: random.Random, pool: list[Node]) -> Node:
    a = rng.choice(pool)
    order = list(range(len(a.shape)))
    rng.shuffle(order)
    return M.permute(a, tuple(order))


def _reshape(rng: random.Random, pool: list[Node]) -> Node:
    a = rng.choice(pool)
    rest, shape = _elements(a), []
    while rest > 1 and len(shape) < 3:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        shape.append(rng.choice(divisors))
        rest //= shape[-1]
    return M.reshape(a, (*shape, rest))


def _slice(rng: random.Random, pool: list[Node]) -> Node:
    a = rng.choice(pool)
    starts, sizes, steps = [], [], []
    for length in a.shape:
        assert isinstance(length, int)
        size = rng.randint(1, length)
        most = (length - 1) // (size - 1) if size > 1 else 1
        step = rng.randint(1, max(most, 1)) * rng.choice((1, 1, -1))
        reach = (size - 1) * abs(step)
        first = rng.randint(0, length - 1 - reach)
        starts.append(first if step > 0 else first + reach)
        sizes.append(size)
        steps.append(step)
    return M.slice_(a, tuple(starts), tuple(sizes), tuple(steps))


def _pad(rng: random.Random, pool: list[Node]) -> Node:
    a = rng.choice(pool)
    low, high, interior = (tuple(rng.choice((0, 0, 1, 2)) for _ in a.shape) for _ in range(3))
    return M.pad(a, low, high, interior, rng.choice((0, 3)))


def _concat(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    if not a.shape:
        return None
    axis = rng.randrange(len(a.shape))
    same = [
        b
        for b in pool
        if len(b.shape) == len(a.shape)
        and b.dtype is a.dtype
        and all(i == axis or s == t for i, (s, t) in enumerate(zip(a.shape, b.shape)))
    ]
    return M.concat([a, *rng.choices(same, k=rng.randint(1, 2))], axis)


def _reduce(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    if not a.shape:
        return None
    axes = rng.sample(range(len(a.shape)), rng.randint(1, len(a.shape)))
    monoid = rng.choice(("sum", "sum", "max", "min"))
    reduced = R.reduce(a, monoid, axes)
    if rng.random() < 0.4:
        return E.sub(a, R.expand_back(reduced, a.shape, sorted(axes)))
    return reduced


def _argmax(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    if not a.shape:
        return None
    axis = rng.randrange(len(a.shape))
    value, place = R.arg_reduce(a, rng.choice(("argmax", "argmin")), axis)
    return value if rng.random() < 0.5 else E.cast(place, dtypes.float32)


def _matmul(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    if len(a.shape) < 2:
        return None
    for b in rng.sample(pool, len(pool)):
        if b.dtype is a.dtype and len(b.shape) == len(a.shape) and b.shape[:-2] == a.shape[:-2]:
            if b.shape[-2] == a.shape[-1]:
                return C.matmul(a, b)
            if b.shape[-1] == a.shape[-1]:
                order = (*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2)
                return C.matmul(a, M.permute(b, order))
    return None


def _windows(rng: random.Random, pool: list[Node]) -> Node | None:
    """A one-dimensional convolution of a matrix's rows with another matrix."""
    a, w = rng.choice(pool), rng.choice(pool)
    if len(a.shape) != 2 or len(w.shape) != 2 or a.dtype is not w.dtype:
        return None
    stride, dilation = rng.choice(((1, 1), (2, 1), (1, 2)))
    (rows, length), (out, taps) = a.shape, w.shape
    assert isinstance(length, int) and isinstance(taps, int)
    size = (length - dilation * (taps - 1) - 1) // stride + 1
    if size < 1:
        return None
    attrs = C.ContractAttrs(
        (rows, out, size, taps),
        (0, 1, 2),
        (C.axis(0), C.AxisMap(((2, stride), (3, dilation)))),
        (C.axis(1), C.axis(3)),
    )
    return C.contract(a, w, attrs)


def _gather(rng: random.Random, pool: list[Node]) -> Node | None:
    """Elements of one tensor at places computed from another."""
    a, b = rng.choice(pool), rng.choice(pool)
    if not a.shape:
        return None
    axis = rng.randrange(len(a.shape))
    size = a.shape[axis]
    assert isinstance(size, int)
    return G.gather(a, [E.cast(E.apply("mod", b, E.full_like(b, size)), dtypes.int64)], [axis])


def _scatter(rng: random.Random, pool: list[Node]) -> Node | None:
    """Elements of one tensor joined into another of its shape at computed places."""
    a = rng.choice(pool)
    if not a.shape:
        return None
    axis = rng.randrange(len(a.shape))
    size = a.shape[axis]
    assert isinstance(size, int)
    wanted = [b for b in pool if b.shape == a.shape]
    b = rng.choice(wanted)
    index = E.cast(E.apply("mod", b, E.full_like(b, size)), dtypes.int64)
    mode = rng.choice(("add", "max", "set"))
    if rng.random() < 0.5:
        return G.scatter_along(a, a, index, axis, mode)
    flat = M.reshape(index, (_elements(index),))
    picked = G.gather(a, [flat], [axis])
    return G.scatter(a, picked, [flat], [axis], mode)


def _scan(rng: random.Random, pool: list[Node]) -> Node | None:
    a = rng.choice(pool)
    if not a.shape:
        return None
    axis, backwards = rng.randrange(len(a.shape)), rng.random() < 0.5
    return S.scan(a, "sum", axis, backwards)


_STEPS: tuple[Callable[[random.Random, list[Node]], Node | None], ...] = (
    _unary, _binary, _binary, _broadcast, _permute, _reshape, _slice, _pad, _concat, _reduce,
    _reduce, _argmax, _matmul, _windows, _gather, _scatter,
    _scan,
)  # fmt: skip
