"""What this machine can do: measured copy bandwidth, multiply-add rates, and call costs.

These are the roofs that reports compare kernels with. The kernels measured are as good as we know
how to make them: non-temporal vector stores over reused huge pages, and independent chains of
multiply-adds in registers. Measuring takes about a second and is kept on disk for the machine.
"""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from time import perf_counter

from ridgeline.codegen.llvm.native import Library, ObjectCache, Target, compile_cached, target
from ridgeline.runtime.buffer import Buffer
from ridgeline.runtime.cpu import pool
from ridgeline.runtime.cpu.executor import Plan, Step

_ROUNDS = 11
_NOISY = 0.15
_BLOCK = 256 << 10  # bytes that one task copies
_CHAINS = 12  # more than latency times issue width on current cores, fewer than registers
_LINKS = 16_000  # multiply-adds in each chain of one task
_EMPTY_STEPS = 5_000


@dataclass(frozen=True)
class Ceilings:
    """Medians over several rounds. Bandwidth counts bytes read and bytes written."""

    copy_bandwidth: float  # bytes/s, all threads
    copy_bandwidth_one: float  # bytes/s, one thread
    fma_float32: float  # flop/s, all threads; a multiply-add is two
    fma_float32_one: float
    fma_float64: float
    fma_float64_one: float
    region_seconds: float  # to open and close an empty parallel step, workers awake
    call_seconds: float  # to call an empty kernel from a plan
    threads: int
    noise: float  # the largest spread of any figure: 10th to 90th percentile over the median

    @property
    def noisy(self) -> bool:
        """True where the machine was too busy or too unsteady for the figures to be trusted."""
        return self.noise > _NOISY


@lru_cache(maxsize=8)
def _for_threads(threads: int) -> Ceilings:
    cache = ObjectCache("ceilings")
    key = _machine_key(target(), threads)
    stored = cache.get(key)
    if stored is not None:
        return Ceilings(**json.loads(stored))
    measured = measure()
    if not measured.noisy:  # a noisy measurement serves this process only
        cache.put(key, json.dumps(asdict(measured)).encode())
    return measured


def ceilings() -> Ceilings:
    """This machine's ceilings for the present number of threads, from disk or measured now."""
    return _for_threads(pool.threads())


def measure() -> Ceilings:
    """Measure now, in about a second."""
    host, threads = target(), pool.threads()
    library = Library.load(compile_cached(_ir(host)))
    blocks = min(max(4 * host.l3, 64 << 20), 512 << 20) // _BLOCK
    source, destination = (Buffer.allocate(blocks * _BLOCK) for _ in range(2))
    copied = (source.address, destination.address)
    tasks = 32 * threads
    written = (Buffer.allocate(64 * tasks).address,)
    copy, zero = library.address("ridgeline_copy"), library.address("ridgeline_zero")
    Plan([Step(zero, (0,), blocks), Step(zero, (1,), blocks)], 2).run(copied)  # touch the pages

    def rate(kernel: int, slots: int, addresses: tuple[int, ...], count: int, work: float) -> _Pair:
        """Amounts of work per second, of all threads and of one."""
        args = tuple(range(slots))
        every = Plan([Step(kernel, args, count)], slots)
        alone = Plan([Step(kernel, args, count, count)], slots)
        return (
            lambda: work * count / every.profile(addresses)[0],
            lambda: work * count / alone.profile(addresses)[0],
        )

    figures: dict[str, Callable[[], float]] = {}
    for name, pair in {
        "copy_bandwidth": rate(copy, 2, copied, blocks, 2 * _BLOCK),
        **{
            f"fma_float{bits}": rate(
                library.address(f"ridgeline_fma{bits}"), 1, written, tasks, _flops(host, bits)
            )
            for bits in (32, 64)
        },
    }.items():
        figures[name], figures[f"{name}_one"] = pair
    nothing = library.address("ridgeline_nothing")
    figures["region_seconds"] = _cost_of(Step(nothing, (), max(threads, 2), 1))
    figures["call_seconds"] = _cost_of(Step(nothing, ()))
    return _summarise(figures, threads)


_Pair = tuple[Callable[[], float], Callable[[], float]]


def _cost_of(step: Step) -> Callable[[], float]:
    plan = Plan([step] * _EMPTY_STEPS, 0)

    def seconds() -> float:
        start = perf_counter()
        plan.run(())
        return (perf_counter() - start) / _EMPTY_STEPS

    return seconds


def _summarise(figures: dict[str, Callable[[], float]], threads: int) -> Ceilings:
    """Figures are taken in turn, so that a slow spell of the machine touches all alike."""
    taken: dict[str, list[float]] = {name: [] for name in figures}
    for round in range(_ROUNDS + 1):
        for name, figure in figures.items():
            value = figure()
            if round:  # the first round warms up
                taken[name].append(value)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    spreads = [
        (sorted(values)[-2] - sorted(values)[1]) / medians[name]
        for name, values in taken.items()
        if not name.endswith("_seconds")  # nanoseconds always scatter
    ]
    return Ceilings(**medians, threads=threads, noise=max(spreads))


