// What kernels for Hopper need besides, to run as C++: blocks of a cluster beside each other, barriers
// in shared memory, the copy engine, and products of groups of warps. What is asynchronous happens as
// late as it may, or at any time; memory that a copy will fill holds no numbers until then.
#undef threadIdx
#define __grid_constant__
#define __cluster_dims__(...)
#define threadIdx (current->place)
#define blockIdx (block_of_lane())

struct alignas(64) TensorMap { unsigned long long words[16]; };
struct Tensor {  // what `words[0]` of a map points to
  const unsigned char *base;
  long long rank, itemsize, sizes[5], strides[5], box[5];  // strides in bytes
};
struct Barrier {
  long long count = 0, pending = 0, bytes = 0;
  unsigned int phase = 0;
};
struct Copy {
  const Tensor *from;
  unsigned int to, barrier, blocks;
  long long at[5];
};
struct Product {
  void *sums;
  unsigned long long left, right;
  bool again;
  void (*run)(const std::vector<Product> &threads, const unsigned char *memory);
};
struct WarpGroup {
  std::vector<std::vector<Product>> issued;  // by thread
  std::vector<std::vector<size_t>> commits;  // how many were issued before each commit
  size_t made = 0;
};
static thread_local int block_threads, cluster_blocks, first_block;
static thread_local std::vector<std::vector<unsigned char>> *memories;
static thread_local std::vector<std::map<unsigned int, Barrier>> *barriers;
static thread_local std::vector<Copy> *copies;
static thread_local std::vector<WarpGroup> *groups;
static thread_local unsigned int chance;
static std::string what_is_wrong;

static void fault(const std::string &what) {
  std::lock_guard<std::mutex> held(whole);
  if (what_is_wrong.empty()) what_is_wrong = what;
  trapped = true;
}
static void must(bool holds, const char *what) {
  if (!holds) {
    fault(what);
    end_lane();
  }
}
static unsigned int random_number() { return chance = chance * 1664525u + 1013904223u, chance >> 8; }
static unsigned int rl_cluster_rank() { return current->number / block_threads; }
static Triple block_of_lane() { return {first_block + rl_cluster_rank(), 0, 0}; }
static unsigned char *memory_of(unsigned int block) {
  unsigned char *at = (*memories)[block].data();
  return at + (1024 - (uintptr_t)at % 1024) % 1024;
}
static unsigned int rl_shared(const void *at) {
  return (unsigned int)((const unsigned char *)at - memory_of(rl_cluster_rank()));
}
static void rl_cluster_sync() { __syncthreads(); }

static Barrier &barrier_at(unsigned int block, unsigned int at) {
  auto found = (*barriers)[block].find(at);
  if (found == (*barriers)[block].end()) fault("a barrier is used that was not made");
  return (*barriers)[block][at];
}
static void look_at(Barrier &one) {
  if (one.pending < 0) fault("more arrive at a barrier than it waits for");
  if (one.pending == 0 && one.bytes == 0) {
    one.pending = one.count;
    ++one.phase;
  }
}
static void rl_barrier_init(unsigned int at, unsigned int count) {
  must(at % 8 == 0, "a barrier lies at a multiple of 8");
  (*barriers)[rl_cluster_rank()][at] = {count, count, 0, 0};
}
static void rl_barriers_made() {}
static void rl_barrier_expect(unsigned int at, unsigned int bytes) {
  Barrier &one = barrier_at(rl_cluster_rank(), at);
  one.bytes += bytes;
  --one.pending;
  look_at(one);
}
static void rl_barrier_arrive_at(unsigned int at, unsigned int block) {
  Barrier &one = barrier_at(block, at);
  --one.pending;
  look_at(one);
}
static void rl_barrier_arrive(unsigned int at) { rl_barrier_arrive_at(at, rl_cluster_rank()); }
static void rl_barrier_wait(unsigned int at, unsigned int parity) {
  while ((barrier_at(rl_cluster_rank(), at).phase & 1) == parity) yield_lane();
}

