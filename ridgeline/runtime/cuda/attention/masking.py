"""What attention kernels do about a mask: which tiles they pass over, and what they hide of others.

A mask of keys is the same for all rows. A block that keeps rows reads once which keys are seen, and
passes over tiles that are not: nothing of padding is fetched. One that keeps keys of which none is
seen has nothing to sum. Of other boolean masks a lane reads some columns of one row as bytes, a
step ahead, and keeps them as bits, which lanes exchange; a warp passes over what none of its rows
sees. Numbers are read where they are added.
"""

from __future__ import annotations

from ridgeline.runtime.cuda.attention.masks import filled
from ridgeline.runtime.cuda.attention.problem import Problem

# WALK is before the steps of a kernel, GLANCE before the products of a step, MASKING behind them.
_EVERY_STEP = r"""
  auto step_from = [](int step) { return step; };
"""

# ---- kernels that keep rows ----------------------------------------------------------------------

_KEYS_BY_ROWS = r"""
  constexpr int GROUPS = TILE_COLUMNS / 32;
  u32* seen = (u32*)(memory + TILE_BYTES);
#pragma unroll 8
  for (int n = warp; n < steps * GROUPS; n += THREADS / 32) {
    const u32 bits = __ballot_sync(0xffffffffu, is_seen(mask, n * 32 + lane));
    if (lane == 0) seen[n] = bits;
  }
  __syncthreads();
  auto step_from = [&](int step) {
    for (; step < steps; ++step)
#pragma unroll
      for (int n = 0; n < GROUPS; ++n)
        if (seen[step * GROUPS + n]) return step;
    return steps;
  };
"""

_KEY_BITS_BY_ROWS = r"""
    bool all = true;
#pragma unroll
    for (int n = 0; n < GROUPS; ++n) all = all && seen[step * GROUPS + n] == 0xffffffffu;
    if (!all) {
      u32 bits[GROUPS];
#pragma unroll
      for (int n = 0; n < GROUPS; ++n) bits[n] = seen[step * GROUPS + n] >> lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!(bits[n / 4] >> (n % 4 * 8 + i % 2) & 1)) SCORE[m][n][i] = minus_infinity();
    }
"""

_WALK_BITS_BY_ROWS = r"""
  const bool has_row = lane < TILES * 16 && first + own + lane < ROWS;
  const mask_element* own_row = mask + (has_row ? first + own + lane : 0) * MASK.row;
  __align__(16) u32 ahead[N * 2];
  read_bytes(ahead, own_row, has_row, 0);
"""

_GLANCE_BY_ROWS = r"""
    u32 bits[N / 4];
    bool all = true, none = true;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
      bits[n] = bits_of(ahead, n);
      all = all && bits[n] == 0xffffffffu;
      none = none && bits[n] == 0;
    }
    read_bytes(ahead, own_row, has_row, column + TILE_COLUMNS);
    if (__all_sync(0xffffffffu, none)) continue;
"""

_BITS_BY_ROWS = r"""
    if (!__all_sync(0xffffffffu, all)) {
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int group = 0; group < N / 4; ++group) {
            u32 kept = __shfl_sync(0xffffffffu, bits[group], m * 16 + half * 8 + lane / 4);
            kept >>= lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
              for (int i = 0; i < 2; ++i)
                if (!(kept >> (n * 8 + i) & 1))
                  SCORE[m][group * 4 + n][half * 2 + i] = minus_infinity();
          }
    }
"""

_NUMBERS_BY_ROWS = r"""
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = min(first + own + m * 16 + half * 8 + lane / 4, ROWS - 1);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float2 added = pair(mask + row * MASK.row, column + n * 8 + lane % 4 * 2);
          float(&x)[4] = SCORE[m][n];
          x[half * 2] = __fmaf_rn(x[half * 2], SCALE, added.x);
          x[half * 2 + 1] = __fmaf_rn(x[half * 2 + 1], SCALE, added.y);
        }
      }
"""

# ---- the kernel that keeps columns ---------------------------------------------------------------

_KEYS_BY_COLUMNS = r"""
  bool seen = false;
  for (int n = 0; n < (MASK.head ? GROUP : 1); ++n)
    seen = seen || (threadIdx.x < TILE_COLUMNS &&
                    is_seen(begin(mask, MASK, batch, head * GROUP + n), first + threadIdx.x));
  if (!__syncthreads_or(seen)) steps = 1;  // which hides all
"""

_KEY_GLANCE_BY_COLUMNS = r"""
    const mask_element* shown = begin(mask, MASK, batch, head * GROUP + step / each);
    const u32 keys_seen =
        __ballot_sync(0xffffffffu, lane < TILES * 16 && is_seen(shown, first + own + lane));
    if (!keys_seen) continue;
"""

