"""Instructions of a kernel as compiled: read from the PTX that NVRTC makes without a GPU.

PTX says which line each instruction is of, and which instructions are in which loop. How often a
loop ran follows from what the simulator counted: a line whose loads are three times in a loop of
PTX was written out three times there, and the loop ran a third as often.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from ridgeline.codegen.cuda.nvrtc import CudaCompileError, NoCudaCompiler, compile_ptx
from ridgeline.ops.kernel_launch import KERNEL_OPTIONS
from ridgeline.simt.cuda.fragments import NoTensorCoreForm
from ridgeline.simt.cuda.text import NotForGpu, cuda_kernel
from ridgeline.simt.ir import ThreadProgram
from ridgeline.simt.launch import ThreadLaunch
from ridgeline.simt.model.costs import Mix, is_wait, statement_mix
from ridgeline.simt.model.counts import LaunchCounts

_FREE = ("mov", "ld.param", "cvta", "pragma", "ret")  # no instruction, or one a thread
_SFU = ("sin", "cos", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh", "div")
_MEMORY = ("ld", "st", "atom", "red", "cp")
_ANCHORS = ("memory", "bar", "float")  # kinds by which PTX and source are matched, the surest first


@dataclass(frozen=True)
class PtxInstruction:
    """One instruction: its place in the text, the user's line, its unit, what it is matched by."""

    place: int
    line: int
    unit: str
    anchor: str  # "memory", "bar", "float" or nothing
    accesses: int  # elements that a memory instruction moves
    steps: int = 1  # instructions of the machine that it becomes


@dataclass(frozen=True)
class CompiledCounts:
    """Warp instructions of a launch as compiled, by line and unit, and what was changed."""

    lines: Mapping[int, float]
    units: Mapping[str, float]
    changes: tuple[str, ...]

    @property
    def total(self) -> float:
        """Instructions that warps issue."""
        return sum(self.lines.values())


def ptx_of(program: ThreadProgram, launch: ThreadLaunch, capability: int) -> str | None:
    """The PTX of a kernel with its lines; None where NVRTC cannot make it, or is not there."""
    try:
        kernel = cuda_kernel(program, launch)
        options = (*KERNEL_OPTIONS, "--generate-line-info")
        return compile_ptx(kernel.text, f"compute_{capability}", options)
    except (NoCudaCompiler, CudaCompileError, NotForGpu, NoTensorCoreForm):
        return None


def compiled_counts(text: str, path: str, counts: LaunchCounts, warps: int) -> CompiledCounts:
    """The dynamic counts of a PTX text, for a launch of so many warps that was simulated."""
    code, loops = _parsed(text, path)
    source = _source_anchors(counts)
    inner = {one.place: _innermost(one.place, loops) for one in code}
    times = _times(code, inner, loops, source, warps)
    lines: dict[int, float] = defaultdict(float)
    units: dict[str, float] = defaultdict(float)
    for one in code:
        if one.unit != "free":
            lines[one.line] += times[inner[one.place]] * one.steps
            units[one.unit] += times[inner[one.place]] * one.steps
    return CompiledCounts(dict(lines), dict(units), _changes(code, source, times, inner))


def line_factors(compiled: CompiledCounts, counts: LaunchCounts) -> dict[int, float]:
    """How much more or less of each line is issued than the source's estimate says."""
    estimated: dict[int, float] = defaultdict(float)
    for pc, mix, warps in _steps(counts):
        share = getattr(counts.code[pc], "share", 1.0)
        estimated[counts.places[pc].line] += sum(mix.values()) * warps * share
    return {
        line: min(8.0, max(0.02, compiled.lines.get(line, 0.0) / count))
        for line, count in estimated.items()
        if count
    }


def _steps(counts: LaunchCounts) -> Iterator[tuple[int, Mix, int]]:
    for pc, warps in counts.instruction_warps.items():
        yield pc, statement_mix(counts.code[pc]), warps


