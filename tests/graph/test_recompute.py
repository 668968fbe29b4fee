"""Recompute or store: the minimum cut against all choices, and what it keeps of known layers."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.graph.graph import nbytes, operations
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.autodiff.rematerialize import FlowNetwork, cheapest_to_keep
from ridgeline.ops import elementwise as E, reduce as R
from tests.compiler.programs import f32, typed


def cost(kept: set[Node], needed: list[Node], fixed: set[Node], known: set[Node]) -> float:
    """Bytes moved and operations repeated; infinite where something fixed is not kept."""
    total = float(sum(nbytes(n) * (1 if n in known else 2) for n in kept))
    waiting, seen = list(needed), set()
    while waiting:
        node = waiting.pop()
        if node in seen or node in kept:
            continue
        seen.add(node)
        if node in fixed or node in known:
            return float("inf")
        total += operations(node) // 8
        waiting += node.inputs
    return total


def random_region(seed: int) -> tuple[list[Node], list[Node]]:
    """A small graph of pointwise ops over types of several sizes, and what is needed of it."""
    rng = random.Random(seed)
    types = (dtypes.float32, dtypes.float64, dtypes.uint8, dtypes.float16)
    nodes: list[Node] = [leaf(TensorType((64,), rng.choice(types))) for _ in range(2)]
    for _ in range(6):
        a = rng.choice(nodes)
        kind = rng.choice(("cast", "exp", "mul", "lt"))
        if kind == "cast":
            nodes.append(E.cast(a, rng.choice(types)))
        elif kind == "exp" and a.dtype.kind == "float":
            nodes.append(E.apply("exp", a))
        else:
            others = [b for b in nodes if b.dtype is a.dtype]
            nodes.append(E.mul(a, rng.choice(others)))
    made = list(dict.fromkeys(nodes))
    return made, rng.sample(made, min(3, len(made)))


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_is_cheaper(seed: int) -> None:
    nodes, needed = random_region(seed)
    fixed, known = {nodes[0]}, {nodes[1]}
    kept = set(cheapest_to_keep(needed, known.__contains__, fixed.__contains__))
    every = [
        cost(set(choice), needed, fixed, known)
        for count in range(len(nodes) + 1)
        for choice in itertools.combinations(nodes, count)
    ]
    assert cost(kept, needed, fixed, known) == min(every)


def test_the_cut_separates_and_is_as_large_as_the_flow() -> None:
    network = FlowNetwork()
    a, b = network.vertex(), network.vertex()
    for start, end, room in ((0, a, 5), (0, b, 3), (a, b, 9), (a, 1, 2), (b, 1, 4)):
        network.edge(start, end, room)
    assert network.source_side() == {0, a, b}, "both ways out of the middle are full: 2 + 4"


def test_a_mask_is_kept_rather_than_what_it_was_made_from() -> None:
    x = R.sum_(f32(8, 100), (0,))
    mask = E.apply("lt", x, E.full_like(x, 0))
    assert cheapest_to_keep([mask], lambda n: False, lambda n: n is x) == [mask]
    assert cheapest_to_keep([mask, x], lambda n: False, lambda n: n is x) == [x]


def test_a_sum_of_many_is_kept_rather_than_its_parts() -> None:
    parts = [f32(1000) for _ in range(4)]
    total = E.add(E.add(parts[0], parts[1]), E.add(parts[2], parts[3]))
    fixed = set(parts).__contains__
    assert cheapest_to_keep([total], lambda n: False, fixed) == [total]
    assert set(cheapest_to_keep([total], fixed, fixed)) == {total}


def test_numbers_are_never_kept() -> None:
    x = typed(dtypes.float32, 50)
    scaled = E.mul(x, E.full_like(x, 2))
    assert cheapest_to_keep([scaled], lambda n: n is x, lambda n: False) == [x]
    assert E.full_like(x, 2) in topological([scaled])


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_gradients_do_not_depend_on_when_values_are_read(tier: str) -> None:
    """Reading a loss keeps what the cut says; not reading it computes all at once."""
    w = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    gradients = []
    for read_first in (False, True, True):
        with rl.config.override(tier=tier):
            weight = rl.tensor(w).requires_grad_()
            hidden = rl.relu(rl.ones(4, 6) @ weight - 0.5)
            loss = (rl.softmax(hidden * 2, -1) * hidden.tanh()).sum()
            if read_first:
                loss.item()
            loss.backward()
            gradients.append(weight.grad.numpy())
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-5, atol=1e-6)
    assert np.array_equal(gradients[1], gradients[2])
