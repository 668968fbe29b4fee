"""Attention backward: the gradient of queries row by row, that of keys and values by columns.

With weights p = exp(score - lse) and their cotangent dp = ct vᵀ, that of the scores is
ds = p (dp - delta), where delta is the sum of ct * out over a row. The first launch keeps rows and
gives dq = ds k. The second keeps columns, so that what it computes is transposed, and gives
dv = pᵀ ct and dk = dsᵀ q; heads that share keys come in turn.
"""

from __future__ import annotations

from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.loops.ir import index
from ridgeline.runtime.cuda.attention.forward import Tiles, with_tiles
from ridgeline.runtime.cuda.attention.masking import by_columns, by_rows, bytes_by_rows
from ridgeline.runtime.cuda.attention.problem import Problem, symbol_of
from ridgeline.runtime.cuda.attention.tensor_cores import prelude

_ROWS = r"""
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
SYMBOL_rows(const element* q, const element* k, const element* v, GIVEN_MASK,
            const float* lse, const float* delta, const element* ct, RESULTS) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int STAGE = 2 * TILE_COLUMNS * TILE_ROW;  // keys, then values
  constexpr int TILE_BYTES = 2 * TILE_ROWS * TILE_ROW + 2 * STAGE;
  constexpr int TILES = TILE_ROWS / (THREADS / 2), N = TILE_COLUMNS / 8;
  constexpr int COUNT = (ROWS + TILE_ROWS - 1) / TILE_ROWS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tile = COUNT - 1 - blockIdx.x % COUNT;  // those that see most columns first
  const int head = blockIdx.x / COUNT % HEADS, batch = blockIdx.x / COUNT / HEADS;
  const int first = tile * TILE_ROWS, own = warp * TILES * 16;
  const int limit = CAUSAL ? min(COLUMNS, first + TILE_ROWS) : COLUMNS;
  const int steps = (limit + TILE_COLUMNS - 1) / TILE_COLUMNS;
  k = begin(k, K, batch, head / GROUP);
  v = begin(v, V, batch, head / GROUP);
  OWN_MASK
  const long long numbers = ((long long)batch * HEADS + head) * ROWS;
  const u32 queries = shared_address(memory), cotangents = queries + TILE_ROWS * TILE_ROW;
  const u32 stages = cotangents + TILE_ROWS * TILE_ROW;

  auto fetch_step = [&](int step, int turn) {
    const u32 stage = stages + turn % 2 * STAGE;
    fetch<TILE_COLUMNS, THREADS>(stage, k, K.row, step * TILE_COLUMNS, COLUMNS);
    fetch<TILE_COLUMNS, THREADS>(stage + STAGE / 2, v, V.row, step * TILE_COLUMNS, COLUMNS);
    copies_issued();
  };
  fetch<TILE_ROWS, THREADS>(queries, begin(q, Q, batch, head), Q.row, first, ROWS);
  fetch<TILE_ROWS, THREADS>(cotangents, begin(ct, CT, batch, head), CT.row, first, ROWS);
  copies_issued();
  WALK
  int step = min(step_from(0), steps - 1), turn = 0, after;
  fetch_step(step, 0);
  float base[TILES][2], less[TILES][2], sum[TILES][WIDTH / 8][4];
  clear(sum);
  copies_done();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + own + m * 16 + half * 8 + lane / 4;
      base[m][half] = row < ROWS ? lse[numbers + row] : 0;
      less[m][half] = row < ROWS ? delta[numbers + row] : 0;
    }
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
    float p[TILES][N][4], ds[TILES][N][4];
    clear(p);
    clear(ds);
    PRODUCTS
    MASKING
    const bool whole = column + TILE_COLUMNS <= COLUMNS &&
                       (!CAUSAL || column + TILE_COLUMNS - 1 <= first + own);
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int half = i / 2;
          float kept = weight(p[m][n][i], base[m][half]);
          if (!MASKED && !whole) {
            const int row = first + own + m * 16 + lane / 4 + half * 8;
            const int at = column + n * 8 + lane % 4 * 2 + i % 2;
            if (at >= COLUMNS || (CAUSAL && at > row)) kept = 0;
          }
          ds[m][n][i] = kept * (ds[m][n][i] - less[m][half]);
        }
    times_tile(sum, ds, keys);
  } while (++turn, (step = after) < steps);

  float factor[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m) factor[m][0] = factor[m][1] = SCALE;
  __syncwarp();  // all lanes have read the queries whose place the results take
  store_rows(begin(dq, DQ, batch, head), DQ.row, first, ROWS, memory, own, sum, factor);
}
"""

