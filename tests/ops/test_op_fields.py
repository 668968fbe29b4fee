"""What the fields of an op say is true: where it is linear, acts on parts, and reads often."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import GradientError, RidgelineError
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, Op, leaf, over, topological
from ridgeline.graph.passes.legalize.complex_pairs import split_complex
from ridgeline.ops.tracking import CUSTOM
from tests.autograd.test_vmap import as_node
from tests.ops.batching_examples import all_rows, examples

ROWS = all_rows()
RESULT = -1


def applied(row: Op) -> Iterator[Node]:
    """The nodes of an op in its examples."""
    for example in examples(row):
        top = example.build(*map(as_node, example.arrays))
        for made in topological([top]):
            if made.op is row:
                yield made


def read_by_derivatives(current: Node) -> dict[int, set[int]]:
    """For each operand, whose values its derivative reads: operands by number, or the result."""
    assert current.op.vjp is not None
    cotangents = [leaf(t) if t.dtype.is_differentiable else None for t in current.types]
    try:
        parts = current.op.vjp(current, cotangents)
    except GradientError:  # not with these attributes
        return {}
    number = {operand: i for i, operand in enumerate(current.inputs)} | {current: RESULT}
    below = {
        i: topological([part], number.__contains__)
        for i, part in enumerate(parts) if part is not None
    }  # fmt: skip
    return {i: {number[n] for n in order if n in number} for i, order in below.items()}


def is_linear(current: Node) -> bool:
    return current.op.linear_if is None or current.op.linear_if(current.attrs)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.vjp is not None])
def test_linear_ops_read_no_values_and_say_so(name: str) -> None:
    row = ROWS[name]
    if row is CUSTOM or row.family == "control":
        return
    found = [(current, read_by_derivatives(current)) for current in applied(row)]
    for current, read in found:
        every = tuple(range(len(current.inputs)))
        groups = (every,) if row.family == "movement" else row.linear if is_linear(current) else ()
        for group in groups:
            for operand in group:
                assert not read.get(operand, set()) & {*group, RESULT}, (current, group)
    differentiable = any(read for _, read in found)
    if differentiable and not any(values for _, read in found for values in read.values()):
        assert row.linear or row.family == "movement", f"{name} reads no values: say linear=..."


def with_imaginary_parts(operand: Node) -> Node:
    """Complex numbers in the place of floats; anything else as it is."""
    if operand.dtype.kind != "float":
        return operand
    numbers = np.random.default_rng(0).normal(size=(2, *operand.shape))
    return as_node(numbers[0] + 1j * numbers[1])


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.by_parts])
def test_what_acts_on_parts_gives_the_same_numbers(name: str) -> None:
    tried = 0
    for current in applied(ROWS[name]):
        if not is_linear(current) or current.inputs[0].dtype.kind != "float":
            continue
        inputs = tuple(with_imaginary_parts(operand) for operand in current.inputs)
        graph = Graph.below([over(current, inputs)])
        split = split_complex(graph)
        moved = ("movement", "leaf")
        assert not any(n.dtype.kind == "complex" and n.op.family not in moved for n in split.order)
        before, after = (evaluate(g.outputs)[0] for g in (graph, split))
        np.testing.assert_allclose(after, before, rtol=1e-12)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.family == "own_loops"])
def test_loops_of_linear_ops_serve_complex_numbers(name: str) -> None:
    """Such an op that takes complex numbers would be a library call for them without a word."""
    for current in applied(ROWS[name]):
        if not (current.op.linear and is_linear(current)):
            continue
        try:
            over(current, tuple(map(with_imaginary_parts, current.inputs)))
        except RidgelineError:  # it does not take them
            continue
        assert current.op.by_parts, f"{name} acts on parts alike: say by_parts=True"


VIEWS = {
    "none": lambda t: t,
    "movement": lambda t: t.flip(0).reshape(4, 25).reshape(100).flip(0),
    "a wider type": lambda t: t.to(rl.float16).to(rl.float32),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read_many_times_is_computed_once(name: str) -> None:
    row = np.linspace(-1, 1, 100, dtype=np.float32)
    values = np.linspace(0, 3, 1000, dtype=np.float32)
    with rl.config.override(tier="interpreter"):
        wanted = rl.searchsorted(VIEWS[name](rl.tensor(row).exp()), rl.tensor(values)).tolist()
    with rl.config.override(tier="compiled"):
        found = rl.jit(lambda t, v: rl.searchsorted(VIEWS[name](t.exp()), v))
        assert found(rl.tensor(row), rl.tensor(values)).tolist() == wanted
        assert "exp(" not in found.passes("fuse").partition("kernel search")[2]
        once = rl.jit(lambda t, v: rl.searchsorted(t.exp(), v))
        once(rl.tensor(row), rl.tensor(values[:3]))
        assert "exp(" in once.passes("fuse").partition("kernel search")[2]
