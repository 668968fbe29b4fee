"""Device functions that convert narrow floats, one by one and packs of them at once.

Every function has a form for compute capability 7.5; from Ampere (16 bits) and Ada (8 bits) on, two
numbers are converted by one instruction.
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

PAIRS = r"""
DEVICE unsigned int rl_pair_bfloat16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned int y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return rl_to_bfloat16(low) | (unsigned int)rl_to_bfloat16(high) << 16;
#endif
}
DEVICE unsigned int rl_pair_float16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned int y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return rl_to_float16(low) | (unsigned int)rl_to_float16(high) << 16;
#endif
}
DEVICE unsigned int rl_pair_float8_e4m3fn(float low, float high) {
#if __CUDA_ARCH__ >= 890
  unsigned short y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
#else
  return rl_to_float8_e4m3fn(low) | (unsigned int)rl_to_float8_e4m3fn(high) << 8;
#endif
}
DEVICE unsigned int rl_pair_float8_e5m2(float low, float high) {
#if __CUDA_ARCH__ >= 890
  unsigned short y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  // halfway from the largest number to the next power of two infinity begins, one bit pattern on
  return y + (fabsf(low) >= 61440.0f) + ((unsigned int)(fabsf(high) >= 61440.0f) << 8);
#else
  return rl_to_float8_e5m2(low) | (unsigned int)rl_to_float8_e5m2(high) << 8;
#endif
}
DEVICE void rl_halves(unsigned int pair, float *to) {
  to[0] = rl_from_float16((unsigned short)pair);
  to[1] = rl_from_float16((unsigned short)(pair >> 16));
}
DEVICE void rl_floats_float8_e4m3fn(unsigned int pair, float *to) {
#if __CUDA_ARCH__ >= 890
  unsigned int halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));
  rl_halves(halves, to);
#else
  to[0] = rl_from_float8_e4m3fn((unsigned char)pair);
  to[1] = rl_from_float8_e4m3fn((unsigned char)(pair >> 8));
#endif
}
DEVICE void rl_floats_float8_e5m2(unsigned int pair, float *to) {
  rl_halves((pair & 0xff) << 8 | (pair & 0xff00) << 16, to);
}
#define RL_PACK_16(NAME)                                                                   \
  template <int N> DEVICE Pack<unsigned short, N> rl_pack_##NAME(const float (&x)[N]) {    \
    Pack<unsigned short, N> made;                                                          \
    _Pragma("unroll") for (int i = 0; i < N / 2; ++i)                                      \
      made.w[i] = rl_pair_##NAME(x[2 * i], x[2 * i + 1]);                                  \
    return made;                                                                           \
  }
#define RL_PACK_8(NAME)                                                                    \
  template <int N> DEVICE Pack<unsigned char, N> rl_pack_##NAME(const float (&x)[N]) {     \
    Pack<unsigned char, N> made;                                                           \
    _Pragma("unroll") for (int i = 0; i < N / 4; ++i)                                      \
      made.w[i] = rl_pair_##NAME(x[4 * i], x[4 * i + 1]) |                                 \
                  rl_pair_##NAME(x[4 * i + 2], x[4 * i + 3]) << 16;                        \
    return made;                                                                           \
  }                                                                                        \
  template <int N> DEVICE void rl_unpack_##NAME(const Pack<unsigned char, N> &p, float *to) { \
    _Pragma("unroll") for (int i = 0; i < N / 2; ++i)                                      \
      rl_floats_##NAME(p.w[i / 2] >> (i % 2 * 16) & 0xffff, to + 2 * i);                   \
  }
RL_PACK_16(bfloat16)
RL_PACK_16(float16)
RL_PACK_8(float8_e4m3fn)
RL_PACK_8(float8_e5m2)
"""
