"""Sums on a GPU: no accumulator of any schedule takes many additions one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.functions import reductions
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops.ir import (
    Alloc,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Mma,
    OpExpr,
    Pipe,
    Reduce,
    Seq,
    Stmt,
)
from ridgeline.ops.reduce import sum_
from ridgeline.schedules.gpu.machine import H200, GpuMachine
from tests.attacks.exact_sums import exact
from tests.cuda.lowering import SMALL_GPU, schedule

MOST = 32
GRAPHS: dict[str, tuple[tuple[int, ...], Callable[[Node], Node]]] = {
    "columns": ((40_000, 8), lambda x: sum_(x, (0,))),
    "many columns": ((100_000, 512), lambda x: sum_(x, (0,))),
    "odd columns": ((9_973, 33), lambda x: sum_(x, (0,))),
    "rows": ((64, 100_003), lambda x: sum_(x, (1,))),
    "few long rows": ((2, 1_000_000), lambda x: sum_(x, (1,))),
    "all": ((4_000_000,), lambda x: sum_(x, (0,))),
    "in the middle": ((4, 3_000, 70), lambda x: sum_(x, (1,))),
    "around": ((32, 64, 28, 28), lambda x: sum_(x, (0, 2, 3))),
    "variances of columns": ((50_000, 24), lambda x: reductions.var(x, 0)),
    "variances of rows": ((7, 70_000), lambda x: reductions.var(x, 1)),
    "softmax": ((64, 50_257), lambda x: reductions.softmax(x, 1)),
    "softmax of long rows": ((8, 1_000_000), lambda x: reductions.softmax(x, 1)),
    "softmax of columns": ((5_000, 48), lambda x: reductions.softmax(x, 0)),
    "logsumexp": ((64, 300_000), lambda x: reductions.logsumexp(x, 1)),
}


def chains(
    statement: Stmt, length: int = 1, begun: Mapping[str, int] = MappingProxyType({})
) -> Iterator[int]:
    """How many additions each sum takes one after the other, before threads are joined.

    `begun` has the turns of loops around each accumulator, which begins anew in each of them.
    """
    if isinstance(statement, For):
        serial = statement.axis != "spatial" and statement.kind not in ("thread", "grid")
        turns = length * _most(statement.extent) if serial else length
        yield from chains(statement.body, turns, begun)
    elif isinstance(statement, Seq):
        for part in statement.body:
            yield from chains(part, length, begun)
    elif isinstance(statement, Alloc):
        yield from chains(statement.body, length, {**begun, statement.buffer.name: length})
    elif isinstance(statement, (If, Mma, Pipe)):
        yield from chains(statement.body, length, begun)
    elif isinstance(statement, Reduce) and statement.monoid == "sum":
        yield length // begun[statement.buffers[0].name]


def _most(extent: Expr) -> int:
    """The length of a loop, of which the last turn may be shorter."""
    if isinstance(extent, OpExpr) and extent.name == "min":
        return min(_most(part) for part in extent.args if isinstance(part, Const))
    assert isinstance(extent, Const)
    return int(extent.value)


@pytest.mark.parametrize("gpu", [SMALL_GPU, H200], ids=["small", "H200"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_no_sum_is_long(
    graph: tuple[tuple[int, ...], Callable[[Node], Node]], gpu: GpuMachine
) -> None:
    shape, function = graph
    x = leaf(TensorType(shape, dtypes.float32, "cpu"))
    kernels: list[Kernel] = [made.kernel for made in schedule([function(x)], [x], gpu)]
    found = [length for kernel in kernels for length in chains(kernel.body)]
    assert found and max(found) <= MOST


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape, axes", [((400_000, 8), (0,)), ((7, 300_000), (1,)), ((64, 16, 50, 50), (0, 2, 3))]
)
def test_sums_of_hostile_numbers_on_the_device(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    unit = float(np.finfo(dtype).eps)
    for numbers in (1000 + rng.random(shape), np.full(shape, 0.1), np.exp(3 * rng.random(shape))):
        array = numbers.astype(dtype)
        x: Any = rl.tensor(array).to("cuda")
        found = x.sum(axes).cpu().numpy()
        kept = next(a for a in range(len(shape)) if a not in axes)
        for place, row in enumerate(np.moveaxis(array, kept, 0)[:4]):
            should = exact(row)
            assert abs(float(found[place]) - should.value) <= should.bound(unit)


@pytest.mark.gpu
def test_variances_far_from_zero_on_the_device() -> None:
    array = (1000 + np.random.default_rng(0).random((400_000, 8))).astype(np.float32)
    truth = array.astype(np.float64).var(0, ddof=1)
    x: Any = rl.tensor(array).to("cuda")
    np.testing.assert_allclose(x.var(0).cpu().numpy(), truth, rtol=8 * 2.0**-23)
    np.testing.assert_allclose(x.T.contiguous().var(1).cpu().numpy(), truth, rtol=8 * 2.0**-23)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_updates_of_one_place_on_the_device(dtype: str) -> None:
    rng = np.random.default_rng(0)
    index, unit = rng.integers(0, 3, 300_000), float(np.finfo(dtype).eps)
    for numbers in (1000 + rng.random(300_000), np.full(300_000, 0.1)):
        values = numbers.astype(dtype)
        base = rl.zeros(3, dtype=getattr(rl, dtype), device="cuda")
        found = base.index_add(0, rl.tensor(index).to("cuda"), rl.tensor(values).to("cuda"))
        for place, total in enumerate(found.cpu().numpy()):
            should = exact(values[index == place])
            assert abs(float(total) - should.value) <= should.bound(unit)
