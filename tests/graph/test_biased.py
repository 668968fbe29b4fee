"""Products with a bias: rounded once, and one call of cuBLASLt with its bias where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler import Layout, lay_out, lower_graph
from ridgeline.compiler.memory_plan import KernelCall
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.libraries.product_calls import fuse_bias
from ridgeline.nn.functional import linear
from ridgeline.ops.contract import CONTRACT, PRODUCT
from ridgeline.runtime.cuda import cublaslt
from ridgeline.runtime.cuda.launches import KernelLaunch
from ridgeline.runtime.cuda.product import CublasProduct, Matrix, ProductLaunch
from ridgeline.schedules.gpu.machine import T4
from ridgeline.tensors.tensor import read
from tests.compiler.passing import optimized
from tests.cuda.stated import StatedGpu

RNG = np.random.default_rng(0)
SHAPES = [((7, 33, 48), (40, 48)), ((64, 64), (128, 64)), ((1, 304), (200, 304))]  # in 16 bits
LARGE = [((7, 330, 96), (40, 96)), ((256, 256), (128, 256)), ((1, 304), (28000, 304))]
NARROW = (rl.bfloat16, rl.float16)


def given(*shape: int, dtype: Any = rl.float32) -> rl.Tensor:
    """A tensor that is an input, not a constant."""
    made = rl.tensor(RNG.standard_normal(shape).astype(dtype.numpy))
    made.numpy() if dtype is rl.float32 else made.float().numpy()
    return made


def simple(made: rl.Tensor, *inputs: rl.Tensor) -> Node:
    return optimized(read(made), inputs=[read(i) for i in inputs])[0]


def joined(made: rl.Tensor, *inputs: rl.Tensor) -> Node:
    graph = Graph.below([simple(made, *inputs)])
    return fuse_bias(graph, CublasProduct(T4).matches_with_bias).outputs[0]


def ops(root: Node) -> list[str]:
    return [n.op.name for n in topological([root]) if n.inputs]


@pytest.fixture(params=["interpreter", "compiled"])
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with rl.config.override(tier=request.param):
        yield


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_a_small_bias_is_not_lost(dtype: rl.DType) -> None:
    """Twice rounded, 2**p + 1 is 2**p and stays that with 1/2 added; the sum is nearer to above."""
    torch = pytest.importorskip("torch")
    digits = ml_dtypes.finfo(dtype.numpy).nmant + 1
    left = np.array([[2.0 ** (digits - 1), 1.0]] * 3, np.float32)
    right, bias = np.array([[2.0, 1.0]] * 5, np.float32), np.full(5, 0.5, np.float32)
    wanted = (left @ right.T + bias).astype(dtype.numpy).astype(np.float32)
    assert (wanted > 2.0**digits).all()
    got = linear(*(rl.tensor(a).to(dtype) for a in (left, right, bias)))
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.float().numpy(), wanted)
    name = getattr(torch, dtype.name)
    peer = torch.nn.functional.linear(*(torch.from_numpy(a).to(name) for a in (left, right, bias)))
    np.testing.assert_array_equal(peer.float().numpy(), wanted)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_gradients_are_16_bit_products(dtype: rl.DType) -> None:
    x, w, b = (given(*s, dtype=dtype).requires_grad_() for s in ((6, 40, 64), (24, 64), (24,)))
    ct = given(6, 40, 24, dtype=dtype)
    made = rl.autograd.grad(linear(x, w, b), [x, w], ct)
    for gradient in made:
        root = simple(gradient, x, w, b, ct)
        products = [n for n in topological([root]) if n.op is CONTRACT]
        assert [n.dtype for n in products] == [dtype]
        assert not any(i.op.name == "cast" for i in products[0].inputs)


def test_a_product_read_twice_is_computed_once() -> None:
    x, w = given(6, 64, dtype=rl.bfloat16), given(24, 64, dtype=rl.bfloat16)
    wide = linear(x.float(), w.float())
    both = rl.stack([wide, wide.to(rl.bfloat16).float()])
    assert ops(simple(both, x, w)).count("contract") == 1


@pytest.mark.parametrize(
    ("dtype", "shapes"), [*product(NARROW, SHAPES), *product([rl.float32], LARGE)], ids=str
)
def test_one_op_of_equal_value(dtype: rl.DType, shapes: Any) -> None:
    x, w, b = (given(*s, dtype=dtype) for s in (*shapes, shapes[1][:1]))
    made = linear(x, w, b)
    root = joined(made, x, w, b)
    assert ops(root) == ["product"] and root.dtype is dtype
    inputs = {read(t): t.float().numpy().astype(dtype.numpy) for t in (x, w, b)}
    (got,), (wanted,) = (evaluate([n], inputs) for n in (root, read(made)))
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))


def test_what_is_no_such_product_stays() -> None:
    x, w, b = given(64, 64), given(64, 64), given(64)
    kept = [
        linear(x, w, b[:1]),  # a number, not one for each column
        linear(x, w) + b[:, None],  # one for each row
        linear(x, w) + x,  # a matrix
        rl.einsum("ij,ik->ijk", given(40, 30), given(40, 50)) + given(50),  # batches
        linear(given(2, 3), given(4, 3), given(4)),  # small
        linear(x.double(), w.double(), b.double()),
        # rows that are not aligned: cuBLASLt would round the product first
        linear(*(given(*s, dtype=rl.bfloat16) for s in ((64, 50), (64, 50), (64,)))),
        linear(*(given(*s, dtype=rl.bfloat16) for s in ((64, 64), (41, 64), (41,)))),
    ]
    assert not any("product" in ops(joined(k, x, w, b)) for k in kept)
    product = linear(x, w)
    assert "product" not in ops(joined(rl.stack([product + b, product]), x, w, b))
    wide = linear(x.bfloat16().float(), w.bfloat16().float()) + b  # stays in float32
    assert "product" not in ops(joined(wide, x, w, b))


def laid_out(made: rl.Tensor, inputs: list[rl.Tensor], patch: pytest.MonkeyPatch) -> Layout:
    patch.setattr(cublaslt, "library", lambda: object())
    leaves = [read(i) for i in inputs]
    stages = lower_graph(Graph([read(made)], leaves), target=StatedGpu())
    return lay_out(stages, StatedGpu())


def kinds(layout: Layout) -> list[type]:
    return [type(call.launch) for call in layout.calls if isinstance(call, KernelCall)]


def test_the_library_reads_views(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = (given(*s, dtype=rl.bfloat16) for s in ((128, 192), (64, 96), (96,)))
    layout = laid_out(linear(x[:, 64:128], w.T, b), [x, w, b], monkeypatch)
    (call,) = layout.calls
    assert isinstance(call, KernelCall) and call.slots == (0, 1, 2, 3)
    assert isinstance(call.launch, ProductLaunch) and call.launch.bias == 2
    of = call.launch.product
    assert (of.dtype, of.result_dtype) == ("bfloat16", "bfloat16")
    assert (of.m, of.n, of.k, of.batch, of.outer) == (128, 96, 64, 1, ())
    assert of.left == Matrix(0, 64, 192, 1, 0, ()) and of.right == Matrix(1, 0, 96, 1, 0, ())
    assert of.result == Matrix(3, 0, 96, 1, 0, ())


def test_rows_in_several_pieces_are_written_in_order_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = (given(*s, dtype=rl.bfloat16) for s in ((8, 3, 16, 64), (96, 64), (96,)))
    layout = laid_out(linear(x[:, 1], w, b), [x, w, b], monkeypatch)
    assert kinds(layout) == [KernelLaunch, ProductLaunch]


def test_every_reader_of_a_layer_uses_its_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = given(256, 256), given(256, 256), given(256)
    layout = laid_out(rl.relu(linear(x, w, b)), [x, w, b], monkeypatch)
    assert kinds(layout) == [ProductLaunch, KernelLaunch]
    assert PRODUCT.vjp is None  # it is made after all differentiation
