"""What the interpreter is predicted to take, by what NumPy does with a node."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.execution.interpreter_cost import interpreter_seconds
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops.contract import AxisMap, ContractAttrs, axis, contract, matmul


def _alone(node: Node, *inputs: Node) -> float:
    return interpreter_seconds(Graph([node], inputs), alone=True)


def _product(size: int, dtype: DType) -> float:
    operands = [leaf(TensorType((size, size), dtype, "cpu")) for _ in range(2)]
    return _alone(matmul(*operands), *operands)


def test_products_of_floats_are_those_of_a_blas_and_integers_are_not() -> None:
    assert _product(512, dtypes.float32) < 0.1  # 134 million multiplications
    assert _product(512, dtypes.int64) > 0.3
    assert 4 < _product(1024, dtypes.float32) / _product(512, dtypes.float32) < 8
    assert _product(2, dtypes.float32) > 2e-5  # a call of NumPy's, whatever it computes


def test_windows_of_a_convolution_are_laid_out_before_they_are_multiplied() -> None:
    kind = TensorType((64, 66), dtypes.float32, "cpu")
    x, weight = leaf(kind), leaf(TensorType((16, 3), dtypes.float32, "cpu"))
    windows = (axis(0), AxisMap(((2, 1), (3, 1))))
    sliding = contract(
        x, weight, ContractAttrs((64, 16, 64, 3), (0, 1, 2), windows, (axis(1), axis(3)))
    )
    plain = leaf(TensorType((4096, 3), dtypes.float32, "cpu"))
    other = leaf(TensorType((3, 16), dtypes.float32, "cpu"))
    assert _alone(sliding, x, weight) >= _alone(matmul(plain, other), plain, other)


def test_beside_a_thread_that_compiles_everything_takes_longer() -> None:
    operands = [leaf(TensorType((256, 256), dtypes.float32, "cpu")) for _ in range(2)]
    work = Graph([matmul(*operands)], operands)
    assert interpreter_seconds(work) > 10 * interpreter_seconds(work, alone=True)
