"""The text of a product's kernel: the skeleton, with words for what `product.py` fills in.

`TOOLS` are its functions, `CUTS` those of tiles that are cut, `KERNEL` the function that is
launched: one thread fetches tiles into a ring, two teams of four warps multiply and finish them.
"""

from __future__ import annotations

TOOLS = r"""
struct Place { int row, column, batch; };
// The tile that comes after so many others: some rows of tiles, column by column, then the next.
DEVICE Place rl_place(int tile) {
  const int batch = tile / (TALL * WIDE), inside = tile % (TALL * WIDE);
  const int first = inside / (NEAR * WIDE) * NEAR, rest = inside % (NEAR * WIDE);
  const int tall = TALL - first < NEAR ? TALL - first : NEAR;
  return {(first + rest % tall) * CLUSTER, rest / tall, batch};
}
struct Work { int tile, part; };
// What a cluster does: every so manieth of the tiles, and then of the parts of those that are cut.
struct Share {
  int at, step;
  DEVICE bool next(Work &work) {
    if (at >= WHOLE + CUT * PARTS) return false;
    const bool whole = at < WHOLE;
    work = {whole ? at : WHOLE + (at - WHOLE) % CUT, whole ? 0 : (at - WHOLE) / CUT};
    at += step;
    return true;
  }
};
DEVICE bool rl_is_whole(const Work &work) { return PARTS == 1 || work.tile < WHOLE; }
DEVICE int rl_from(const Work &work) {
  return rl_is_whole(work) ? 0 : STEPS * work.part / PARTS;
}
DEVICE int rl_to(const Work &work) {
  return rl_is_whole(work) ? STEPS : STEPS * (work.part + 1) / PARTS;
}
struct Ring {
  int stage;
  unsigned int parity;
  DEVICE void next() {
    if (++stage == STAGES) { stage = 0; parity ^= 1; }
  }
  DEVICE void skip(int count) {
    parity ^= (stage + count) / STAGES & 1;
    stage = (stage + count) % STAGES;
  }
};
// A thread finishes so many octets of a tile: where each is, from the first.
constexpr int GROUPS = COUNT / 16, EIGHTS = BLOCKS * 2 * GROUPS;
DEVICE int rl_row(int corner, int n) { return corner + n / (2 * GROUPS) * 64 + n / GROUPS % 2 * 8; }
DEVICE int rl_column(int octets, int n) { return octets + n % GROUPS * 4; }
// What a thread has of the octets that four threads finish: two columns of each.
DEVICE void rl_pairs(unsigned int (&x)[4][WORDS], const TOTAL (&sums)[BLOCKS][COUNT], int n) {
  const int first = n % GROUPS * 16 + n / GROUPS % 2 * 2;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    rl_held(x[j], sums[n / (2 * GROUPS)][first + 4 * j], sums[n / (2 * GROUPS)][first + 4 * j + 1]);
}
// Eight columns side by side: the threads exchange what they have.
DEVICE void rl_octet(TOTAL (&octet)[8], unsigned int (&x)[4][WORDS]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const unsigned int got = __shfl_xor_sync(0xffffffffu, odd ? x[j][w] : x[j + 1][w], 1);
      x[j][w] = odd ? got : x[j][w];
      x[j + 1][w] = odd ? x[j + 1][w] : got;
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned int got = __shfl_xor_sync(0xffffffffu, high ? x[j][w] : x[j + 2][w], 2);
      x[j][w] = high ? got : x[j][w];
      x[j + 2][w] = high ? x[j + 2][w] : got;
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) rl_given(octet[2 * j], octet[2 * j + 1], x[j]);
}
"""
CUTS = r"""
// A part of a sum is left for whoever ends the tile last; that team gets all parts, in order.
DEVICE bool rl_joined(TOTAL (&sums)[BLOCKS][COUNT], const Work &work, int team, unsigned int rank,
                      unsigned int vote, unsigned char *workspace) {
  const int thread = (int)threadIdx.x % 128, place = IN_TURNS ? 0 : team;
  const int tile = ((work.tile - WHOLE) * CLUSTER + rank) * PLACES + place;
  constexpr int EACH = BLOCKS * COUNT / 4 * 128;  // of four sums, of a team
  unsigned int *counts = (unsigned int *)workspace;
  float4 *left = (float4 *)(workspace + COUNTS) + tile * PARTS * EACH + thread;
  float4 *mine = left + work.part * EACH;
#pragma unroll
  for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
    for (int n = 0; n < COUNT / 4; ++n)
      mine[(block * (COUNT / 4) + n) * 128] = {sums[block][4 * n], sums[block][4 * n + 1],
                                               sums[block][4 * n + 2], sums[block][4 * n + 3]};
  __threadfence();
  rl_part_sync(1 + team, 128);
  if (thread == 0) rl_shared_store(vote, atomicAdd(&counts[tile], 1u) == PARTS - 1);
  rl_part_sync(1 + team, 128);
  const bool ends = __any_sync(0xffffffffu, rl_shared_load(vote) != 0);  // all threads, anyway
  if (!ends) return false;
  __threadfence();
#pragma unroll
  for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
    for (int n = 0; n < COUNT; ++n) sums[block][n] = 0;
#pragma unroll 1
  for (int part = 0; part < PARTS; ++part) {
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
      for (int n = 0; n < COUNT / 4; n += 4) {
        float4 x[4];  // which are under way together
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[i] = rl_fresh(left + part * EACH + (block * (COUNT / 4) + n + i) * 128);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          TOTAL *to = &sums[block][4 * (n + i)];
          to[0] += x[i].x;
          to[1] += x[i].y;
          to[2] += x[i].z;
          to[3] += x[i].w;
        }
      }
  }
  return true;
}
"""
KERNEL = r"""
extern "C" __global__ void CLUSTERS__launch_bounds__(384, 1) SYMBOL(PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned int begin = (rl_shared(shared_memory) + 1023) / 1024 * 1024;
  const unsigned int full = begin + STAGES * STAGE, empty = full + STAGES * 8;
  const unsigned int turns = empty + STAGES * 8;  // that a team waits for, a barrier each
  // the same for all threads of a warp, which the compiler has to be told
  const int team = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
  const unsigned int rank = CLUSTER > 1 ? rl_cluster_rank() : 0;
  if (threadIdx.x == 0) {
    rl_prefetch_map(&left_map);
    rl_prefetch_map(&right_map);
    for (int stage = 0; stage < STAGES; ++stage) {
      rl_barrier_init(full + stage * 8, 1);
      rl_barrier_init(empty + stage * 8, RELEASES * CLUSTER);
    }
    rl_barrier_init(turns, 1);
    rl_barrier_init(turns + 8, 1);
    rl_barriers_made();
  }
  if (CLUSTER > 1) rl_cluster_sync();
  else __syncthreads();
  if (team < 0) {
    rl_registers_give<40>();
    if (threadIdx.x == 0) {
      Share share = {(int)blockIdx.x / CLUSTER, (int)gridDim.x / CLUSTER};
      Work work;
      Ring ring = {0, 0};
      while (share.next(work)) {
        const Place at = rl_place(work.tile);
        const int row = (at.row + (int)rank) * TILE_ROWS, column = at.column * TILE_COLUMNS;
BATCHES
#pragma unroll 1
        for (int k = rl_from(work), to = rl_to(work); k < to; ++k) {
          const unsigned int told = full + ring.stage * 8;
          const unsigned int left = begin + ring.stage * STAGE, right = left + TILE_ROWS * 128;
          rl_barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
          rl_barrier_expect(told, STAGE);
FETCHES
          ring.next();
        }
      }
    }
  } else {
    rl_registers_take<232>();
    const unsigned int own_left = IN_TURNS || ASIDE ? 0 : team * OWN_ROWS * 128;
    const unsigned int own_right = TILE_ROWS * 128 + (ASIDE ? team * ASIDE_STEP : 0);
    Share share = {(int)blockIdx.x / CLUSTER, (int)gridDim.x / CLUSTER};
    Work work;
    Ring ring = {0, 0};
    for (int turn = 0; share.next(work); ++turn) {
      const int steps = rl_to(work) - rl_from(work);
      if (IN_TURNS && turn % 2 != team) {
        ring.skip(steps);
        continue;
      }
      TOTAL sums[BLOCKS][COUNT];
      // a barrier tells this round from the last one, not from earlier ones: nobody runs ahead
      if (IN_TURNS) rl_barrier_wait(turns + team * 8, (turn / 2 & 1) ^ (team == 0));
      rl_barrier_wait(full + ring.stage * 8, ring.parity);
      rl_multiply_begin();
      rl_multiply_step<true>(sums, begin + ring.stage * STAGE, own_left, own_right);
      rl_multiply_issued();
      int last = ring.stage;
      ring.next();
#pragma unroll 1
      for (int k = 1; k < steps; ++k) {
        rl_barrier_wait(full + ring.stage * 8, ring.parity);
        rl_multiply_begin();
        rl_multiply_step<false>(sums, begin + ring.stage * STAGE, own_left, own_right);
        rl_multiply_issued();
        rl_multiply_wait<1>();  // what was multiplied before this has been read
        rl_release(empty + last * 8);
        last = ring.stage;
        ring.next();
      }
      if (IN_TURNS && threadIdx.x % 128 == 0) rl_barrier_arrive(turns + (1 - team) * 8);
      const Place at = rl_place(work.tile);
      const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
      const int corner = (at.row + (int)rank) * TILE_ROWS +
                         (IN_TURNS || ASIDE ? 0 : team * OWN_ROWS) + warp * 16 + lane / 4;
      const int octets =
          at.column * (TILE_COLUMNS / 8) + (ASIDE ? team * (COUNT / 4) : 0) + lane % 4;
BATCHES
BEGINS
      rl_multiply_wait<0>();
      rl_release(empty + last * 8);
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) rl_settled(sums[block]);
JOINS
      {
UNROLLS
        for (int n = 0; n < EIGHTS; ++n) {
          const int row = rl_row(corner, n), octet = rl_column(octets, n);
          TOTAL made[8];
TAKES
GOES_ON
          if (row < ROWS && octet < OCTETS) rl_finish(ARGUMENTS);
        }
      }
    }
  }
  if (CLUSTER > 1) rl_cluster_sync();  // until no other block tells this one anything
}
"""
JOINS = """\
      const unsigned int vote = turns + 16 + team * 4;
      if (rl_is_whole(work) || rl_joined(sums, work, team, rank, vote, workspace))"""