_COLUMNS = r"""
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
SYMBOL_columns(const element* q, const element* k, const element* v, GIVEN_MASK,
               const float* lse, const float* delta, const element* ct, RESULTS) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int NUMBERS = TILE_ROWS * 4;  // bytes
  constexpr int STAGE = 2 * (TILE_ROWS * TILE_ROW + NUMBERS);  // queries, cotangents, lse, delta
  constexpr int TILES = TILE_COLUMNS / (THREADS / 2), N = TILE_ROWS / 8;
  constexpr int COUNT = (COLUMNS + TILE_COLUMNS - 1) / TILE_COLUMNS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tile = blockIdx.x % COUNT;  // those that most rows see first
  const int head = blockIdx.x / COUNT % SHARED_HEADS, batch = blockIdx.x / COUNT / SHARED_HEADS;
  const int first = tile * TILE_COLUMNS, own = warp * TILES * 16;
  constexpr int ALL = (ROWS + TILE_ROWS - 1) / TILE_ROWS;
  const int unseen = CAUSAL ? min(first / TILE_ROWS, ALL) : 0;  // tiles of rows before the first
  const int each = ALL - unseen;
  int steps = each * GROUP;
  const u32 keys = shared_address(memory), values = keys + TILE_COLUMNS * TILE_ROW;
  const u32 stages = values + TILE_COLUMNS * TILE_ROW;
  const int stages_at = 2 * TILE_COLUMNS * TILE_ROW;

  auto fetch_step = [&](int step) {
    const u32 stage = stages + step % 2 * STAGE;
    const int row = (unseen + step % each) * TILE_ROWS, own_head = head * GROUP + step / each;
    fetch<TILE_ROWS, THREADS>(stage, begin(q, Q, batch, own_head), Q.row, row, ROWS);
    fetch<TILE_ROWS, THREADS>(
        stage + TILE_ROWS * TILE_ROW, begin(ct, CT, batch, own_head), CT.row, row, ROWS);
    const long long numbers = ((long long)batch * HEADS + own_head) * ROWS;
    for (int n = threadIdx.x; n < 2 * TILE_ROWS; n += THREADS) {
      const int at = row + n % TILE_ROWS;
      const float* from = (n < TILE_ROWS ? lse : delta) + numbers + (at < ROWS ? at : 0);
      copy_number_async(stage + 2 * TILE_ROWS * TILE_ROW + n * 4, from, at < ROWS);
    }
  };

  WALK
  fetch<TILE_COLUMNS, THREADS>(keys, begin(k, K, batch, head), K.row, first, COLUMNS);
  fetch<TILE_COLUMNS, THREADS>(values, begin(v, V, batch, head), V.row, first, COLUMNS);
  if (steps) fetch_step(0);
  copies_issued();
  float sum_k[TILES][WIDTH / 8][4], sum_v[TILES][WIDTH / 8][4];
  clear(sum_k);
  clear(sum_v);
  copies_done();
  __syncthreads();
  KEEP

  for (int step = 0; step < steps; ++step) {
    const int row = (unseen + step % each) * TILE_ROWS;
    const u32 queries = stages + step % 2 * STAGE, cotangents = queries + TILE_ROWS * TILE_ROW;
    const float* least = (const float*)(memory + stages_at + step % 2 * STAGE +
                                        2 * TILE_ROWS * TILE_ROW);
    copies_done();
    __syncthreads();  // this stage is there, and nobody reads the other any more
    if (step + 1 < steps) {
      fetch_step(step + 1);
      copies_issued();
    }
    if (CAUSAL && first + own > row + TILE_ROWS - 1) continue;  // no row sees these
    GLANCE
    float p[TILES][N][4], ds[TILES][N][4];
    clear(p);
    SCORES
    MASKING
    const bool whole = !CAUSAL || first + own + TILES * 16 - 1 <= row;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float2 base = *(const float2*)(least + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          p[m][n][i] = weight(p[m][n][i], i % 2 ? base.y : base.x);
          if (!MASKED && !whole) {
            const int at = first + own + m * 16 + lane / 4 + i / 2 * 8;
            if (at > row + n * 8 + lane % 4 * 2 + i % 2) p[m][n][i] = 0;
          }
        }
    }
    times_tile(sum_v, p, cotangents);
    clear(ds);
    WEIGHTS
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float2 less = *(const float2*)(least + TILE_ROWS + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - (i % 2 ? less.y : less.x));
    }
    times_tile(sum_k, ds, queries);
  }

  float factor[TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m) factor[m][0] = factor[m][1] = SCALE;
  __syncwarp();  // all lanes have read the keys and values whose place the results take
  if (WRITES_DK)
    store_rows(begin(dk, DK, batch, head), DK.row, first, COLUMNS, memory, own, sum_k, factor);
#pragma unroll
  for (int m = 0; m < TILES; ++m) factor[m][0] = factor[m][1] = 1;
  if (WRITES_DV)
    store_rows(begin(dv, DV, batch, head), DV.row, first, COLUMNS,
               memory + TILE_COLUMNS * TILE_ROW, own, sum_v, factor);
}
"""

