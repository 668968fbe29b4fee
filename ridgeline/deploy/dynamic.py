"""Programs with dynamic sizes: what depends on a size, as expressions for native code.

Kernels take sizes as arguments already. Besides them a run needs how many tasks each kernel has,
how many are handed out at a time, where temporaries lie, how large results are, and whether the
sizes are ones that the code was made for. Each is a *register* of a case, an expression in postfix
form.

Temporaries are ordered by where they lie at the largest sizes. Each begins behind all before it
that are alive at the same time: so none overlap, whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from ridgeline.compiler.memory_plan import ALIGNMENT, lay_out, lives, made_results
from ridgeline.compiler.pipeline import check, compilation, lower, optimize
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.deploy.cases import Bindings
from ridgeline.deploy.compile import AheadBackend, Compiled, checked_lines, refuse_calls
from ridgeline.deploy.tables import STACK, Base, Case, Operation
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.facts import Fact
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType
from ridgeline.graph.sizes import Quasi, Size, SizeExpr, Sym
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops.ir import Const, Expr, Kernel, OpExpr, Var
from ridgeline.runtime.cpu.backend import TaskLaunch, machine, task_extents
from ridgeline.runtime.cpu.control_words import Address
from ridgeline.runtime.cpu.support_ir import Head
from ridgeline.runtime.cpu.symbolic import require_sizes
from ridgeline.schedules.machine import LONG_SECONDS, PART_SECONDS, SOME_PARTS, shared_from

Words = list[int]
_KINDS = {
    "//": Operation.FLOOR_DIVIDE,
    "%": Operation.MODULO,
    "min": Operation.MINIMUM,
    "max": Operation.MAXIMUM,
    "add": Operation.ADD,
    "mul": Operation.MULTIPLY,
    "floordiv": Operation.FLOOR_DIVIDE,
    "mod": Operation.MODULO,
    "minimum": Operation.MINIMUM,
    "maximum": Operation.MAXIMUM,
}
_NANO = 1_000_000_000


def constant(value: int) -> Words:
    """A number."""
    return [Operation.CONSTANT, int(value)]


def apply(operation: Operation, *parts: Words) -> Words:
    """An operation on two expressions, or on several from the left."""
    return reduce(lambda left, right: [*left, *right, operation, 0], parts)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The unknowns of a program, in the order in which a call gives them."""

    symbols: tuple[Sym, ...]

    def of(self, size: Size) -> Words:
        """A size as an expression."""
        return constant(size) if isinstance(size, int) else self._form(size.form)

    def _name(self, name: str) -> Words:
        return [Operation.SIZE, [symbol.name for symbol in self.symbols].index(name)]

    def _form(self, form: Polynomial[Any]) -> Words:
        terms = [
            apply(Operation.MULTIPLY, constant(coefficient), *map(self._atom, monomial))
            for monomial, coefficient in form.terms.items()
        ]
        return apply(Operation.ADD, *terms, constant(form.constant))

    def _atom(self, atom: Sym | Quasi) -> Words:
        if isinstance(atom, Sym):
            return self._name(atom.name)
        return apply(_KINDS[atom.kind], self._form(atom.left), self._form(atom.right))

    def expression(self, expr: Expr) -> Words:
        """An expression of loops over sizes."""
        if isinstance(expr, Const):
            return constant(int(expr.value))
        if isinstance(expr, Var):
            return self._name(expr.name)
        assert isinstance(expr, OpExpr), "extents are arithmetic"
        if expr.name == "sub":
            left, right = map(self.expression, expr.args)
            negative = apply(Operation.MULTIPLY, constant(-1), right)
            return apply(Operation.ADD, left, negative)
        return apply(_KINDS[expr.name], *map(self.expression, expr.args))

    def bytes_of(self, kind: TensorType) -> Words:
        """The bytes of a tensor."""
        lengths = [self.of(length) for length in kind.shape]
        return apply(Operation.MULTIPLY, constant(kind.dtype.itemsize), *lengths)

    def shape(self, shape: Sequence[Size]) -> list[Any]:
        """A shape as a manifest has it: numbers, names, or postfix lists."""
        return [self._shown(length) for length in shape]

    def _shown(self, length: Size) -> Any:
        if isinstance(length, int):
            return length
        if str(length) in [symbol.name for symbol in self.symbols]:
            return str(length)
        return list(self._postfix(self.of(length)))

    def _postfix(self, words: Words) -> Iterator[int | str]:
        signs = {Operation.ADD: "+", Operation.MULTIPLY: "*"}
        signs |= {_KINDS[kind]: kind for kind in ("//", "%", "min", "max")}
        for operation, operand in zip(words[::2], words[1::2]):
            if operation == Operation.CONSTANT:
                yield operand
            elif operation == Operation.SIZE:
                yield self.symbols[operand].name
            else:
                yield signs[Operation(operation)]


