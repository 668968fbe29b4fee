"""The device functions that generated kernels use: conversions, total arithmetic, packs, atomics.

The text is complete in itself: NVRTC is given no headers.
"""

from __future__ import annotations

CONVERSIONS = r"""
#define DEVICE __device__ __forceinline__
DEVICE float rl_from_bfloat16(unsigned short x) {
  return __uint_as_float((unsigned int)x << 16);
}
DEVICE unsigned short rl_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800  // of a pair: the conversion of a single number is four times slower
  unsigned int y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(0.0f), "f"(x));
  return (unsigned short)y;
#else
  unsigned int u = __float_as_uint(x);
  if (x != x) return (unsigned short)((u >> 16) | 0x40);
  return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
}
DEVICE float rl_round_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned int y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(x), "f"(0.0f));
  return __uint_as_float(y);
#else
  return rl_from_bfloat16(rl_to_bfloat16(x));
#endif
}
DEVICE float rl_from_float16(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
DEVICE unsigned short rl_to_float16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned int y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(0.0f), "f"(x));
  return (unsigned short)y;
#else
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#endif
}
DEVICE float rl_round_float16(float x) { return rl_from_float16(rl_to_float16(x)); }
// eight bits: E exponent bits with the given bias, M mantissa bits; one rounding, to even
template <int M, int BIAS> DEVICE unsigned char rl_to_8(float x, unsigned int top) {
  unsigned int sign = (__float_as_uint(x) >> 24) & 0x80;
  float a = fabsf(x);
  if (a != a) return (unsigned char)(sign | 0x7f);
  int e = (int)(__float_as_uint(a) >> 23) - 127;
  int low = 1 - BIAS;
  e = e < low ? low : e;
  if (e > 127) return (unsigned char)(sign | top);
  float unit = __uint_as_float((unsigned int)(e - M + 127) << 23);
  unsigned int steps = (unsigned int)rintf(a / unit);  // in units of the last place
  unsigned int bits = steps + ((unsigned int)(e - low) << M);
  return (unsigned char)(sign | (bits > top ? top : bits));
}
// without infinities: what is too large becomes 448
DEVICE unsigned char rl_to_float8_e4m3fn(float x) { return rl_to_8<3, 7>(x, 0x7e); }
DEVICE unsigned char rl_to_float8_e5m2(float x) {
  if (x != x) return (unsigned char)(0x7e | (__float_as_uint(x) >> 24 & 0x80));
  return rl_to_8<2, 15>(x, 0x7c);
}
DEVICE float rl_from_float8_e5m2(unsigned char x) {
  return rl_from_float16((unsigned short)(x << 8));
}
DEVICE float rl_from_float8_e4m3fn(unsigned char x) {
  if ((x & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u | (unsigned int)(x & 0x80) << 24);
  // the bits of a half with the exponent 8 too small
  float y = rl_from_float16((unsigned short)(((x & 0x80) << 8) | ((x & 0x7f) << 7)));
  return y * 256.0f;
}
DEVICE float rl_round_float8_e4m3fn(float x) {
  return rl_from_float8_e4m3fn(rl_to_float8_e4m3fn(x));
}
DEVICE float rl_round_float8_e5m2(float x) { return rl_from_float8_e5m2(rl_to_float8_e5m2(x)); }
template <class T> DEVICE T rl_saturate(double x, T least, T most) {
  if (x != x) return 0;
  if (x <= (double)least) return least;
  if (x >= (double)most) return most;
  return (T)x;
}
"""

ARITHMETIC = r"""
template <class T> DEVICE T rl_int_floordiv(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0ull - (unsigned long long)a);
  T q = (T)(a / b);
  return (T)((a % b != 0 && ((a % b < 0) != (b < 0))) ? q - 1 : q);
}
template <class T> DEVICE T rl_int_mod(T a, T b) {
  if (b == 0 || ((T)-1 < (T)0 && b == (T)-1)) return 0;
  T r = (T)(a % b);
  return (T)((r != 0 && ((r < 0) != (b < 0))) ? r + b : r);
}
template <class T> DEVICE T rl_shl(T a, T b) {
  return (b < 0 || b >= (T)(sizeof(T) * 8)) ? (T)0 : (T)((unsigned long long)a << (int)b);
}
template <class T> DEVICE T rl_shr(T a, T b) {
  const T last = (T)(sizeof(T) * 8 - 1);
  if ((T)-1 < (T)0) return (T)(a >> (int)(b < 0 ? 0 : b > last ? last : b));
  return b > last ? (T)0 : (T)(a >> (int)b);
}
DEVICE float rl_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}
DEVICE float rl_min(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}
DEVICE double rl_max(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }
DEVICE double rl_min(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }
template <class T> DEVICE T rl_sign(T a) {
  return a != a ? a : a > (T)0 ? (T)1 : a < (T)0 ? (T)-1 : (T)0;
}
DEVICE int rl_place(long long x) { return x == (long long)(int)x ? (int)x : -1; }
// Many divisions by one number: its reciprocal is found once, and each quotient corrected by the
// remainder, which rounds it as a division would. Very small and very large divisors are scaled
// into the range where the reciprocal is exact to the last bit.
struct Divisor {
  float scale, by, inverse;
};
DEVICE Divisor rl_divisor(float b) {
  const float size = fabsf(b);
  const float scale = size < 0x1p-100f ? 0x1p100f : size > 0x1p120f ? 0x1p-4f : 1.0f;
  return {scale, b * scale, __frcp_rn(b * scale)};
}
DEVICE float rl_div_by(float a, Divisor d) {
  const float scaled = a * d.scale, q = scaled * d.inverse;
  const float better = fmaf(fmaf(-q, d.by, scaled), d.inverse, q);
  return fabsf(q) > 0.0f && fabsf(q) <= 0x1p126f ? better : q;
}
DEVICE float rl_fmod(float a, float b) { return fmodf(a, b); }
DEVICE double rl_fmod(double a, double b) { return fmod(a, b); }
DEVICE float rl_copysign(float a, float b) { return copysignf(a, b); }
DEVICE double rl_copysign(double a, double b) { return copysign(a, b); }
template <class T> DEVICE T rl_float_mod(T a, T b) {
  T r = rl_fmod(a, b);
  if (r == 0) return rl_copysign((T)0, b);
  return ((r < 0) != (b < 0)) && r == r ? r + b : r;
}
template <class T> DEVICE T rl_float_floordiv(T a, T b) {
  T plain = a / b;
  if (b == 0) return plain;
  T r = rl_fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && ((r < 0) != (b < 0))) q -= (T)1;
  if (q == 0) return rl_copysign((T)0, plain);
  T whole = floor(q);
  return q - whole > (T)0.5 ? whole + (T)1 : whole;
}
"""

