"""The device functions that texts of user kernels call besides those of generated kernels."""

from __future__ import annotations

from ridgeline.simt.cuda.atomic_prelude import ATOMIC_PRELUDE

_REDUCTIONS = {"sum": "a + b", "min": "rl_least(a, b)", "max": "rl_most(a, b)", "and": "a & b",
               "or": "a | b", "xor": "a ^ b"}  # fmt: skip


def _reduction(name: str, join: str) -> str:
    """Over all lanes by a butterfly, over some of them lane by lane."""
    return f"""
template <class T> DEVICE T rl_warp_{name}(unsigned int mask, T a) {{
  if (mask == 0xffffffffu) {{
#pragma unroll
    for (int step = 16; step; step >>= 1) {{
      const T b = __shfl_xor_sync(mask, a, step);
      a = {join};
    }}
    return a;
  }}
  const T own = a;
  a = __shfl_sync(mask, own, __ffs(mask) - 1);
  for (unsigned int rest = mask & (mask - 1); rest; rest &= rest - 1) {{
    const T b = __shfl_sync(mask, own, __ffs(rest) - 1);
    a = {join};
  }}
  return a;
}}
"""


WARP_PRELUDE = (
    r"""
template <class T, int N> struct alignas(sizeof(T) * N) Vector { T v[N]; };
DEVICE unsigned int rl_warp_mask(int threads) {
  const int number = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const int rest = threads - (number & ~31);
  return rest >= 32 ? 0xffffffffu : (1u << rest) - 1u;
}
// All blocks of a cooperative launch: the first one adds what makes the highest bit flip once all
// others have added one.
DEVICE void rl_grid_sync(unsigned int *arrived) {
  __syncthreads();
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
    const unsigned int blocks = gridDim.x * gridDim.y * gridDim.z;
    const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
    __threadfence();
    const unsigned int before = atomicAdd(arrived, first ? 0x80000000u - (blocks - 1u) : 1u);
    while (((before ^ *(volatile unsigned int *)arrived) & 0x80000000u) == 0) {}
    __threadfence();
  }
  __syncthreads();
}
template <class T> DEVICE T rl_cluster_get(const T *local, int rank) {
#if __CUDA_ARCH__ >= 900
  unsigned int from, at = (unsigned int)__cvta_generic_to_shared(local);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(at), "r"(rank));
  T value;
  if (sizeof(T) == 8) {
    unsigned long long *whole = (unsigned long long *)&value;
    asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(*whole) : "r"(from));
  } else if (sizeof(T) == 4) {
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(*(unsigned int *)&value) : "r"(from));
  } else if (sizeof(T) == 2) {
    asm volatile("ld.shared::cluster.b16 %0, [%1];" : "=h"(*(unsigned short *)&value) : "r"(from));
  } else {
    unsigned int byte;
    asm volatile("ld.shared::cluster.u8 %0, [%1];" : "=r"(byte) : "r"(from));
    *(unsigned char *)&value = (unsigned char)byte;
  }
  return value;
#else
  return *local;
#endif
}
template <int N> DEVICE void rl_async_copy(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(N) : "memory");
#else
  for (int e = 0; e < N; e++) ((char *)to)[e] = ((const char *)from)[e];
#endif
}
DEVICE void rl_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> DEVICE void rl_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
"""
    + ATOMIC_PRELUDE
    + "".join(_reduction(name, join) for name, join in _REDUCTIONS.items())
    + "\n"
)
