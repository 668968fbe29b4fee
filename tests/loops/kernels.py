"""Kernels to test with: some written by hand, and strategies for random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import cast, op
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Expr,
    For,
    Hole,
    If,
    Kernel,
    Load,
    OpExpr,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from ridgeline.loops.monoids import MONOIDS


def c(value: int) -> Expr:
    return ir.index(value)


def v(name: str) -> Var:
    return Var.make(name)


def param(name: str, shape: Sequence[int], slot: int, dtype: DType = dtypes.float32) -> Buffer:
    return Buffer(name, tuple(map(c, shape)), dtype, "global", slot)


def register(name: str, shape: Sequence[int] = (), dtype: DType = dtypes.float32) -> Buffer:
    return Buffer(name, tuple(map(c, shape)), dtype, "reg")


def at(buffer: Buffer, *index: Expr) -> Expr:
    return Load.make(buffer, index)


def start(buffer: Buffer, monoid: str) -> Store:
    (initial,) = MONOIDS[monoid].init((buffer.dtype,))
    return Store(buffer, (), initial)


def softmax(rows: int, columns: int) -> Kernel:
    x, y = param("x", (rows, columns), 0), param("y", (rows, columns), 1)
    m, s = register("m"), register("s")
    r, col = v("r"), v("c")
    shifted = op("exp", at(x, r, col) - at(m))
    body = Seq((
        start(m, "max"),
        For("c", c(columns), Reduce((m,), (), "max", (at(x, r, col),)), "reduce", "vector"),
        start(s, "sum"),
        For("c", c(columns), Reduce((s,), (), "sum", (shifted,)), "reduce", "vector"),
        For("c", c(columns), Store(y, (r, col), op("div", shifted, at(s))), kind="vector"),
    ))  # fmt: skip
    loop = For("r", c(rows), Alloc(m, Alloc(s, body)), kind="parallel")
    return Kernel("softmax", (x, y), (), loop)


def matmul(m: int, n: int, k: int, tile: int = 4) -> Kernel:
    """Rows in tiles of `tile`, the last one guarded; columns are a vector loop."""
    a, b, y = param("a", (m, k), 0), param("b", (k, n), 1), param("y", (m, n), 2)
    acc = register("acc", (tile, n))
    row = v("m.0") * c(tile) + v("m.1")
    guard = row < c(m)

    def tiled(inside: Stmt, kind: ir.LoopKind = "unroll") -> Stmt:
        columns = For("n", c(n), inside, kind="vector")
        return For("m.1", c(tile), If(guard, columns), kind=kind)

    product = at(a, row, v("k")) * at(b, v("k"), v("n"))
    place = (v("m.1"), v("n"))
    body = Seq((
        tiled(Store(acc, place, ir.const(0, dtypes.float32))),
        For("k", c(k), tiled(Reduce((acc,), place, "sum", (product,))), "reduce"),
        tiled(Store(y, (row, v("n")), op("max", at(acc, *place), ir.const(0, dtypes.float32)))),
    ))  # fmt: skip
    loop = For("m.0", c(math.ceil(m / tile)), Alloc(acc, body), kind="parallel")
    return Kernel("matmul_relu", (a, b, y), (), loop)


def convolution(length: int, taps: int, padding: int) -> Kernel:
    """A padded window read through `guarded`."""
    x, w = param("x", (length,), 0), param("w", (taps,), 1)
    y, acc = param("y", (length + 2 * padding - taps + 1,), 2), register("acc")
    place = v("i") + v("t") - c(padding)
    inside = op("and", op("le", c(0), place), place < c(length))
    value = op("guarded", inside, at(x, place), ir.const(0, dtypes.float32))
    body = Seq((
        start(acc, "sum"),
        For("t", c(taps), Reduce((acc,), (), "sum", (value * at(w, v('t')),)), "reduce"),
        Store(y, (v("i"),), at(acc)),
    ))  # fmt: skip
    return Kernel("convolution", (x, w, y), (), For("i", y.shape[0], Alloc(acc, body)))


def scan(length: int) -> Kernel:
    x, y, total = param("x", (length,), 0), param("y", (length,), 1), register("total")
    step = Seq((Reduce((total,), (), "sum", (at(x, v("i")),)), Store(y, (v("i"),), at(total))))
    loop = For("i", c(length), step, "carried")
    return Kernel("scan", (x, y), (), Alloc(total, Seq((start(total, "sum"), loop))))


def gather(rows: int, picks: int, width: int) -> Kernel:
    table, which = param("table", (rows, width), 0), param("which", (picks,), 1, dtypes.int32)
    y = param("y", (picks, width), 2)
    row = cast(at(which, v("i")), dtypes.int64)
    body = For("j", c(width), Store(y, (v("i"), v("j")), at(table, row, v("j"))), kind="vector")
    return Kernel("gather", (table, which, y), (), For("i", c(picks), body))


def argmax(rows: int, columns: int) -> Kernel:
    x, y = param("x", (rows, columns), 0), param("y", (rows,), 1, dtypes.int64)
    best, where = register("best"), register("where", (), dtypes.int64)
    first = MONOIDS["argmax"].init((best.dtype, where.dtype))
    join = Reduce((best, where), (), "argmax", (at(x, v("r"), v("c")), v("c")))
    body = Seq((
        Store(best, (), first[0]), Store(where, (), first[1]),
        For("c", c(columns), join, "reduce"), Store(y, (v("r"),), at(where)),
    ))  # fmt: skip
    return Kernel("argmax", (x, y), (), For("r", c(rows), Alloc(best, Alloc(where, body))))


def triangle(size: int) -> Kernel:
    """Row sums of the lower triangle: the inner extent follows the outer variable."""
    x, y, acc = param("x", (size, size), 0), param("y", (size,), 1), register("acc")
    inner = For("j", v("i") + c(1), Reduce((acc,), (), "sum", (at(x, v("i"), v("j")),)), "reduce")
    body = Seq((start(acc, "sum"), inner, Store(y, (v("i"),), at(acc))))
    return Kernel("triangle", (x, y), (), For("i", c(size), Alloc(acc, body), kind="parallel"))


def symbolic() -> Kernel:
    """A row sum whose sizes are known at run time only."""
    n, k = v("n"), v("k")
    x = Buffer("x", (n, k), dtypes.float32, "global", 0)
    y, acc = Buffer("y", (n,), dtypes.float32, "global", 1), register("acc")
    square = op("fma", at(x, v("i"), v("j")), at(x, v("i"), v("j")), ir.const(1, dtypes.float32))
    loop = For("j", k, Reduce((acc,), (), "sum", (square,)), "reduce")
    body = Seq((start(acc, "sum"), loop, Store(y, (v("i"),), at(acc))))
    return Kernel("rows", (x, y), ("n", "k"), For("i", n, Alloc(acc, body)))


EXAMPLES = [
    softmax(5, 7), matmul(6, 5, 3), convolution(9, 4, 2), scan(6), gather(5, 4, 3), argmax(4, 6),
    triangle(6),
]  # fmt: skip

_NAMES = st.sampled_from(["i", "j.0", "row", "for", "max", "inf", "a b", "näh`r", "alloc", "let"])
_TYPES = st.sampled_from([dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int32])


def _literals(dtype: DType) -> st.SearchStrategy[Expr]:
    if dtype is dtypes.bool_:
        return st.booleans().map(lambda flag: ir.const(flag, dtype))
    if dtype.kind == "float":
        numbers = st.floats() | st.sampled_from([-0.0, 1e-300, 1e16, -3.0])
        return numbers.map(lambda number: ir.const(number, dtype))
    return st.integers(-9, 9).map(lambda number: ir.const(number, dtype))


def _raw(name: str, *args: Expr) -> Expr:
    boolean = name in ("lt", "le", "eq", "ne", "isnan")
    return OpExpr.make(args, dtypes.bool_ if boolean else args[-1].dtype, name)


@st.composite
def loose_expressions(
    draw: st.DrawFn, dtype: DType, buffers: Sequence[Buffer], depth: int = 3
) -> Expr:
    """Any well-typed expression, simplified or not."""
    kind = draw(st.integers(0, 7)) if depth else draw(st.integers(0, 1))

    def again(of: DType = dtype) -> Expr:
        return draw(loose_expressions(of, buffers, depth - 1))

    if kind == 0:
        return draw(_literals(dtype))
    if kind == 1:
        loads = [b for b in buffers if b.dtype is dtype]
        if loads and depth:
            chosen = draw(st.sampled_from(loads))
            return Load.make(chosen, tuple(again(dtypes.int64) for _ in chosen.shape))
        return v(draw(_NAMES)) if dtype is dtypes.int64 else Hole.make(dtype, draw(_NAMES))
    if kind == 2:
        name = draw(st.sampled_from(["select", "guarded"]))
        return _raw(name, again(dtypes.bool_), again(), again())
    if kind == 3 and dtype is not dtypes.bool_:
        return OpExpr.make(
            (again(draw(_TYPES)),), dtype, draw(st.sampled_from(["cast", "bitcast"]))
        )
    if dtype is dtypes.bool_:
        if kind == 4:
            other = draw(_TYPES)
            return _raw(draw(st.sampled_from(["lt", "le", "eq", "ne"])), again(other), again(other))
        name = draw(st.sampled_from(["and", "or", "xor", "not"]))
        return _raw(name, again()) if name == "not" else _raw(name, again(), again())
    if kind == 4:
        return _raw(draw(st.sampled_from(["neg", "abs"])), again())
    names = ["add", "sub", "mul", "floordiv", "mod", "max"]
    names += ["div", "pow"] if dtype.kind == "float" else ["shl", "and"]
    return _raw(draw(st.sampled_from(names)), again(), again())


@st.composite
def loose_statements(draw: st.DrawFn, buffers: tuple[Buffer, ...], depth: int) -> Stmt:
    """Any statement tree that names its buffers properly; it need not make sense to run."""
    kind = draw(st.integers(0, 5)) if depth else draw(st.integers(0, 1))
    if kind == 0:
        target = draw(st.sampled_from(buffers))
        index = tuple(draw(loose_expressions(dtypes.int64, buffers, 1)) for _ in target.shape)
        return Store(target, index, draw(loose_expressions(target.dtype, buffers)))
    if kind == 1:
        first = draw(st.sampled_from(buffers))
        monoid = draw(st.sampled_from(["sum", "prod", "max", "argmax", "welford"]))
        targets = (first,) * MONOIDS[monoid].arity
        index = tuple(draw(loose_expressions(dtypes.int64, buffers, 1)) for _ in first.shape)
        values = tuple(draw(loose_expressions(target.dtype, buffers)) for target in targets)
        return Reduce(targets, index, monoid, values)
    if kind == 2:
        statements = draw(st.lists(loose_statements(buffers, depth - 1), max_size=3))
        return Seq(tuple(statements))
    if kind == 3:
        guard = draw(loose_expressions(dtypes.bool_, buffers, 2))
        return If(guard, draw(loose_statements(buffers, depth - 1)))
    if kind == 4:
        extent = draw(loose_expressions(dtypes.int64, buffers, 2))
        axis = draw(st.sampled_from(["spatial", "reduce", "carried"]))
        loop = draw(st.sampled_from(["serial", "unroll", "vector", "parallel"]))
        return For(draw(_NAMES), extent, draw(loose_statements(buffers, depth - 1)), axis, loop)
    shape = tuple(draw(st.lists(loose_expressions(dtypes.int64, (), 1), max_size=2)))
    scope = draw(st.sampled_from(["reg", "local"]))
    fresh = Buffer(draw(_NAMES), shape, draw(_TYPES), scope)
    visible = (*(b for b in buffers if b.name != fresh.name), fresh)
    return Alloc(fresh, draw(loose_statements(visible, depth - 1)))


@st.composite
def loose_kernels(draw: st.DrawFn) -> Kernel:
    """Any kernel that can be printed."""
    params = (
        Buffer("x", (c(4), v("n")), dtypes.float32, "global", 0),
        Buffer("exp", (c(4),), draw(_TYPES), "stream", 1),
    )
    body = draw(loose_statements(params, 3))
    return Kernel(draw(_NAMES), params, ("n",), body)


@st.composite
def sound_kernels(draw: st.DrawFn) -> Kernel:
    """Kernels that run: affine reads of any overlap, guards, reductions, in-place updates."""
    outer = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    inner = draw(st.lists(st.integers(1, 4), max_size=2))
    names = [f"o{n}" for n in range(len(outer))] + [f"r{n}" for n in range(len(inner))]
    extents = dict(zip(names, outer + inner))
    values: list[Expr] = []
    params: list[Buffer] = []
    for slot in range(draw(st.integers(1, 2))):
        buffer, reads = draw(_reads(names, extents, slot))
        params.append(buffer)
        values += reads
    value = values[0]
    for other in values[1:]:
        value = op(draw(st.sampled_from(["add", "mul", "max", "div"])), value, other)
    value = draw(st.sampled_from([value, op("exp", value), op("fma", value, value, value)]))
    y = param("y", outer, 9)
    place = tuple(v(f"o{n}") for n in range(len(outer)))
    acc = register("acc")
    body: Stmt = Reduce((acc,), (), "sum", (value,))
    for n, extent in reversed(list(enumerate(inner))):
        body = For(f"r{n}", c(extent), body, "reduce")
    body = Alloc(acc, Seq((start(acc, "sum"), body, Store(y, place, at(acc)))))
    how = draw(st.sampled_from(["plain", "reduce in place", "zero first", "guard"]))
    if how == "reduce in place":
        body = Reduce((y,), place, "sum", (value,))
        for n, extent in reversed(list(enumerate(inner))):
            body = For(f"r{n}", c(extent), body, "reduce")
    elif how == "guard":
        sum_ = place[0] * c(draw(st.integers(1, 3))) + place[-1]
        body = If(sum_ < c(draw(st.integers(0, 8))), body)
    for n, extent in reversed(list(enumerate(outer))):
        kind = draw(st.sampled_from(["serial", "parallel", "vector", "unroll"]))
        body = For(f"o{n}", c(extent), body, kind=kind)
    if how == "zero first":
        zero: Stmt = Store(y, place, ir.const(0, dtypes.float32))
        for n, extent in reversed(list(enumerate(outer))):
            zero = For(f"o{n}", c(extent), zero)
        body = Seq((zero, body))
    return Kernel("random", (*params, y), (), body)


@st.composite
def _reads(
    draw: st.DrawFn, names: list[str], extents: dict[str, int], slot: int
) -> tuple[Buffer, list[Expr]]:
    """A buffer and some reads of it, large enough for all of them."""
    axes = draw(st.integers(1, 2))
    reads: list[list[tuple[Expr, int]]] = []
    for _ in range(draw(st.integers(1, 3))):
        index = []
        for _ in range(axes):
            chosen = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
            total, most = c(draw(st.integers(0, 3))), 3
            for name in chosen:
                step = draw(st.sampled_from([1, 1, 2, 3, 5]))
                total = total + v(name) * c(step)
                most += step * (extents[name] - 1)
            index.append((total, most))
        reads.append(index)
    shape = [max(index[axis][1] for index in reads) + 1 for axis in range(axes)]
    buffer = param(f"x{slot}", shape, slot)
    return buffer, [at(buffer, *(i for i, _ in index)) for index in reads]
