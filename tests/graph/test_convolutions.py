"""Convolutions among contractions: found with both gradients, and computed with channels last."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.compiler.backend import Libraries
from ridgeline.functions.convolution import convolution
from ridgeline.functions.transposed import conv_transpose2d
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import LEAF, Node, TensorType, leaf, topological
from ridgeline.graph.passes.libraries.channels_last import is_product
from ridgeline.graph.passes.libraries.convolutions import recognise
from ridgeline.graph.passes.libraries.relu_epilogue import fuse_relu
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.convolve import CONVOLVE, ConvolveAttrs, Way
from ridgeline.ops.differentiate import reverse
from ridgeline.ops.elementwise import add, apply, div, full_like, mul, select, sub
from ridgeline.ops.movement import PERMUTE, broadcast, reshape
from ridgeline.ops.reduce import sum_
from tests.compiler.passing import optimized

# image size, channels before and after, filter size, stride: every convolution of ResNet-50
RESNET_50 = [
    (224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1),
    (56, 256, 64, 1, 1), (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1),
    (56, 256, 512, 1, 2), (28, 512, 128, 1, 1), (28, 128, 128, 3, 1), (28, 512, 256, 1, 1),
    (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2), (14, 1024, 256, 1, 1),
    (14, 256, 256, 3, 1), (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1),
    (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1),
]  # fmt: skip


def everywhere(attrs: ConvolveAttrs, node: Node) -> Way:
    return Way.PRODUCT if is_product(attrs) else Way.CHANNELS_LAST


def arranged(roots: list[Node]) -> list[Node]:
    """Simplified, with all convolutions in the library's form."""
    return optimized(*roots, libraries=Libraries(convolution=everywhere))


def with_gradients(result: Node, by: list[Node]) -> list[Node]:
    """A result, and its gradients for an output gradient that is an input too."""
    outer = leaf(result.type)
    found = reverse([result], [outer], by)
    return [result, *(g for g in found if g is not None)]


def kinds(roots: list[Node]) -> Counter[Any]:
    """What is computed in the library, by kind."""
    return Counter(n.attrs.kind for n in topological(roots) if n.op is CONVOLVE)


def pairs(made: list[Node], roots: list[Node]) -> list[tuple[Any, Any]]:
    """What two graphs compute of the same integers, on which sums are exact."""
    rng = np.random.default_rng(0)
    known = {
        n: rng.integers(-3, 4, n.shape).astype(n.dtype.numpy)
        for n in topological([*roots, *made])
        if n.op is LEAF
    }
    return list(zip(evaluate(made, known), evaluate(roots, known), strict=True))


def tensors(*shapes: tuple[int, ...]) -> list[Node]:
    return [leaf(TensorType(shape, dtypes.float64)) for shape in shapes]