class _AnySize(AheadBackend):
    """Launches that stand for those at some sizes."""

    def launch(self, group: FusionGroup, kernel: Kernel) -> TaskLaunch | None:
        """Several tasks, so that a plan reckons with threads."""
        return TaskLaunch(2, 1)


@dataclass(frozen=True, slots=True)
class DynamicCode:
    """A graph over sizes, compiled, and its kernels by name."""

    compiled: Compiled
    kernels: Mapping[str, CompiledKernel]
    made: Sequence[TensorType]  # the results that a run makes


def compile_dynamic(graph: Graph, sizes: Sizes, pairs: Sequence[tuple[int, int]]) -> DynamicCode:
    """The code of a graph over sizes, for the machine that `compiling_for` names."""
    require_sizes(graph)
    target = _AnySize()
    to = compilation(graph, target, pairs=tuple(pairs))
    over, checked = check(graph.on_fresh_leaves(), to)
    to = replace(to, checked=checked)
    stages = lower(optimize(over, to), to)
    own = list(stages.all_kernels())
    highest = {symbol.name: symbol.hi for symbol in sorted(sizes.symbols, key=lambda s: s.name)}
    layout = replace(lay_out(stages, target, highest), checked=checked)
    refuse_calls(graph, layout, lambda: stages.order)
    compiled = Compiled(layout, target.compile(own), checked_lines(graph))
    kernels = {compiled.kernel.name: compiled for compiled in own}
    return DynamicCode(compiled, kernels, [value.type for value in made_results(stages)])