PACKS = r"""
// N elements in the registers of a thread; small ones lie several to a word
template <class T, int N, bool SMALL = (sizeof(T) < 4)> struct Held {
  T e[N];
  DEVICE T get(int i) const { return e[i]; }
  DEVICE void set(int i, T v) { e[i] = v; }
};
template <class T, int N> struct Held<T, N, true> {
  unsigned int w[(N * sizeof(T) + 3) / 4];
  DEVICE T get(int i) const {
    const int per = 4 / sizeof(T), bits = 8 * sizeof(T);
    return (T)(w[i / per] >> (i % per * bits));
  }
  DEVICE void set(int i, T v) {
    const int per = 4 / sizeof(T), bits = 8 * sizeof(T);
    const unsigned int mask = ((1u << bits) - 1) << (i % per * bits);
    w[i / per] = (w[i / per] & ~mask) | ((unsigned int)v << (i % per * bits));
  }
};
// the same at an aligned address: moved in accesses of up to 16 bytes
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack : Held<T, N> {};
"""

THREADS = r"""
template <class T> DEVICE T rl_shuffle(unsigned int mask, T v, int lanes) {
  return (T)__shfl_xor_sync(mask, v, lanes);
}
DEVICE bool rl_shuffle(unsigned int mask, bool v, int lanes) {
  return __shfl_xor_sync(mask, (int)v, lanes) != 0;
}
// an atomic join by compare-and-swap of the word an element lies in
template <class T, class F> DEVICE void rl_atomic(T *p, F join) {
  if (sizeof(T) == 8) {
    unsigned long long *w = (unsigned long long *)p, seen = *w, want;
    do {
      want = seen;
      T old = *(T *)&want, made = join(old);
      seen = atomicCAS(w, want, *(unsigned long long *)&made);
    } while (seen != want);
  } else if (sizeof(T) == 4) {
    unsigned int *w = (unsigned int *)p, seen = *w, want;
    do {
      want = seen;
      T old = *(T *)&want, made = join(old);
      seen = atomicCAS(w, want, *(unsigned int *)&made);
    } while (seen != want);
  } else {
    unsigned long long place = (unsigned long long)p;
    unsigned int *w = (unsigned int *)(place & ~3ull), seen = *w, want;
    const int shift = (int)(place & 3) * 8;
    const unsigned int mask = ((1u << (8 * sizeof(T) % 32)) - 1) << shift;
    do {
      want = seen;
      T made = join((T)((want & mask) >> shift));
      seen = atomicCAS(w, want, (want & ~mask) | (((unsigned int)made << shift) & mask));
    } while (seen != want);
  }
}
"""

CLUSTER = r"""
template <class T> struct alignas(8) Slot { T value; };
DEVICE unsigned int rl_cluster_rank() {
  unsigned int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
DEVICE void rl_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// write a word into the shared memory of another block of the cluster
DEVICE void rl_cluster_store(const void *local, unsigned int rank, unsigned int v) {
  unsigned int to, at = (unsigned int)__cvta_generic_to_shared(local);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at), "r"(rank));
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}
template <class T> DEVICE void rl_cluster_put(T *local, unsigned int rank, T v) {
  if (sizeof(T) == 8) {
    unsigned long long b = *(unsigned long long *)&v;
    rl_cluster_store(local, rank, (unsigned int)b);
    rl_cluster_store((const char *)local + 4, rank, (unsigned int)(b >> 32));
  } else {
    unsigned int b = 0;
    *(T *)&b = v;
    rl_cluster_store(local, rank, b);
  }
}
"""

PRELUDE = CONVERSIONS + ARITHMETIC + PACKS + THREADS