@pytest.mark.parametrize("shape", RESNET_50, ids=str)
def test_all_convolutions_of_a_resnet_are_found(shape: tuple[int, ...]) -> None:
    size, before, after, taps, stride = shape
    x = leaf(TensorType((256, before, size, size), dtypes.bfloat16))
    w = leaf(TensorType((after, before, taps, taps), dtypes.bfloat16))
    y = convolution(x, w, None, stride, taps // 2, spatial=2)
    found: dict[Node, ConvolveAttrs] = {}

    def look(attrs: ConvolveAttrs, node: Node) -> None:
        found[node] = attrs

    for root in optimized(*with_gradients(y, [x, w]), libraries=Libraries(convolution=look)):
        assert root.shape in (x.shape, w.shape, y.shape)
    ((image, filters, result),) = {(a.image, a.filters, a.result) for a in found.values()}
    assert (image, filters, result) == (x.shape, w.shape, y.shape)
    assert sorted(a.kind for a in found.values()) == ["data", "filter", "forward"]
    for attrs in found.values():
        assert attrs.stride == (stride, stride) and attrs.margin == (taps // 2,) * 2
        assert attrs.dilation == (1, 1) and attrs.groups == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_library_form_computes_the_same(data: Any) -> None:
    spatial = data.draw(st.integers(1, 3))
    groups = data.draw(st.integers(1, 3))
    before, after = (groups * data.draw(st.integers(1, 2)) for _ in range(2))
    axes = [
        tuple(data.draw(st.integers(*r)) for r in ((1, 3), (1, 2), (1, 2), (0, 2)))
        for _ in range(spatial)
    ]
    taps, stride, dilation, margin = (tuple(a[i] for a in axes) for i in range(4))
    sizes = tuple(
        max(1, d * (k - 1) + 1 - 2 * m) + data.draw(st.integers(0, 3))
        for k, d, m in zip(taps, dilation, margin)
    )
    x, w = tensors((2, before, *sizes), (after, before // groups, *taps))
    y = convolution(x, w, None, stride, margin, dilation, groups, spatial=spatial)
    roots = with_gradients(y, [x, w])
    made = arranged(roots)
    for got, wanted in pairs(made, roots):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_transposed_convolution_is_one_too(groups: int, stride: int) -> None:
    x, w = tensors((2, 4, 5, 6), (4, 3, 3, 3))
    y = conv_transpose2d(x, w, None, stride, 1, stride - 1, groups, 1)
    roots = with_gradients(y, [x, w])
    made = arranged(roots)
    assert kinds(made) == {"data": 1, "forward": 1, "filter": 1}
    for got, wanted in pairs(made, roots):
        np.testing.assert_array_equal(got, wanted)


def test_padding_on_one_side_is_left_to_a_kernel() -> None:
    x, w = tensors((1, 2, 6, 6), (3, 2, 2, 2))
    y = convolution(x, w, None, 1, "same", spatial=2)  # nothing before, one element behind
    (made,) = arranged([y])
    (node,) = [n for n in topological([made]) if n.op is CONVOLVE]
    assert node.attrs.image == (1, 2, 7, 7) and node.attrs.margin == (0, 0)
    ((got, wanted),) = pairs([made], [y])
    np.testing.assert_array_equal(got, wanted)


def test_a_product_with_other_axes_is_no_convolution() -> None:
    from ridgeline.ops.contract import matmul

    a, b = tensors((2, 3, 4, 5), (2, 3, 5, 6))
    assert recognise(matmul(a, b)) is None


def _normalised(x: Node) -> Node:
    """A batch norm without weights, and a ReLU."""
    axes, count = (0, 2, 3), int(np.prod([x.shape[a] for a in (0, 2, 3)]))  # type: ignore[arg-type]
    total = sum_(x, axes)
    mean = broadcast(div(total, full_like(total, count)), x.shape, (1,))
    d = sub(x, mean)
    squares = sum_(mul(d, d), axes)
    spread = apply("sqrt", add(squares, full_like(squares, 1)))
    flat = div(d, broadcast(reshape(spread, (1, x.shape[1], 1, 1)), x.shape, (0, 1, 2, 3)))
    return apply("select", apply("le", flat, full_like(flat, 0)), full_like(flat, 0), flat)


def test_nothing_is_transposed_between_layers() -> None:
    x, a, b, c = tensors((2, 4, 8, 8), (4, 4, 3, 3), (4, 4, 1, 1), (4, 4, 3, 3))
    first = _normalised(convolution(x, a, None, 1, 1, spatial=2))
    second = _normalised(convolution(first, b, None, spatial=2))
    third = add(_normalised(convolution(second, c, None, 1, 1, spatial=2)), first)
    roots = with_gradients(third, [x, a, b, c])
    made = arranged(roots)
    moved = [n for n in topological(made) if n.op is PERMUTE]
    images = [n for n in moved if n.shape in (x.shape, (2, 8, 8, 4))]
    ends = {x, *made, *(n for n in topological(made) if n.op is LEAF)}
    assert all(n in made or n.inputs[0] in ends for n in images)
    assert kinds(made) == {"forward": 2, "data": 2, "filter": 2}  # 1×1 is a product
    products = [n for n in topological(made) if n.op is CONTRACT]
    assert all(m.plain is not None for n in products for m in (*n.attrs.left, *n.attrs.right))
    for got, wanted in pairs(made, roots):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_pooling_between_layers_keeps_the_order() -> None:
    from ridgeline.functions.pooling import max_pool2d

    x, a, b = tensors((2, 3, 9, 9), (4, 3, 3, 3), (4, 4, 3, 3))
    inner = max_pool2d(convolution(x, a, None, 1, 1, spatial=2), 3, 2, 1)
    assert isinstance(inner, Node)
    roots = with_gradients(convolution(inner, b, None, 1, 1, spatial=2), [x, a, b])
    made = arranged(roots)
    moved = [n for n in topological(made) if n.op is PERMUTE and len(n.shape) == 4]
    ends = {n for n in topological(made) if n.op is LEAF}
    assert all(n in made or n.inputs[0] in ends or n.inputs[0].op is CONVOLVE for n in moved)
    for got, wanted in pairs(made, roots):
        np.testing.assert_array_equal(got, wanted)


def test_what_does_not_pay_stays() -> None:
    x, w = tensors((1, 2, 6, 6), (3, 2, 3, 3))
    y = convolution(x, w, None, 1, 1, spatial=2)
    kept = optimized(y, libraries=Libraries(convolution=lambda attrs, n: None))
    assert kept == optimized(y)


def rectified(roots: list[Node]) -> list[Node]:
    """Arranged, with every ReLU inside the convolution before it."""
    return list(fuse_relu(Graph.below(arranged(roots)), everywhere).outputs)


def relu(value: Node) -> Node:
    zero = full_like(value, 0)
    return select(apply("le", value, zero), zero, value)


@pytest.mark.parametrize("biased", [False, True])
def test_a_relu_is_part_of_its_convolution(biased: bool) -> None:
    x, w, b = (leaf(TensorType(s, dtypes.float32)) for s in ((2, 3, 6, 6), (4, 3, 3, 3), (4,)))
    before = convolution(x, w, b if biased else None, 1, 1, spatial=2)
    roots = with_gradients(relu(before), [x, w])
    made = rectified(roots)
    found = [n for n in topological(made) if n.op is CONVOLVE]
    assert [n.attrs.rectified for n in found if n.attrs.kind == "forward"] == [True]
    assert kinds(made) == {"forward": 1, "data": 1, "filter": 1}
    forward = next(n for n in found if n.attrs.rectified)
    assert len(forward.inputs) == 2 + biased
    # forward, nothing but the convolution is computed; the gradient reads the sign of its result
    signs = [n for n in topological(made) if n.op.name == "le"]
    assert [n.inputs[0] for n in signs] == [forward]
    for got, wanted in pairs(made, roots):
        np.testing.assert_array_equal(got, wanted)


def test_a_relu_keeps_nan() -> None:
    x, w = (leaf(TensorType(s, dtypes.float32)) for s in ((1, 2, 4, 4), (2, 2, 3, 3)))
    made = rectified([relu(convolution(x, w, None, spatial=2))])
    values = [np.full(n.shape, -1.0, np.float32) for n in (x, w)]
    values[0][0, 0, 0, 0] = np.nan
    (result,) = evaluate(made, dict(zip((x, w), values)))
    assert np.isnan(result[:, :, 0, 0]).all() and np.isnan(result).sum() == 2


def test_what_is_read_before_its_relu_too_is_computed_as_it_is() -> None:
    x, w = (leaf(TensorType(s, dtypes.float32)) for s in ((2, 3, 6, 6), (4, 3, 3, 3)))
    before = convolution(x, w, None, spatial=2)
    negative = select(apply("le", before, full_like(before, 0)), before, full_like(before, 0))
    shifted = relu(add(before, full_like(before, 1)))
    for roots in ([relu(before), before], [relu(before), apply("exp", before)], [negative],
                  [shifted]):  # fmt: skip
        made = rectified(roots)
        assert not any(n.attrs.rectified for n in topological(made) if n.op is CONVOLVE)
        for got, wanted in pairs(made, roots):
            np.testing.assert_array_equal(got, wanted)