class DynamicCase:
    """The registers of a case in the making, and which words of its image they set."""

    def __init__(self, code: DynamicCode, sizes: Sizes) -> None:
        self._code, self._sizes = code, sizes
        self._registers: list[Words] = []
        self._checks: list[tuple[int, int]] = []
        self.patches: list[tuple[int, int]] = []
        self._end = self._place()

    def register(self, words: Words) -> int:
        """The number of an expression."""
        deep = 0
        for operation in words[::2]:
            deep += -1 if operation >= Operation.ADD else 1
            assert deep < STACK, "an expression is too deep"
        self._registers.append(words)
        return len(self._registers) - 1

    def require(self, facts: Sequence[Fact]) -> None:
        """The case is for sizes within bounds at which these facts hold."""
        for number, symbol in enumerate(self._sizes.symbols):
            size = [Operation.SIZE, number]
            for low, high in ((size, constant(symbol.lo)), (constant(symbol.hi), size)):
                self._checks.append((self.register(apply(Operation.LESS, low, high)), 0))
        for fact in facts:
            operation = Operation.EQUAL if fact.relation == "==" else Operation.LESS
            words = apply(operation, self._sizes.of(fact.size), constant(0))
            self._checks.append((self.register(words), int(fact.holds)))

    def _slot_bytes(self) -> dict[int, Words]:
        """The bytes of every slot that a kernel reads or writes: the most of those in it."""
        found: dict[int, dict[tuple[int, ...], None]] = {}
        for call in self._code.compiled.layout.calls:
            values = self._code.kernels[call.symbol].values  # type: ignore[union-attr]
            for slot, value in zip(call.slots, values):  # type: ignore[union-attr]
                found.setdefault(slot, {})[tuple(self._sizes.bytes_of(value.type))] = None
        return {slot: apply(Operation.MAXIMUM, *map(list, each)) for slot, each in found.items()}

    def _place(self) -> int:
        """Registers for where temporaries lie; the register of the arena's end."""
        layout = self._code.compiled.layout
        alive, size = lives(layout), self._slot_bytes()
        self.offsets: dict[int, int] = {}
        ends: dict[int, int] = {}
        for slot, _ in sorted(layout.arena, key=lambda pair: pair[1]):
            first, last = alive.get(slot, (0, 0))
            before = [
                [int(Operation.REGISTER), ends[other]]
                for other in ends
                if alive[other][0] <= last and first <= alive[other][1]
            ]
            self.offsets[slot] = self.register(apply(Operation.MAXIMUM, constant(0), *before))
            if slot in alive:
                begin = [int(Operation.REGISTER), self.offsets[slot]]
                ends[slot] = self.register(_up(apply(Operation.ADD, begin, size[slot])))
        ended = [[int(Operation.REGISTER), end] for end in ends.values()]
        return self.register(apply(Operation.MAXIMUM, constant(0), *ended))

    def _launch(self, compiled: CompiledKernel) -> tuple[int, int]:
        """Registers for the tasks of a kernel, and how many are handed out at a time.

        As `schedules.machine.grain` has it, in nanoseconds.
        """
        extents = [self._sizes.expression(extent) for extent in task_extents(compiled.kernel)]
        tasks = self.register(apply(Operation.MULTIPLY, constant(1), *extents))
        count = [int(Operation.REGISTER), tasks]
        seconds, facts = compiled.group.seconds, machine()
        time = constant(max(int(seconds * _NANO), 1))
        for symbol in self._sizes.symbols:
            if symbol.name in compiled.kernel.sizes:
                size = self._sizes.of(SizeExpr(Polynomial.of(symbol)))
                scaled = apply(Operation.MULTIPLY, time, size)
                time = apply(Operation.FLOOR_DIVIDE, scaled, constant(symbol.hi))
        whole = [int(Operation.REGISTER), self.register(time)]
        one = apply(Operation.MAXIMUM, apply(Operation.FLOOR_DIVIDE, whole, count), constant(1))
        each = [int(Operation.REGISTER), self.register(one)]
        threads = apply(Operation.MULTIPLY, [int(Operation.THREADS), 0], constant(SOME_PARTS))
        few = apply(
            Operation.MINIMUM,
            _ceiling(count, threads),
            apply(Operation.FLOOR_DIVIDE, constant(int(LONG_SECONDS * _NANO)), each),
        )
        least = _ceiling(constant(int(PART_SECONDS * _NANO)), each)
        some = apply(Operation.MAXIMUM, least, few, constant(1))
        short = apply(Operation.LESS, whole, constant(int(shared_from(facts) * _NANO)))
        alone = apply(Operation.MULTIPLY, short, count)  # all of them, where sharing does not pay
        most = apply(Operation.MAXIMUM, count, constant(1))
        grain = apply(Operation.MINIMUM, apply(Operation.MAXIMUM, some, alone), most)
        return tasks, self.register(grain)

    def change(
        self, bindings: Bindings, counters: Sequence[Size]
    ) -> Callable[[Mapping[Case, int], list[Address]], dict[Case, Address]]:
        """What makes a row of a case one that depends on sizes."""

        def changed(places: Mapping[Case, int], image: list[Address]) -> dict[Case, Address]:
            layout = self._code.compiled.layout
            end = [int(Operation.REGISTER), self._end]
            first = layout.inputs + len(layout.sizes)
            for slot, (base, _) in enumerate(bindings.slots):
                if base == Base.RUN:
                    begin = self.register(end)
                    self.patches.append((2 * slot + 1, begin))
                    extent = self._sizes.bytes_of(self._code.made[slot - first])
                    after = apply(Operation.ADD, [int(Operation.REGISTER), begin], extent)
                    end = [int(Operation.REGISTER), self.register(_up(after))]
            for number, kind in enumerate(bindings.copied):
                size = self.register(self._sizes.bytes_of(kind))
                self.patches.append((places[Case.COPIES] + 3 * number + 2, size))
            for number, count in enumerate(counters):
                drawn = self.register(self._sizes.of(count))
                self.patches.append((places[Case.COUNTERS] + 2 * number + 1, drawn))
            at = places[Case.PLAN] + Head.WORDS
            for number, (slot, _) in enumerate(layout.arena):
                self.patches.append((at + 2 * number + 1, self.offsets[slot]))
            at += 2 * len(layout.arena)
            for number, call in enumerate(layout.calls):
                if number == layout.check:
                    at += 4  # a stop
                tasks, grain = self._launch(self._code.kernels[call.symbol])  # type: ignore[union-attr]
                self.patches += [(at + 1, tasks), (at + 2, grain)]
                at += 4 + len(call.slots)  # type: ignore[union-attr]
            return {Case.RUN_REGISTER: self.register(end)}

        return changed

    def tables(self) -> tuple[Words, Words, Words, int]:
        """Code, checks and patches as words, and how many registers there are."""
        code = [word for words in self._registers for word in (*words, int(Operation.END), 0)]
        checks = [word for pair in self._checks for word in pair]
        return code, checks, [w for pair in self.patches for w in pair], len(self._registers)


def _ceiling(left: Words, right: Words) -> Words:
    """The quotient of two expressions, rounded up."""
    negative = apply(Operation.MULTIPLY, constant(-1), left)
    return apply(Operation.MULTIPLY, constant(-1), apply(Operation.FLOOR_DIVIDE, negative, right))


def _up(words: Words) -> Words:
    return apply(Operation.MULTIPLY, _ceiling(words, constant(ALIGNMENT)), constant(ALIGNMENT))
