"""Batch normalisation inside weights: printed before and after, near the unfolded values, free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import nn
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.contractions.batch_norm_folding import fold_batch_norms
from ridgeline.graph.printer import format_graph
from ridgeline.ops import contract as C, elementwise as E, movement as M
from tests.compiler.programs import f32
from tests.graph.test_passes import lines


def over(vector: Node, like: Node) -> Node:
    return M.broadcast(vector, like.shape, (1,))


def normalised(product: Node, mean: Node, variance: Node) -> Node:
    scale = E.apply("reciprocal", E.apply("sqrt", variance))
    return E.mul(E.sub(product, over(mean, product)), over(scale, product))


def folded(root: Node, varying: set[Node]) -> Node:
    """The pass with all leaves steady but some."""
    steady: set[Node] = set()
    for node in topological([root]):
        if node not in varying and all(i in steady for i in node.inputs):
            steady.add(node)
    return fold_batch_norms(Graph.below([root]), steady.__contains__).outputs[0]


def test_scale_and_shift_go_into_weights_and_one_sum() -> None:
    x, w, mean, variance = f32(3, 5), f32(5, 4), f32(4), f32(4)
    root = normalised(C.matmul(x, w), mean, variance)
    assert format_graph([folded(root, {x})], origins=False) == lines(
        """
        %0 = leaf : float32[3, 5]
        %1 = leaf : float32[5, 4]
        %2 = leaf : float32[4]
        %3 = sqrt %2 : float32[4]
        %4 = reciprocal %3 : float32[4]
        %5 = broadcast %4 [shape=(5, 4), axes=(1)] : float32[5, 4]
        %6 = mul %1, %5 : float32[5, 4]
        %7 = contract %0, %6 [extents=(3, 4, 5), output=(0, 1), left=(a0, a2), right=(a2, a1)] : float32[3, 4]
        %8 = leaf : float32[4]
        %9 = neg %8 : float32[4]
        %10 = mul %9, %4 : float32[4]
        %11 = broadcast %10 [shape=(3, 4), axes=(1)] : float32[3, 4]
        %12 = add %7, %11 : float32[3, 4]
        return %12
        """  # noqa: E501
    )


def test_what_is_left_as_it_is() -> None:
    x, w, mean, variance = f32(3, 5), f32(5, 4), f32(4), f32(4)
    product = C.matmul(x, w)
    plain = E.mul(product, over(mean, product))
    root = normalised(product, mean, variance)
    for case, varying in ((plain, {x}), (root, {x, w}), (root, {x, variance})):
        assert folded(case, varying) is case
    both = fold_batch_norms(Graph.below([root, product]), lambda n: n is not product)
    assert both.outputs == (root, product), "the product itself is wanted too"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.sampled_from("asm"), max_size=4))
def test_every_chain_of_steps_gives_nearly_the_same(seed: int, steps: list[str]) -> None:
    rng = np.random.default_rng(seed)
    x, w, mean, variance = f32(3, 5), f32(5, 4), f32(4), f32(4)
    known = {n: rng.uniform(0.5, 2, n.shape).astype("f4") for n in (x, w, mean, variance)}
    root = normalised(C.matmul(x, w), mean, variance)
    for step in steps:
        vector = f32(4)
        known[vector] = rng.uniform(-2, 2, 4).astype("f4")
        root = {"a": E.add, "s": E.sub, "m": E.mul}[step](root, over(vector, root))
    made = folded(root, {x})
    assert made is not root
    wanted, got = (evaluate([n], known)[0] for n in (root, made))
    assert np.allclose(got, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_a_block_at_inference(bias: bool) -> None:
    rl.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8), nn.ReLU()).eval()
    norm = model[1]
    with rl.no_grad():
        for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            values.uniform_(0.5, 2.0)
        x = rl.randn(2, 3, 9, 9)
        run = rl.jit(model)
        with rl.config.override(tier="interpreter"):
            wanted = model(x).numpy()
        assert np.allclose(run(x).numpy(), wanted, rtol=1e-5, atol=1e-5)
        text = run.program.explain("loops")
        assert "contract" in text and "sqrt" not in text, "the scale is in the weights"
        norm.weight.mul_(2.0)
        with rl.config.override(tier="interpreter"):
            wanted = model(x).numpy()
        assert np.allclose(run(x).numpy(), wanted, rtol=1e-5, atol=1e-5), "weights follow"
