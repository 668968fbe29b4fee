"""Instructions of a kernel as compiled: read from the PTX that NVRTC makes without a GPU.

PTX says which line each instruction is of, and which instructions are in which loop. How often a
loop ran follows from what the simulator counted: a line whose loads are three times in a loop of
PTX was written out three times there, and the loop ran a third as often. A loop with a remainder is
two in PTX that share their lines.
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
from ridgeline.simt.ir import Assign, ThreadProgram
from ridgeline.simt.launch import ThreadLaunch
from ridgeline.simt.model.costs import Mix, expression_mix, is_wait, statement_mix
from ridgeline.simt.model.counts import LaunchCounts
from ridgeline.simt.simulator.instructions import Do

_FREE = ("mov", "ld.param", "cvta", "pragma", "ret")  # no instruction, or one a thread
_SFU = ("sin", "cos", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh", "div")
_MEMORY = ("ld", "st", "atom", "red", "cp")
_INTEGER = ("add", "sub", "mul", "mad", "and", "or", "xor", "not", "shl", "shr")
# kinds by which PTX and source are matched, the surest first; whether of lines in several loops
_ANCHORS = (("memory", False), ("bar", False), ("float", False), ("memory", True), ("float", True),
            ("int", False), ("int", True))  # fmt: skip


@dataclass(frozen=True)
class PtxInstruction:
    """One instruction: its place in the text, the user's line, its unit, what it is matched by."""

    place: int
    line: int
    unit: str
    anchor: str  # "memory", "bar", "float", "int" or nothing
    accesses: int  # elements that a memory instruction moves
    steps: int = 1  # instructions of the machine that it becomes


@dataclass(frozen=True)
class CompiledCounts:
    """Warp instructions of a launch as compiled, by line and unit, and what was changed."""

    lines: Mapping[int, Mapping[str, float]]
    changes: tuple[str, ...]
    unknown: frozenset[int]  # lines in loops of which nothing says how often they ran
    copies: Mapping[int, float]  # how often a line is written out in its loop

    @property
    def units(self) -> Mapping[str, float]:
        """Instructions that warps issue, by unit."""
        found: dict[str, float] = defaultdict(float)
        for mix in self.lines.values():
            for unit, count in mix.items():
                found[unit] += count
        return dict(found)

    @property
    def total(self) -> float:
        """Instructions that warps issue."""
        return sum(self.units.values())


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
    times, unknown = _times(code, inner, loops, source, warps)
    lines: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in code:
        if one.unit != "free":
            lines[one.line][one.unit] += times[inner[one.place]] * one.steps
    return CompiledCounts(
        dict(lines), _changes(code, source, times, inner),
        frozenset(one.line for one in code if inner[one.place] in unknown),
        _copies(code, inner, counts),
    )  # fmt: skip


def step_mixes(compiled: CompiledCounts, counts: LaunchCounts) -> dict[int, Mapping[str, float]]:
    """What a step of each line issues, on average, as compiled; of lines that are known."""
    steps: dict[int, float] = defaultdict(float)
    for pc, warps in counts.instruction_warps.items():
        steps[counts.places[pc].line] += warps * getattr(counts.code[pc], "share", 1.0)
    return {
        line: {unit: n / count for unit, n in compiled.lines.get(line, {}).items()}
        for line, count in steps.items()
        if count and line not in compiled.unknown
    }


def _copies(
    code: list[PtxInstruction], inner: Mapping[int, int], counts: LaunchCounts
) -> dict[int, float]:
    """How often each line's accesses, or else its arithmetic, stand in one loop of PTX."""
    written: Counter[tuple[str, int, int]] = Counter()
    for one in code:
        if one.anchor and inner[one.place] >= 0:
            written[one.anchor, one.line, inner[one.place]] += one.accesses
    asked: Counter[tuple[str, int]] = Counter()
    for pc in counts.instruction_warps:
        mix, line = statement_mix(counts.code[pc]), counts.places[pc].line
        asked["memory", line] += mix["lsu"]
        asked["float", line] += mix["fma"] + mix["fp64"] + mix["half"]
    found: dict[int, float] = {}
    for kind in ("float", "memory"):
        for (anchor, line, _), count in written.items():
            if anchor == kind and asked[kind, line]:
                found[line] = max(found.get(line, 0.0), count / asked[kind, line])
    return found


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
        found["int", line] += _integer_operations(counts.code[pc], mix) * warps
        found["bar", line] += is_wait(counts.code[pc]) * warps
    return found


