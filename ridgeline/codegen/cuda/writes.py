"""Stores and reductions: into registers, into memory by one thread, or atomically by many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from ridgeline.codegen.cuda.access import Accesses, Registers
from ridgeline.codegen.cuda.threads import Threads
from ridgeline.codegen.cuda.types import (
    is_narrow_float,
    literal,
    loaded,
    memory_type,
    register_type,
    stored,
)
from ridgeline.loops.ir import Buffer, Const, Expr, Hole, Load, OpExpr, Reduce, Store
from ridgeline.loops.monoids import MONOIDS, SUMS, Monoid
from ridgeline.loops.steps.pad import is_guarded_read

_NATIVE_ATOMICS = {
    "sum": ("Add", ("float32", "float64", "int32", "uint32", "int64", "uint64")),
    "max": ("Max", ("int32", "uint32")),
    "min": ("Min", ("int32", "uint32")),
}


class Writes(Accesses):
    """Emits the statements that write; a vector loop may collect what they store."""

    def __init__(
        self, threads: Threads, ranges: dict[str, tuple[int, int]], workspaces: dict[str, int]
    ) -> None:
        super().__init__(threads, ranges, workspaces)
        self.pack_stores: dict[int, str] = {}
        self.together = False  # statements that change nothing that another of them reads

    def _fetched(self, statement: Store) -> str | None:
        """A load for shared memory that may be out of range: another element is loaded then.

        Loads without a branch between them are in flight together.
        """
        read = statement.value
        if statement.buffer.scope != "shared" or not is_guarded_read(read):
            return None
        assert isinstance(read, OpExpr)
        condition, load, zero = read.args
        assert isinstance(load, Load)
        assert isinstance(zero, Const)
        buffer = load.buffer
        if not all(isinstance(size, Const) and size.value for size in buffer.shape):
            return None
        inside = self.values.value(condition)
        offset = f"{inside} ? {self._linear(buffer.shape, load.index)} : 0"
        name = self.lines.fresh("fetched")
        value = loaded(buffer.dtype, f"{self._pointer(buffer)}[{offset}]")
        self.lines.line(f"const {register_type(buffer.dtype)} {name} = {value};")
        return f"({inside} ? {name} : {literal(zero)})"

    def _write(self, statement: Store | Reduce) -> None:
        if not self.together:
            self.values.forget()
        target = statement.buffer if isinstance(statement, Store) else statement.buffers[0]
        registers = self.registers.get(target.name)
        if isinstance(statement, Store):
            if registers is not None:
                self._store_register(registers, statement)
                return
            name = self.pack_stores.get(id(statement))
            if name is not None and self.values.lane is not None:
                with self._own_names():
                    lane, moved = self._lane(), self._moved(statement)
                    value = self._bits(moved) if moved else self.values.stored(statement.value)
                    full = self._rounds(statement)
                    self.lines.line(
                        f"{name}[{lane}] = {value};" if full else f"{name}.set({lane}, {value});"
                    )
                return
        owner = None if registers is not None else self._owner()
        with self.lines.block(f"if ({owner})") if owner else self._own_names():
            if isinstance(statement, Store):
                moved, fetched = self._moved(statement), self._fetched(statement)
                if moved is not None:
                    text = self._bits(moved)
                else:
                    value = self.values.stored(statement.value) if fetched is None else fetched
                    text = stored(target.dtype, value)
                at = self._linear(target.shape, statement.index)
                self.lines.line(f"{self._pointer(target)}[{at}] = {text};")
            elif registers is None and self.folded:
                self._atomic(statement)
            else:
                self._reduce(statement)

    def _moved(self, store: Store) -> Load | None:
        """The narrow element that a store copies unchanged; None for a store that computes."""
        source, dtype = store.value, store.buffer.dtype
        if not isinstance(source, Load) or source.dtype is not dtype or not is_narrow_float(dtype):
            return None
        return source if self._is_packed(source.buffer) else None

    def _rounds(self, store: Store) -> bool:
        """True for narrow values that are collected in full, to be rounded together."""
        return is_narrow_float(store.buffer.dtype) and self._moved(store) is None

    def _own_names(self) -> AbstractContextManager[None]:
        """A block of its own for a statement whose values the next ones cannot use."""
        return nullcontext() if self.together else self.lines.block("")

    def _store_register(self, registers: Registers, statement: Store) -> None:
        with self._own_names():
            moved = self._moved(statement) if registers.packed else None
            if moved is not None:
                at = self._place(registers, statement.index)
                self.lines.line(f"{registers.name}.set({at}, {self._bits(moved)});")
                return
            value = self.values.value(statement.value)
            if registers.spread.count == 1:
                self.lines.line(f"{registers.name} = {value};")
            else:
                at = self._place(registers, statement.index)
                self.lines.line(self._assigned(registers, at, value))

    def _reduce(self, statement: Reduce) -> None:
        monoid = MONOIDS[statement.monoid]
        buffers = statement.buffers
        elements = [self._element(b, statement.index) for b in buffers]
        term = statement.values[0]
        if (
            statement.monoid in SUMS and isinstance(term, OpExpr) and term.name == "mul"
            and buffers[0].dtype.kind == "float" and not is_narrow_float(buffers[0].dtype)
        ):  # fmt: skip
            factors = ", ".join(self.values.value(a) for a in term.args)
            fused = "fma" if buffers[0].dtype.itemsize == 8 else "fmaf"
            self.lines.line(f"{elements[0]} = {fused}({factors}, {elements[0]});")
            return
        values = [self.values.value(v) for v in statement.values]
        self._join_element(monoid, buffers, elements, values)

    def _join_element(
        self, monoid: Monoid, buffers: tuple[Buffer, ...], elements: list[str], values: list[str]
    ) -> None:
        with self.values.scope():
            old = tuple(
                self._hole(p if b.name in self.registers else loaded(b.dtype, p), b)
                for p, b in zip(elements, buffers)
            )
            new = tuple(self._hole(v, b) for v, b in zip(values, buffers))
            results = [self.values.value(e) for e in monoid.join(old, new)]
            for address, buffer, result in zip(elements, buffers, results):
                text = result if buffer.name in self.registers else stored(buffer.dtype, result)
                self.lines.line(f"{address} = {text};")

    def _atomic(self, statement: Reduce) -> None:
        """A join into memory that other threads join into as well."""
        (buffer,), (term,) = statement.buffers, statement.values
        value = self.values.value(term)
        at = self._address(buffer, statement.index)
        kind = buffer.dtype.name
        name, kinds = _NATIVE_ATOMICS.get(statement.monoid, ("", ()))
        if kind in kinds:
            wrap = "(unsigned long long *)" if kind == "int64" else ""
            number = f"(unsigned long long)({value})" if kind == "int64" else value
            self.lines.line(f"atomic{name}({wrap}({at}), {number});")
            return
        element = memory_type(buffer.dtype)
        head = f"rl_atomic({at}, [&]({element} old) -> {element}"
        with self.lines.block(head), self.values.scope():
            a = (self._hole(loaded(buffer.dtype, "old"), buffer),)
            b = (self._hole(value, buffer),)
            (result,) = MONOIDS[statement.monoid].join(a, b)
            self.lines.line(f"return {stored(buffer.dtype, self.values.value(result))};")
        self.lines.text[-1] += ");"

    def _join(
        self, monoid: Monoid, buffers: Sequence[Buffer], left: list[str], right: list[str]
    ) -> None:
        """left := left join right, for C++ values."""
        self.values.forget()
        with self.values.scope():
            a = tuple(self._hole(t, b) for t, b in zip(left, buffers))
            b = tuple(self._hole(t, b) for t, b in zip(right, buffers))
            results = [self.values.value(e) for e in monoid.join(a, b)]
            for target, result in zip(left, results):
                self.lines.line(f"{target} = {result};")

    def _hole(self, text: str, buffer: Buffer) -> Expr:
        hole = Hole.make(buffer.dtype, self.lines.fresh("h"))
        self.values.bind(hole, text)
        return hole