def _source_anchors(counts: LaunchCounts) -> dict[tuple[str, int], float]:
    """How often warps did what PTX is matched by, for each kind and line."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for pc, mix, warps in _steps(counts):
        line = counts.places[pc].line
        found["memory", line] += mix["lsu"] * warps
        found["float", line] += (mix["fma"] + mix["fp64"] + mix["half"]) * warps
        found["bar", line] += is_wait(counts.code[pc]) * warps
    return found


# ---- the text ---------------------------------------------------------------------------------


def _parsed(text: str, path: str) -> tuple[list[PtxInstruction], list[tuple[int, int]]]:
    """The instructions of the kernel, and its loops as first and last place."""
    files = {int(n): name for n, name in re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', text)}
    labels: dict[str, int] = {}
    code: list[PtxInstruction] = []
    loops: list[tuple[int, int]] = []
    line = 0
    for place, raw in enumerate(text[text.index(".entry") :].splitlines()):
        part = raw.strip().rstrip(";")
        if part.startswith(".loc"):
            line = _user_line(part, files, path, line)
        elif part.endswith(":"):
            labels[part[:-1]] = place
        elif part and part[0] in "@abcdefghijklmnopqrstuvwxyz":
            branch = re.search(r"\bbra(?:\.uni)?\s+(\S+)$", part)
            if branch and branch[1] in labels:
                loops.append((labels[branch[1]], place))
            code.append(_instruction(place, line, re.sub(r"^@!?%p\d+\s+", "", part)))
    return code, loops


def _user_line(part: str, files: Mapping[int, str], path: str, before: int) -> int:
    """The line of the user's file; of an inlined function the line that called it."""
    for file, line in reversed(re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", part)):
        if files.get(int(file), "") == path and int(line):
            return int(line)
    return before


def _instruction(place: int, line: int, part: str) -> PtxInstruction:
    name = part.split()[0]
    if name.startswith(_FREE):
        return PtxInstruction(place, line, "free", "", 0)
    base, kinds = name.split(".")[0], name.split(".")
    if base in _MEMORY and "local" not in kinds:
        width = next((int(k[1:]) for k in kinds if k in ("v2", "v4")), 1)
        return PtxInstruction(place, line, "lsu", "memory", width)
    if base in ("bar", "barrier"):
        return PtxInstruction(place, line, "control", "bar", 1)
    if base in ("bra", "exit", "trap", "membar", "fence"):
        return PtxInstruction(place, line, "control", "", 0)
    if base in ("shfl", "vote", "match", "redux", "activemask"):
        return PtxInstruction(place, line, "shuffle", "", 0)
    if base in ("mma", "wmma"):
        return PtxInstruction(place, line, "tensor", "", 0)
    if base in _SFU and {"f32", "f64"} & set(kinds):
        exact = 8 if base in ("div", "rcp", "sqrt") and "rn" in kinds else 1
        return PtxInstruction(place, line, "sfu", "", 0, exact)
    if base in ("fma", "add", "sub", "mul", "max", "min") and {"f32", "f64", "f16"} & set(kinds):
        unit = "fp64" if "f64" in kinds else "half" if "f16" in kinds else "fma"
        return PtxInstruction(place, line, unit, "float", 1)
    wide = 70 if {"s64", "u64"} & set(kinds) else 18
    return PtxInstruction(place, line, "int", "", 0, wide if base in ("div", "rem") else 1)


# ---- how often --------------------------------------------------------------------------------


def _innermost(place: int, loops: list[tuple[int, int]]) -> int:
    """The number of the smallest loop around a place, -1 outside of all."""
    around = [n for n, (first, last) in enumerate(loops) if first <= place <= last]
    return min(around, key=lambda n: loops[n][1] - loops[n][0], default=-1)


def _times(
    code: list[PtxInstruction], inner: Mapping[int, int], loops: list[tuple[int, int]],
    source: Mapping[tuple[str, int], float], warps: int,
) -> dict[int, float]:  # fmt: skip
    """How many warps ran through each loop of PTX, and through what is outside of all."""
    here: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
    where: dict[tuple[str, int], set[int]] = defaultdict(set)
    for one in code:
        if one.anchor:
            here[inner[one.place]][one.anchor, one.line] += one.accesses
            where[one.anchor, one.line].add(inner[one.place])
    times: dict[int, float] = {-1: float(warps)}
    for number in sorted(range(len(loops)), key=lambda n: loops[n][0] - loops[n][1]):
        known: list[float] = []
        for anchor in _ANCHORS:
            known = known or [
                source[key] / count
                for key, count in here[number].items()
                if key[0] == anchor and source.get(key) and where[key] == {number}
            ]
        known = known or _shared_anchors(number, here, where, source, times)
        first, last = loops[number]
        around = [n for n, (a, b) in enumerate(loops) if a <= first and last <= b and n != number]
        parent = min(around, key=lambda n: loops[n][1] - loops[n][0], default=-1)
        times[number] = median(known) if known else times.get(parent, float(warps))
    return times


def _shared_anchors(
    number: int, here: Mapping[int, Counter[tuple[str, int]]],
    where: Mapping[tuple[str, int], set[int]], source: Mapping[tuple[str, int], float],
    times: Mapping[int, float],
) -> list[float]:  # fmt: skip
    """How often a loop ran by lines that are elsewhere too: what is left of their accesses."""
    found = []
    for key in here[number]:
        if key[0] != "memory" or not source.get(key):
            continue
        elsewhere = sum(here[n][key] * times[n] for n in where[key] if n in times)
        unknown = sum(here[n][key] for n in where[key] if n not in times)
        found.append(max(0.0, source[key] - elsewhere) / unknown)
    return found


def _changes(
    code: list[PtxInstruction], source: Mapping[tuple[str, int], float],
    times: Mapping[int, float], inner: Mapping[int, int],
) -> tuple[str, ...]:  # fmt: skip
    """Lines whose accesses to memory are not those that were written."""
    moved: dict[int, float] = defaultdict(float)
    issued: dict[int, float] = defaultdict(float)
    for one in code:
        if one.anchor == "memory":
            moved[one.line] += one.accesses * times[inner[one.place]]
            issued[one.line] += times[inner[one.place]]
    found = []
    for (kind, line), count in sorted(source.items(), key=lambda item: item[0][1]):
        if kind != "memory" or not count:
            continue
        if not moved[line]:
            found.append(f"line {line}: no access to memory is left in the compiled code")
        elif moved[line] < 0.7 * count:
            found.append(f"line {line}: {moved[line] / count:.0%} of its accesses are left in the "
                         "compiled code, the others share what was loaded")  # fmt: skip
        elif issued[line] < 0.8 * moved[line]:
            found.append(f"line {line}: the compiled code accesses "
                         f"{moved[line] / issued[line]:.2g} elements at once")  # fmt: skip
    return tuple(found)