def _machine_key(host: Target, threads: int) -> str:
    source = blake2b(Path(__file__).read_bytes()).hexdigest()
    return f"{platform.node()}\n{host}\n{threads}\n{source}"


def _flops(host: Target, bits: int) -> float:
    """Floating-point operations of one task."""
    return 2.0 * _LINKS * _CHAINS * (host.vector_bits // bits)


def _ir(host: Target) -> str:
    return _copy_ir(host.vector_bits) + "".join(_fma_ir(host.vector_bits, b) for b in (32, 64))


def _copy_ir(vector_bits: int) -> str:
    """Kernels that copy or zero their blocks, four vectors at a time, past the caches."""
    vector = f"<{vector_bits // 32} x i32>"
    size = vector_bits // 8
    moves = "\n".join(
        f"  %from.{i} = getelementptr i8, ptr %a, i64 %at.{i}\n"
        f"  %to.{i} = getelementptr i8, ptr %b, i64 %at.{i}\n"
        f"  %v.{i} = load {vector}, ptr %from.{i}, align 64\n"
        f"  store {vector} %v.{i}, ptr %to.{i}, align 64, !nontemporal !0"
        for i in range(4)
    )
    offsets = "\n".join(f"  %at.{i} = add i64 %offset, {i * size}" for i in range(4))
    clears = "\n".join(
        f"  %to.{i} = getelementptr i8, ptr %a, i64 %at.{i}\n"
        f"  store {vector} zeroinitializer, ptr %to.{i}, align 64"
        for i in range(4)
    )
    second = "  %b.at = getelementptr ptr, ptr %args, i64 1\n  %b = load ptr, ptr %b.at"

    def over_blocks(name: str, head: str, body: str) -> str:
        return f"""
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
entry:
  %a = load ptr, ptr %args
{head}
  %first = mul i64 %begin, {_BLOCK}
  %last = mul i64 %end, {_BLOCK}
  br label %loop
loop:
  %offset = phi i64 [ %first, %entry ], [ %next, %loop ]
{offsets}
{body}
  %next = add i64 %offset, {4 * size}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  fence seq_cst
  ret void
}}
"""

    return (
        "!0 = !{i32 1}\n"
        "define void @ridgeline_nothing(ptr %args, i64 %begin, i64 %end) {\n  ret void\n}\n"
        + over_blocks("ridgeline_copy", second, moves)
        + over_blocks("ridgeline_zero", "", clears)
    )


def _fma_ir(vector_bits: int, bits: int) -> str:
    """A kernel of independent multiply-add chains; a task leaves 64 bytes so that it is kept."""
    scalar = {32: "float", 64: "double"}[bits]
    lanes = vector_bits // bits
    vector, short = f"<{lanes} x {scalar}>", f"v{lanes}f{bits}"

    def splat(value: float) -> str:
        return f"<{', '.join([f'{scalar} {value!r}'] * lanes)}>"

    chains = range(_CHAINS)
    starts = "\n".join(
        f"  %x.{i} = phi {vector} [ {splat(i + 1.0)}, %task ], [ %y.{i}, %loop ]" for i in chains
    )
    links = "\n".join(
        f"  %y.{i} = call {vector} @llvm.fma.{short}({vector} %x.{i}, {vector} {splat(0.5)},"
        f" {vector} {splat(1.0)})"
        for i in chains
    )
    sums = "\n".join(
        f"  %sum.{i + 1} = fadd {vector} {'%y.0' if i == 0 else f'%sum.{i}'}, %y.{i + 1}"
        for i in range(_CHAINS - 1)
    )
    return f"""
declare {vector} @llvm.fma.{short}({vector}, {vector}, {vector})
define void @ridgeline_fma{bits}(ptr %args, i64 %begin, i64 %end) {{
entry:
  %out = load ptr, ptr %args
  br label %task
task:
  %index = phi i64 [ %begin, %entry ], [ %index.next, %keep ]
  br label %loop
loop:
  %link = phi i64 [ 0, %task ], [ %link.next, %loop ]
{starts}
{links}
  %link.next = add i64 %link, 1
  %more = icmp slt i64 %link.next, {_LINKS}
  br i1 %more, label %loop, label %keep
keep:
{sums}
  %offset = mul i64 %index, 64
  %at = getelementptr i8, ptr %out, i64 %offset
  store {vector} %sum.{_CHAINS - 1}, ptr %at, align 64
  %index.next = add i64 %index, 1
  %again = icmp slt i64 %index.next, %end
  br i1 %again, label %task, label %done
done:
  ret void
}}
"""
