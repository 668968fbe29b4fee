"""Cross-thread reductions: shuffles, shared memory, clusters.

Every thread ends with the joint value. Within a warp values are exchanged by shuffles; across
warps each leaves its part in shared memory; across the blocks of a cluster each writes its part
into the shared memory of all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ridgeline.codegen.cuda.expressions import Lines
from ridgeline.codegen.cuda.threads import CodegenError, ThreadBits, Threads

Join = Callable[[list[str], list[str]], None]  # left := left join right
_WARP = 32
_WIDE = ("double", "long long", "unsigned long long")  # of 8 bytes; all others have 4 or fewer


@dataclass(frozen=True, slots=True)
class ThreadJoin:
    """One cross-thread reduction: the threads' bits, the C++ types and the values of the fields."""

    bits: ThreadBits
    team: int  # threads that arrive here together
    types: list[str]
    values: list[str]
    elements: int  # values of each field that are joined side by side


@dataclass(slots=True)
class Joining:
    """Writes the code of sites; `scratch` reserves shared memory and names its start."""

    lines: Lines
    threads: Threads
    scratch: Callable[[int], str]

    def write(self, site: ThreadJoin, join: Join) -> None:
        """Leave the combined value of all threads in each of them."""
        bits = site.bits
        low, high = bits.divisor, bits.divisor * bits.extent
        self._shuffle(site, join, low, min(high, _WARP))
        block = self.threads.block
        if high > _WARP:
            if site.team < self.threads.total:
                raise CodegenError("a reduction over several warps must be outermost")
            self._across_warps(site, join, low, min(high, block))
        if high > block:
            if low != 1 or site.elements != 1:
                raise CodegenError("a cluster joins single values only")
            self._across_blocks(site, join)

    def _shuffle(self, site: ThreadJoin, join: Join, low: int, high: int) -> None:
        if low >= high:
            return
        mask = "0xffffffffu"
        if site.team < _WARP:
            ones = (1 << site.team) - 1
            mask = f"(0x{ones:x}u << (threadIdx.x & {_WARP - site.team}))"
        with self._each(site):
            lanes = low
            while lanes < high:
                with self.lines.block(""):
                    others = [f"other{i}" for i in range(len(site.values))]
                    for other, kind, value in zip(others, site.types, site.values):
                        text = f"rl_shuffle({mask}, {value}, {lanes})"
                        self.lines.line(f"const {kind} {other} = {text};")
                    join(site.values, others)
                lanes *= 2

    def _each(self, site: ThreadJoin) -> AbstractContextManager[None]:
        if site.elements == 1:
            return self.lines.block("")
        self.lines.line("#pragma unroll")
        return self.lines.block(f"for (int f = 0; f < {site.elements}; ++f)")

    def _across_warps(self, site: ThreadJoin, join: Join, low: int, high: int) -> None:
        width = low if low >= _WARP else _WARP
        groups = high // width
        if groups <= 1:
            return
        inner = low  # places side by side that are not joined with one another
        arrays = [self._array(kind, groups * inner * site.elements) for kind in site.types]
        shift = width.bit_length() - 1
        group = f"((threadIdx.x >> {shift}) & {groups - 1})"
        slot = f"(({{f}} * {groups} + {group}) * {inner} + (threadIdx.x & {inner - 1}))"
        skipped = (self.threads.block - 1) & ~(high - 1)
        if low < _WARP:
            skipped |= _WARP - 1 & ~(low - 1)
        with self.lines.block(f"if ((threadIdx.x & {skipped}) == 0)"), self._each(site):
            for array, value in zip(arrays, site.values):
                f = "f" if site.elements > 1 else "0"
                self.lines.line(f"{array}[{slot.format(f=f)}] = {value};")
        self.lines.line("__syncthreads();")
        if inner == 1 and site.elements == 1 and groups > 4:
            for array, value in zip(arrays, site.values):
                self.lines.line(f"{value} = {array}[threadIdx.x & {groups - 1}];")
            whole = ThreadJoin(site.bits, _WARP, site.types, site.values, 1)
            self._shuffle(whole, join, 1, groups)
            return
        with self._each(site):
            f = "f" if site.elements > 1 else "0"
            at = f"[(({f} * {groups} + {{g}}) * {inner} + (threadIdx.x & {inner - 1}))]"
            self._one_by_one(site, [array + at for array in arrays], groups, join)

    def _across_blocks(self, site: ThreadJoin, join: Join) -> None:
        blocks = self.threads.cluster
        arrays = [self._slots(kind, blocks) for kind in site.types]
        with self.lines.block(f"if (threadIdx.x < {blocks})"):
            for array, value in zip(arrays, site.values):
                self.lines.line(f"rl_cluster_put(&{array}[rank].value, threadIdx.x, {value});")
        self.lines.line("rl_cluster_sync();")
        self._one_by_one(site, [array + "[{g}].value" for array in arrays], blocks, join)

    def _one_by_one(self, site: ThreadJoin, texts: Sequence[str], count: int, join: Join) -> None:
        """Join what lies at places, texts with a `{g}` that runs from 0 to the count."""
        for text, value in zip(texts, site.values):
            self.lines.line(f"{value} = {text.format(g=0)};")
        self.lines.line("#pragma unroll")
        with self.lines.block(f"for (int g = 1; g < {count}; ++g)"):
            others = [f"other{i}" for i in range(len(site.values))]
            for other, kind, text in zip(others, site.types, texts):
                self.lines.line(f"const {kind} {other} = {text.format(g='g')};")
            join(site.values, others)

    def _array(self, kind: str, count: int) -> str:
        name = self.lines.fresh("part")
        start = self.scratch(count * (8 if kind in _WIDE else 4))
        self.lines.line(f"{kind} *{name} = ({kind} *){start};")
        return name

    def _slots(self, kind: str, count: int) -> str:
        name = self.lines.fresh("part")
        self.lines.line(f"Slot<{kind}> *{name} = (Slot<{kind}> *){self.scratch(8 * count)};")
        return name
