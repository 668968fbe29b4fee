"""Masks in attention kernels: what a score becomes before its row is normalised.

Without a mask, scores stay as they are and their factor is part of the exponent. With one they are
multiplied by it first, since what is added to them is not. A mask may be as large as numbers get:
differences are formed before they are scaled for base 2. A boolean mask hides where it is false.
"""

from __future__ import annotations

from dataclasses import dataclass

_ELEMENTS = {"bool": "unsigned char", "float32": "float"}
_VALUES = {
    "bool": "given ? score * SCALE : minus_infinity()",
    "float32": "__fmaf_rn(score, SCALE, given)",
}

_PLAIN = r"""
constexpr bool MASKED = false;
constexpr float UNIT_LOG2E = SCALE_LOG2E, UNIT = SCALE;  // of a score
"""

_MASKED = r"""
constexpr bool MASKED = true;
constexpr float UNIT_LOG2E = LOG2E, UNIT = 1;  // of a score with its mask
constexpr Place MASK = {BATCHLL, HEADLL, ROWLL, OFFSETLL};

// A score with its mask; nothing is seen outside.
DEVICE float masked(float score, const MASK_ELEMENT* mask, int row, int column) {
  if (row >= ROWS || column >= COLUMNS) return minus_infinity();
  const MASK_ELEMENT given = mask[row * MASK.row + column * COLUMNLL];
  return VALUE;
}
"""

_WEIGHT = r"""
DEVICE float weight(float score, float lse) {
  return exp2_fast(MASKED ? (score - lse) * LOG2E : __fmaf_rn(score, UNIT_LOG2E, lse * -LOG2E));
}
"""

# in kernels that keep rows, and in the one that keeps columns
BY_ROWS = r"""
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          SCORE[m][n][i] = masked(SCORE[m][n][i], mask, first + own + m * 16 + lane / 4 + i / 2 * 8,
                                  column + n * 8 + lane % 4 * 2 + i % 2);
"""
BY_COLUMNS = r"""
    const MASK_ELEMENT* shown = begin(mask, MASK, batch, head * GROUP + step / each);
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          p[m][n][i] = masked(p[m][n][i], shown, row + n * 8 + lane % 4 * 2 + i % 2,
                              first + own + m * 16 + lane / 4 + i / 2 * 8);
"""


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask of booleans or float32: its strides in elements, 0 along what it is the same for."""

    dtype: str
    batch: int
    head: int
    row: int
    column: int
    offset: int


def functions(mask: Mask | None) -> str:
    """The constants and functions of scores, with or without a mask."""
    if mask is None:
        return _PLAIN + _WEIGHT
    words = {
        "BATCHLL": f"{mask.batch}LL", "HEADLL": f"{mask.head}LL", "ROWLL": f"{mask.row}LL",
        "COLUMNLL": f"{mask.column}LL", "OFFSETLL": f"{mask.offset}LL",
        "VALUE": _VALUES[mask.dtype], "MASK_ELEMENT": _ELEMENTS[mask.dtype],
    }  # fmt: skip
    text = _MASKED
    for word, value in words.items():
        text = text.replace(word, value)
    return text + _WEIGHT


def with_mask(text: str, mask: Mask | None, masking: str, otherwise: str = "") -> str:
    """A kernel with its parameter for a mask, and what is done to scores in the place for it."""
    given = "" if mask is None else "const MASK_ELEMENT* mask,"
    own = "" if mask is None else "mask = begin(mask, MASK, batch, head);"
    text = text.replace("GIVEN_MASK,", given).replace("OWN_MASK", own)
    text = text.replace("MASKING", masking if mask else otherwise)
    return text.replace("MASK_ELEMENT", _ELEMENTS[mask.dtype]) if mask else text
