"""The interpreter: values against NumPy, what it refuses, and what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.analysis.independence import independent
from ridgeline.loops.build import op
from ridgeline.loops.interpreter.counters import Counters
from ridgeline.loops.interpreter.interpret import (
    LoopError,
    OutOfBounds,
    Race,
    UninitialisedRead,
    interpret,
)
from ridgeline.loops.ir import Alloc, Buffer, For, If, Kernel, LoopKind, Reduce, Seq, Stmt, Store
from ridgeline.scalars import Array
from tests.loops import kernels
from tests.loops.kernels import at, c, param, register, start, v

RNG = np.random.default_rng(3)
ONE = ir.const(1, dtypes.float32)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["program", "shuffled"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_softmax(order: str) -> None:
    x, y = floats(5, 7), np.zeros((5, 7), np.float32)
    x[2] = -np.inf
    x[2, 3] = 1
    interpret(kernels.softmax(5, 7), {0: x, 1: y}, {}, order=order)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_matmul_with_a_guarded_last_tile(order: str) -> None:
    a, b, y = floats(6, 3), floats(3, 5), np.zeros((6, 5), np.float32)
    interpret(kernels.matmul(6, 5, 3), {0: a, 1: b, 2: y}, {}, order=order)
    np.testing.assert_allclose(y, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)


def test_padding_is_never_read(order: str) -> None:
    x, w, y = floats(9), floats(4), np.zeros(10, np.float32)
    interpret(kernels.convolution(9, 4, 2), {0: x, 1: w, 2: y}, {}, order=order)
    np.testing.assert_allclose(y, np.correlate(np.pad(x, 2), w), rtol=1e-5, atol=1e-6)


def test_other_examples(order: str) -> None:
    x, y = floats(6), np.zeros(6, np.float32)
    interpret(kernels.scan(6), {0: x, 1: y}, order=order)
    np.testing.assert_allclose(y, np.cumsum(x), rtol=1e-6)
    table, rows = floats(5, 3), np.array([4, 0, 0, 2], np.int32)
    out = np.zeros((4, 3), np.float32)
    interpret(kernels.gather(5, 4, 3), {0: table, 1: rows, 2: out}, order=order)
    np.testing.assert_array_equal(out, table[rows])
    square, sums = floats(6, 6), np.zeros(6, np.float32)
    interpret(kernels.triangle(6), {0: square, 1: sums}, order=order)
    np.testing.assert_allclose(sums, np.tril(square).sum(1), rtol=1e-5)
    wide, squares = floats(3, 4), np.zeros(3, np.float32)
    interpret(kernels.symbolic(), {0: wide, 1: squares}, {"n": 3, "k": 4}, order=order)
    np.testing.assert_allclose(squares, (wide**2 + 1).sum(1), rtol=1e-5)


def test_argmax_takes_the_first_and_prefers_nan() -> None:
    x = np.array([[1, 3, 3, 2, 0, 0], [1, np.nan, 5, np.nan, 0, 0], [-np.inf] * 6, [0] * 6])
    y = np.zeros(4, np.int64)
    interpret(kernels.argmax(4, 6), {0: x.astype(np.float32), 1: y})
    np.testing.assert_array_equal(y, np.argmax(x, 1))


def run(body: Stmt, x: Array, *others: Array) -> None:
    params = [param(f"p{n}", a.shape, n, _type(a)) for n, a in enumerate((x, *others))]
    interpret(Kernel("k", tuple(params), (), body), dict(enumerate((x, *others))))


def _type(array: Array) -> dtypes.DType:
    found = dtypes.from_numpy(array.dtype)
    assert found is not None
    return found


def P(size: int, slot: int = 0) -> Buffer:
    return param(f"p{slot}", (size,), slot)


def test_an_index_out_of_bounds_is_named() -> None:
    body = For("i", c(4), Store(P(4), (v("i") + c(1),), ONE))
    with pytest.raises(OutOfBounds, match=r"p0\[4\] of shape \(4,\) at i=3"):
        run(body, np.zeros(4, np.float32))
    below = For("i", c(4), Store(P(4), (v("i"),), at(P(4, 1), v("i") - c(1))))
    with pytest.raises(OutOfBounds, match=r"p1\[-1\]"):
        run(below, np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_guards_hold_off_bad_accesses() -> None:
    x = np.zeros(5, np.float32)
    row = v("i") * c(4) + v("j")
    guarded = If(row < c(5), Store(P(5), (row,), ONE))
    run(For("i", c(2), For("j", c(4), guarded, kind="vector")), x)
    assert x.sum() == 5


def test_reading_what_nothing_wrote_is_refused() -> None:
    t = register("t", (4,))
    some = For("i", c(3), Store(t, (v("i"),), ONE))
    copy = For("i", c(4), Store(P(4), (v("i"),), at(t, v("i"))))
    with pytest.raises(UninitialisedRead, match="t at i=3"):
        run(Alloc(t, Seq((some, copy))), np.zeros(4, np.float32))
    acc = register("acc")
    total = For("i", c(4), Reduce((acc,), (), "sum", (at(P(4), v("i")),)), "reduce")
    with pytest.raises(UninitialisedRead, match="acc"):
        run(Alloc(acc, total), np.zeros(4, np.float32))


def test_memory_is_fresh_in_every_iteration() -> None:
    t = register("t")
    body = Alloc(t, Seq((If(v("i") < c(1), Store(t, (), ONE)), Store(P(4), (v("i"),), at(t)))))
    with pytest.raises(UninitialisedRead, match="i=1"):
        run(For("i", c(4), body), np.zeros(4, np.float32))


@pytest.mark.parametrize("order", ["program", "shuffled"])
@pytest.mark.parametrize("kind", ["parallel", "vector", "serial"])
@pytest.mark.parametrize(
    "body",
    [
        Store(P(4), (c(0),), ONE),
        Store(P(4), (v("i") % c(2),), ONE),
        Store(P(4), (v("i") // c(2),), ONE),
        Reduce((P(4),), (c(1),), "sum", (ONE,)),
        Seq((Store(P(4), (v("i"),), ONE), Store(P(4, 1), (v("i"),), at(P(4), c(2))))),
        If(c(0) < v("i"), Store(P(4), (v("i"),), at(P(4), v("i") - c(1)))),
    ],
    ids=[
        "same element",
        "modulo",
        "quotient",
        "join",
        "read what others write",
        "stencil in place",
    ],
)
def test_races(body: Stmt, kind: LoopKind, order: str) -> None:
    kernel = Kernel("k", (P(4), P(4, 1)), (), For("i", c(4), body, kind=kind))
    arrays = {0: np.zeros(4, np.float32), 1: np.zeros(4, np.float32)}
    if kind == "serial":
        interpret(kernel, arrays, order=order)
    else:
        with pytest.raises(Race, match="iterations of i share p0"):
            interpret(kernel, arrays, order=order)


def test_races_between_outer_iterations_through_an_inner_loop() -> None:
    inner = For("j", c(3), Store(P(6), (v("i") + v("j"),), ONE), kind="vector")
    with pytest.raises(Race, match="iterations of i"):
        run(For("i", c(4), inner, kind="parallel"), np.zeros(6, np.float32))
    fine = For("j", c(3), Store(P(12), (v("i") * c(3) + v("j"),), ONE), kind="vector")
    run(For("i", c(4), fine, kind="parallel"), np.zeros(12, np.float32))


def test_one_loop_after_another_is_no_race() -> None:
    forwards = For("i", c(4), Store(P(4), (v("i"),), ONE), kind="parallel")
    backwards = For("i", c(4), Store(P(4), (c(3) - v("i"),), ONE), kind="parallel")
    run(Seq((forwards, backwards)), np.zeros(4, np.float32))
    run(For("t", c(3), Seq((forwards, backwards)), "carried"), np.zeros(4, np.float32))


def test_joins_under_a_reduce_loop_are_no_race_but_reads_are() -> None:
    acc = register("acc")
    join = Reduce((acc,), (), "sum", (at(P(4), v("i")),))
    x = floats(4)
    y = np.zeros(1, np.float32)
    total = For("i", c(4), join, "reduce", "vector")
    run(Alloc(acc, Seq((start(acc, "sum"), total, Store(P(1, 1), (c(0),), at(acc))))), x, y)
    np.testing.assert_allclose(y[0], x.sum(), rtol=1e-6)
    peek = Reduce((P(1, 1),), (c(0),), "max", (at(acc),))
    mixed = For("i", c(4), Seq((join, peek)), "reduce", "vector")
    with pytest.raises(Race, match="acc"):
        run(Alloc(acc, Seq((start(acc, "sum"), mixed))), x, y)


def test_a_private_accumulator_is_no_race() -> None:
    acc = register("acc")
    inner = For("j", c(3), Reduce((acc,), (), "sum", (ONE,)), "reduce")
    body = Seq((start(acc, "sum"), inner, Store(P(4), (v("i"),), at(acc))))
    x = np.zeros(4, np.float32)
    run(For("i", c(4), Alloc(acc, body), kind="vector"), x)
    assert x.tolist() == [3, 3, 3, 3]


def test_views_of_one_slot_share_memory() -> None:
    flat, square = Buffer("flat", (c(4),), dtypes.float32, "global", 0), param("sq", (2, 2), 0)
    body = Seq((Store(flat, (c(3),), ONE), Store(flat, (c(0),), at(square, c(1), c(1)))))
    x = np.zeros(4, np.float32)
    interpret(Kernel("k", (flat, square), (), body), {0: x})
    assert x.tolist() == [1, 0, 0, 1]
    clash = Seq((Store(flat, (v("i"),), ONE), Store(square, (c(0), c(0)), ONE)))
    with pytest.raises(Race):
        interpret(Kernel("k", (flat, square), (), For("i", c(4), clash, kind="parallel")), {0: x})


def test_only_plainly_independent_loops_run_in_lock_step() -> None:
    x = P(16)
    assert independent(For("i", c(4), Store(x, (v("i"),), ONE)))
    inner = For("j", c(4), Store(x, (v("i") * c(4) + v("j"),), ONE))
    assert independent(For("i", c(4), inner))
    assert not independent(For("i", c(4), For("j", c(5), inner.body)))
    assert not independent(For("i", c(4), Store(x, (c(0),), ONE)))
    moving = Store(x, (v("i"),), at(x, v("i") + c(1)))
    assert not independent(For("i", c(4), moving))
    scratch = register("t")
    used = Seq((Store(scratch, (), ONE), Store(x, (v("i"),), at(scratch))))
    assert not independent(For("i", c(4), used))
    assert independent(For("i", c(4), Alloc(scratch, used)))


def test_bad_arguments_are_refused() -> None:
    kernel = kernels.symbolic()
    with pytest.raises(LoopError, match=r"sizes \['k', 'n'\]"):
        interpret(kernel, {})
    with pytest.raises(LoopError, match="slot 0"):
        interpret(kernel, {}, {"n": 1, "k": 1})
    with pytest.raises(LoopError, match="contiguous array of float32"):
        interpret(kernel, {0: np.zeros(4), 1: np.zeros(4)}, {"n": 1, "k": 1})
    with pytest.raises(LoopError, match="smaller"):
        interpret(kernel, {0: floats(2, 2), 1: floats(4)}, {"n": 4, "k": 4})


def test_counters_of_softmax() -> None:
    counters = Counters()
    x, y = floats(5, 7), np.zeros((5, 7), np.float32)
    interpret(kernels.softmax(5, 7), {0: x, 1: y}, counters=counters)
    assert counters.operations == {"cmp": 35, "add": 35 * 3, "sfu": 70, "div": 35}
    assert counters.loaded["x"] == 3 * 35 * 4 and counters.stored["y"] == 35 * 4
    assert counters.touched == {"x": 35 * 4, "y": 35 * 4}


def test_counters_see_only_what_runs() -> None:
    counters = Counters()
    arrays = {0: floats(9), 1: floats(4), 2: np.zeros(10, np.float32)}
    interpret(kernels.convolution(9, 4, 2), arrays, counters=counters)
    assert counters.loaded["x"] == 4 * (40 - 2 * (2 + 1))  # the padding is not read
    assert counters.fetched == {"x": 36, "w": 16} and counters.produced == {"y": 40}


def test_a_value_written_first_is_not_fetched() -> None:
    counters = Counters()
    x = P(4)
    body = Seq((Store(x, (v("i"),), ONE), Reduce((x,), (v("i"),), "sum", (op("neg", ONE),))))
    kernel = Kernel("k", (x,), (), For("i", c(4), body))
    interpret(kernel, {0: np.zeros(4, np.float32)}, counters=counters)
    assert counters.fetched == {"p0": 0} and counters.produced == {"p0": 16}
