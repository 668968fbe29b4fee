"""Sums of parts that lie side by side: joined to the bit, and stored part by part."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import lower_graph
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.printer import format_graph
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops import elementwise as E, movement as M
from tests.compiler.passing import optimized
from tests.compiler.programs import f32
from tests.graph.test_passes import lines


def simple(root: Node) -> Node:
    return optimized(root)[0]


def spread(part: Node, low: int, total: int, axis: int = 0) -> Node:
    rank = len(part.shape)
    lows = tuple(low if a == axis else 0 for a in range(rank))
    size = part.shape[axis]
    assert isinstance(size, int)
    highs = tuple(total - low - size if a == axis else 0 for a in range(rank))
    return M.pad(part, lows, highs)


def test_gradient_of_a_split() -> None:
    a, b = f32(4), f32(4)
    assert format_graph([simple(E.add(spread(a, 0, 8), spread(b, 4, 8)))], origins=False) == lines(
        """
        %0 = leaf : float32[4]
        %1 = constant [text=0.0, dtype=float32, device=cpu] : float32[]
        %2 = broadcast %1 [shape=(4), axes=()] : float32[4]
        %3 = add %0, %2 : float32[4]
        %4 = leaf : float32[4]
        %5 = add %4, %2 : float32[4]
        %6 = concat %3, %5 [axis=0] : float32[8]
        return %6
        """
    )


def test_what_lies_between_is_zero() -> None:
    a, b = (leaf(TensorType((2,), dtypes.int64)) for _ in range(2))
    assert format_graph([simple(E.add(spread(b, 5, 8), spread(a, 0, 8)))], origins=False) == lines(
        """
        %0 = leaf : int64[2]
        %1 = constant [text=0, dtype=int64, device=cpu] : int64[]
        %2 = broadcast %1 [shape=(3), axes=()] : int64[3]
        %3 = leaf : int64[2]
        %4 = broadcast %1 [shape=(1), axes=()] : int64[1]
        %5 = concat %0, %2, %3, %4 [axis=0] : int64[8]
        return %5
        """
    )


def test_what_overlaps_is_added() -> None:
    a, b = f32(4), f32(4)
    both = E.add(spread(a, 0, 8), spread(b, 3, 8))
    across = E.add(spread(f32(2, 3), 0, 3), spread(f32(3, 2), 0, 3, axis=1))
    minus = E.add(M.pad(f32(4), (0,), (4,), value=-0.0), spread(b, 4, 8))
    for root in (both, across, minus):
        assert simple(root) is root


def test_parts_are_computed_once_each_and_stored_in_place() -> None:
    a, b, c = f32(4, 8), f32(4, 8), f32(4, 8)
    wide = M.concat([E.mul(a, b), E.apply("exp", b), c], 1)
    (made,) = lower_graph(Graph([wide], [a, b, c])).kernels
    assert print_kernel(made.group.loops.kernel).strip() == lines(
        """
        kernel concat(b1: float32[4, 8] @0, b2: float32[4, 8] @1, b3: float32[4, 8] @2, b0: float32[4, 3, 8] @3)
        for i0 < 4:
          for i1 < 8:
            b0[i0, 0, i1] = b2[i0, i1] * b1[i0, i1]
            b0[i0, 1, i1] = exp(b1[i0, i1])
            b0[i0, 2, i1] = b3[i0, i1]
        """  # noqa: E501
    )


numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, float("inf"), float("nan")])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_sum_of_parts_is_the_same_to_the_bit(data: st.DataObject) -> None:
    dtype: DType = data.draw(st.sampled_from([dtypes.float32, dtypes.int32]))
    total, axis = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 1))
    known: dict[Node, np.ndarray] = {}
    root: Node | None = None
    for _ in range(data.draw(st.integers(1, 5))):
        low = data.draw(st.integers(0, total - 1))
        size = data.draw(st.integers(1, total - low))
        shape = (size, 2) if axis == 0 else (2, size)
        part = leaf(TensorType(shape, dtype))
        drawn = data.draw(st.lists(numbers, min_size=2 * size, max_size=2 * size))
        array = np.array(drawn).reshape(shape)
        known[part] = np.nan_to_num(array).clip(-9, 9).astype("i4") if dtype.is_integer else array
        known[part] = known[part].astype(dtype.numpy)
        padded = spread(part, low, total, axis)
        root = padded if root is None else E.add(root, padded)
    assert root is not None
    made = simple(root)
    wanted, got = (evaluate([n], known)[0] for n in (root, made))
    assert np.array_equal(wanted.view("u4") | _nan(wanted), got.view("u4") | _nan(got))


def _nan(array: np.ndarray) -> np.ndarray:
    """All bits where a value is not a number, as its sign and payload mean nothing."""
    return np.where(array != array, np.uint32(0xFFFFFFFF), np.uint32(0))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(2, 4), st.integers(0, 1))
def test_joined_results_in_compiled_code(rows: int, width: int, count: int, axis: int) -> None:
    rl.manual_seed(rows * 100 + width)
    x = rl.randn(rows * (count if axis == 0 else 1), width * (count if axis == 1 else 1))

    def gradient(x: rl.Tensor) -> rl.Tensor:
        x = x.detach().requires_grad_()
        parts = x.chunk(count, axis)
        total = sum(part * parts[n - 1] for n, part in enumerate(parts))
        return rl.autograd.grad(total.sum(), [x])[0]

    with rl.config.override(tier="interpreter"), rl.eager():
        wanted = gradient(x).numpy()
    with rl.config.override(tier="compiled", cache_max_bytes=0):
        assert np.array_equal(rl.jit(gradient)(x).numpy(), wanted)


def test_a_sum_of_joins_without_elements_is_left_alone() -> None:
    nothing = rl.tensor(np.zeros(0, np.complex64))

    def doubled(x: rl.Tensor) -> rl.Tensor:
        joined = rl.cat([x, x], 0)
        return joined + joined.conj()

    assert rl.jit(doubled)(nothing).shape == (0,)
