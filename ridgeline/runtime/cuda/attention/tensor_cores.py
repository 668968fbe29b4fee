"""The device functions of attention kernels: tiles in shared memory, fragments, matrix products.

A tile is some rows of one head, `WIDTH` elements each, in chunks of 16 bytes. Chunks of a row are
exchanged so that eight rows read at one column touch every bank once (`chunk_at`). Fragments are
those of `mma.m16n8k16`: a thread holds, of a result, two neighbouring elements of row lane/4 and
two of the row eight below; two such results side by side are the left operand of the next product.
"""

from __future__ import annotations

from ridgeline.runtime.cuda.attention.masks import functions
from ridgeline.runtime.cuda.attention.problem import Problem, constants

# The words for a pair of elements and for one in instructions, and an element x as float y.
_NAMES = {
    "bfloat16": ("bf16x2", "bf16", "y = __uint_as_float((u32)x << 16);"),
    "float16": ("f16x2", "f16", 'asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));'),
}

_TEXT = r"""
#define DEVICE __device__ __forceinline__
typedef unsigned int u32;
typedef unsigned short element;
struct Place { long long batch, head, row, offset; };

CONSTANTS

constexpr float LN2 = 0.6931471805599453f, LOG2E = 1.4426950408889634f;
constexpr int TILE_ROW = WIDTH * 2;  // bytes

template <typename T> DEVICE T* begin(T* memory, const Place& at, int batch, int head) {
  return memory + at.offset + batch * at.batch + head * at.head;
}
DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float wide(element x) {
  float y;
  WIDEN
  return y;
}
DEVICE float wide(float x) { return x; }
DEVICE float minus_infinity() { return __uint_as_float(0xff800000u); }
SCORES_AND_WEIGHTS
DEVICE u32 pack(float low, float high) {
  u32 y;
  asm("cvt.rn.PAIR.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// ---- tiles ---------------------------------------------------------------------------------
DEVICE u32 shared_address(const void* memory) { return (u32)__cvta_generic_to_shared(memory); }
DEVICE int chunk_at(int row, int chunk) {
  return (row * CHUNKS + (chunk ^ (row / SWIZZLE_PERIOD % SWIZZLED))) * 16;
}
DEVICE void copy_async(u32 to, const void* from, bool there) {
  int bytes = there ? 16 : 0;  // the rest becomes zero
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
}
DEVICE void copy_number_async(u32 to, const float* from, bool there) {
  int bytes = there ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(bytes));
}
DEVICE void copies_issued() { asm volatile("cp.async.commit_group;"); }
DEVICE void copies_done() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// Rows `first` and following of a head, zeros from row `limit` on.
template <int TILE, int THREADS>
DEVICE void fetch(u32 tile, const element* head, long long stride, int first, int limit) {
#pragma unroll
  for (int n = 0; n < (TILE * CHUNKS + THREADS - 1) / THREADS; ++n) {
    int at = n * THREADS + (int)threadIdx.x;
    int row = at / CHUNKS, chunk = at % CHUNKS;
    if (TILE * CHUNKS % THREADS && row >= TILE) break;
    bool there = first + row < limit;
    const element* from = head + (there ? first + row : 0) * stride + chunk * 8;
    copy_async(tile + chunk_at(row, chunk), from, there);
  }
}

// ---- fragments -----------------------------------------------------------------------------
DEVICE void load(u32 (&y)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from) : "memory");
}
DEVICE void load_transposed(u32 (&y)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from) : "memory");
}
// 16 rows by 16 columns as a left operand.
DEVICE void load_left(u32 (&y)[4], u32 tile, int row, int column) {
  int lane = threadIdx.x % 32;
  load(y, tile + chunk_at(row + lane % 16, column / 8 + lane / 16));
}
// 16 rows by 16 columns, transposed: the right operands of two products whose columns are the rows.
DEVICE void load_rows(u32 (&y)[4], u32 tile, int row, int column) {
  int lane = threadIdx.x % 32;
  load(y, tile + chunk_at(row + lane % 8 + lane / 16 * 8, column / 8 + lane / 8 % 2));
}
// 16 rows by 16 columns: the right operands of two products that sum over the rows.
DEVICE void load_columns(u32 (&y)[4], u32 tile, int row, int column) {
  int lane = threadIdx.x % 32;
  load_transposed(y, tile + chunk_at(row + lane % 16, column / 8 + lane / 16));
}
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <int N> DEVICE void clear(float (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) x[n] = 0;
}
template <int N, int M> DEVICE void clear(float (&x)[N][M]) {
#pragma unroll
  for (int n = 0; n < N; ++n) clear(x[n]);
}
template <int L, int N, int M> DEVICE void clear(float (&x)[L][N][M]) {
#pragma unroll
  for (int n = 0; n < L; ++n) clear(x[n]);
}
// The left operand that two neighbouring results are.
DEVICE void narrow(u32 (&y)[4], const float (&left)[4], const float (&right)[4]) {
  y[0] = pack(left[0], left[1]);
  y[1] = pack(left[2], left[3]);
  y[2] = pack(right[0], right[1]);
  y[3] = pack(right[2], right[3]);
}
// y += x tileᵀ: the columns of y are the rows of the tile.
template <int TILES, int N>
DEVICE void times_rows(float (&y)[TILES][N][4], const u32 (&x)[TILES][WIDTH / 16][4], u32 tile) {
#pragma unroll
  for (int k = 0; k < WIDTH / 16; ++k) {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      load_rows(b, tile, n * 8, k * 16);
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        multiply(y[m][n], x[m][k], b[0], b[1]);
        multiply(y[m][n + 1], x[m][k], b[2], b[3]);
      }
    }
  }
}
// The same where x too is a tile, from a row on.
template <int TILES, int N>
DEVICE void times_rows(float (&y)[TILES][N][4], u32 x, int row, u32 tile) {
#pragma unroll
  for (int k = 0; k < WIDTH / 16; ++k) {
    u32 a[TILES][4];
#pragma unroll
    for (int m = 0; m < TILES; ++m) load_left(a[m], x, row + m * 16, k * 16);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      load_rows(b, tile, n * 8, k * 16);
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        multiply(y[m][n], a[m], b[0], b[1]);
        multiply(y[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}
// y += x tile, for x as results of an earlier product.
template <int TILES, int N>
DEVICE void times_tile(float (&y)[TILES][WIDTH / 8][4], const float (&x)[TILES][N][4], u32 tile) {
#pragma unroll
  for (int k = 0; k < N; k += 2) {
    u32 a[TILES][4];
#pragma unroll
    for (int m = 0; m < TILES; ++m) narrow(a[m], x[m][k], x[m][k + 1]);
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n += 2) {
      u32 b[4];
      load_columns(b, tile, k * 8, n * 8);
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        multiply(y[m][n], a[m], b[0], b[1]);
        multiply(y[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}
// Store a warp's rows of a result through its rows of a tile, so that memory is written in chunks.
template <int TILES>
DEVICE void store_rows(element* head, long long stride, int first, int limit, unsigned char* tile,
                       int row, const float (&x)[TILES][WIDTH / 8][4],
                       const float (&factor)[TILES][2]) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < TILES; ++m) {
#pragma unroll
    for (int n = 0; n < WIDTH / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int at = row + m * 16 + half * 8 + lane / 4;
        *(u32*)(tile + chunk_at(at, n) + lane % 4 * 4) =
            pack(__fmaf_rn(x[m][n][2 * half], factor[m][half], ZERO),
                 __fmaf_rn(x[m][n][2 * half + 1], factor[m][half], ZERO));
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < (TILES * 16 * CHUNKS + 31) / 32; ++n) {
    int at = n * 32 + lane;
    int from = row + at / CHUNKS, chunk = at % CHUNKS;
    if (TILES * 16 * CHUNKS % 32 && from >= row + TILES * 16) break;
    if (first + from < limit)
      *(uint4*)(head + (first + from) * stride + chunk * 8) =
          *(const uint4*)(tile + chunk_at(from, chunk));
  }
}
"""


def prelude(attention: Problem, operands: tuple[str, ...], results: tuple[str, ...]) -> str:
    """The text that every attention kernel begins with."""
    pair, one, widen = _NAMES[attention.dtype]
    text = _TEXT.replace("CONSTANTS", constants(attention, operands, results))
    text = text.replace("SCORES_AND_WEIGHTS", functions(attention.mask, attention.columns))
    text = text.replace("WIDEN", widen)
    return text.replace("PAIR", pair).replace("TYPE", one)
