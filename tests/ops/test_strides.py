"""Views as offsets and strides, against NumPy's own views of an array."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops.elementwise import neg
from ridgeline.ops.movement import broadcast_to, permute, reshape, slice_
from ridgeline.ops.strides import itself, strided


def never(node: Node) -> bool:
    return not node.inputs


def shown(node: Node, array: np.ndarray) -> np.ndarray:
    """The elements that a view names, read from the array by hand."""
    view = strided(node, never)
    flat = array.reshape(-1)
    places = np.full(node.shape, view.offset)
    for axis, stride in enumerate(view.strides):
        along = np.arange(node.shape[axis]) * stride
        places = places + along.reshape([-1 if a == axis else 1 for a in range(len(node.shape))])
    return flat[places]


def test_heads_of_a_projection() -> None:
    batch, length, heads, width = 2, 5, 3, 4
    base = leaf(TensorType((batch, length, 3 * heads * width), dtypes.float32, "cpu"))
    parts = permute(reshape(base, (batch, length, 3, heads, width)), (2, 0, 3, 1, 4))
    shape = (1, batch, heads, length, width)
    second = reshape(slice_(parts, (1, 0, 0, 0, 0), shape, (1,) * 5), shape[1:])
    view = strided(second, never)
    assert view.base is base and view.offset == heads * width
    assert view.strides == (length * 3 * heads * width, width, 3 * heads * width, 1)


def test_a_reshape_of_crossed_axes_needs_a_copy() -> None:
    base = leaf(TensorType((4, 6), dtypes.float32, "cpu"))
    crossed = permute(base, (1, 0))
    flat = reshape(crossed, (24,))
    view = strided(permute(reshape(flat, (2, 12)), (1, 0)), never)
    assert view.base is crossed and view.strides == (1, 12)


def test_nothing_is_read_below_memory_or_work() -> None:
    base = leaf(TensorType((4, 6), dtypes.float32, "cpu"))
    turned = permute(neg(base), (1, 0))
    assert strided(turned, never).base is turned.inputs[0]
    assert strided(turned, lambda node: node is turned) == itself(turned)
    assert itself(turned).strides == (4, 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_chains_of_views(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    array = np.arange(np.prod(shape)).reshape(shape)
    node = leaf(TensorType(shape, dtypes.int64, "cpu"))
    value = array
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["permute", "slice", "broadcast", "split", "join"]))
        axes = len(node.shape)
        if kind == "permute":
            order = tuple(data.draw(st.permutations(range(axes))))
            node, value = permute(node, order), value.transpose(order)
        elif kind == "slice":
            starts = tuple(data.draw(st.integers(0, s - 1)) for s in value.shape)
            sizes = tuple(s - a for s, a in zip(value.shape, starts))
            node = slice_(node, starts, sizes, (1,) * axes)
            value = value[tuple(slice(a, None) for a in starts)]
        elif kind == "broadcast" and axes < 6:
            wide = (data.draw(st.integers(1, 3)), *value.shape)
            node, value = broadcast_to(node, wide), np.broadcast_to(value, wide)
        elif kind == "split" and value.shape[-1] % 2 == 0:
            wide = (*value.shape[:-1], 2, value.shape[-1] // 2)
            node, value = reshape(node, wide), value.reshape(wide)
        elif kind == "join" and axes > 2:
            wide = (value.shape[0], value.shape[1] * value.shape[2], *value.shape[3:])
            node, value = reshape(node, wide), value.reshape(wide)
    view = strided(node, never)
    if not view.base.inputs:
        np.testing.assert_array_equal(shown(node, array), value)
