"""Attention on a GPU, all of it: the library classes (`library.py`), the graphs of cuDNN that they
call (`cudnn.py`), and fused kernels for tensor cores, from compute capability 8.0 on.

    forward(attention) -> KernelSource     arguments: q, k, v, [mask,] out, lse
    few_rows(attention) -> KernelSource    the same, and a workspace: few queries, keys in pieces
    backward(attention) -> KernelSource    arguments: q, k, v, [mask,] lse, delta, ct, dq, dk, dv

Scores never lie in memory. Forward, a block keeps some queries and walks over the keys with a
running maximum; it stores the logarithm of the sum of exponentials (`lse`) of each row, from which
backward computes the weights again. Backward is two launches, one that keeps queries and sums their
gradient over the keys, one that keeps keys and sums over the queries: nothing is added atomically,
so results are the same every time.

Operands are 16-bit, sums are float32. Every operand has strides of its own for batches, heads and
rows (`Strides`), so heads may lie side by side in a row, as a projection leaves them.
"""

from ridgeline.runtime.cuda.attention.backward import backward
from ridgeline.runtime.cuda.attention.cudnn import TensorMemory
from ridgeline.runtime.cuda.attention.few_rows import few_rows
from ridgeline.runtime.cuda.attention.forward import forward
from ridgeline.runtime.cuda.attention.library import (
    AttentionKernels,
    AttentionLaunch,
    CudnnAttention,
    is_attention,
    operand_views,
)
from ridgeline.runtime.cuda.attention.masks import Mask
from ridgeline.runtime.cuda.attention.problem import Problem, Strides, is_generated

__all__ = [
    "AttentionKernels",
    "AttentionLaunch",
    "CudnnAttention",
    "Mask",
    "Problem",
    "Strides",
    "TensorMemory",
    "backward",
    "few_rows",
    "forward",
    "is_attention",
    "is_generated",
    "operand_views",
]  # fmt: skip