# Where little is made of a sum, that stands in the kernel once for each octet. Registers have no
# addresses: where it is long, and stands there once, a thread picks its sums by tests.
TAKES_EACH = """\
          unsigned int own[4][WORDS];
          rl_pairs(own, sums, n);
          rl_octet(made, own);"""
TAKES_BY_TESTS = """\
          unsigned int own[4][WORDS];
#pragma unroll
          for (int i = 0; i < EIGHTS; ++i)
            if (n == i) {
              rl_pairs(own, sums, i);
#pragma unroll
              for (int j = 0; j < 4 * WORDS; ++j) rl_kept(own[j / WORDS][j % WORDS]);
            }
          rl_octet(made, own);"""
# What is read for an octet is under way while those before it are finished.
BEGINS = """\
      ReadAhead held[AHEAD];
#pragma unroll
      for (int n = 0; n < AHEAD; ++n) {
        const int row = rl_row(corner, n), octet = rl_column(octets, n);
        rl_read(held[n], READS);
      }"""
GOES_ON = """\
          const ReadAhead now = held[0];
#pragma unroll
          for (int i = 1; i < AHEAD; ++i) held[i - 1] = held[i];
          if (n + AHEAD < EIGHTS) {
            const int row = rl_row(corner, n + AHEAD), octet = rl_column(octets, n + AHEAD);
            rl_read(held[AHEAD - 1], READS);
          }"""
