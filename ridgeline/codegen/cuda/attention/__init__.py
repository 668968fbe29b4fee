"""Attention as fused kernels for tensor cores, from compute capability 8.0 on.

    forward(attention) -> KernelSource     arguments: q, k, v, [mask,] out, lse
    backward(attention) -> KernelSource    arguments: q, k, v, [mask,] lse, delta, ct, dq, dk, dv

Scores never lie in memory. Forward, a block keeps some queries and walks over the keys with a
running maximum; it stores the logarithm of the sum of exponentials (`lse`) of each row, from which
backward computes the weights again. Backward is two launches, one that keeps queries and sums their
gradient over the keys, one that keeps keys and sums over the queries: nothing is added atomically,
so results are the same every time.

Operands are 16-bit, sums are float32. Every operand has strides of its own for batches, heads and
rows (`Strides`), so heads may lie side by side in a row, as a projection leaves them.
"""

from ridgeline.codegen.cuda.attention.backward import backward
from ridgeline.codegen.cuda.attention.forward import forward
from ridgeline.codegen.cuda.attention.masks import Mask
from ridgeline.codegen.cuda.attention.problem import Attention, Strides, is_generated

__all__ = ["Attention", "Mask", "Strides", "backward", "forward", "is_generated"]
