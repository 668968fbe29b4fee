"""What a GPU would do with a launch, without one: findings, counts per line, time and its bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ridgeline.profile.gpus import Gpu
from ridgeline.profile.occupancy import LIMITS, Occupancy, occupancy
from ridgeline.simt.ir import Barrier, SourceText, ThreadProgram
from ridgeline.simt.launch import LaunchError, ThreadLaunch, shared_bytes
from ridgeline.simt.model.counts import LaunchCounts, LineCounts
from ridgeline.simt.model.gpu_facts import gpu_named
from ridgeline.simt.model.page import report_page
from ridgeline.simt.model.ptx import CompiledCounts, compiled_counts, ptx_of, step_mixes
from ridgeline.simt.model.registers import RegisterCount, compiled_resources, estimated_registers
from ridgeline.simt.model.text import report_text
from ridgeline.simt.model.timing import (
    ESTIMATED,
    CompiledSteps,
    TimePrediction,
    predict,
)
from ridgeline.simt.simulator.findings import Simulation
from ridgeline.simt.simulator.simulate import DEFAULT, SimulationOptions, simulate
from ridgeline.simt.traversal import walk


@dataclass(frozen=True)
class SourceLine:
    """A line of the kernel with its counts and the cycles its warps waited at it."""

    number: int
    text: str
    counts: LineCounts
    stalls: dict[str, float]


@dataclass(frozen=True)
class LaunchExplanation:
    """The whole of it; `str()` is the report, `html()` the page."""

    name: str
    gpu: Gpu
    launch: ThreadLaunch
    simulation: Simulation
    lines: tuple[SourceLine, ...]
    occupancy: Occupancy
    registers: int
    registers_from: str  # given, compiled or estimated
    local_bytes: int  # of a thread, as compiled: local arrays and what was spilled
    shared: int
    prediction: TimePrediction
    dram_bytes: int
    source: SourceText
    meets: bool  # at a barrier of the whole grid
    compiled: CompiledCounts | None  # where NVRTC was asked, and is there

    def __str__(self) -> str:
        return report_text(self)

    def html(self) -> str:
        """A self-contained page: findings, heat map on the source, timeline of the warps."""
        return report_page(self)


def explain_launch(
    program: ThreadProgram, launch: ThreadLaunch, arrays: Any, scalars: Any, sizes: Any,
    gpu: str = "h100", registers: RegisterCount = None, options: SimulationOptions = DEFAULT,
) -> LaunchExplanation:  # fmt: skip
    """Simulate a launch and work out what a GPU would do with it."""
    target = gpu_named(gpu)
    count, local_bytes, origin = _registers(program, launch, target, registers)
    shared = shared_bytes(program, launch)
    capability = max(c for c in LIMITS if c <= target.capability)
    limit = LIMITS[capability].shared_per_block
    if shared > limit:
        raise LaunchError(
            f"{program.name} takes {shared} bytes of shared memory a block, and {target.name} has "
            f"{limit}",
            help="use a smaller tile",
        )
    fits = occupancy(capability, launch.threads, count, shared)
    resident = max(1, min(fits.blocks, -(-launch.blocks // target.sms)))
    counts = LaunchCounts(traced_blocks=min(3 * resident, 32))
    found = simulate(program, launch, arrays, scalars, sizes, replace(options, counter=counts))
    simulated = min(options.blocks or launch.blocks, launch.blocks)
    compiled = None
    if origin == "compiled":
        compiled = _compiled(program, launch, target, counts, simulated)
    steps = ESTIMATED
    if compiled is not None:
        steps = CompiledSteps(step_mixes(compiled, counts), compiled.copies)
    prediction = predict(counts, target, launch, fits, simulated, steps)
    return LaunchExplanation(
        program.name, target, launch, found, _lines(program.source, counts, prediction), fits,
        count, origin, local_bytes, shared, prediction, counts.dram_bytes, program.source,
        _meets(program), compiled,
    )  # fmt: skip


def _compiled(
    program: ThreadProgram, launch: ThreadLaunch, gpu: Gpu, counts: LaunchCounts, blocks: int
) -> CompiledCounts | None:
    text = ptx_of(program, launch, gpu.capability)
    if text is None:
        return None
    warps = blocks * -(-launch.threads // 32)
    return compiled_counts(text, program.source.path, counts, warps)


def _registers(
    program: ThreadProgram, launch: ThreadLaunch, gpu: Gpu, asked: RegisterCount
) -> tuple[int, int, str]:
    """Registers and local bytes of a thread, and where they are from."""
    if isinstance(asked, int):
        return asked, 0, "given"
    if asked not in (None, "compiled"):
        raise LaunchError(f"registers={asked!r}", help='a number, "compiled", or leave it out')
    found = compiled_resources(program, launch, gpu.capability) if asked == "compiled" else None
    if found is not None:
        return found.registers, found.local_bytes, "compiled"
    return estimated_registers(program), 0, "estimated"


def _meets(program: ThreadProgram) -> bool:
    return any(isinstance(s, Barrier) and s.scope == "grid" for s in walk(program.body))


def _lines(
    source: SourceText, counts: LaunchCounts, prediction: TimePrediction
) -> tuple[SourceLine, ...]:
    """Counts of all places of a line together, for every line of the source."""
    joined: dict[int, LineCounts] = {}
    for place, part in counts.lines.items():
        if place.path == source.path:
            total = joined.setdefault(place.line, LineCounts())
            for name, value in vars(part).items():
                setattr(total, name, getattr(total, name) + value)
    waits: dict[int, dict[str, float]] = {}
    for pc, kinds in prediction.timeline.stalls.items():
        line = waits.setdefault(counts.places[pc].line, {})
        for what, cycles in kinds.items():
            line[what] = line.get(what, 0.0) + cycles
    return tuple(
        SourceLine(number, text, joined.get(number, LineCounts()), waits.get(number, {}))
        for number, text in enumerate(source.lines, source.first)
    )
