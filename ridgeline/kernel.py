"""One expression as loops that you schedule by hand.

    k = rl.loops(lambda x, w, b: rl.gelu(x @ w + b), x, w, b)
    k = k.split("n", 16).split("m", 6).reorder("m.0", "n.0", "k", "m.1", "n.1")
    k = k.unroll("m.1").vectorize("n.1").parallel("m.0")
    print(k); print(k.source()); k(x, w, b); k.flops, k.bytes, k.intensity

Every step is a checked rewrite; an illegal one is refused with the reason and changes nothing. A
kernel runs where its tensors are: for a GPU, `bind` gives axes to blocks and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from ridgeline.compiler.backend import Backend, backend
from ridgeline.compiler.graph import Graph
from ridgeline.compiler.layout import lay_out
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import CompiledKernel, Stages, device_of
from ridgeline.devices import CPU, device
from ridgeline.dtypes import float64
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.explain import quantity
from ridgeline.fusion.groups import Fusion, fuse
from ridgeline.fusion.values import choose_values
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.node import Node, shows_constant, topological
from ridgeline.graph.origins import user_line
from ridgeline.graph.passes.spell import spell
from ridgeline.loops.counts import compulsory_bytes, moved_bytes, useful
from ridgeline.loops.ir import For, Kernel, statements
from ridgeline.loops.lowered import Lowered
from ridgeline.loops.printer import named, print_kernel
from ridgeline.loops.schedule import (
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    Fuse,
    Inline,
    Interleave,
    Offset,
    Online,
    Pipeline,
    Reorder,
    Rfactor,
    SetKind,
    Split,
    Step,
    Stream,
    Tensorize,
    Tile,
    from_json,
    replay,
    to_json,
)
from ridgeline.loops.steps.split import Tail
from ridgeline.tensors.cells import PLAIN, filled_leaf
from ridgeline.tensors.execute import CaptureError
from ridgeline.tensors.modes import is_grad_enabled, modes
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tensors.values import read
from ridgeline.tracing.bodies import BodyFrame
from ridgeline.tracing.effects import settled

if TYPE_CHECKING:
    from ridgeline.graph.sizes import Size
    from ridgeline.random import Generator


class LoopsError(RidgelineError):
    """An expression that is not one kernel, or a call that does not fit the kernel."""

    code = "RL0502"


@dataclass(frozen=True, slots=True)
class KernelRoofline:
    """Exact work of an expression against measured ceilings: what bounds it, and the least time.

    `moved` is what the schedule's own loads and stores move, by the scope they touch.
    """

    operations: Mapping[str, int]
    flops: int
    bytes: int
    moved: Mapping[str, int]
    bandwidth: float
    peak: float

    @property
    def bound(self) -> str:
        """`memory` or `compute`."""
        return "memory" if self.bytes / self.bandwidth > self.flops / self.peak else "compute"

    @property
    def seconds(self) -> float:
        """The least time the machine could need."""
        return max(self.bytes / self.bandwidth, self.flops / self.peak)

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {count}" for name, count in self.operations.items())
        moved = ", ".join(f"{scope} {quantity(n, 'B')}" for scope, n in self.moved.items())
        intensity = self.flops / self.bytes if self.bytes else 0.0
        return "\n".join([
            f"useful work      {quantity(self.flops, 'FLOP')} ({classes})   exact",
            f"compulsory bytes {quantity(self.bytes, 'B')}, {intensity:.2f} FLOP/B   exact",
            f"moved            {moved}   exact",
            f"ceilings         {self.bandwidth / 1e9:.1f} GB/s, "
            f"{self.peak / 1e9:.0f} GFLOP/s   measured",
            f"at least         {self.seconds * 1e6:.2f} µs, bound by {self.bound}",
        ])  # fmt: skip

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class Loops:
    """A kernel and the schedule applied to it so far; every method gives a new one."""

    fusion: Fusion  # of one kernel
    graph: Graph
    arguments: int  # how many of the graph's inputs a call gives; the others are `constants`
    constants: tuple[Any, ...]
    steps: tuple[Step, ...] = ()

    @property
    def lowered(self) -> Lowered:
        """The loops before any step."""
        return self.fusion.groups[0].loops

    @property
    def device(self) -> str:
        """Where the kernel runs."""
        return device_of(self.graph.outputs, self.graph.inputs)

    @cached_property
    def kernel(self) -> Kernel:
        """The scheduled loops."""
        return replay(self.lowered.kernel, self.steps)

    def apply(self, step: Step) -> Loops:
        """One more step, checked now."""
        made = replace(self, steps=(*self.steps, step))
        made.__dict__["kernel"] = step.apply(self.kernel)
        return made

    def split(self, axis: str, factor: int, tail: Tail = "branch") -> Loops:
        """Cut an axis into pieces of `factor`: `axis.0` counts pieces, `axis.1` runs inside one.

        `tail` says what becomes of the rest where the factor does not divide: it is run after the
        pieces (`peel`), it is a shorter piece (`branch`), every place is tested (`guard`), or the
        last place runs again (`repeat`).
        """
        return self.apply(Split(axis, factor, tail))

    def fuse(self, outer: str, inner: str) -> Loops:
        """Make one loop of two nested ones; its name is both names together."""
        return self.apply(Fuse(outer, inner, divide=True))

    def tile(self, **factors: int) -> Loops:
        """Split several axes at once, and run tile by tile: `k.tile(m=6, n=16)`."""
        return self.apply(Tile(tuple(factors), tuple(factors.values())))

    def reorder(self, *order: str) -> Loops:
        """Nest the named axes in this order, outermost first."""
        return self.apply(Reorder(order))

    def unroll(self, axis: str) -> Loops:
        """Copy the body of an axis once per iteration."""
        return self.apply(SetKind(axis, "unroll"))

    def vectorize(self, axis: str) -> Loops:
        """Run an innermost axis in vector lanes."""
        return self.apply(SetKind(axis, "vector"))

    def parallel(self, axis: str) -> Loops:
        """Hand the iterations of an outermost axis to the cores."""
        return self.apply(SetKind(axis, "parallel"))

    def bind(self, axis: str, to: Literal["grid", "thread"]) -> Loops:
        """Run an axis over the blocks of a GPU's grid, or over the threads of a block."""
        return self.apply(Bind(axis, to))

    def cache_read(self, buffer: str, before: str, *axes: str) -> Loops:
        """Pack what a loop reads of a buffer before it, with one scratch axis per named loop."""
        return self.apply(CacheRead(buffer, before, axes))

    def interleave(self, buffer: str, before: str, *axes: str) -> Loops:
        """Pack as `cache_read` does, with what one instruction sums, the last axis, as words."""
        return self.apply(Interleave(buffer, before, axes))

    def offset(self, buffer: str, before: str) -> Loops:
        """Hold packed signed bytes as unsigned ones; sums start from totals taken before a loop."""
        return self.apply(Offset(buffer, before))

    def cache_write(self, buffer: str, after: str, *axes: str) -> Loops:
        """Collect what a loop writes to a buffer in scratch, and copy it out after the loop."""
        return self.apply(CacheWrite(buffer, after, axes))

    def stream(self, buffer: str) -> Loops:
        """Write a result past the caches."""
        return self.apply(Stream(buffer))

    def compute_at(self, buffer: str, axis: str) -> Loops:
        """Fill a scratch buffer inside the axis that reads it, with what each iteration needs."""
        return self.apply(ComputeAt(buffer, axis))

    def inline(self, buffer: str) -> Loops:
        """Compute what a scratch buffer holds where it is used, and drop the buffer."""
        return self.apply(Inline(buffer))

    def online(self, axis: str) -> Loops:
        """Fold a maximum and the sums relative to it in one pass over an axis."""
        return self.apply(Online(axis))

    def tensorize(self, axis: str, instruction: str) -> Loops:
        """Run the nest that begins at an axis as one machine instruction."""
        return self.apply(Tensorize(axis, instruction))

    def pipeline(self, axis: str, stages: int = 2) -> Loops:
        """Fill the scratch of a loop `stages - 1` iterations before it is used."""
        return self.apply(Pipeline(axis, stages))

    def replay(self, trace: Sequence[dict[str, Any]]) -> Loops:
        """Apply a stored schedule, see `trace`."""
        made = self
        for step in from_json(trace):
            made = made.apply(step)
        return made

    def rfactor(self, axis: str) -> Loops:
        """Fold an inner summed axis into separate accumulators, joined afterwards."""
        return self.apply(Rfactor(axis))

    def default(self) -> Loops:
        """The schedule the compiler would choose."""
        made = replace(self, steps=())
        target = self._backend
        for step in target.schedule(self.lowered, target.facts()):
            made = made.apply(step)
        return made

    @property
    def trace(self) -> list[dict[str, Any]]:
        """The schedule as plain data, to store and replay."""
        return to_json(self.steps)

    @property
    def flops(self) -> int:
        """Useful operations: what the expression needs, whatever the schedule."""
        return int(useful(self.lowered.kernel).flops)

    @property
    def bytes(self) -> int:
        """Compulsory traffic: every element read once and every result written once."""
        return int(compulsory_bytes(self.lowered.kernel))

    @property
    def intensity(self) -> float:
        """Useful operations per compulsory byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def roofline(self) -> KernelRoofline:
        """What this machine's measured ceilings allow the expression, whatever the schedule."""
        bandwidth, peak = _ceilings(self.device, self.lowered)
        counts = useful(self.lowered.kernel)
        moved = moved_bytes(self.kernel)
        traffic: dict[str, int] = {}
        for side in (moved.read, moved.written):
            for scope, amount in side.items():
                traffic[scope] = traffic.get(scope, 0) + int(amount)
        return KernelRoofline(
            {cost: int(n) for cost, n in counts.operations.items()},
            self.flops,
            self.bytes,
            traffic,
            bandwidth,
            peak,
        )

    def source(self) -> str:
        """The generated code: LLVM IR, or CUDA C++ where axes are bound to a GPU."""
        if self._bound() is None:
            return self._backend.source([self.kernel])
        from ridgeline.codegen.cuda import generate

        return generate(self.kernel).text

    def __str__(self) -> str:
        return print_kernel(self.kernel)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The counts, the schedule and the loops, for notebooks."""
        steps = "".join(f"<li><code>{escape(repr(step))}</code></li>" for step in self.steps)
        return (
            f"<b>{escape(self.kernel.name)}</b>: {quantity(self.flops, 'FLOP')}, "
            f"{quantity(self.bytes, 'B')} (exact), {self.intensity:.2f} FLOP/B"
            f"<ol>{steps}</ol><pre>{escape(str(self))}</pre>"
        )

    def __call__(self, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run the kernel on tensors of the shapes it was made for."""
        _check_not_traced("a kernel of rl.loops runs")
        if len(tensors) != self.arguments:
            raise LoopsError(f"this kernel takes {self.arguments} tensors, not {len(tensors)}")
        memory = []
        for given, node in zip(tensors, self.graph.inputs):
            memory.append(_memory(given))
            if given.requires_grad and is_grad_enabled():
                raise LoopsError(
                    "a kernel of rl.loops has no derivative, and this tensor requires gradients",
                    help="call it under rl.no_grad(), or give it x.detach()",
                )
            if read(given).type != node.type:
                raise ShapeError(f"this kernel was made for {node.type}, not {read(given).type}")
        made = self._program.run([*memory, *self.constants])
        values = [wrap(filled_leaf(n.type, m), PLAIN) for n, m in zip(self.graph.outputs, made)]
        return values[0] if len(values) == 1 else tuple(values)

    @property
    def _backend(self) -> Backend:
        return backend(self.device)

    def _bound(self) -> str | None:
        """An axis that only a GPU can run."""
        loops = (s for s in statements(self.kernel.body) if isinstance(s, For))
        return next((loop.name for loop in loops if loop.kind in ("grid", "thread")), None)

    @cached_property
    def _program(self) -> Program:
        bound = self._bound()
        if bound is not None and self.device == CPU:
            raise LoopsError(
                f"axis {bound!r} is bound to a GPU, and this kernel's tensors are on the CPU",
                help="make the kernel with tensors on a GPU, or use parallel() in place of bind()",
            )
        views = {buffer: buffer for buffer in self.kernel.params}
        own = replace(self.lowered, body=self.kernel.body, views=views)  # no library's loops
        group = replace(self.fusion.groups[0], lowered=own)
        values = tuple(own.slots[buffer.slot] for buffer in self.kernel.params)
        kernel = CompiledKernel(group, list(self.steps), named(self.kernel), values)
        order = topological(self.graph.outputs, set(self.graph.inputs).__contains__)
        stages = Stages(Fusion([group], []), [kernel], self.graph.outputs, tuple(order))
        target = self._backend
        layout = lay_out(stages, self.graph.inputs, target.launch)
        target.compile([kernel], ())
        return Program(layout, target, self.graph, stages)


