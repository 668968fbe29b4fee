"""Masks of attention kernels: where they lie, and the functions that read them.

Without a mask, and under a boolean one, scores stay as they are and their factor is part of the
exponent; a boolean mask hides where it is false. What a floating mask adds has no such factor, so
scores are multiplied first. It may be as large as numbers get: differences are formed before they
are scaled for base 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

_ELEMENTS = {"bool": "unsigned char", "float32": "float"}  # those of operands are `element`
_MOST_KEYS = 1 << 14  # whose bits a block keeps
_VECTORS = {16: "uint4", 8: "uint2", 4: "u32"}

_EXPONENTS = r"""
constexpr bool MASKED = IS_MASKED, ADDED = IS_ADDED;  // whether numbers are added to scores
constexpr float UNIT_LOG2E = ADDED ? LOG2E : SCALE_LOG2E, UNIT = ADDED ? 1 : SCALE;  // of a score
DEVICE float exponential(float score, float top) {
  return exp2_fast(ADDED ? (score - top) * LOG2E
                         : __fmaf_rn(score, UNIT_LOG2E, top * -UNIT_LOG2E));
}
DEVICE float weight(float score, float lse) {
  return exp2_fast(ADDED ? (score - lse) * LOG2E : __fmaf_rn(score, UNIT_LOG2E, lse * -LOG2E));
}
"""

_PLACE = r"""
typedef ELEMENT mask_element;
constexpr Place MASK = {STRIDES};
constexpr long long MASK_COLUMN = COLUMN_STRIDE;
DEVICE bool is_seen(const mask_element* row, int column) {
  if (column >= COLUMNS) return false;
  const mask_element given = row[column * MASK_COLUMN];
  return GIVEN_IS_SEEN;
}
"""

_NUMBERS = r"""
// What is added to two neighbouring columns; nothing is seen outside.
DEVICE float2 pair(const mask_element* row, int column) {
  struct __align__(TOGETHER * sizeof(mask_element)) Two { mask_element x, y; };
  float2 y = {minus_infinity(), minus_infinity()};
  if (TOGETHER == 2) {
    if (column < COLUMNS) {
      const Two both = *(const Two*)(row + column);
      y = {wide(both.x), wide(both.y)};
    }
  } else {
    if (column < COLUMNS) y.x = wide(row[column * MASK_COLUMN]);
    if (column + 1 < COLUMNS) y.y = wide(row[(column + 1) * MASK_COLUMN]);
  }
  return y;
}
"""

_BITS = r"""
// The bytes of some columns of a row; nothing is seen outside.
template <int WORDS>
DEVICE void read_bytes(u32 (&y)[WORDS], const mask_element* row, bool there, int column) {
READ
}
// Bytes of 0 or 1 as bits, 32 of them or as many as there are.
template <int WORDS> DEVICE u32 bits_of(const u32 (&bytes)[WORDS], int group) {
  u32 y = 0;
#pragma unroll
  for (int n = 0; n < (WORDS < 8 ? WORDS : 8); ++n)
    y |= (bytes[group * 8 + n] * 0x01020408u >> 24) << n * 4;
  return y;
}
"""

_READ_VECTORS = r"""#pragma unroll
  for (int n = 0; n < WORDS; n += TOGETHER / 4) {
    VECTOR given = {};
    if (there && column + n * 4 < COLUMNS) given = *(const VECTOR*)(row + column + n * 4);
    *(VECTOR*)(y + n) = given;
  }"""

_READ_BYTES = r"""#pragma unroll
  for (int n = 0; n < WORDS; ++n) {
    y[n] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = column + n * 4 + i;
      if (there && at < COLUMNS) y[n] |= (u32)row[at * MASK_COLUMN] << i * 8;
    }
  }"""


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask of booleans, float32 or the operands' type: its strides in elements, 0 along what it
    is the same for."""

    dtype: str
    batch: int
    head: int
    row: int
    column: int
    offset: int

    @property
    def added(self) -> bool:
        """True where it holds numbers."""
        return self.dtype != "bool"

    def of_keys(self, columns: int) -> bool:
        """True where all rows see the same columns, whose bits a block can keep."""
        return self.row == 0 and columns <= _MOST_KEYS

    def together(self, columns: int, most: int) -> int:
        """How many neighbours, a power of two, always begin at a multiple of their number."""
        if self.column != 1:
            return 1
        return gcd(self.batch, self.head, self.row, self.offset, columns, most)


def functions(mask: Mask | None, columns: int) -> str:
    """The constants and functions of scores, with or without a mask."""
    if mask is None:
        return filled(_EXPONENTS, IS_MASKED="false", IS_ADDED="false")
    text = filled(_EXPONENTS, IS_MASKED="true", IS_ADDED="true" if mask.added else "false")
    strides = (mask.batch, mask.head, mask.row, mask.offset)
    text += filled(
        _PLACE,
        ELEMENT=_ELEMENTS.get(mask.dtype, "element"),
        STRIDES=", ".join(f"{stride}LL" for stride in strides),
        COLUMN_STRIDE=f"{mask.column}LL",
        GIVEN_IS_SEEN="wide(given) != minus_infinity()" if mask.added else "given != 0",
    )
    if mask.added:
        return text + filled(_NUMBERS, TOGETHER=mask.together(columns, 2))
    if mask.of_keys(columns):
        return text
    together = mask.together(columns, 16)
    read = _READ_BYTES
    if together in _VECTORS:
        read = filled(_READ_VECTORS, TOGETHER=together, VECTOR=_VECTORS[together])
    return text + filled(_BITS, READ=read)


def filled(text: str, **words: object) -> str:
    """A text with words in the place of others."""
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: str(words[found[0]]), text)
