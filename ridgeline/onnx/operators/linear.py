"""Matrix products."""

from __future__ import annotations

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.tensors.tensor import Tensor


def _gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    product = (a.T if transA else a) @ (b.T if transB else b)
    if alpha != 1:
        product = (product * alpha).to(a.dtype)
    if c is None:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return rl.matmul(a, b)


def _einsum(*inputs: Tensor, equation: str) -> Tensor:
    return rl.einsum(equation, *inputs)


def _det(x: Tensor) -> Tensor:
    return rl.det(x)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Gemm", _gemm),
    OperatorRow("MatMul", _matmul),
    OperatorRow("Einsum", _einsum),
    OperatorRow("Det", _det),
)