_KEEP = r"""
  u32 kept_LEFT[TILES][WIDTH / 16][4], kept_RIGHT[TILES][WIDTH / 16][4];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int n = 0; n < WIDTH / 16; ++n) {
      load_left(kept_LEFT[m][n], LEFT, own + m * 16, n * 16);
      load_left(kept_RIGHT[m][n], RIGHT, own + m * 16, n * 16);
    }
"""

_OPERANDS = ("Q", "K", "V", "CT", "DQ", "DK", "DV")


def backward(
    attention: Problem, rows: Tiles | None = None, columns: Tiles | None = None
) -> KernelSource:
    """The two kernels of q, k, v, a mask if there is one, lse, delta, ct, dq, dk and dv.

    Gradients that are joined are one result.
    """
    of_rows, of_columns = rows or _row_tiles(attention), columns or _column_tiles(attention)
    text = prelude(attention, _OPERANDS, _OPERANDS[-3:])
    text += _row_text(attention, of_rows)
    text += _column_text(attention, of_columns)
    results = "element* dq, element* dk, element* dv"
    if attention.joined:
        results = "element* all"
        text = text.replace("RESULTS) {", "RESULTS) {\n  element *dq = all, *dk = all, *dv = all;")
    text = text.replace("RESULTS", results)
    symbol = symbol_of("backward", text)
    width = attention.width * 2
    counts = -(-attention.rows // of_rows.rows), -(-attention.columns // of_columns.columns)
    first = Launch(
        f"{symbol}_rows",
        (index(counts[0] * attention.heads * attention.batch),),
        of_rows.warps * 32,
        (2 * of_rows.rows + 4 * of_rows.columns) * width
        + bytes_by_rows(attention, of_rows.columns),
    )
    second = Launch(
        f"{symbol}_columns",
        (index(counts[1] * attention.shared_heads * attention.batch),),
        of_columns.warps * 32,
        (2 * of_columns.columns + 4 * of_columns.rows) * width + 16 * of_columns.rows,
    )
    of_queries, *others = attention.written
    launches = (*((first,) if of_queries else ()), *((second,) if any(others) else ()))
    return KernelSource(symbol, text.replace("SYMBOL", symbol), launches)


def _row_text(attention: Problem, tiles: Tiles) -> str:
    left = (
        ("kept_queries", "kept_cotangents") if tiles.kept else ("queries, own", "cotangents, own")
    )
    products = f"times_rows(p, {left[0]}, keys);\n    times_rows(ds, {left[1]}, values);"
    keep = _kept("queries", "cotangents") if tiles.kept else ""
    text = with_tiles(by_rows(_ROWS, attention, "p"), tiles)
    return text.replace("PRODUCTS", products).replace("KEEP", keep)


def _column_text(attention: Problem, tiles: Tiles) -> str:
    left = ("kept_keys", "kept_values") if tiles.kept else ("keys, own", "values, own")
    text = with_tiles(by_columns(_COLUMNS, attention), tiles)
    text = text.replace("SCORES", f"times_rows(p, {left[0]}, queries);")
    text = text.replace("WEIGHTS", f"times_rows(ds, {left[1]}, cotangents);")
    return text.replace("KEEP", _kept("keys", "values") if tiles.kept else "")


def _kept(left: str, right: str) -> str:
    """Left operands that stay in registers."""
    return _KEEP.replace("LEFT", left).replace("RIGHT", right)


def _row_tiles(attention: Problem) -> Tiles:
    """A warp takes 32 rows: what it reads serves two products."""
    return Tiles(128, 32, 4, 2, kept=attention.width <= 64)


def _column_tiles(attention: Problem) -> Tiles:
    """The same where two sums over a narrow head leave registers for it."""
    if attention.width <= 64:
        return Tiles(32, 128, 4, 2, kept=False)
    return Tiles(64, 64, 4, 2, kept=False)
