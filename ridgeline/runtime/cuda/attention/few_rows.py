"""Attention of few queries over many keys, as of one token over a cache: keys are split.

A block has a piece of the keys and values of one head, and some of the queries that share them. A
team of threads has one key at a time, each thread 16 bytes of it, and a sum, a maximum and weighted
values of its own, so that memory is read once and nothing waits. Teams of a block join in shared
memory, pieces in a second launch. Keys that a mask hides from all queries are not read.
"""

from __future__ import annotations

from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.loops.ir import index
from ridgeline.runtime.cuda.attention.masks import filled
from ridgeline.runtime.cuda.attention.problem import CHUNK, Problem, symbol_of
from ridgeline.runtime.cuda.attention.tensor_cores import prelude

MOST_ROWS = 8
_MOST_QUERIES = 64  # that share a head of keys: beyond, tiles for tensor cores read keys less often
_QUERIES = 4  # of a block, whose numbers its threads keep in registers
_KEYS = 4  # of a team at a time, so that several loads are in flight
_THREADS = 128
_BLOCKS = 512  # that fill a device
_LEAST_PIECE = 64  # keys

_TEXT = r"""
constexpr int LANES = TEAM_LANES, TEAMS = THREADS / LANES, SHARING = GROUP * ROWS;
constexpr int TURNS = (SHARING + QUERIES - 1) / QUERIES, PART = WIDTH + 2;

struct Eight { float x[8]; };
DEVICE Eight eight(const element* from, bool there) {
  uint4 given = {};
  if (there) given = *(const uint4*)from;
  const u32 words[4] = {given.x, given.y, given.z, given.w};
  Eight y;
#pragma unroll
  for (int i = 0; i < 8; ++i) y.x[i] = wide((element)(words[i / 2] >> i % 2 * 16));
  return y;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
SYMBOL_parts(const element* q, const element* k, const element* v, GIVEN_MASK, element* out,
             float* lse, float* parts) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
  const int piece = blockIdx.x % PIECES, rest = blockIdx.x / PIECES;
  const int first = rest % TURNS * QUERIES;
  const int head = rest / TURNS % SHARED_HEADS, batch = rest / TURNS / SHARED_HEADS;
  const int end = min(COLUMNS, (piece + 1) * PIECE);
  k = begin(k, K, batch, head) + lane * 8;
  v = begin(v, V, batch, head) + lane * 8;
  Eight own[QUERIES], sum[QUERIES];
  float most[QUERIES], total[QUERIES];
#pragma unroll
  for (int n = 0; n < QUERIES; ++n) {
    const int at = min(first + n, SHARING - 1);  // the last one again where there are no more
    const element* from = begin(q, Q, batch, head * GROUP + at / ROWS) + at % ROWS * Q.row;
    own[n] = eight(from + lane * 8, lane < CHUNKS);
    most[n] = minus_infinity();
    total[n] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[n].x[i] = 0;
  }

  for (int turn = piece * PIECE; turn < end; turn += TEAMS * KEYS) {
    const int column = turn + team * KEYS;
    float added[QUERIES][KEYS];  // what a mask adds, or minus infinity
    bool seen = false;
#pragma unroll
    for (int n = 0; n < QUERIES; ++n)
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const int at = min(first + n, SHARING - 1), row = at % ROWS;
        const bool there = column + j < end && (!CAUSAL || column + j <= row);
        added[n][j] = there ? 0 : minus_infinity();
        MASKING
        seen = seen || added[n][j] != minus_infinity();
      }
    if (__ballot_sync(0xffffffffu, seen) == 0) continue;
    float score[QUERIES][KEYS];
    Eight values[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const bool there = column + j < end && lane < CHUNKS;
      const Eight key = eight(k + (column + j) * K.row, there);
      values[j] = eight(v + (column + j) * V.row, there);
#pragma unroll
      for (int n = 0; n < QUERIES; ++n) {
        score[n][j] = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i)
          score[n][j] = __fmaf_rn(key.x[i], own[n].x[i], score[n][j]);
      }
    }
#pragma unroll
    for (int n = 0; n < QUERIES; ++n) {
      float top = most[n];
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
#pragma unroll
        for (int lanes = LANES / 2; lanes; lanes /= 2)
          score[n][j] += __shfl_xor_sync(0xffffffffu, score[n][j], lanes);
        score[n][j] = __fmaf_rn(score[n][j], ADDED ? SCALE : 1.0f, added[n][j]);
        top = fmaxf(top, score[n][j]);
      }
      const float base = top == minus_infinity() ? 0 : top;  // perhaps none was seen yet
      const float shrink = exp2_fast((most[n] - base) * UNIT_LOG2E);
      most[n] = top;
      total[n] *= shrink;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[n].x[i] *= shrink;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const float share = exponential(score[n][j], base);
        total[n] += share;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[n].x[i] = __fmaf_rn(share, values[j].x[i], sum[n].x[i]);
      }
    }
  }

  float* kept = (float*)memory;  // a part of each team and query
#pragma unroll
  for (int n = 0; n < QUERIES; ++n) {
    float* to = kept + (n * TEAMS + team) * PART;
    if (lane < CHUNKS)
#pragma unroll
      for (int i = 0; i < 8; ++i) to[lane * 8 + i] = sum[n].x[i];
    if (lane == 0) {
      to[WIDTH] = most[n];
      to[WIDTH + 1] = total[n];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < QUERIES * (WIDTH + 1); at += THREADS) {
    const int n = at / (WIDTH + 1), column = at % (WIDTH + 1);
    if (first + n >= SHARING) break;
    const float* from = kept + n * TEAMS * PART;
    float top = minus_infinity(), joint = 0;
    for (int m = 0; m < TEAMS; ++m) top = fmaxf(top, from[m * PART + WIDTH]);
    const float base = top == minus_infinity() ? 0 : top;
    const int field = column < WIDTH ? column : WIDTH + 1;
    for (int m = 0; m < TEAMS; ++m)
      joint += from[m * PART + field] * exp2_fast((from[m * PART + WIDTH] - base) * UNIT_LOG2E);
    const int query = (batch * SHARED_HEADS + head) * SHARING + first + n;
    float* to = parts + ((long long)query * PIECES + piece) * PART;
    to[field] = joint;
    if (column == 0) to[WIDTH] = top;
  }
}

extern "C" __global__ void __launch_bounds__(JOINING, 1)
SYMBOL_join(const element* q, const element* k, const element* v, GIVEN_MASK, element* out,
            float* lse, const float* parts) {
  const int query = blockIdx.x, row = query % ROWS, head = query / ROWS % HEADS;
  const int batch = query / ROWS / HEADS;
  const float* from = parts + (long long)query * PIECES * PART;
  float top = minus_infinity(), total = 0;
  for (int n = 0; n < PIECES; ++n) top = fmaxf(top, from[n * PART + WIDTH]);
  const float base = top == minus_infinity() ? 0 : top;
  float low = 0, high = 0;
  const int column = threadIdx.x * 2 < WIDTH ? threadIdx.x * 2 : 0;
  for (int n = 0; n < PIECES; ++n) {
    const float* part = from + n * PART;
    const float share = exp2_fast((part[WIDTH] - base) * UNIT_LOG2E);
    total = __fmaf_rn(part[WIDTH + 1], share, total);
    low = __fmaf_rn(part[column], share, low);
    high = __fmaf_rn(part[column + 1], share, high);
  }
  const bool empty = total == 0;
  const float factor = empty ? 0 : 1.0f / total;
  element* to = begin(out, OUT, batch, head) + row * OUT.row + column;
  if (WRITES_OUT && threadIdx.x * 2 < WIDTH) *(u32*)to = pack(low * factor, high * factor);
  if (WRITES_LSE && threadIdx.x == 0)
    lse[query] = empty ? -minus_infinity() : __fmaf_rn(top, UNIT, log2_fast(total) * LN2);
}
"""

