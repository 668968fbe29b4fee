"""The device functions that generated kernels use: total arithmetic, shuffles, atomics, clusters.

The text is complete in itself: NVRTC is given no headers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.codegen.cuda.conversions import CONVERSIONS, PACKS, PAIRS
from ridgeline.loops.math.tables.elementary import COS32, SIN32
from ridgeline.values.philox import GROWTH, MULTIPLIERS, ROUNDS, WORDS


def _horner(coefficients: Sequence[float]) -> str:
    """A polynomial in z, lowest power first."""
    text = f"{float(coefficients[-1]).hex()}f"
    for coefficient in reversed(coefficients[:-1]):
        text = f"fmaf({text}, z, {float(coefficient).hex()}f)"
    return text


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
__device__ __noinline__ double rl_inverse_power(double a, double s) { return pow(a, -s); }
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
  return a > (T)0 ? (T)1 : a < (T)0 ? (T)-1 : (T)0;  // NaN has none
}
DEVICE int rl_place(long long x) { return x == (long long)(int)x ? (int)x : -1; }
// Many divisions by one number: its reciprocal is found once, and each quotient corrected by the
// remainder, which rounds it as a division would. Very small and very large divisors are scaled
// into the range where the reciprocal is exact to the last bit.
struct Divisor {
  float scale, by, inverse, negative;
};
DEVICE Divisor rl_divisor(float b) {
  const float size = fabsf(b), most = __int_as_float(0x7f800000);
  const float scale = size < 0x1p-100f ? 0x1p100f : size > 0x1p120f ? 0x1p-4f : 1.0f;
  const float inverse = __frcp_rn(size * scale);
  return {copysignf(scale, b), size == most ? 0.0f : size * scale, inverse, -inverse};
}
// Signs are such that a zero keeps its own: the quotient's and the correction's are the same.
DEVICE float rl_div_by(float a, Divisor d) {
  const float scaled = a * d.scale, q = scaled * d.inverse;
  const float better = fmaf(fmaf(q, d.by, -scaled), d.negative, q);
  return fabsf(q) < __int_as_float(0x7f800000) ? better : q;
}
DEVICE float rl_fmod(float a, float b) { return fmodf(a, b); }
DEVICE double rl_fmod(double a, double b) { return fmod(a, b); }
DEVICE float rl_copysign(float a, float b) { return copysignf(a, b); }
DEVICE double rl_copysign(double a, double b) { return copysign(a, b); }
template <class T> DEVICE T rl_float_mod(T a, T b) {
  T r = rl_fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
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

# For kernels whose results are all rounded to 16 bits or fewer: within 2^-17 of the value, over the
# whole range, without branches.
NEAR = r"""
DEVICE float rl_exp2_near(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float rl_exp_near(float x) {
  const float root = rl_exp2_near(x * 0x1.715476p-1f);  // its square may be subnormal
  return root * root;
}
DEVICE float rl_sqrt_near(float x) {  // within an ulp, of 0 and normal numbers
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float rl_tanh_near(float x) {
  const float size = fabsf(x), square = x * x;
  const float grown = rl_exp2_near(size * 0x1.715476p+1f) + 1.0f;
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(grown));
  float series = fmaf(square, -0x1.ba1ba2p-5f, 0x1.111112p-3f);
  series = fmaf(fmaf(series, square, -0x1.555556p-2f), square * x, x);
  return size < 0.25f ? series : copysignf(fmaf(inverse, -2.0f, 1.0f), x);
}
"""

# Inlined for every word that is wanted, and pure: the compiler keeps one copy of the rounds for all
# words of a block that a thread uses. Words are taken apart as doubles are: of shifts the compiler
# makes arithmetic in 64 bits, with an addition to the upper half of every product.
RANDOM = f"""
DEVICE unsigned int rl_low(unsigned long long x) {{
  return (unsigned int)__double2loint(__longlong_as_double((long long)x));
}}
DEVICE unsigned int rl_high(unsigned long long x) {{
  return (unsigned int)__double2hiint(__longlong_as_double((long long)x));
}}
DEVICE unsigned long long rl_philox(unsigned long long key, unsigned long long counter,
                                    unsigned long long place) {{
  unsigned int x0 = rl_low(counter), x1 = rl_high(counter), x2 = 0, x3 = 0;
  unsigned int k0 = rl_low(key), k1 = rl_high(key);
#pragma unroll
  for (int i = 0; i < {ROUNDS}; ++i) {{
    const unsigned long long a = {MULTIPLIERS[0]}ull * x0, b = {MULTIPLIERS[1]}ull * x2;
    x0 = rl_high(b) ^ x1 ^ k0;
    x1 = rl_low(b);
    x2 = rl_high(a) ^ x3 ^ k1;
    x3 = rl_low(a);
    k0 += {GROWTH[0]}u;
    k1 += {GROWTH[1]}u;
  }}
  const unsigned int which = (unsigned int)place % {WORDS}u;
  return which < 2 ? (which == 0 ? x0 : x1) : (which == 2 ? x2 : x3);
}}
"""

# Within 1.6 ulp, without branches but for large angles, which take a long division by pi: behind a
# call that stands in a kernel once, not once for every element. So a thread computes what the sine
# and the cosine of one angle share, as normal numbers need them, once. Added to a large number,
# quarter turns are rounded to an integer, which is then what its low bits say.
ANGLES = f"""
static __device__ __noinline__ float rl_far_sin(float x) {{ return sinf(x); }}
static __device__ __noinline__ float rl_far_cos(float x) {{ return cosf(x); }}
DEVICE float rl_turned(float x, bool cosine) {{
  const float size = fabsf(x), large = 0x1.8p+23f;
  const float shifted = fmaf(size, 0x1.45f306p-1f, large), quarters = shifted - large;
  float r = fmaf(quarters, -0x1.921fb6p+0f, size);  // less multiples of pi/2, in three parts
  r = fmaf(quarters, 0x1.ee59dap-50f, fmaf(quarters, 0x1.777a5cp-25f, r));
  const float z = r * r;
  const float sine = fmaf(r * z, {_horner(SIN32)}, r);
  const float other = fmaf(z, fmaf(z, {_horner(COS32)}, -0.5f), 1.0f);
  const unsigned int turns = __float_as_uint(shifted), more = cosine ? 1u << 30 : 0u;
  const unsigned int flip = ((turns << 30) + more) ^ (cosine ? 0u : __float_as_uint(x));
  const unsigned int value = __float_as_uint(((turns & 1) != 0) == cosine ? sine : other);
  return __uint_as_float(value ^ (flip & 0x80000000u));
}}
DEVICE float rl_sin_near(float x) {{ return rl_turned(x, false); }}
DEVICE float rl_cos_near(float x) {{ return rl_turned(x, true); }}
DEVICE float rl_sin(float x) {{
  const float near = rl_sin_near(x);
  return fabsf(x) >= 105615.0f ? rl_far_sin(x) : near;
}}
DEVICE float rl_cos(float x) {{
  const float near = rl_cos_near(x);
  return fabsf(x) >= 105615.0f ? rl_far_cos(x) : near;
}}
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

PRELUDE = CONVERSIONS + ARITHMETIC + NEAR + RANDOM + ANGLES + PACKS + PAIRS + THREADS
