"""Counts from the IR equal what the interpreter counts while it runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.counts import bound_to, compulsory_bytes, moved_bytes, useful
from ridgeline.loops.analysis.domains import Domain, size
from ridgeline.loops.analysis.footprint import levels
from ridgeline.loops.build import op
from ridgeline.loops.interpreter.counters import Counters
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Buffer, Expr, For, If, Kernel, Reduce, Seq, Store
from ridgeline.scalars import Array
from tests.loops import kernels
from tests.loops.kernels import at, c, param, v

ONE = ir.const(1, dtypes.float32)


def arrays_of(kernel: Kernel, sizes: dict[str, int]) -> dict[int, Array]:
    rng = np.random.default_rng(0)
    fixed = bound_to(kernel, sizes)
    found = {}
    for p in fixed.params:
        shape = [int(s.value) for s in p.shape if isinstance(s, ir.Const)]
        values = rng.uniform(1, 2, shape) if p.dtype.kind == "float" else rng.integers(0, 2, shape)
        found[p.slot] = values.astype(p.dtype.numpy)
    return found


def counted(kernel: Kernel, sizes: dict[str, int]) -> Counters:
    counters = Counters()
    interpret(kernel, arrays_of(kernel, sizes), sizes, counters=counters)
    return counters


def positive(counts: dict[str, int]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items() if int(count)}


def check(kernel: Kernel, sizes: dict[str, int] | None = None, exact: bool = True) -> None:
    sizes = sizes or {}
    truth = counted(kernel, sizes)
    work = useful(kernel)
    assert work.exact
    assert {k: n.at(sizes.__getitem__) for k, n in work.operations.items()} == +truth.operations
    moved = moved_bytes(kernel, sizes)
    assert moved.exact
    scopes: dict[str, str] = {p.name: p.scope for p in kernel.params}
    for statement in ir.statements(kernel.body):
        if isinstance(statement, ir.Alloc):
            scopes[statement.buffer.name] = statement.buffer.scope
    for side, counter in ((moved.read, truth.loaded), (moved.written, truth.stored)):
        by_scope: dict[str, int] = {}
        for name, count in counter.items():
            by_scope[scopes[name]] = by_scope.get(scopes[name], 0) + count
        assert positive(dict(side)) == positive(by_scope)
    compulsory = compulsory_bytes(kernel, sizes)
    assert compulsory.exact == exact
    pairs = ((compulsory.read, truth.fetched), (compulsory.written, truth.produced))
    for found, expected in pairs:
        if exact:
            assert positive(dict(found)) == positive(dict(expected))
        else:
            assert all(int(found[name]) >= count for name, count in expected.items())


@pytest.mark.parametrize("kernel", kernels.EXAMPLES, ids=lambda k: k.name)
def test_examples(kernel: Kernel) -> None:
    if kernel.name == "gather":  # which rows are picked is only known at run time
        check(kernel, exact=False)
    else:
        check(kernel)


@settings(max_examples=150, deadline=None)
@given(kernels.sound_kernels())
def test_random_kernels(kernel: Kernel) -> None:
    check(kernel)


def test_symbolic_sizes_give_polynomials() -> None:
    kernel = kernels.symbolic()
    assert str(useful(kernel).flops) == "3*k*n"
    assert useful(kernel).operations["fma"] == Polynomial.of("n") * Polynomial.of("k")
    traffic = compulsory_bytes(kernel)
    assert str(traffic.read["x"]) == "4*k*n" and str(traffic.written["y"]) == "4*n"
    for sizes in ({"n": 3, "k": 5}, {"n": 1, "k": 2}):
        check(kernel, sizes)
        assert traffic.total.at(sizes.__getitem__) == int(compulsory_bytes(kernel, sizes))


def test_large_kernels_need_no_enumeration() -> None:
    n = 4096
    assert int(useful(kernels.softmax(n, n)).flops) == 7 * n * n
    assert int(compulsory_bytes(kernels.softmax(n, n))) == 2 * 4 * n * n
    product = kernels.matmul(n + 1, n, n, tile=6)  # the last tile is not full
    counts = useful(product)
    assert counts.exact and int(counts.flops) == 2 * (n + 1) * n * n + (n + 1) * n
    traffic = compulsory_bytes(product)
    assert traffic.exact and int(traffic) == 4 * (2 * (n + 1) * n + n * n)
    wide = kernels.triangle(100_000)
    assert int(useful(wide).flops) == 100_000 * 100_001 // 2


def one_read(index: list[Expr], shape: list[int], loops: dict[str, int]) -> Kernel:
    x, y = param("x", shape, 0), param("y", tuple(loops.values()), 1)
    body: ir.Stmt = Store(y, tuple(map(v, loops)), at(x, *index))
    for name, extent in reversed(loops.items()):
        body = For(name, c(extent), body)
    return Kernel("read", (x, y), (), body)


@pytest.mark.parametrize(
    ("index", "shape", "elements"),
    [
        ([v("i"), v("j")], [9, 9], 9 * 7),
        ([v("i"), c(2)], [9, 9], 9),
        ([c(0), c(0)], [9, 9], 1),
        ([v("i") + v("j")], [20], 15),  # a window
        ([v("i") * c(3) + v("j")], [40], 31),  # a strided window that overlaps
        ([v("i") * c(10) + v("j")], [90], 63),  # one that does not
        ([v("i") * c(6) + v("j") * c(4)], [90], None),
        ([v("i"), v("i")], [9, 9], 9),  # a diagonal
        ([v("i") + v("j"), v("j")], [20, 9], 63),  # sheared
        ([v("i") + v("j"), v("i") + v("j")], [20, 20], 15),
        ([v("i") // c(2), v("j") % c(3)], [9, 9], 15),
        ([(v("i") * c(5) + v("j")) % c(11)], [11], 11),
    ],
    ids=lambda item: str(item),
)
def test_images(index: list[Expr], shape: list[int], elements: int | None) -> None:
    kernel = one_read(index, shape, {"i": 9, "j": 7})
    if elements is not None:
        assert int(compulsory_bytes(kernel).read["x"]) == 4 * elements
    check(kernel)


@given(st.lists(st.tuples(st.integers(-6, 40), st.integers(1, 6)), max_size=4))
def test_levels_count_distinct_sums(terms: list[tuple[int, int]]) -> None:
    sums = {0}
    for step, extent in terms:
        sums = {s + abs(step) * k for s in sums for k in range(extent)}
    found = levels(terms)
    if found is not None:
        assert int(np.prod([count for _, count in found], dtype=int)) == len(sums)


def test_several_reads_are_united() -> None:
    x, y = param("x", (12,), 0), param("y", (10,), 1)
    i = v("i")
    total = op("add", op("add", at(x, i), at(x, i + c(1))), at(x, i + c(2)))
    check(Kernel("stencil", (x, y), (), For("i", c(10), Store(y, (i,), total))))
    square, out = param("s", (10, 10), 0), param("o", (8, 8), 1)
    j = v("j")
    cross = op("add", at(square, i + c(1), j), at(square, i, j + c(1)))
    loop = For("i", c(8), For("j", c(8), Store(out, (i, j), cross)))
    check(Kernel("cross", (square, out), (), loop))


def test_in_place_updates() -> None:
    x = param("x", (8,), 0)
    twice = Store(x, (v("i"),), op("add", at(x, v("i")), at(x, v("i"))))
    check(Kernel("twice", (x,), (), For("i", c(8), twice)))
    accumulate = Reduce((x,), (v("i"),), "sum", (ONE,))
    check(Kernel("grow", (x,), (), For("i", c(8), For("k", c(3), accumulate, "reduce"))))
    zero = Store(x, (v("i"),), ir.const(0, dtypes.float32))
    both = Seq((zero, For("k", c(3), accumulate, "reduce")))
    check(Kernel("fresh", (x,), (), For("i", c(8), both)))
    carried = If(c(0) < v("i"), Reduce((x,), (v("i"),), "sum", (at(x, v("i") + c(-1)),)))
    check(Kernel("scan", (x,), (), For("i", c(8), carried, "carried")), exact=False)


def test_guarded_loads_count_where_they_happen() -> None:
    kernel = kernels.convolution(9, 4, 2)
    assert int(moved_bytes(kernel).read["global"]) == 4 * (40 - 6) + 4 * 40
    check(kernel)


def test_views_of_one_slot_are_flagged() -> None:
    x, flat = param("x", (2, 2), 0), Buffer("flat", (c(4),), dtypes.float32, "global", 0)
    body = For("i", c(4), Store(flat, (v("i"),), at(x, c(0), c(0))))
    assert not compulsory_bytes(Kernel("views", (x, flat), (), body)).exact


def test_domains_that_cannot_be_settled_give_a_bound() -> None:
    which = param("which", (10,), 0, dtypes.int64)
    guard = at(which, v("i")) < c(3)
    found = size(Domain((("i", c(10)),), (guard,)))
    assert not found.exact and found.count == 10
    uneven = size(Domain((("i", c(10**6)), ("j", c(7))), (v("i") * c(7) + v("j") < c(10**6),)))
    assert uneven.exact and uneven.count == 10**6
