"""Attention kernels run on the CPU: their CUDA C++ as C++, with threads that take turns.

Every thread of a block is a context of its own, which waits where a warp or a block meets.
Instructions that a warp does together (fragments, products, votes, exchanges) are written out after
their definitions. Copies into shared memory happen as late as they may: where they are waited for.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ridgeline.codegen.cuda.source import KernelSource

_MACHINE = r"""
#include <csetjmp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(threads, blocks)
#define __align__(bytes) alignas(bytes)
typedef unsigned int u32;
struct float2 { float x, y; };
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct Index { int x; };
struct Copy { unsigned char* to; const void* from; int whole, there; };
struct Meeting { int arrived = 0, turn = 0; };
struct Thread {
  ucontext_t context;
  jmp_buf waiting;
  Index place;
  bool begun, done;
  std::vector<Copy> copies;
  std::vector<char> stack;
};
union Given { u32 number; float real; unsigned char* address; u32 words[6]; };

static std::vector<Thread> threads;
static std::vector<Meeting> warps;
static std::vector<Given> given;
static Meeting block;
static jmp_buf next_thread;
static Thread* current;
static Index blockIdx;
static unsigned char* memory;
static bool votes;
static void (*body)();
#define threadIdx (current->place)

static void meet(Meeting& at, int count) {
  const int turn = at.turn;
  if (++at.arrived == count) { at.arrived = 0; ++at.turn; return; }
  while (at.turn == turn)
    if (!_setjmp(current->waiting)) _longjmp(next_thread, 1);
}
static void meet_warp() { meet(warps[threadIdx.x / 32], 32); }
// What a thread gives the others of its warp, who read it after they have met. There are two
// places, since one may give again before all have read; nobody gives a third time before.
static Given& mine() {
  return given[warps[threadIdx.x / 32].turn % 2 * threads.size() + threadIdx.x];
}
static Given* others() {
  meet_warp();
  const int warp = threadIdx.x / 32;
  return &given[(1 + warps[warp].turn) % 2 * threads.size() + warp * 32];
}
static void __syncthreads() { meet(block, (int)threads.size()); }
static void __syncwarp() { meet_warp(); }
static int __syncthreads_or(int x) {
  votes = false; __syncthreads();
  if (x) votes = true;
  __syncthreads();
  const bool y = votes; __syncthreads();
  return y;
}
template <typename T> static T __shfl_sync(u32, T x, int lane) {
  memcpy(&mine(), &x, 4);
  T y;
  memcpy(&y, others() + lane % 32, 4);
  return y;
}
template <typename T> static T __shfl_xor_sync(u32, T x, int mask) {
  return __shfl_sync(0, x, threadIdx.x % 32 ^ mask);
}
static u32 __ballot_sync(u32, bool x) {
  mine().number = x;
  const Given* all = others();
  u32 y = 0;
  for (int n = 0; n < 32; ++n) y |= all[n].number << n;
  return y;
}
static bool __all_sync(u32, bool x) { return __ballot_sync(0, x) == 0xffffffffu; }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static float __uint_as_float(u32 x) { float y; memcpy(&y, &x, 4); return y; }
static int min(int x, int y) { return x < y ? x : y; }
static float exp2_fast(float x) { return exp2f(x); }
static float log2_fast(float x) { return log2f(x); }
static u32 shared_address(const void* at) { return (u32)((unsigned char*)at - memory); }