# Before tiles are cut, nobody has left anything for anybody.
ZEROES = r"""
extern "C" __global__ void SYMBOL(PARAMETERS) {
  for (int n = (int)threadIdx.x; n < COUNTS / 4; n += 256) ((unsigned int *)workspace)[n] = 0;
}
"""

# How two sums are handed to other threads: rounded, where nothing reads them in full.
HELD_IN_FULL = r"""
DEVICE void rl_held(unsigned int (&x)[2], float low, float high) {
  x[0] = __float_as_uint(low);
  x[1] = __float_as_uint(high);
}
DEVICE void rl_given(float &low, float &high, const unsigned int (&x)[2]) {
  low = __uint_as_float(x[0]);
  high = __uint_as_float(x[1]);
}
"""
HELD_ROUNDED = r"""
DEVICE void rl_held(unsigned int (&x)[1], float low, float high) { x[0] = rl_pair_KIND(low, high); }
DEVICE void rl_given(float &low, float &high, const unsigned int (&x)[1]) {
  low = rl_from_KIND((unsigned short)x[0]);
  high = rl_from_KIND((unsigned short)(x[0] >> 16));
}
"""

MULTIPLY_STEP = r"""
// The tiles of one step, multiplied; those of the first overwrite what the registers held.
template <bool FIRST>
DEVICE void rl_multiply_step(TOTAL (&sums)[BLOCKS][COUNT], unsigned int stage, unsigned int left,
                             unsigned int right) {
#pragma unroll
  for (int part = 0; part < 4; ++part)
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
      const unsigned long long
          rows = rl_matrix(stage + left + block * 8192 + part * LEFT_STEP, 8192, 1024),
          columns = rl_matrix(stage + right + part * RIGHT_STEP, 8192, 1024);
      if (FIRST && part == 0) rl_multiply_first(sums[block], rows, columns);
      else rl_multiply(sums[block], rows, columns);
    }
}
"""
RELEASE = r"""
// The tiles at a barrier may be replaced, as far as this group of warps goes.
DEVICE void rl_release(unsigned int barrier) {
  const unsigned int thread = threadIdx.x % 128;
  if (CLUSTER == 1) {
    if (thread == 0) rl_barrier_arrive(barrier);
  } else if (thread < CLUSTER) {
    rl_barrier_arrive_at(barrier, thread);
  }
}
"""