def _check_not_traced(what: str) -> None:
    """Raise where a function is traced, whose tensors have no values."""
    if modes.capture is not None:
        line = user_line()
        raise CaptureError(
            f"{what} at once, and {modes.capture.name} has no values while it traces",
            note=f"at {line}" if line else "",
            help="write the expression itself there, or move this line out of the traced function",
        )


def _memory(given: Tensor) -> Any:
    """The memory of a tensor's values, dense."""
    if not isinstance(given, Tensor):
        raise LoopsError(
            f"a kernel is made for tensors and takes tensors, not {type(given).__name__}",
            help="numbers are part of the expression: rl.loops(lambda x: x * 2, x)",
        )
    whole = given.detach().clone() if given._steps else given
    return settled(whole._resolved()[0])


def _ceilings(place: str, lowered: Lowered) -> tuple[float, float]:
    """Bytes and operations per second that a device was measured to do."""
    if place == CPU:
        from ridgeline.runtime.cpu.ceilings import ceilings

        limits = ceilings()
        wide = any(b.dtype is float64 for b in lowered.kernel.params)
        return limits.copy_bandwidth, limits.fma_float64 if wide else limits.fma_float32
    from ridgeline.runtime.cuda.ceilings import ceilings as of_gpu

    found = of_gpu(device(place).index or 0)
    return found.copy_bandwidth, found.fma_float32


