"""Loads and addresses: parameters, shared memory, workspaces, and distributed registers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from ridgeline.codegen.cuda.expressions import Expressions, Lines
from ridgeline.codegen.cuda.threads import CodegenError, RegisterSpread, ThreadBits, Threads
from ridgeline.codegen.cuda.types import (
    is_narrow_float,
    loaded,
    memory_type,
    register_type,
    stored,
    unpacks,
)
from ridgeline.loops import ir
from ridgeline.loops.ir import Buffer, Expr, Load


def plain_name(name: str) -> str:
    return name if name.isidentifier() else re.sub(r"\W", "_", name)


@dataclass(frozen=True, slots=True)
class Registers:
    """A register buffer of a thread: its C++ name and which axes it has."""

    name: str
    buffer: Buffer
    spread: RegisterSpread

    @property
    def packed(self) -> bool:
        """Narrow elements lie several to a register."""
        return is_narrow_float(self.buffer.dtype) and self.spread.count > 1


class Accesses:
    """Reads and addresses for the launch being emitted."""

    def __init__(
        self, threads: Threads, ranges: dict[str, tuple[int, int]], workspaces: dict[str, int]
    ) -> None:
        self.threads, self.workspaces = threads, workspaces
        self.lines = Lines()
        self.values = Expressions(self.lines, ranges, self._load)
        self.chain: list[ThreadBits] = []  # the thread loops around the statement
        self.folded: list[str] = []  # reduce loops that are bound, around the statement
        self.registers: dict[str, Registers] = {}
        self.shared: dict[str, str] = {}
        self.packs: dict[Expr, str] = {}  # loads whose vector has been read already

    def _pointer(self, buffer: Buffer) -> str:
        if buffer.name in self.shared:
            return self.shared[buffer.name]
        if buffer.name in self.workspaces and buffer.slot < 0:
            kind = memory_type(buffer.dtype)
            return f"(({kind} *)(workspace + {self.workspaces[buffer.name]}))"
        return plain_name(buffer.name)

    def _address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        return f"{self._pointer(buffer)} + {self._linear(buffer.shape, index)}"

    def _linear(self, shape: tuple[Expr, ...], index: tuple[Expr, ...]) -> str:
        linear: Expr = ir.index(0)
        for size, coordinate in zip(shape, index):
            linear = linear * size + coordinate
        sizes = [int(size.value) for size in shape if isinstance(size, ir.Const)]
        known = len(sizes) == len(shape) and prod(sizes) < 1 << 31
        return self.values.element_offset(linear) if known else self.values.index(linear)

    def _place(self, registers: Registers, index: tuple[Expr, ...]) -> str:
        layout = registers.spread
        shape = tuple(ir.index(size) for size in layout.shape)
        return self._linear(shape, tuple(index[axis] for axis in layout.kept))

    def _load(self, load: Load) -> str:
        buffer = load.buffer
        if load in self.packs and unpacks(buffer.dtype):
            return f"{self.packs[load]}_all[{self._lane()}]"
        registers = self.registers.get(buffer.name)
        if registers is None:
            return loaded(buffer.dtype, self._bits(load))
        return self._held(registers, load.index)

    def _bits(self, load: Load) -> str:
        """An element as it lies in memory, or packed in registers."""
        if load in self.packs:
            return f"{self.packs[load]}.get({self._lane()})"
        registers = self.registers.get(load.buffer.name)
        if registers is None:
            return f"{self._pointer(load.buffer)}[{self._linear(load.buffer.shape, load.index)}]"
        return f"{registers.name}.get({self._place(registers, load.index)})"

    def _lane(self) -> str:
        assert self.values.lane is not None
        return self.values.variables[self.values.lane]

    def _held(self, registers: Registers, index: tuple[Expr, ...]) -> str:
        if registers.spread.count == 1:
            return registers.name
        at = self._place(registers, index)
        if registers.packed:
            return loaded(registers.buffer.dtype, f"{registers.name}.get({at})")
        return f"{registers.name}[{at}]"

    def _assigned(self, registers: Registers, at: str, value: str) -> str:
        if registers.packed:
            return f"{registers.name}.set({at}, {stored(registers.buffer.dtype, value)});"
        return f"{registers.name}[{at}] = {value};"

    def _is_packed(self, buffer: Buffer) -> bool:
        """True for elements in memory, or several to a register."""
        registers = self.registers.get(buffer.name)
        return registers is None or registers.packed

    def _owner(self) -> str | None:
        """The test that lets one of several equivalent threads write to memory."""
        covered = 0
        for bits in self.chain:
            covered |= bits.mask
        alike = (self.threads.total - 1) & ~covered
        return f"(tid & {alike}) == 0" if alike else None

    def _declare(self, name: str) -> str:
        self.values.variables[name] = text = f"i_{plain_name(name)}"
        return text

    def _registers(self, buffer: Buffer, layout: RegisterSpread) -> Registers:
        name = self.lines.fresh(f"{plain_name(buffer.name)}_")
        made = Registers(name, buffer, layout)
        if made.packed:
            kind = f"Held<{memory_type(buffer.dtype)}, {layout.count}>"
            self.lines.line(f"{kind} {name};")
        elif layout.count == 1:
            self.lines.line(f"{register_type(buffer.dtype)} {name};")
        else:
            self.lines.line(f"{register_type(buffer.dtype)} {name}[{layout.count}];")
        return made

    def _element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """An element as an assignable expression."""
        registers = self.registers.get(buffer.name)
        if registers is None:
            return f"{self._pointer(buffer)}[{self._linear(buffer.shape, index)}]"
        if registers.packed:
            raise CodegenError("accumulators are not of a narrow type")
        return self._held(registers, index)
