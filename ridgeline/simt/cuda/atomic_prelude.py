"""Atomic operations on elements of every type, for the texts of user kernels.

What the hardware has is called as it is; all else is a loop of compare-and-swap on the element's
bits, and that on one or two bytes is one on the word around them. Half-precision elements are
their bits here: the text that calls converts.
"""

from __future__ import annotations

_TYPES = {"int": "int", "uint": "unsigned int", "long": "long long", "ulong": "unsigned long long",
          "float": "float", "double": "double"}  # fmt: skip
# the functions of CUDA, and the types that have them beside those that go through another's bits
_NATIVE = {
    "add": ("Add", "int uint ulong float double"), "and": ("And", "int uint ulong"),
    "or": ("Or", "int uint ulong"), "xor": ("Xor", "int uint ulong"),
    "exch": ("Exch", "int uint ulong float"), "min": ("Min", "int uint long ulong"),
    "max": ("Max", "int uint long ulong"), "inc": ("Inc", "uint"), "dec": ("Dec", "uint"),
}  # fmt: skip
_THROUGH_BITS = ("add", "and", "or", "xor", "exch")  # of long long
_JOINED = {  # what a loop makes of the element `x` and the operand `v`
    "add": "(T)(x + v)", "and": "(T)(x & v)", "or": "(T)(x | v)", "xor": "(T)(x ^ v)",
    "exch": "v", "min": "rl_least(x, v)", "max": "rl_most(x, v)",
    "inc": "rl_bits(x) >= rl_bits(v) ? (T)0 : (T)(x + 1)",
    "dec": "x == 0 || rl_bits(x) > rl_bits(v) ? v : (T)(x - 1)",
}  # fmt: skip

_SHARED = r"""
template <int BYTES> struct RlBits {};
template <> struct RlBits<1> { typedef unsigned char type; };
template <> struct RlBits<2> { typedef unsigned short type; };
template <> struct RlBits<4> { typedef unsigned int type; };
template <> struct RlBits<8> { typedef unsigned long long type; };
template <class T> DEVICE typename RlBits<sizeof(T)>::type rl_bits(T value) {
  union { T value; typename RlBits<sizeof(T)>::type bits; } both;
  both.value = value;
  return both.bits;
}
template <class T> DEVICE T rl_of_bits(typename RlBits<sizeof(T)>::type bits) {
  union { typename RlBits<sizeof(T)>::type bits; T value; } both;
  both.bits = bits;
  return both.value;
}
// as min and max elsewhere: of floats, NaN wins
template <class T> DEVICE T rl_least(T a, T b) { return b < a ? b : a; }
template <class T> DEVICE T rl_most(T a, T b) { return a < b ? b : a; }
DEVICE float rl_least(float a, float b) { return rl_min(a, b); }
DEVICE float rl_most(float a, float b) { return rl_max(a, b); }
DEVICE double rl_least(double a, double b) { return rl_min(a, b); }
DEVICE double rl_most(double a, double b) { return rl_max(a, b); }
"""

_LOOPS = r"""
template <class B> DEVICE B rl_swap_partSCOPE(B *at, B old, B v) {
  unsigned int *word = (unsigned int *)((unsigned long long)at & ~3ull);
  const int shift = (int)((unsigned long long)at & 3) * 8;
  const unsigned int part = (unsigned int)(B)~0u << shift;
  unsigned int seen = *(volatile unsigned int *)word;
  while ((B)(seen >> shift) == old) {
    const unsigned int made = (seen & ~part) | (unsigned int)v << shift;
    const unsigned int before = atomicCASSCOPE(word, seen, made);
    if (before == seen) return old;
    seen = before;
  }
  return (B)(seen >> shift);
}
DEVICE unsigned char rl_swap_bitsSCOPE(unsigned char *at, unsigned char old, unsigned char v) {
  return rl_swap_partSCOPE(at, old, v);
}
DEVICE unsigned short rl_swap_bitsSCOPE(unsigned short *at, unsigned short old, unsigned short v) {
  return rl_swap_partSCOPE(at, old, v);
}
template <class B> DEVICE B rl_swap_bitsSCOPE(B *at, B old, B v) {
  return atomicCASSCOPE(at, old, v);
}
template <class T> DEVICE T rl_atomic_casSCOPE(T *at, T old, T v) {
  typedef typename RlBits<sizeof(T)>::type Bits;
  return rl_of_bits<T>(rl_swap_bitsSCOPE((Bits *)at, rl_bits(old), rl_bits(v)));
}
template <class T, class Join> DEVICE T rl_atomic_updateSCOPE(T *at, Join join) {
  typedef typename RlBits<sizeof(T)>::type Bits;
  Bits seen = *(volatile Bits *)at;
  while (true) {
    const Bits made = rl_bits((T)join(rl_of_bits<T>(seen)));
    const Bits before = rl_swap_bitsSCOPE((Bits *)at, seen, made);
    if (before == seen) return rl_of_bits<T>(before);
    seen = before;
  }
}
"""


def _operations(scope: str) -> str:
    lines = [_LOOPS.replace("SCOPE", scope)]
    for name, joined in _JOINED.items():
        function, kinds = _NATIVE[name]
        lines.append(
            f"template <class T> DEVICE T rl_atomic_{name}{scope}(T *at, T v) {{\n"
            f"  return rl_atomic_update{scope}(at, [v](T x) {{ return {joined}; }});\n}}"
        )
        for kind in (_TYPES[word] for word in kinds.split()):
            lines.append(
                f"DEVICE {kind} rl_atomic_{name}{scope}({kind} *at, {kind} v) "
                f"{{ return atomic{function}{scope}(at, v); }}"
            )
        if name in _THROUGH_BITS:
            lines.append(
                f"DEVICE long long rl_atomic_{name}{scope}(long long *at, long long v) {{\n"
                f"  return (long long)atomic{function}{scope}("
                "(unsigned long long *)at, (unsigned long long)v);\n}"
            )
    lines.append(
        f"template <class T> DEVICE T rl_atomic_sub{scope}(T *at, T v) "
        f"{{ return rl_atomic_add{scope}(at, (T)(0 - v)); }}"
    )
    return "\n".join(lines)


ATOMIC_PRELUDE = _SHARED + "\n".join(_operations(scope) for scope in ("", "_block", "_system"))