def _is_given(node: Node) -> bool:
    """True for a value that lies in memory; a constant stays part of the expression."""
    return node.buffer is not None and not shows_constant(node)


def loops(function: Callable[..., Any], *examples: Tensor) -> Loops:
    """The loop nest of an expression, for tensors like the examples; it must be one kernel.

    The function is traced: it sees types and no values, and must leave all tensors as they are.
    """
    _check_not_traced("rl.loops takes its tensors")
    for example in examples:
        _memory(example)
    if not callable(function):
        raise LoopsError(f"rl.loops takes a function and tensors, not {function!r:.60}")
    outputs, given = _traced(function, examples)
    leaves = [n for n in topological(outputs, stop=_is_given) if _is_given(n) and n not in given]
    copied, inputs = onto_fresh_leaves(outputs, [*given, *leaves])
    known = set(inputs).__contains__
    written_out = spell(copied, known)
    values = choose_values(written_out, known)
    target = backend(device_of(written_out, inputs))
    fusion = fuse(values, known, target.roofline(target.facts()))
    _require_one(fusion)
    graph = Graph(tuple(values.results), tuple(inputs), list)
    return Loops(fusion, graph, len(given), tuple(n.buffer for n in leaves))


class _Frame(BodyFrame):
    """The expression while it is traced: its arguments have no values."""

    def __init__(self) -> None:
        super().__init__("rl.loops", None)

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """A kernel has no stream of random numbers to advance."""
        raise LoopsError(
            "rl.loops cannot draw random numbers: its kernel would give the same ones in every "
            "call",
            help="draw them outside, and give them as an argument",
        )


