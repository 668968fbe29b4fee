"""Instruction sets: LLVM's names of them, and how a processor reports them.

A feature is a bit of one of eight words that `cpuid` and `xgetbv` give, in the order in which
`runtime_ir` reads them. A feature without a bit here is never used in a file: no processor is given
an instruction that it did not say it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ridgeline.codegen.llvm.machine_code import Target, host
from ridgeline.errors import BadValueError

_FIRST, _FIRST_D, _EXTENDED, _SAVED, _SEVENTH_B, _SEVENTH_C, _SEVENTH_D, _NEXT = range(8)
_BITS = {
    "sse3": (_FIRST, 0), "pclmul": (_FIRST, 1), "ssse3": (_FIRST, 9), "fma": (_FIRST, 12),
    "cx16": (_FIRST, 13), "sse4.1": (_FIRST, 19), "sse4.2": (_FIRST, 20), "crc32": (_FIRST, 20),
    "movbe": (_FIRST, 22), "popcnt": (_FIRST, 23), "aes": (_FIRST, 25), "xsave": (_FIRST, 26),
    "avx": (_FIRST, 28), "f16c": (_FIRST, 29),
    "cx8": (_FIRST_D, 8), "cmov": (_FIRST_D, 15), "mmx": (_FIRST_D, 23), "fxsr": (_FIRST_D, 24),
    "sse": (_FIRST_D, 25), "sse2": (_FIRST_D, 26),
    "sahf": (_EXTENDED, 0), "lzcnt": (_EXTENDED, 5), "sse4a": (_EXTENDED, 6),
    "prfchw": (_EXTENDED, 8),
    "bmi": (_SEVENTH_B, 3), "avx2": (_SEVENTH_B, 5), "bmi2": (_SEVENTH_B, 8),
    "avx512f": (_SEVENTH_B, 16), "avx512dq": (_SEVENTH_B, 17), "adx": (_SEVENTH_B, 19),
    "avx512ifma": (_SEVENTH_B, 21), "avx512cd": (_SEVENTH_B, 28), "avx512bw": (_SEVENTH_B, 30),
    "avx512vl": (_SEVENTH_B, 31),
    "avx512vbmi": (_SEVENTH_C, 1), "avx512vbmi2": (_SEVENTH_C, 6), "gfni": (_SEVENTH_C, 8),
    "vaes": (_SEVENTH_C, 9), "vpclmulqdq": (_SEVENTH_C, 10), "avx512vnni": (_SEVENTH_C, 11),
    "avx512bitalg": (_SEVENTH_C, 12), "avx512vpopcntdq": (_SEVENTH_C, 14),
    "avx512fp16": (_SEVENTH_D, 23),
    "avxvnni": (_NEXT, 4), "avx512bf16": (_NEXT, 5), "avxifma": (_NEXT, 23),
}  # fmt: skip
_SAVES_AVX, _SAVES_AVX512 = 0b110, 0b11100110  # the registers that a system keeps for a thread
_ALWAYS = {"64bit"}  # what every processor has that reads such a file

_V1 = "cmov cx8 fxsr mmx sse sse2"
_V2 = f"{_V1} cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3 crc32"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
LEVELS = {
    "x86-64": (_V1, 128),
    "x86-64-v2": (_V2, 128),
    "x86-64-v3": (_V3, 256),
    "x86-64-v4": (_V4, 512),
}  # by the names of the psABI; features and the width of vectors
NATIVE = "native"
DEFAULT = ("x86-64-v2", "x86-64-v3", NATIVE)


@dataclass(frozen=True, slots=True)
class InstructionSetTarget:
    """An instruction set by name, for which code is made."""

    name: str
    target: Target
    features: frozenset[str]

    def masks(self) -> list[int]:
        """The bits that a processor must have, in the order of words above."""
        words = [0] * 8
        for feature in self.features - _ALWAYS:
            word, bit = _BITS[feature]
            words[word] |= 1 << bit
        if "avx" in self.features:
            words[_FIRST] |= 1 << 27  # the system says which registers it keeps
            words[_SAVED] |= _SAVES_AVX512 if "avx512f" in self.features else _SAVES_AVX
        return words


def baseline() -> Target:
    """Any processor of the architecture: for code that is to find out which one it is."""
    return replace(host(), cpu="x86-64", features="", vector_bits=128)


def instruction_sets(names: Iterable[str]) -> list[InstructionSetTarget]:
    """The sets with these names, the widest first; of two that ask for the same one is enough."""
    found: dict[frozenset[str], InstructionSetTarget] = {}
    for name in names:
        made = _native() if name == NATIVE else _level(name)
        if made.features not in found or name == NATIVE:
            found[made.features] = made
    return sorted(found.values(), key=lambda s: len(s.features), reverse=True)


def _level(name: str) -> InstructionSetTarget:
    if name not in LEVELS:
        known = ", ".join([*LEVELS, NATIVE])
        raise BadValueError(f"there is no instruction set {name!r}", help=f"there are {known}")
    features, bits = LEVELS[name]
    text = ",".join(f"+{feature}" for feature in features.split())
    target = replace(host(), cpu=name, features=text, vector_bits=bits)
    return InstructionSetTarget(name, target, frozenset(features.split()))


def _native() -> InstructionSetTarget:
    """This machine, less what no bit here tells; so code is what `jit` makes of the same graph."""
    own = host()
    has = {f[1:] for f in own.features.split(",") if f.startswith("+")}
    used = has & (_BITS.keys() | _ALWAYS)
    parts = [f"{'+' if f[1:] in used else '-'}{f[1:]}" for f in own.features.split(",")]
    return InstructionSetTarget(
        f"{NATIVE} ({own.cpu})", replace(own, features=",".join(parts)), frozenset(used)
    )
