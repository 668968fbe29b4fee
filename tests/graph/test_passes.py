"""Graph passes: their printed form before and after, and the same values to the bit."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, over, proj, topological
from ridgeline.graph.origins import inherit
from ridgeline.graph.passes.canonicalize.movement import simplify_moves
from ridgeline.graph.passes.canonicalize.simplify import (
    ALGEBRA,
    fold,
    holds_all,
    simplify_algebra,
    simplify_casts,
)
from ridgeline.graph.printer import format_graph
from ridgeline.ops import elementwise as E, movement as M, reduce as R
from ridgeline.ops.sort import sort
from tests.compiler.passing import optimized
from tests.compiler.programs import f32, typed


def printed(root: Node) -> str:
    return format_graph([root], origins=False)


def after(root: Node) -> str:
    return printed(optimized(root)[0])


def lines(text: str) -> str:
    return dedent(text).strip()


# ---- nothing to do: what the graph gives by itself ----------------------------------------------


def test_equal_expressions_are_one_node() -> None:
    x, y = f32(3), f32(3)
    assert E.mul(E.add(x, y), E.add(x, y)).inputs[0] is E.add(x, y)
    assert printed(E.mul(E.add(x, y), E.add(x, y))) == lines("""
        %0 = leaf : float32[3]
        %1 = leaf : float32[3]
        %2 = add %0, %1 : float32[3]
        %3 = mul %2, %2 : float32[3]
        return %3
    """)


def test_an_op_over_other_inputs_is_the_node_that_the_op_makes() -> None:
    x, y, long = f32(3), f32(3), f32(5)
    known = E.add(x, x)
    assert over(known, (x, x)) is known
    assert over(known, (y, y)) is E.add(y, y)
    assert over(known, (long, long)) is E.add(long, long)
    assert over(known, (long, long)).shape == (5,)
    (_, places), (values, _) = sort(f32(4, 3), 1), sort(f32(4, 3), 0)
    assert over(places, values.inputs) is proj(values.inputs[0], 1)


def test_a_rewrite_that_makes_expressions_equal_makes_them_one() -> None:
    x, y = f32(3), f32(3)
    same = E.mul(E.add(x, y), E.add(E.neg(E.neg(x)), y))
    assert len(topological([same])) == 7
    assert len(topological(optimized(same))) == 4


def test_dead_code_is_not_reached() -> None:
    x = f32(3)
    chosen = E.select(E.full_like(typed(dtypes.bool_, 3), True), E.neg(x), E.apply("exp", x))
    assert after(chosen) == lines("""
        %0 = leaf : float32[3]
        %1 = neg %0 : float32[3]
        return %1
    """)


# ---- constants ----------------------------------------------------------------------------------


def test_numbers_are_computed_once() -> None:
    x = f32(4)
    six = E.mul(E.full_like(x, 2), E.full_like(x, 3))
    assert after(E.mul(x, six)) == lines("""
        %0 = leaf : float32[4]
        %1 = constant [text=6.0, dtype=float32, device=cpu] : float32[]
        %2 = broadcast %1 [shape=(4), axes=()] : float32[4]
        %3 = mul %0, %2 : float32[4]
        return %3
    """)


def test_folding_gives_what_the_definition_gives() -> None:
    x = f32(2, 3)
    for name in ("exp", "sqrt", "sin", "floor", "neg"):
        node = E.apply(name, E.full_like(x, 0.7))
        folded = fold(node)
        assert folded is not None
        assert evaluate([folded])[0].tobytes() == evaluate([node])[0].tobytes()
    largest = R.reduce(E.full_like(x, 2.5), "max", (1,))
    assert fold(largest) is E.full_like(largest, 2.5)
    assert fold(R.reduce(E.full_like(f32(2, 0), 2.5), "max", (1,))) is None
    assert fold(R.sum_(E.full_like(x, 0.1), (1,))) is None, "a sum of floats is rounded"


def test_a_number_over_single_elements_has_one_form() -> None:
    one = E.full_like(f32(1, 1), 1)
    assert optimized(one, M.reshape(one, (1,))) == [one, E.full_like(f32(1), 1)]


# ---- algebra ------------------------------------------------------------------------------------


def _cases() -> dict[str, Callable[[Node, Node], Node]]:
    """Expressions that a rule rewrites, of every rule."""

    def number(x: Node, value: float) -> Node:
        return E.full_like(x, value)

    def truth(x: Node) -> Node:
        return E.apply("lt", x, number(x, 1))

    return {
        "x + -0": lambda x, y: E.add(x, number(x, -0.0)),
        "x - 0": lambda x, y: E.sub(x, number(x, 0)),
        "x - x": lambda x, y: E.sub(x, x),
        "x * 1": lambda x, y: E.mul(number(x, 1), x),
        "x * -1": lambda x, y: E.mul(x, number(x, -1)),
        "x * 0": lambda x, y: E.mul(x, number(x, 0)),
        "x / 1": lambda x, y: E.div(x, number(x, 1)),
        "--x": lambda x, y: E.neg(E.neg(x)),
        "|-x|": lambda x, y: E.apply("abs", E.neg(x)),
        "||x||": lambda x, y: E.apply("abs", E.apply("abs", x)),
        "not not": lambda x, y: E.apply("not", E.apply("not", truth(x))),
        "max(x, x)": lambda x, y: E.apply("max", x, x),
        "min(x, x)": lambda x, y: E.apply("min", x, x),
        "c and c": lambda x, y: E.apply("and", truth(x), truth(x)),
        "c or c": lambda x, y: E.apply("or", truth(x), truth(x)),
        "x if c else x": lambda x, y: E.select(truth(x), x, x),
        "x if not c else y": lambda x, y: E.select(E.apply("not", truth(x)), x, y),
        "x == x": lambda x, y: E.apply("eq", x, x),
        "x <= x": lambda x, y: E.apply("le", x, x),
        "x != x": lambda x, y: E.apply("ne", x, x),
        "x < x": lambda x, y: E.apply("lt", x, x),
    }


FIT_WHOLE_NUMBERS_ONLY = {"x - x", "x * 0", "x == x", "x <= x", "x != x", "x < x"}
FIT_FLOATS_ONLY = {"x + -0", "x / 1", "x * -1", "|-x|"}


@pytest.mark.parametrize("name", list(_cases()))
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8], ids=lambda d: d.name)
def test_identities_hold_for_every_value(name: str, dtype: DType) -> None:
    """All 65536 half floats, NaN and -0 among them, and all bytes: a proof by trying."""
    bits = np.arange(1 << dtype.bits, dtype=np.uint16).astype(f"uint{dtype.bits}")
    x, y = (leaf(TensorType((len(bits),), dtype)) for _ in range(2))
    if dtype.kind == "int" and name in ("x / 1", "x + -0"):
        return
    before = _cases()[name](x, y)
    made = simplify_algebra(before)
    if name in (FIT_WHOLE_NUMBERS_ONLY if dtype.kind == "float" else FIT_FLOATS_ONLY):
        assert made is None
        return
    assert made is not None
    values = {x: bits.view(dtype.numpy), y: bits[::-1].view(dtype.numpy)}
    want, got = (evaluate([n], values)[0] for n in (before, made))
    nan = np.isnan(want) if want.dtype.kind == "f" else np.zeros(want.shape, bool)
    assert want.dtype == got.dtype and np.array_equal(nan, got != got)
    assert want[~nan].tobytes() == got[~nan].tobytes()


def test_every_rule_has_a_case() -> None:
    x, y = typed(dtypes.float16, 2), typed(dtypes.float16, 2)
    assert {make(x, y).op.name for make in _cases().values()} == set(ALGEBRA)


# ---- casts --------------------------------------------------------------------------------------

TYPES = [
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64,
    dtypes.uint32, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64,
]  # fmt: skip


def _every_value(dtype: DType) -> np.ndarray:
    """All values of small types, the outermost ones of large types."""
    if dtype is dtypes.bool_:
        return np.array([False, True])
    if dtype.bits <= 16:
        return (
            np.arange(1 << dtype.bits, dtype=np.uint32)
            .astype(f"u{dtype.itemsize}")
            .view(dtype.numpy)
        )
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(dtype.numpy)
        return np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype.numpy)
    tiny = [np.finfo(dtype.numpy).smallest_subnormal, np.finfo(dtype.numpy).eps + 1]
    return np.array([*tiny, np.finfo(dtype.numpy).max, -np.inf, np.nan, -0.0], dtype.numpy)


@pytest.mark.parametrize("narrow", TYPES, ids=lambda d: d.name)
def test_a_type_that_holds_all_values_gives_them_back(narrow: DType) -> None:
    values = _every_value(narrow)
    x = leaf(TensorType(values.shape, narrow))
    for wide in TYPES:
        with np.errstate(invalid="ignore"):
            back = evaluate([E.cast(E.cast(x, wide), narrow)], {x: values})[0]
        with np.errstate(invalid="ignore"):
            same = bool(((back == values) | (values != values)).all())
        if holds_all(wide, narrow):
            assert same, (wide, narrow)
        elif wide.kind != "bool" and narrow.kind == wide.kind:
            assert not same, (wide, narrow)


def test_a_detour_is_left_out() -> None:
    x = typed(dtypes.bfloat16, 8)
    assert simplify_casts(E.cast(E.cast(x, dtypes.float32), dtypes.bfloat16)) is x
    halved = E.cast(E.cast(f32(8), dtypes.bfloat16), dtypes.float32)
    assert simplify_casts(halved) is None, "the detour rounds"
    assert after(E.cast(E.cast(x, dtypes.float32), dtypes.float64)) == lines("""
        %0 = leaf : bfloat16[8]
        %1 = cast %0 [dtype=float64] : float64[8]
        return %1
    """)


# ---- movement -----------------------------------------------------------------------------------


def test_transposes_cancel() -> None:
    x = f32(3, 4)
    assert simplify_moves(M.permute(M.permute(x, (1, 0)), (1, 0))) is x
    assert after(E.neg(M.permute(M.reshape(x, (1, 3, 4)), (1, 0, 2)))) == lines("""
        %0 = leaf : float32[3, 4]
        %1 = reshape %0 [shape=(3, 1, 4)] : float32[3, 1, 4]
        %2 = neg %1 : float32[3, 1, 4]
        return %2
    """)


def test_slices_of_padding_and_of_joined_parts() -> None:
    x, y = f32(5, 4), f32(3, 4)
    padded = M.pad(x, (2, 1), (2, 1))
    assert simplify_moves(M.slice_(padded, (2, 1), (5, 4), (1, 1))) is x
    assert simplify_moves(M.slice_(padded, (1, 1), (5, 4), (1, 1))) is None
    joined = M.concat([x, y], 0)
    assert simplify_moves(M.slice_(joined, (5, 0), (3, 4), (1, 1))) is y
    halves = [M.slice_(x, (0, 0), (2, 4), (1, 1)), M.slice_(x, (2, 0), (3, 4), (1, 1))]
    assert simplify_moves(M.concat(halves, 0)) is x
    assert simplify_moves(M.concat(halves[::-1], 0)) is None


@st.composite
def chains(draw: st.DrawFn) -> tuple[Node, Node]:
    """A tensor, and a chain of movement ops over it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    source = typed(dtypes.int64, *shape)
    node = source
    for _ in range(draw(st.integers(1, 6))):
        node = _moved(draw, node)
    return node, source