_KEY_BITS_BY_COLUMNS = r"""
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (!(keys_seen >> (m * 16 + half * 8 + lane / 4) & 1)) {
#pragma unroll
          for (int n = 0; n < N; ++n) p[m][n][half * 2] = p[m][n][half * 2 + 1] = minus_infinity();
        }
"""

_WALK_BITS_BY_COLUMNS = r"""
  constexpr int EACH = (N + 3) / 4;  // rows of a step that a lane reads
  __align__(16) u32 ahead[EACH][TILES * 4];
  auto read_step = [&](int step) {
    const mask_element* shown = begin(mask, MASK, batch, head * GROUP + step / each);
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int row = (unseen + step % each) * TILE_ROWS + n * 32 + lane;
      const bool has_row = n * 32 + lane < TILE_ROWS && row < ROWS;
      read_bytes(ahead[n], shown + (has_row ? row : 0) * MASK.row, has_row, first + own);
    }
  };
  if (steps) read_step(0);
"""

_GLANCE_BY_COLUMNS = r"""
    u32 bits[EACH];
    bool none = true;
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      bits[n] = bits_of(ahead[n], 0);
      none = none && bits[n] == 0;
    }
    if (step + 1 < steps) read_step(step + 1);
    if (__all_sync(0xffffffffu, none)) continue;
"""

_BITS_BY_COLUMNS = r"""
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        u32 kept = __shfl_sync(0xffffffffu, bits[n / 4], n % 4 * 8 + lane % 4 * 2 + i);
        kept >>= lane / 4;
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (!(kept >> (m * 16 + half * 8) & 1)) p[m][n][half * 2 + i] = minus_infinity();
      }
"""

_NUMBERS_BY_COLUMNS = r"""
    const mask_element* shown = begin(mask, MASK, batch, head * GROUP + step / each);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = row + n * 8 + lane % 4 * 2 + i % 2;
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          const int column = first + own + m * 16 + i / 2 * 8 + lane / 4;
          const bool there = at < ROWS && column < COLUMNS;
          const mask_element* from = shown + at * MASK.row + column * MASK_COLUMN;
          p[m][n][i] = __fmaf_rn(p[m][n][i], SCALE, there ? wide(*from) : minus_infinity());
        }
      }
"""


def by_rows(text: str, attention: Problem, score: str, otherwise: str = "") -> str:
    """A kernel that keeps rows, with what it does about a mask to a score of this name.

    Without a mask `otherwise` is in its place.
    """
    mask = attention.mask
    walk, glance, masking = _EVERY_STEP, "", otherwise
    if mask is not None:
        of_keys = mask.of_keys(attention.columns)
        walk = _KEYS_BY_ROWS if of_keys else _EVERY_STEP
        if mask.added:
            masking = _NUMBERS_BY_ROWS
        elif of_keys:
            masking = _KEY_BITS_BY_ROWS
        else:
            walk += _WALK_BITS_BY_ROWS
            glance, masking = _GLANCE_BY_ROWS, _BITS_BY_ROWS
    return _placed(text, attention, walk, glance, masking.replace("SCORE", score))


def bytes_by_rows(attention: Problem, tile_columns: int) -> int:
    """The shared memory that a kernel which keeps rows needs for a mask, behind its tiles."""
    if attention.mask is None or not attention.mask.of_keys(attention.columns):
        return 0
    return -(-attention.columns // tile_columns) * tile_columns // 8


def by_columns(text: str, attention: Problem) -> str:
    """The kernel that keeps columns, with what it does about a mask."""
    mask = attention.mask
    walk = glance = masking = ""
    if mask is not None:
        of_keys = mask.of_keys(attention.columns)
        walk = _KEYS_BY_COLUMNS if of_keys else ""
        if mask.added:
            masking = _NUMBERS_BY_COLUMNS
        elif of_keys:
            glance, masking = _KEY_GLANCE_BY_COLUMNS, _KEY_BITS_BY_COLUMNS
        else:
            walk, glance, masking = _WALK_BITS_BY_COLUMNS, _GLANCE_BY_COLUMNS, _BITS_BY_COLUMNS
    return _placed(text, attention, walk, glance, masking)


def _placed(text: str, attention: Problem, walk: str, glance: str, masking: str) -> str:
    masked = attention.mask is not None
    text = text.replace("GIVEN_MASK,", "const mask_element* mask," if masked else "")
    own = "mask = begin(mask, MASK, batch, head);" if masked else ""
    return filled(text, OWN_MASK=own, WALK=walk, GLANCE=glance, MASKING=masking)
