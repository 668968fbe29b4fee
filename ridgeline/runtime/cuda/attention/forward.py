"""Attention forward: a block keeps some rows of queries and walks over the keys and values.

Keys and values of the next step are copied while this one computes. The sum of exponentials and the
maximum they are relative to are kept for each row; when the maximum grows, what was summed shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.loops.ir import index
from ridgeline.runtime.cuda.attention.masking import by_rows, bytes_by_rows
from ridgeline.runtime.cuda.attention.masks import filled
from ridgeline.runtime.cuda.attention.problem import Problem, symbol_of
from ridgeline.runtime.cuda.attention.tensor_cores import prelude

_TEXT = r"""
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
SYMBOL(const element* q, const element* k, const element* v, GIVEN_MASK, element* out,
       float* lse) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int STAGE = 2 * TILE_COLUMNS * TILE_ROW;  // keys, then values
  constexpr int TILE_BYTES = TILE_ROWS * TILE_ROW + 2 * STAGE;
  constexpr int TILES = TILE_ROWS / (THREADS / 2), N = TILE_COLUMNS / 8;
  constexpr int COUNT = (ROWS + TILE_ROWS - 1) / TILE_ROWS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tile = COUNT - 1 - blockIdx.x % COUNT;  // those that see most columns first
  const int head = blockIdx.x / COUNT % HEADS, batch = blockIdx.x / COUNT / HEADS;
  const int first = tile * TILE_ROWS, own = warp * TILES * 16;
  const int limit = CAUSAL ? min(COLUMNS, first + TILE_ROWS) : COLUMNS;
  const int steps = (limit + TILE_COLUMNS - 1) / TILE_COLUMNS;
  q = begin(q, Q, batch, head);
  k = begin(k, K, batch, head / GROUP);
  v = begin(v, V, batch, head / GROUP);
  OWN_MASK
  const u32 queries = shared_address(memory), stages = queries + TILE_ROWS * TILE_ROW;

  auto fetch_step = [&](int step, int turn) {
    const u32 stage = stages + turn % 2 * STAGE;
    fetch<TILE_COLUMNS, THREADS>(stage, k, K.row, step * TILE_COLUMNS, COLUMNS);
    fetch<TILE_COLUMNS, THREADS>(stage + STAGE / 2, v, V.row, step * TILE_COLUMNS, COLUMNS);
    copies_issued();
  };
  fetch<TILE_ROWS, THREADS>(queries, q, Q.row, first, ROWS);
  copies_issued();
  WALK
  int step = min(step_from(0), steps - 1), turn = 0, after;
  fetch_step(step, 0);
  float sum[TILES][WIDTH / 8][4], most[TILES][2], total[TILES][2];
  clear(sum);
  clear(total);
#pragma unroll
  for (int m = 0; m < TILES; ++m) most[m][0] = most[m][1] = minus_infinity();
  copies_done();
  __syncthreads();
  KEEP

  do {
    const int column = step * TILE_COLUMNS;
    const u32 keys = stages + turn % 2 * STAGE, values = keys + STAGE / 2;
    after = step_from(step + 1);
    copies_done();
    __syncthreads();  // this stage is there, and nobody reads the other any more
    if (after < steps) fetch_step(after, turn + 1);
    if (CAUSAL && column > first + own + TILES * 16 - 1) continue;  // no row sees these
    GLANCE
    float score[TILES][N][4];
    clear(score);
    SCORES
    MASKING
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = most[m][half];
#pragma unroll
        for (int n = 0; n < N; ++n)
          top = fmaxf(top, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
        top = quad_max(top);
        const float base = MASKED && top == minus_infinity() ? 0 : top;  // perhaps none is seen
        const float shrink = exp2_fast((most[m][half] - base) * UNIT_LOG2E);
        most[m][half] = top;
        float added = 0;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[m][n][i] = exponential(score[m][n][i], base);
            added += score[m][n][i];
          }
        total[m][half] = __fmaf_rn(total[m][half], shrink, added);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; ++n) {
          sum[m][n][2 * half] *= shrink;
          sum[m][n][2 * half + 1] *= shrink;
        }
      }
    times_tile(sum, score, values);
  } while (++turn, (step = after) < steps);

  float factor[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = quad_sum(total[m][half]);
      const bool empty = MASKED && all == 0;
      factor[m][half] = empty ? 0 : 1.0f / all;
      const int row = first + own + m * 16 + half * 8 + lane / 4;
      if (WRITES_LSE && lane % 4 == 0 && row < ROWS)
        lse[((long long)batch * HEADS + head) * ROWS + row] =
            empty ? -minus_infinity() : __fmaf_rn(most[m][half], UNIT, log2_fast(all) * LN2);
    }
  __syncwarp();  // all lanes have read the queries whose place the results take
  if (WRITES_OUT)
    store_rows(begin(out, OUT, batch, head), OUT.row, first, ROWS, memory, own, sum, factor);
}
"""

_KEEP = r"""
  u32 kept[TILES][WIDTH / 16][4];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int n = 0; n < WIDTH / 16; ++n) load_left(kept[m][n], queries, own + m * 16, n * 16);
"""

# where a tile reaches beyond what its rows see
_HIDDEN = r"""
    const bool whole = column + TILE_COLUMNS <= COLUMNS &&
                       (!CAUSAL || column + TILE_COLUMNS - 1 <= first + own);
    if (!whole) {
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            int row = first + own + m * 16 + lane / 4 + i / 2 * 8;
            int at = column + n * 8 + lane % 4 * 2 + i % 2;
            if (at >= COLUMNS || (CAUSAL && at > row)) score[m][n][i] = minus_infinity();
          }
    }
"""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rows and columns of a block's tile, its warps, and how many blocks share a multiprocessor."""

    rows: int
    columns: int
    warps: int
    blocks: int
    kept: bool  # whether left operands stay in registers


def forward(attention: Problem, tiles: Tiles | None = None) -> KernelSource:
    """The kernel of q, k, v, a mask if there is one, out and lse."""
    chosen = tiles or _tiles(attention)
    text = prelude(attention, ("Q", "K", "V", "OUT"), ("OUT", "LSE"))
    kernel = by_rows(_TEXT, attention, "score", _HIDDEN)
    left = "kept" if chosen.kept else "queries, own"
    words = {"SCORES": f"times_rows(score, {left}, keys);", "KEEP": _KEEP if chosen.kept else ""}
    text += with_tiles(filled(kernel, **words), chosen)
    symbol = symbol_of("forward", text)
    count = -(-attention.rows // chosen.rows)
    launch = Launch(
        symbol,
        (index(count * attention.heads * attention.batch),),
        chosen.warps * 32,
        (chosen.rows + 4 * chosen.columns) * attention.width * 2
        + bytes_by_rows(attention, chosen.columns),
    )
    return KernelSource(symbol, text.replace("SYMBOL", symbol), (launch,))


def with_tiles(text: str, tiles: Tiles) -> str:
    """A kernel's text with the sizes of its tiles."""
    words = {
        "TILE_ROWS": tiles.rows, "TILE_COLUMNS": tiles.columns, "THREADS": 32 * tiles.warps,
        "BLOCKS": tiles.blocks,
    }  # fmt: skip
    return filled(text, **words)


def _tiles(attention: Problem) -> Tiles:
    """A warp takes 32 rows, so that what it reads of keys and values serves two products.

    Of a wide head it takes few columns at a time: their scores and its sums stay in registers.
    """
    if attention.width <= 64:
        return Tiles(128, 64, 4, 2, kept=True)
    return Tiles(128, 32, 4, 2, kept=False)