def _moved(draw: st.DrawFn, node: Node) -> Node:
    shape = [int(s) for s in node.shape]  # type: ignore[arg-type]
    rank = len(shape)
    match draw(st.sampled_from(("permute", "reshape", "slice", "pad", "broadcast", "concat"))):
        case "permute":
            return M.permute(node, tuple(draw(st.permutations(range(rank)))))
        case "reshape":
            count = int(np.prod(shape))
            divisors = [d for d in range(1, count + 1) if count % d == 0]
            first = draw(st.sampled_from(divisors))
            return M.reshape(
                node, draw(st.sampled_from([(first, count // first), (count,), (1, count)]))
            )
        case "slice":
            sizes = [draw(st.integers(1, s)) for s in shape]
            steps = [draw(st.sampled_from((1, -1))) for _ in shape]
            starts = [
                draw(st.integers(0, s - n)) + (n - 1 if step < 0 else 0)
                for s, n, step in zip(shape, sizes, steps)
            ]
            return M.slice_(node, tuple(starts), tuple(sizes), tuple(steps))
        case "pad":
            low, high = ([draw(st.integers(0, 2)) for _ in shape] for _ in range(2))
            return M.pad(node, tuple(low), tuple(high), None, draw(st.sampled_from((0, 7))))
        case "broadcast" if int(np.prod(shape)) < 500:
            place = draw(st.integers(0, rank))
            wide = (*shape[:place], draw(st.integers(1, 3)), *shape[place:])
            return M.broadcast(node, wide, tuple(a + (a >= place) for a in range(rank)))
    axis = draw(st.integers(0, rank - 1))
    cut = draw(st.integers(0, shape[axis]))
    parts = []
    for start, size in ((0, cut), (cut, shape[axis] - cut)):
        starts, sizes = [0] * rank, list(shape)
        starts[axis], sizes[axis] = start, size
        parts.append(M.slice_(node, tuple(starts), tuple(sizes), (1,) * rank))
    return M.concat(parts, axis)


@settings(max_examples=300, deadline=None)
@given(chains())
def test_shorter_chains_move_the_same_elements(made: tuple[Node, Node]) -> None:
    node, source = made
    values = {source: np.arange(1, 1 + int(np.prod(source.shape))).reshape(source.shape)}  # type: ignore[arg-type]
    (short,) = optimized(node)
    assert np.array_equal(evaluate([short], values)[0], evaluate([node], values)[0])
    assert len(topological([short])) <= len(topological([node]))


def test_inputs_that_are_computed_are_not_looked_through() -> None:
    x = f32(2, 3)
    given = M.permute(x, (1, 0))
    (made,) = optimized(E.neg(M.permute(given, (1, 0))), inputs=[given])
    assert topological([made], lambda n: n is given)[0] is given


def test_padding_with_minus_zero_is_padding_with_another_number() -> None:
    x = f32(3)
    plain, minus = (M.pad(x, (1,), (0,), value=v) for v in (0.0, -0.0))
    assert plain is not minus
    for inner, value in ((plain, -0.0), (minus, 0.0), (E.full_like(x, 0), -0.0)):
        root = M.pad(inner, (1,), (1,), value=value)
        known = {x: np.ones(3, np.float32)}
        wanted, got = (evaluate([n], known)[0] for n in (root, optimized(root)[0]))
        assert np.array_equal(np.signbit(wanted), np.signbit(got))
    padded = rl.nn.functional.pad(rl.ones(2), [1, 0], value=-0.0)
    assert np.signbit(padded.numpy()).tolist() == [True, False, False]


def test_graphs_that_no_line_of_a_user_made_are_walked_once() -> None:
    """Every value is read twice: paths are 2 to the power of 200, nodes are 200."""
    value = f32(3)
    for _ in range(200):
        value = E.add(value, value)
    assert not value.origins
    inherit(value, ())
    assert not value.origins
