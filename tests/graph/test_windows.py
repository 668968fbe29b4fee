"""Contractions cut to what is used: no margins, no zeros between spread elements."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.functions.convolution import conv2d
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import LEAF, Node, TensorType, leaf, topological
from ridgeline.graph.passes.autodiff.backward_pass import gradients, written_out
from ridgeline.ops.contract import (
    CONTRACT,
    AxisMap,
    ContractAttrs,
    axis,
    contract,
    operand_gradient,
)
from ridgeline.ops.movement import PAD, SLICE, pad, slice_
from tests.compiler.passing import optimized


def convolution(length: int, taps: int, stride: int, dilation: int, margin: int) -> Node:
    """A convolution of two channels to three along one axis."""
    image = leaf(TensorType((2, length), dtypes.float64))
    weight = leaf(TensorType((3, 2, taps), dtypes.float64))
    padded = pad(image, (0, margin), (0, margin))
    count = (length + 2 * margin - dilation * (taps - 1) - 1) // stride + 1
    place = AxisMap(((1, stride), (3, dilation)))
    attrs = ContractAttrs(
        (3, count, 2, taps), (0, 1), (axis(2), place), (axis(0), axis(2), axis(3))
    )
    return contract(padded, weight, attrs)


def input_gradient(forward: Node) -> tuple[Node, Node]:
    """The gradient by the image, and the leaf of the output gradient."""
    outer = leaf(forward.type)
    source, weight = forward.inputs
    padded = operand_gradient(forward.attrs, 0, source.shape, weight, outer)
    if source.op is not PAD:
        return padded, outer
    image = source.inputs[0]
    return slice_(padded, source.attrs.low, image.shape, (1, 1)), outer


def multiplications(root: Node) -> int:
    return sum(prod(n.attrs.extents) for n in topological([root]) if n.op is CONTRACT)


def values(root: Node) -> np.ndarray:
    """The root over fixed values of its leaves."""
    leaves = [n for n in topological([root]) if n.op is LEAF]
    known = {
        n: np.random.default_rng(n.shape).integers(-4, 5, n.shape).astype(float) for n in leaves
    }
    return evaluate([root], known)[0]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(5, 14), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3)
)
def test_gradient_of_a_convolution(
    length: int, taps: int, stride: int, dilation: int, margin: int
) -> None:
    if length + 2 * margin <= dilation * (taps - 1):
        return
    plain, _ = input_gradient(convolution(length, taps, stride, dilation, margin))
    (fitted,) = optimized(plain)
    assert multiplications(fitted) <= multiplications(plain)
    assert np.array_equal(values(fitted), values(plain))


@pytest.mark.parametrize("stride", [2, 3])
def test_no_multiplication_by_zeros_in_between(stride: int) -> None:
    plain, _ = input_gradient(convolution(stride * 12, 3, stride, 1, 1))
    (fitted,) = optimized(plain)
    pads = [n for n in topological([fitted]) if n.op is PAD and n.inputs[0].op is not CONTRACT]
    assert not any(any(n.attrs.interior) for n in pads)
    # each of the 3 taps meets every stride-th of the 12 * stride results, 2 channels by 3
    assert multiplications(fitted) == 6 * 3 * 12


def test_a_shared_contraction_is_not_cut() -> None:
    forward = convolution(12, 3, 1, 1, 1)
    part = slice_(forward, (0, 2), (3, 4), (1, 1))
    both = optimized(forward, part)
    assert both[1].inputs[0] is both[0]


def test_margins_that_nothing_reads_are_not_written() -> None:
    forward = convolution(12, 3, 1, 1, 1)
    inside = slice_(forward, (0, 1), (3, 10), (1, 1))
    (fitted,) = optimized(inside)
    assert fitted.op is CONTRACT and not any(n.op is PAD for n in topological([fitted]))
    assert np.array_equal(values(fitted), values(inside))


@pytest.mark.parametrize("groups,margin,taps", [(3, 1, 3), (2, 2, 3), (3, 3, 7), (1, 1, 3)])
def test_the_gradient_in_groups_computes_no_margin(groups: int, margin: int, taps: int) -> None:
    image = leaf(TensorType((2, groups, 9, 8), dtypes.float64))
    weight = leaf(TensorType((groups, 1, taps, taps), dtypes.float64))
    forward = conv2d(image, weight, padding=margin, groups=groups)
    outer = leaf(forward.type)
    (gradient,) = written_out([gradients([forward], [outer], {image: ()})[image]])
    (made,) = optimized(gradient)
    np.testing.assert_array_equal(values(made), values(gradient))
    assert multiplications(made) == prod(image.shape) * taps * taps
    assert not any(n.op is SLICE for n in topological([made]))
