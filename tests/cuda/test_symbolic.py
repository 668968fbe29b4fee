"""GPU kernels over sizes that are known only when they run: the loops, and that they compile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import Size, symbol
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.ops import contract as C, elementwise as E, reduce as R, scan as S
from tests.cuda.lowering import SMALL_GPU, schedule

N = symbol("n", 1, 1000)


def f32(*shape: Size) -> Node:
    return leaf(TensorType(shape, dtypes.float32))


def _product() -> tuple[Node, list[Node]]:
    x, w = f32(N, 8), f32(8, 5)
    return C.matmul(x, w), [x, w]


PROGRAMS: dict[str, Callable[[Node], Node]] = {
    "pointwise": lambda x: E.mul(x, x),
    "row sums": lambda x: R.sum_(x, (1,)),
    "column sums": lambda x: R.sum_(x, (0,)),
    "scan": lambda x: S.scan(x, "sum", 1),
}


@pytest.mark.parametrize("n", [1, 37])
@pytest.mark.parametrize("name", [*PROGRAMS, "product"])
def test_symbolic_sizes(name: str, n: int) -> None:
    if name == "product":
        output, inputs = _product()
    else:
        inputs = [f32(N, 8)]
        output = PROGRAMS[name](inputs[0])
    rng = np.random.default_rng(n)
    shapes = [tuple(n if s is N else int(s) for s in i.shape) for i in inputs]  # type: ignore[call-overload]
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    (only,) = schedule([output], inputs, SMALL_GPU)
    expected = {
        "pointwise": lambda: arrays[0] ** 2, "row sums": lambda: arrays[0].sum(1),
        "column sums": lambda: arrays[0].sum(0), "scan": lambda: arrays[0].cumsum(1),
        "product": lambda: arrays[0] @ arrays[1],
    }[name]()  # fmt: skip
    out = np.zeros_like(expected)
    held = dict(zip(inputs, arrays)) | {output: out}
    memory = {i: held[node] for i, node in enumerate(only.lowered.slots)}
    interpret(only.kernel, memory, {"n": n})
    np.testing.assert_array_equal(out, expected)
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_source, generate

    source = generate(only.kernel)
    assert source.launches[0].blocks({"n": n}) >= 1
    compile_source(source.text, "sm_80")