def _traced(
    function: Callable[..., Any], examples: Sequence[Tensor]
) -> tuple[list[Node], list[Node]]:
    """The nodes of a function's results, and those of tensors like the examples under them."""
    frame = _Frame()
    given = [frame.element(read(example).type) for example in examples]
    with frame.inside():
        arguments = [wrap(node, PLAIN) for node in given]
        result = function(*arguments)
        wanted = list(result) if isinstance(result, (tuple, list)) else [result]
        if not wanted or not all(isinstance(value, Tensor) for value in wanted):
            raise LoopsError(f"the expression gives {result!r:.60}, not tensors")
        outputs = [read(value) for value in wanted]
    frame.finish()
    for number, (argument, node) in enumerate(zip(arguments, given), 1):
        if argument._cell.node is not node:
            raise LoopsError(
                f"the function writes to its argument {number}, and a kernel changes none of its "
                "tensors",
                help="return the new value, or write to a clone()",
            )
    return outputs, given


def _require_one(fusion: Fusion) -> None:
    """Refuse what is not one nest of loops."""
    groups = fusion.groups
    if not groups:
        raise LoopsError("this expression computes nothing: its results are its arguments")
    library = [g.name for g in groups if g.lowered is None]
    if library:
        raise LoopsError(
            f"{', '.join(library)} is no nest of loops: it runs as a call of a library",
            help="take the expression without it",
        )
    if len(groups) > 1:
        reasons = "\n".join(f"{r.first} + {r.second}: {r.reason}" for r in fusion.refusals)
        raise LoopsError(
            f"this expression takes {len(groups)} kernels: {', '.join(g.name for g in groups)}",
            note=reasons,
            help="give each part its own rl.loops",
        )
