"""What an attention kernel is generated for: sizes, element type, and where operands lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, gcd, log2

from ridgeline.runtime.cuda.attention.masks import Mask
from ridgeline.weak import fingerprint

_DTYPES = ("bfloat16", "float16")
_MOST_WIDTH = 128  # of a head: more does not fit into the registers of a warp
CHUNK = 8  # elements of 16 bytes, which are copied at once


@dataclass(frozen=True, slots=True)
class Strides:
    """Where an operand lies behind its pointer, in elements; a row of one head is dense."""

    batch: int
    head: int
    row: int
    offset: int = 0

    @property
    def aligned(self) -> bool:
        """True if every row begins at a multiple of 16 bytes."""
        return all(n % CHUNK == 0 for n in (self.batch, self.head, self.row, self.offset))

    @classmethod
    def dense(cls, heads: int, rows: int, width: int) -> Strides:
        """Those of contiguous [batch, heads, rows, width]."""
        return cls(heads * rows * width, rows * width, width)


@dataclass(frozen=True, slots=True)
class Problem:
    """softmax(q kᵀ * scale + mask) v for `batch` x `heads` matrices.

    Some heads of queries may share keys and values.
    Where `causal`, row i sees the columns up to i. `strides` are those of q, k, v and out; for
    backward those of q, k, v, ct, dq, dk and dv. `lse` and `delta` are dense. `written` says which
    of the results are wanted: out and lse, or dq, dk and dv. Gradients that are `joined` are parts
    of one result, and no zero among them is negative.
    """

    dtype: str
    batch: int
    heads: int
    shared_heads: int  # of keys and values
    rows: int
    columns: int
    width: int
    scale: float
    causal: bool
    strides: tuple[Strides, ...]
    written: tuple[bool, ...]
    joined: bool = False
    mask: Mask | None = None

    @property
    def group(self) -> int:
        """Query heads to a head of keys and values."""
        return self.heads // self.shared_heads


def is_generated(dtype: str, width: int) -> bool:
    """True for element types and widths of a head that there are kernels for."""
    return dtype in _DTYPES and width in range(16, _MOST_WIDTH + 1, 16)


def constants(attention: Problem, operands: tuple[str, ...], results: tuple[str, ...]) -> str:
    """The problem as C++ constants, those of operands and results under their names."""
    chunks = attention.width // CHUNK
    swizzled = gcd(chunks, 8)  # a row is so many eighths of all banks, or a multiple of that
    lines = [
        f"constexpr bool CAUSAL = {'true' if attention.causal else 'false'};",
        f"constexpr float ZERO = {'0.0f' if attention.joined else '-0.0f'};  // added to results",
        f"constexpr int HEADS = {attention.heads}, GROUP = {attention.group};",
        f"constexpr int SHARED_HEADS = {attention.shared_heads};",
        f"constexpr int ROWS = {attention.rows}, COLUMNS = {attention.columns};",
        f"constexpr int WIDTH = {attention.width}, CHUNKS = {chunks};",
        f"constexpr int SWIZZLED = {swizzled}, SWIZZLE_PERIOD = {8 // swizzled};",
        f"constexpr float SCALE = {attention.scale!r}f;",
        f"constexpr float SCALE_LOG2E = {attention.scale * log2(e)!r}f;",
    ]
    for name, at in zip(operands, attention.strides):
        lines.append(
            f"constexpr Place {name} = {{{at.batch}LL, {at.head}LL, {at.row}LL, {at.offset}LL}};"
        )
    for name, wanted in zip(results, attention.written):
        lines.append(f"constexpr bool WRITES_{name} = {'true' if wanted else 'false'};")
    return "\n".join(lines)


def symbol_of(kind: str, text: str) -> str:
    """A name that holds a hash of the text."""
    return f"attention_{kind}_{fingerprint(text, 8)}"
