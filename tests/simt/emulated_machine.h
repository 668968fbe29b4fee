// What CUDA C++ of user kernels needs to run as C++: indices, barriers, warps, atomics.
#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <ucontext.h>
#include <utility>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __global__
#define __constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static thread_local
#undef isinf
#undef isnan
using std::isinf;
using std::isnan;
struct Triple {
  unsigned int x, y, z;
};
struct Lane {
  ucontext_t context;
  Triple place;
  int number;
  bool done = false;
  std::unique_ptr<char[]> stack;
};
// Lanes that name one another in a mask. Values are kept twice: a lane may give the next one
// before all have read the last, but not the one after it.
struct Meeting {
  unsigned int arrived = 0, present[2] = {0, 0};
  int turn = 0;
  uint64_t values[2][32];
};
static thread_local std::vector<Lane> *lanes;
static thread_local std::map<std::pair<int, unsigned int>, Meeting> *meetings;
static thread_local Lane *current;
static thread_local ucontext_t scheduler;
static thread_local Triple blockIdx, blockDim, gridDim;
static thread_local int arrived, turn, alive, votes[2];
static thread_local unsigned char *block_memory;
static thread_local const std::function<void()> *body;
static std::mutex whole;
static std::string all_printed;
static std::atomic<bool> trapped;
#define threadIdx (current->place)

static void yield_lane() { swapcontext(&current->context, &scheduler); }
static bool others_first() {
  yield_lane();
  return true;
}
static void end_lane() {
  current->done = true;
  --alive;
  yield_lane();
}
static void __trap() {
  trapped = true;
  end_lane();
}
static void rl_printf(const char *form, ...) {
  char line[1024];
  va_list values;
  va_start(values, form);
  vsnprintf(line, sizeof line, form, values);
  va_end(values);
  std::lock_guard<std::mutex> held(whole);
  all_printed += line;
}
#define printf rl_printf
static void __syncthreads() {
  const int mine = turn;
  ++arrived;
  while (turn == mine) {
    if (arrived == alive) {
      arrived = 0;
      votes[(turn + 1) % 2] = 0;
      ++turn;
    } else {
      yield_lane();
    }
  }
}
static int __syncthreads_count(int value) {
  const int mine = turn;
  votes[mine % 2] += value != 0;
  __syncthreads();
  return votes[mine % 2];
}
static int __syncthreads_or(int value) { return __syncthreads_count(value) != 0; }
static int __syncthreads_and(int value) { return __syncthreads_count(!value) == 0; }
static unsigned int awaited(int warp, unsigned int mask) {
  unsigned int found = 0;
  for (int n = 0; n < 32; ++n) {
    const size_t number = warp * 32 + n;
    if (number < lanes->size() && !(*lanes)[number].done) found |= 1u << n;
  }
  return found & mask;
}
static Meeting &exchange(unsigned int mask, uint64_t value, int *at) {
  const int warp = current->number / 32, lane = current->number % 32;
  Meeting &here = (*meetings)[{warp, mask}];
  const int mine = here.turn;
  *at = mine % 2;
  here.values[*at][lane] = value;
  here.arrived |= 1u << lane;
  while (here.turn == mine) {
    const unsigned int needed = awaited(warp, mask);
    if ((here.arrived & needed) == needed) {
      here.present[*at] = here.arrived;
      here.arrived = 0;
      ++here.turn;
    } else {
      yield_lane();
    }
  }
  return here;
}
static void __syncwarp(unsigned int mask = ~0u) {
  int at;
  exchange(mask, 0, &at);
}
template <typename T> static T shuffled(unsigned int mask, T value, int source, bool inside) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  int at;
  const Meeting &here = exchange(mask, bits, &at);
  if (inside && here.present[at] >> source & 1) memcpy(&value, &here.values[at][source], sizeof value);
  return value;
}
static int lane_number() { return current->number % 32; }
template <typename T> static T __shfl_sync(unsigned int mask, T value, int from, int width = 32) {
  return shuffled(mask, value, (lane_number() & ~(width - 1)) | (from & (width - 1)), true);
}
template <typename T> static T __shfl_up_sync(unsigned int mask, T value, int by, int width = 32) {
  const int source = lane_number() - by;
  return shuffled(mask, value, source & 31, source >= (lane_number() & ~(width - 1)));
}
template <typename T> static T __shfl_down_sync(unsigned int mask, T value, int by, int width = 32) {
  const int source = lane_number() + by;
  return shuffled(mask, value, source & 31, source <= (lane_number() | (width - 1)));
}
template <typename T> static T __shfl_xor_sync(unsigned int mask, T value, int by, int width = 32) {
  const int source = lane_number() ^ by;
  return shuffled(mask, value, source & 31, source <= (lane_number() | (width - 1)));
}
static unsigned int __ballot_sync(unsigned int mask, bool value) {
  int at;
  const Meeting &here = exchange(mask, value, &at);
  unsigned int found = 0;
  for (int n = 0; n < 32; ++n)
    if ((here.present[at] >> n & 1) && here.values[at][n]) found |= 1u << n;
  return found;
}
static bool __any_sync(unsigned int mask, bool value) { return __ballot_sync(mask, value) != 0; }
static bool __all_sync(unsigned int mask, bool value) { return __ballot_sync(mask, !value) == 0; }
template <typename T> static unsigned int __match_any_sync(unsigned int mask, T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  int at;
  const Meeting &here = exchange(mask, bits, &at);
  unsigned int found = 0;
  for (int n = 0; n < 32; ++n)
    if ((here.present[at] >> n & 1) && here.values[at][n] == bits) found |= 1u << n;
  return found;
}
static unsigned int __activemask() { return 1u << lane_number(); }
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static void __threadfence_block() { __threadfence(); }
static void __threadfence_system() { __threadfence(); }
template <typename T, typename F> static T updated(T *at, F change) {
  std::lock_guard<std::mutex> held(whole);
  const T before = *(volatile T *)at;
  *(volatile T *)at = change(before);
  return before;
}
#define ATOMIC(NAME, EXPRESSION)                                                          \
  template <typename T> static T atomic##NAME(T *at, T v) {                               \
    return updated(at, [=](T x) { return (T)(EXPRESSION); });                             \
  }                                                                                       \
  template <typename T> static T atomic##NAME##_block(T *at, T v) { return atomic##NAME(at, v); } \
  template <typename T> static T atomic##NAME##_system(T *at, T v) { return atomic##NAME(at, v); }
