"""Chains of movement ops made short by `simplify` give the same elements, whatever the chain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.errors import RidgelineError
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.passes.canonicalize.simplify import simplify
from ridgeline.ops import movement as M
from tests.fuzz.faults import Fault, planted

SMALL = st.lists(st.integers(0, 4), max_size=3).map(tuple)
MOST = 200  # elements of a value
Draw = Callable[..., int]


def sliced(a: Node, draw: Draw) -> Node:
    """Along each axis some elements, in either direction, with gaps or without."""
    starts, sizes, steps = [], [], []
    for size in map(int, a.shape):
        start = draw(0, max(size - 1, 0))
        step = draw(-2, 3) or 1
        room = (size - 1 - start) // step if step > 0 else start // -step
        sizes.append(draw(0, room + 1) if size else 0)
        starts.append(start)
        steps.append(step)
    return M.slice_(a, tuple(starts), tuple(sizes), tuple(steps))


def padded(a: Node, draw: Draw) -> Node:
    """Elements around and between, or some cut off."""
    between = tuple(draw(0, 2) if draw(0, 3) == 0 else 0 for _ in a.shape)
    widths = [
        (draw(-1, 2), draw(-1, 2)) if size + max(int(size) - 1, 0) * gap >= 2
        else (draw(0, 2), draw(0, 2))
        for size, gap in zip(a.shape, between)
    ]  # fmt: skip
    value = (0.0, -0.0, 7.0)[draw(0, 2)]
    return M.pad(a, tuple(w[0] for w in widths), tuple(w[1] for w in widths), between, value)


def permuted(a: Node, draw: Draw) -> Node:
    axes = list(range(len(a.shape)))
    return M.permute(a, tuple(axes.pop(draw(0, len(axes) - 1)) for _ in a.shape))


def reshaped(a: Node, draw: Draw) -> Node:
    """Two axes as one, an axis of one element more or less, or an axis as two."""
    shape = list(map(int, a.shape))
    place = draw(0, len(shape))
    if place + 1 < len(shape) and draw(0, 1):
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    elif place < len(shape) and shape[place] % 2 == 0:
        shape[place : place + 1] = [2, shape[place] // 2]
    elif place < len(shape) and shape[place] == 1:
        del shape[place]
    else:
        shape.insert(place, 1)
    return M.reshape(a, tuple(shape))


def repeated(a: Node, draw: Draw) -> Node:
    """New axes, and axes of one element as longer ones."""
    shape: list[int] = []
    axes: list[int] = []
    for size in map(int, a.shape):
        if draw(0, 3) == 0:
            shape.append(draw(0, 3))
        axes.append(len(shape))
        shape.append(draw(1, 3) if size == 1 else size)
    return M.broadcast(a, tuple(shape), tuple(axes))


def joined(a: Node, draw: Draw) -> Node:
    """An axis cut in two and joined again, in order or not, or something else put behind."""
    if not a.shape:
        return a
    axis = draw(0, len(a.shape) - 1)
    cut, size = draw(0, int(a.shape[axis])), int(a.shape[axis])
    parts = [_part(a, axis, 0, cut), _part(a, axis, cut, size - cut)]
    kind = draw(0, 2)
    return M.concat(parts if kind == 0 else parts[::-1] if kind == 1 else [a, a], axis)


def _part(a: Node, axis: int, start: int, size: int) -> Node:
    starts, sizes = [0] * len(a.shape), list(a.shape)
    starts[axis], sizes[axis] = start, size
    return M.slice_(a, tuple(starts), tuple(sizes), (1,) * len(sizes))


def summed(a: Node, draw: Draw) -> Node:
    """Two values beside one another among zeros, added: the gradient of a split."""
    if not a.shape:
        return a
    axis = draw(0, len(a.shape) - 1)
    none = [0] * len(a.shape)
    widths = [list(none) for _ in range(2)]
    widths[0][axis], widths[1][axis] = int(a.shape[axis]) + draw(-1, 1), draw(0, 1)
    if widths[0][axis] < 0:
        return a
    margins = [tuple(w) for w in widths]
    return M.pad(a, margins[0], margins[1]) + M.pad(a, margins[1], margins[0])


MOVES = (sliced, padded, permuted, reshaped, repeated, joined, summed)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Node, Node]:
    """An input, and a chain of movement ops over it."""
    source = leaf(TensorType(draw(SMALL), dtypes.float32))

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    current = source
    for _ in range(number(1, 6)):
        made = MOVES[number(0, len(MOVES) - 1)](current, number)
        if np.prod(made.shape) <= MOST and len(made.shape) <= 5:
            current = made
    return source, current


def agrees(chain: tuple[Node, Node]) -> None:
    """Elements before and after are the same to the bit, -0 and NaN too."""
    source, end = chain
    values = np.arange(1, 1 + np.prod(source.shape, dtype=int), dtype=np.float32)
    values[::5], values[1::7] = -0.0, np.nan
    given_ = {source: values.reshape(source.shape)}
    after = simplify(Graph([end], [source]))
    before, found = (evaluate(outputs, given_)[0] for outputs in ([end], after.outputs))
    assert found.shape == before.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(before).tobytes()


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(chains())
def test_chains_of_movement_ops_keep_every_element(chain: tuple[Node, Node]) -> None:
    agrees(chain)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(chains())
def test_many_chains(chain: tuple[Node, Node]) -> None:
    agrees(chain)


HERE = "graph.passes.canonicalize.movement"
FAULTS = (
    Fault("a slice of a slice forgets the lower step", HERE, "_slice",
          "b + s * t for b", "b + s for b"),
    Fault("steps of slices are added", HERE, "_slice",
          "s * t for s, t in", "s + t - 1 for s, t in"),
    Fault("a slice of a pad may read one element too far", HERE, "_slice_of_pad",
          "max(ends) >= length", "max(ends) > length"),
    Fault("a slice of a join begins at the first part", HERE, "_slice_of_concat",
          "start - begin", "start"),
    Fault("permutations are applied the other way round", HERE, "_permute",
          "inner.attrs.order[a] for a in order", "order[a] for a in inner.attrs.order"),
    Fault("pads of two values are one", HERE, "_pad",
          "if (below.value, below.sign) != (attrs.value, attrs.sign):", "if False:"),
    Fault("pads that cut off are joined with others", HERE, "_pad",
          "w < 0 for w in", "w < -9 for w in"),
    Fault("slices in another order are one slice", HERE, "_continued",
          "a.starts[axis] + a.sizes[axis] * a.steps[axis] != b.starts[axis]", "False"),
    Fault("parts that overlap are joined", HERE, "join_parts", "if overlap or", "if"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_that_are_planted_are_found(fault: Fault) -> None:
    search = settings(
        max_examples=2000, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], report_multiple_bugs=False,
    )  # fmt: skip
    with planted(fault), pytest.raises((AssertionError, RidgelineError)):
        search(given(chains())(agrees))()