NARROW
static u32 pack(float low, float high) { return narrow(low) | narrow(high) << 16; }
static void copy_async(u32 to, const void* from, bool there) {
  current->copies.push_back({memory + to, from, 16, there ? 16 : 0});
}
static void copy_number_async(u32 to, const float* from, bool there) {
  current->copies.push_back({memory + to, from, 4, there ? 4 : 0});
}
static void copies_issued() {}
static void copies_done() {
  for (const Copy& one : current->copies) {
    memset(one.to, 0, one.whole); memcpy(one.to, one.from, one.there);
  }
  current->copies.clear();
}
static void load(u32 (&y)[4], u32 from) {
  mine().address = memory + from;
  const Given* all = others();
  const int lane = threadIdx.x % 32;
  for (int n = 0; n < 4; ++n) memcpy(&y[n], all[n * 8 + lane / 4].address + lane % 4 * 4, 4);
}
static void load_transposed(u32 (&y)[4], u32 from) {
  mine().address = memory + from;
  const Given* all = others();
  const int lane = threadIdx.x % 32;
  for (int n = 0; n < 4; ++n) {
    uint16_t two[2];
    for (int i = 0; i < 2; ++i)
      memcpy(&two[i], all[n * 8 + lane % 4 * 2 + i].address + lane / 4 * 2, 2);
    memcpy(&y[n], two, 4);
  }
}
static void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Given& own = mine();
  memcpy(own.words, a, 16);
  own.words[4] = b0;
  own.words[5] = b1;
  const Given* all = others();
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const int column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const u32* left = all[lane / 4 * 4 + k % 8 / 2].words;
      const u32* right = all[column * 4 + k % 8 / 2].words + 4;
      const uint16_t x = left[k / 8 * 2 + i / 2] >> k % 2 * 16, y = right[k / 8] >> k % 2 * 16;
      c[i] += wide(x) * wide(y);
    }
  }
}
static void begin_thread() {
  body();
  current->done = true;
  _longjmp(next_thread, 1);
}
static void resume() {
  if (current->begun) _longjmp(current->waiting, 1);
  current->begun = true;
  setcontext(&current->context);
}
static void launch(int blocks, int count, int bytes) {
  memory = (unsigned char*)aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    memset(memory, 0xff, bytes);
    threads.resize(count); warps.assign(count / 32, Meeting()); given.resize(2 * count);
    for (int n = 0; n < count; ++n) {
      Thread& one = threads[n];
      one.place.x = n;
      one.begun = one.done = false;
      one.copies.clear();
      one.stack.resize(1 << 16);
      getcontext(&one.context);
      one.context.uc_stack = {one.stack.data(), 0, one.stack.size()};
      makecontext(&one.context, begin_thread, 0);
    }
    static int left, n;
    for (left = count; left;)
      for (n = 0; n < count; ++n) {
        if (threads[n].done) continue;
        current = &threads[n];
        if (!_setjmp(next_thread)) resume();
        left -= current->done;
      }
  }
  free(memory);
}
struct Any { void* at; template <typename T> operator T*() const { return (T*)at; } };
"""

_NARROW = {
    "bfloat16": r"""
static float wide(uint16_t bits) { return __uint_as_float((u32)bits << 16); }
static u32 narrow(float x) {
  u32 y; memcpy(&y, &x, 4);
  return y + 0x7fff + (y >> 16 & 1) >> 16;
}
""",
    "float16": r"""
static float wide(uint16_t bits) { _Float16 y; memcpy(&y, &bits, 2); return y; }
static u32 narrow(float x) { _Float16 y = x; uint16_t z; memcpy(&z, &y, 2); return z; }
""",
}
_OWN = (
    "exp2_fast", "log2_fast", "pack", "shared_address", "copy_async", "copy_number_async",
    "copies_issued", "copies_done", "load", "load_transposed", "multiply", "wide",
)  # fmt: skip


def run(source: KernelSource, dtype: str, arguments: Sequence[Any], folder: Path) -> None:
    """Run the launches of a source over arrays, which it writes into."""
    text = source.text
    for name in _OWN:
        text, found = re.subn(rf"DEVICE \w+ {name}\(.*?\n?}}\n", "", text, count=1, flags=re.DOTALL)
        assert found, name
    text = re.sub(r"extern __shared__ [^;]*;", "", text).replace('extern "C" ', "")
    given = ", ".join(f"Any{{arguments[{n}]}}" for n in range(len(arguments)))
    for launch in source.launches:
        text += f"""
extern "C" void run_{launch.symbol}(void** all, int blocks, int threads, int bytes) {{
  static void** arguments;
  arguments = all;
  body = [] {{ {launch.symbol}({given}); }};
  launch(blocks, threads, bytes);
}}
"""
    written = folder / f"{source.name}.cpp"
    written.write_text(_MACHINE.replace("NARROW", _NARROW[dtype].strip()) + text)
    library = written.with_suffix(".so")
    # contexts jump between their stacks, which a fortified `longjmp` takes for an attack
    command = ["g++", "-std=c++17", "-O1", "-w", "-U_FORTIFY_SOURCE", "-shared", "-fPIC"]
    command += ["-o", library, written]
    subprocess.run(command, check=True)
    made = ctypes.CDLL(str(library))
    pointers = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in arguments))
    for launch in source.launches:
        function = getattr(made, f"run_{launch.symbol}")
        function(pointers, launch.blocks(), launch.block, launch.shared_bytes)