ATOMIC(Add, x + v)
ATOMIC(And, (uint64_t)x & (uint64_t)v)
ATOMIC(Or, (uint64_t)x | (uint64_t)v)
ATOMIC(Xor, (uint64_t)x ^ (uint64_t)v)
ATOMIC(Exch, v)
ATOMIC(Min, v < x ? v : x)
ATOMIC(Max, v > x ? v : x)
ATOMIC(Inc, x >= v ? 0 : x + 1)
ATOMIC(Dec, x == 0 || x > v ? v : x - 1)
template <typename T> static T atomicCAS(T *at, T old, T v) {
  return updated(at, [=](T x) { return x == old ? v : x; });
}
template <typename T> static T atomicCAS_block(T *at, T old, T v) { return atomicCAS(at, old, v); }
template <typename T> static T atomicCAS_system(T *at, T old, T v) { return atomicCAS(at, old, v); }

template <typename To, typename From> static To same_bits(From x) {
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static float __uint_as_float(unsigned int x) { return same_bits<float>(x); }
static float __int_as_float(int x) { return same_bits<float>(x); }
static unsigned int __float_as_uint(float x) { return same_bits<unsigned int>(x); }
static int __float_as_int(float x) { return same_bits<int>(x); }
static double __longlong_as_double(long long x) { return same_bits<double>(x); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static int __double2loint(double x) { return (int)same_bits<long long>(x); }
static int __double2hiint(double x) { return (int)(same_bits<long long>(x) >> 32); }
static float __frcp_rn(float x) { return 1.0f / x; }
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
static float __fdividef(float x, float y) { return x / y; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static int __popc(unsigned int x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
static int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __ffsll(long long x) { return __builtin_ffsll(x); }
static unsigned int __brev(unsigned int x) {
  unsigned int y = 0;
  for (int n = 0; n < 32; ++n) y |= (x >> n & 1u) << (31 - n);
  return y;
}
static int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
static unsigned int __umulhi(unsigned int x, unsigned int y) {
  return (unsigned int)((unsigned long long)x * y >> 32);
}
static long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
static unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}

static void begin_lane() {
  (*body)();
  end_lane();
}
static void run_block(const int *shape, int number, const std::function<void()> *all) {
  const int threads = shape[3] * shape[4] * shape[5];
  std::vector<Lane> own(threads);
  std::map<std::pair<int, unsigned int>, Meeting> own_meetings;
  std::vector<unsigned char> memory(shape[6] + 16);
  lanes = &own, meetings = &own_meetings, body = all, block_memory = memory.data();
  block_memory += 16 - (uintptr_t)block_memory % 16;
  gridDim = {(unsigned)shape[0], (unsigned)shape[1], (unsigned)shape[2]};
  blockDim = {(unsigned)shape[3], (unsigned)shape[4], (unsigned)shape[5]};
  blockIdx = {(unsigned)(number % shape[0]), (unsigned)(number / shape[0] % shape[1]),
              (unsigned)(number / shape[0] / shape[1])};
  arrived = turn = votes[0] = votes[1] = 0, alive = threads;
  const size_t bytes = 1 << 16;
  for (int n = 0; n < threads; ++n) {
    Lane &lane = own[n];
    lane.number = n;
    lane.place = {(unsigned)(n % shape[3]), (unsigned)(n / shape[3] % shape[4]),
                  (unsigned)(n / shape[3] / shape[4])};
    lane.stack.reset(new char[bytes]);
    getcontext(&lane.context);
    lane.context.uc_stack = {lane.stack.get(), 0, bytes};
    makecontext(&lane.context, begin_lane, 0);
  }
  // a kernel that waits for ever is given up, so that its test fails and ends
  for (long passes = 0; alive && !trapped; ++passes) {
    if (passes == 50000) trapped = true;
    for (Lane &lane : own)
      if (!lane.done) {
        current = &lane;
        swapcontext(&scheduler, &lane.context);
      }
  }
}
static int launch(const int *shape, const std::function<void()> &all) {
  trapped = false;
  std::vector<std::thread> blocks;
  for (int n = 0; n < shape[0] * shape[1] * shape[2]; ++n)
    blocks.emplace_back(run_block, shape, n, &all);
  for (std::thread &one : blocks) one.join();
  return trapped;
}
extern "C" int printed_length() { return (int)all_printed.size(); }
extern "C" void take_printed(char *to) {
  memcpy(to, all_printed.c_str(), all_printed.size() + 1);
  all_printed.clear();
}
struct Any {
  void *at;
  template <typename T> operator T *() const { return (T *)at; }
};