// ---- the copy engine ----------------------------------------------------------------------------
static unsigned int exchanged(unsigned int at) { return at ^ (at >> 7 & 7) << 4; }
static long long box_bytes(const Tensor &of) {
  long long bytes = of.itemsize;
  for (int n = 0; n < of.rank; ++n) bytes *= of.box[n];
  return bytes;
}
static void begin_copy(const Copy &one) {
  const long long bytes = box_bytes(*one.from);
  must(one.to % 128 == 0 && one.from->box[0] * one.from->itemsize == 128, "rows of tiles are 128 bytes");
  for (int block = 0; block < cluster_blocks; ++block)
    if (one.blocks >> block & 1) memset(memory_of(block) + one.to, 0xff, bytes);
  copies->push_back(one);
}
static void make_copy(const Copy &one) {
  const Tensor &from = *one.from;
  const long long bytes = box_bytes(from);
  std::vector<unsigned char> tile(bytes, 0);
  for (long long n = 0; n < bytes / from.itemsize; ++n) {
    long long rest = n, offset = 0;
    bool inside = true;
    for (int axis = 0; axis < from.rank; ++axis) {
      const long long at = one.at[axis] + rest % from.box[axis];
      rest /= from.box[axis];
      inside = inside && at >= 0 && at < from.sizes[axis];
      offset += at * from.strides[axis];
    }
    if (inside) memcpy(&tile[n * from.itemsize], from.base + offset, from.itemsize);
  }
  for (int block = 0; block < cluster_blocks; ++block)
    if (one.blocks >> block & 1) {
      for (long long n = 0; n < bytes; n += 16)
        memcpy(memory_of(block) + exchanged(one.to + n), &tile[n], 16);
      Barrier &told = barrier_at(block, one.barrier);
      told.bytes -= bytes;
      look_at(told);
    }
}
static void make_any_copy() {
  if (copies->empty() || random_number() % 3 == 0) return;
  const size_t chosen = random_number() % copies->size();
  const Copy one = (*copies)[chosen];
  copies->erase(copies->begin() + chosen);
  make_copy(one);
}
template <typename... Places>
static void rl_fetch_for(unsigned short blocks, unsigned int to, const TensorMap *map,
                         unsigned int barrier, Places... places) {
  const Tensor *from = (const Tensor *)map->words[0];
  must(from->rank == sizeof...(places), "a tile has a place on every axis");
  begin_copy({from, to, barrier, blocks, {places...}});
}
template <typename... Places>
static void rl_fetch(unsigned int to, const TensorMap *map, unsigned int barrier, Places... places) {
  rl_fetch_for((unsigned short)(1u << rl_cluster_rank()), to, map, barrier, places...);
}
static void rl_prefetch_map(const TensorMap *) {}

// ---- products of groups of warps ----------------------------------------------------------------
static WarpGroup &own_group() { return (*groups)[current->number / 128]; }
static unsigned long long rl_matrix(unsigned int at, unsigned int leading, unsigned int stride) {
  return (unsigned long long)(at >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}
// Where an element lies: of `row` rows (or columns, of a right operand), `deep` along the sum.
static unsigned int element_at(unsigned long long matrix, bool turned, int size, int row, int deep) {
  const unsigned int at = (matrix & 0x3fff) << 4, leading = (matrix >> 16 & 0x3fff) << 4;
  const unsigned int stride = (matrix >> 32 & 0x3fff) << 4, wide = 128 / size;
  if (turned)
    return exchanged(at + row / wide * leading + row % wide * size + deep / 8 * stride + deep % 8 * 128);
  return exchanged(at + row / 8 * stride + row % 8 * 128 + deep * size);
}
template <typename Number, typename Total, int COLUMNS, bool LEFT, bool RIGHT>
static void multiply_tile(const std::vector<Product> &threads, const unsigned char *memory) {
  const int depth = 32 / Number::size;
  const Product &one = threads[0];
  std::vector<Total> left(64 * depth), right(COLUMNS * depth);
  for (int k = 0; k < depth; ++k) {
    for (int m = 0; m < 64; ++m)
      left[m * depth + k] = Number::value(memory + element_at(one.left, LEFT, Number::size, m, k));
    for (int n = 0; n < COLUMNS; ++n)
      right[n * depth + k] = Number::value(memory + element_at(one.right, RIGHT, Number::size, n, k));
  }
  for (int thread = 0; thread < 128; ++thread) {
    const Product &own = threads[thread];
    Total *sums = (Total *)own.sums;
    for (int n = 0; n < COLUMNS / 2; ++n) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + n % 4 / 2 * 8;
      const int column = n / 4 * 8 + thread % 4 * 2 + n % 2;
      Total sum = own.again ? sums[n] : 0;
      for (int k = 0; k < depth; ++k) sum += left[row * depth + k] * right[column * depth + k];
      sums[n] = sum;
    }
  }
}
static void issue(const Product &one) { own_group().issued[current->number % 128].push_back(one); }
static void rl_multiply_begin() {}
static void rl_multiply_issued() {
  WarpGroup &own = own_group();
  const int thread = current->number % 128;
  own.commits[thread].push_back(own.issued[thread].size());
}
template <int PENDING> static void rl_multiply_wait() {
  WarpGroup &own = own_group();
  const int thread = current->number % 128;
  const std::vector<size_t> &commits = own.commits[thread];
  const size_t wanted = commits.size() > PENDING ? commits[commits.size() - 1 - PENDING] : 0;
  while (true) {  // the warps of a group multiply together
    bool all = true;
    for (const auto &issued : own.issued) all = all && issued.size() >= wanted;
    if (all) break;
    yield_lane();
  }
  for (; own.made < wanted; ++own.made) {
    std::vector<Product> threads;
    for (const auto &issued : own.issued) threads.push_back(issued[own.made]);
    for (const Product &other : threads)
      must(other.left == threads[0].left && other.right == threads[0].right, "a group multiplies one thing");
    threads[0].run(threads, memory_of(rl_cluster_rank()));
  }
}
template <typename T> static void rl_settled(T &sums) {
  const WarpGroup &own = own_group();
  for (size_t n = own.made; n < own.issued[current->number % 128].size(); ++n)
    must(own.issued[current->number % 128][n].sums != &sums, "sums are read before they are waited for");
}
static thread_local std::map<std::pair<int, int>, std::pair<int, int>> *parts;  // arrived, turn
static void rl_part_sync(int part, int count) {
  std::pair<int, int> &here = (*parts)[{rl_cluster_rank(), part}];
  const int mine = here.second;
  if (++here.first == count) here = {0, mine + 1};
  while (here.second == mine) yield_lane();
}
static void rl_kept(unsigned int &) {}
static void rl_shared_store(unsigned int at, unsigned int value) {
  memcpy(memory_of(rl_cluster_rank()) + at, &value, 4);
}
static unsigned int rl_shared_load(unsigned int at) {
  unsigned int value;
  memcpy(&value, memory_of(rl_cluster_rank()) + at, 4);
  return value;
}
struct float4 { float x, y, z, w; };
static float4 rl_fresh(const float4 *from) { return *from; }
template <int COUNT> static void rl_registers_give() {}
template <int COUNT> static void rl_registers_take() {}
struct Bfloat16 {
  static const int size = 2;
  static float value(const unsigned char *at) {
    unsigned short x;
    memcpy(&x, at, 2);
    return __uint_as_float((unsigned int)x << 16);
  }
};
struct Float16 {
  static const int size = 2;
  static float value(const unsigned char *at) {
    _Float16 x;
    memcpy(&x, at, 2);
    return (float)x;
  }
};