def _integer_operations(instruction: object, mix: Mix) -> int:
    """Operations on integers that were written, where none of them can be an address."""
    if not isinstance(instruction, Do) or mix["lsu"] or instruction.share != 1.0:
        return 0
    statement = instruction.statement
    return expression_mix(statement.value)["int"] if isinstance(statement, Assign) else 0


# ---- the text ---------------------------------------------------------------------------------


def _parsed(text: str, path: str) -> tuple[list[PtxInstruction], list[tuple[int, int]]]:
    """The instructions of the kernel, and its loops as first and last place."""
    listed = re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', text)
    ours = {int(n) for n, name in listed if _is_file(name, path)}
    labels: dict[str, int] = {}
    code: list[PtxInstruction] = []
    loops: list[tuple[int, int]] = []
    line = 0
    for place, raw in enumerate(text[text.index(".entry") :].splitlines()):
        part = raw.strip().rstrip(";")
        if part.startswith(".loc"):
            line = _user_line(part, ours, line)
        elif part.endswith(":"):
            labels[part[:-1]] = place
        elif part and part[0] in "@abcdefghijklmnopqrstuvwxyz":
            branch = re.search(r"\bbra(?:\.uni)?\s+(\S+)$", part)
            if branch and branch[1] in labels:
                loops.append((labels[branch[1]], place))
            code.append(_instruction(place, line, re.sub(r"^@!?%p\d+\s+", "", part)))
    return code, loops


def _is_file(name: str, path: str) -> bool:
    """Whether a file of PTX is this one: before relative paths NVRTC puts the folder it runs in."""
    return name == path or name.endswith("/" + path.removeprefix("./"))


def _user_line(part: str, ours: set[int], before: int) -> int:
    """The line of the user's file; of an inlined function the line that called it."""
    for file, line in reversed(re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", part)):
        if int(file) in ours and int(line):
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
    if base in _INTEGER:
        return PtxInstruction(place, line, "int", "int", 1)
    return PtxInstruction(place, line, "int", "", 0, wide if base in ("div", "rem") else 1)


# ---- how often --------------------------------------------------------------------------------


def _innermost(place: int, loops: list[tuple[int, int]]) -> int:
    """The number of the smallest loop around a place, -1 outside of all."""
    around = [n for n, (first, last) in enumerate(loops) if first <= place <= last]
    return min(around, key=lambda n: loops[n][1] - loops[n][0], default=-1)


def _times(
    code: list[PtxInstruction], inner: Mapping[int, int], loops: list[tuple[int, int]],
    source: Mapping[tuple[str, int], float], warps: int,
) -> tuple[dict[int, float], set[int]]:  # fmt: skip
    """How many warps ran through each loop of PTX, and the loops that nothing is known of."""
    here: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
    where: dict[tuple[str, int], set[int]] = defaultdict(set)
    for one in code:
        if one.anchor:
            here[inner[one.place]][one.anchor, one.line] += one.accesses
            where[one.anchor, one.line].add(inner[one.place])
    times: dict[int, float] = {-1: float(warps)}
    unknown = set()
    for number in sorted(range(len(loops)), key=lambda n: loops[n][0] - loops[n][1]):
        known: list[float] = []
        for anchor, shared in _ANCHORS:
            known = known or _matched(anchor, shared, number, here, where, source, times)
        if not known:
            unknown.add(number)
        first, last = loops[number]
        around = [n for n, (a, b) in enumerate(loops) if a <= first and last <= b and n != number]
        parent = min(around, key=lambda n: loops[n][1] - loops[n][0], default=-1)
        times[number] = median(known) if known else times.get(parent, float(warps))
    return times, unknown


def _matched(
    anchor: str, shared: bool, number: int, here: Mapping[int, Counter[tuple[str, int]]],
    where: Mapping[tuple[str, int], set[int]], source: Mapping[tuple[str, int], float],
    times: Mapping[int, float],
) -> list[float]:  # fmt: skip
    """How often a loop ran, by each line of it; of one that is elsewhere too, what is left."""
    found = []
    for key in here[number]:
        if key[0] != anchor or not source.get(key) or (len(where[key]) > 1) != shared:
            continue
        if anchor == "int" and source.get(("memory", key[1])):
            continue  # among what was written there are addresses
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