_MASKING = r"""
        if (there) {
          const mask_element* shown = begin(mask, MASK, batch, head * GROUP + at / ROWS);
          const mask_element given = shown[row * MASK.row + (column + j) * MASK_COLUMN];
          added[n][j] = NUMBER;
        }
"""


def has_few_rows(attention: Problem) -> bool:
    """True where tiles for tensor cores would be mostly empty."""
    sharing = attention.group * attention.rows
    return 0 < attention.rows <= MOST_ROWS and sharing <= _MOST_QUERIES and attention.columns > 0


def pieces_of(attention: Problem) -> tuple[int, int]:
    """How many pieces the keys of a head are cut into, and how many keys each has at most."""
    turns = -(-attention.group * attention.rows // _QUERIES)
    alone = max(attention.batch * attention.shared_heads * turns, 1)
    most = max(_BLOCKS // alone, 1)
    size = max(-(-attention.columns // most), _LEAST_PIECE)
    size = -(-size // _KEYS) * _KEYS
    return -(-attention.columns // size), size


def few_rows(attention: Problem) -> KernelSource:
    """The kernels of q, k, v, a mask if there is one, out, lse and a workspace."""
    pieces, size = pieces_of(attention)
    chunks = attention.width // CHUNK
    lanes = 1 << (chunks - 1).bit_length()
    queries = min(_QUERIES, attention.group * attention.rows)
    mask = attention.mask
    masking = ""
    if mask is not None:
        number = "wide(given)" if mask.added else "given ? 0 : minus_infinity()"
        masking = filled(_MASKING, NUMBER=number)
    text = _TEXT.replace("GIVEN_MASK,", "const mask_element* mask," if mask else "")
    words = {
        "TEAM_LANES": lanes, "THREADS": _THREADS, "QUERIES": queries, "KEYS": _KEYS,
        "PIECES": pieces, "PIECE": size, "MASKING": masking, "JOINING": 64,
    }  # fmt: skip
    text = prelude(attention, ("Q", "K", "V", "OUT"), ("OUT", "LSE")) + filled(text, **words)
    symbol = symbol_of("few_rows", text)
    heads, part = attention.batch * attention.shared_heads, attention.width + 2
    turns = -(-attention.group * attention.rows // queries)
    shared = queries * (_THREADS // lanes) * part * 4
    every = attention.batch * attention.heads * attention.rows
    launches = (
        Launch(f"{symbol}_parts", (index(pieces * turns * heads),), _THREADS, shared),
        Launch(f"{symbol}_join", (index(every),), 64, 0),
    )
    workspace = every * pieces * part * 4
    return KernelSource(symbol, text.replace("SYMBOL", symbol), launches, workspace)