// ---- blocks -------------------------------------------------------------------------------------
static void run_cluster(const int *shape, int number, const std::function<void()> *all) {
  const int count = shape[1] * shape[2];  // threads of a block, blocks of a cluster
  std::vector<Lane> own(count);
  std::map<std::pair<int, unsigned int>, Meeting> own_meetings;
  std::vector<std::vector<unsigned char>> own_memories(shape[2]);
  std::vector<std::map<unsigned int, Barrier>> own_barriers(shape[2]);
  std::vector<Copy> own_copies;
  std::vector<WarpGroup> own_groups(count / 128);
  std::map<std::pair<int, int>, std::pair<int, int>> own_parts;
  lanes = &own, meetings = &own_meetings, body = all, memories = &own_memories;
  barriers = &own_barriers, copies = &own_copies, groups = &own_groups, parts = &own_parts;
  block_threads = shape[1], cluster_blocks = shape[2], first_block = number * shape[2];
  chance = 7919u * (number + 1);
  gridDim = {(unsigned)shape[0], 1, 1}, blockDim = {(unsigned)shape[1], 1, 1};
  for (auto &memory : own_memories) memory.assign(shape[3] + 2048, 0xff);
  for (auto &group : own_groups) group.issued.resize(128), group.commits.resize(128);
  arrived = turn = votes[0] = votes[1] = 0, alive = count;
  const size_t bytes = 1 << 16;
  for (int n = 0; n < count; ++n) {
    Lane &lane = own[n];
    lane.number = n;
    lane.place = {(unsigned)(n % shape[1]), 0, 0};
    lane.stack.reset(new char[bytes]);
    getcontext(&lane.context);
    lane.context.uc_stack = {lane.stack.get(), 0, bytes};
    makecontext(&lane.context, begin_lane, 0);
  }
  for (long passes = 0; alive && !trapped; ++passes) {
    if (passes == 20000) fault("threads wait for ever");
    make_any_copy();
    const int from = random_number() % count / 32 * 32;  // warps go on in any order
    for (int n = 0; n < count; ++n) {
      Lane &lane = own[(n + from) % count];
      if (lane.done) continue;
      current = &lane;
      swapcontext(&scheduler, &lane.context);
    }
  }
  if (!trapped && !own_copies.empty()) fault("a block ended before its copies");
}
static int launch_clusters(const int *shape, const std::function<void()> &all) {
  trapped = false;
  what_is_wrong.clear();
  for (int n = 0; n < shape[0] / shape[2] && !trapped; ++n) run_cluster(shape, n, &all);
  return trapped;
}
extern "C" const char *fault_found() { return what_is_wrong.c_str(); }
