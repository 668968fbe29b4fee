"""Vector loops: unrolled loops between accesses of up to 16 bytes.

What a vector loop reads side by side is read before it, what it stores side by side after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ridgeline.codegen.cuda.barriers import Memory, Touched, memory
from ridgeline.codegen.cuda.threads import Threads
from ridgeline.codegen.cuda.types import memory_type, packed, unpacks
from ridgeline.codegen.cuda.writes import Writes
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, substitute

Guards = tuple[ir.Expr, ...]
_MOST_GUARDS = 12  # around one load; more of them are left to the lanes


class VectorLoops(Writes):
    """Emits vector loops."""

    def __init__(
        self, threads: Threads, ranges: dict[str, tuple[int, int]], workspaces: dict[str, int]
    ) -> None:
        super().__init__(threads, ranges, workspaces)
        self.written: set[Memory] = set()
        self.pending = Touched()

    def statement(self, statement: ir.Stmt) -> None:
        """Emit one statement."""
        raise NotImplementedError

    @contextmanager
    def _untracked(self) -> Iterator[None]:
        """Inside one statement of a team, a thread sees its own writes."""
        saved, self.pending = self.pending, Touched()
        written, self.written = self.written, set()
        yield
        self.pending, self.written = saved, written

    def _vector_loop(self, loop: ir.For) -> None:
        """Emit a vector loop; guards that its lanes share go around it."""
        inner = loop.body
        if isinstance(inner, ir.If) and loop.name not in free_vars(inner.guard):
            self.values.forget()
            with self.lines.block(f"if ({self.values.value(inner.guard)})"):
                self._vector_loop(replace(loop, body=inner.body))
        else:
            self._lanes(loop)

    def _lanes(self, loop: ir.For) -> None:
        assert isinstance(loop.extent, ir.Const), "vector loops have a known length"
        length = int(loop.extent.value)
        parts = loop.body.body if isinstance(loop.body, ir.Seq) else (loop.body,)
        writes = [p for p in parts if isinstance(p, (ir.Store, ir.Reduce))]
        changed = [memory(b) for s in ir.statements(loop.body) for b in _targets(s)]
        self.values.forget()
        with self.lines.block(""), self._untracked():
            saved = self.packs, self.pack_stores
            self.packs, self.pack_stores = dict(self.packs), dict(self.pack_stores)
            for load, needed in self._packed_loads(loop).items():
                self._read_pack(load, loop.name, length, needed)
            stores = []
            if self._owner() is None:
                stores = [
                    w for w in writes
                    if isinstance(w, ir.Store) and self._packs(w, loop.name, length)
                    and self._is_alone(w, writes, changed, length)
                ]  # fmt: skip
            for store in stores:
                self.pack_stores[id(store)] = self._declare_pack(store, length)
            outside, self.values.lane = self.values.lane, loop.name
            self.lines.line("#pragma unroll")
            name = self._declare(loop.name)
            with self.lines.block(f"for (int {name} = 0; {name} < {length}; ++{name})"):
                self.values.forget()
                self.together = self._owner() is None and _is_apart(parts, set(changed))
                self.statement(loop.body)
                self.together = False
            self.values.forget()
            self.values.lane = outside
            for store in stores:
                self.values.forget()
                kind = f"Pack<{memory_type(store.buffer.dtype)}, {length}>"
                at = self._address(store.buffer, self._first(store.index, loop.name))
                made = self.pack_stores[id(store)]
                made = packed(store.buffer.dtype, made) if self._rounds(store) else made
                self.lines.line(f"*({kind} *)({at}) = {made};")
            self.packs, self.pack_stores = saved

    def _packed_loads(self, loop: ir.For) -> dict[ir.Load, dict[Guards, None]]:
        """The loads of a vector loop that are vectors, and where they happen."""
        assert isinstance(loop.extent, ir.Const), "vector loops have a known length"
        length = int(loop.extent.value)
        parts = loop.body.body if isinstance(loop.body, ir.Seq) else (loop.body,)
        writes = [p for p in parts if isinstance(p, (ir.Store, ir.Reduce))]
        changed = [memory(b) for s in ir.statements(loop.body) for b in _targets(s)]
        return {
            load: needed
            for load, needed in _loads(writes, loop.name, self.values.simplified).items()
            if memory(load.buffer) not in changed and self._packs(load, loop.name, length)
        }

    def _declare_pack(self, store: ir.Store, length: int) -> str:
        """What collects the values of a store."""
        name = self.lines.fresh("out")
        if self._rounds(store):
            self.lines.line(f"float {name}[{length}];")
        else:
            self.lines.line(f"Pack<{memory_type(store.buffer.dtype)}, {length}> {name};")
        return name

    def _first(self, index: tuple[ir.Expr, ...], lane: str) -> tuple[ir.Expr, ...]:
        return tuple(substitute(i, {ir.Var.make(lane): ir.index(0)}) for i in index)

    def _read_pack(self, load: ir.Load, lane: str, length: int, needed: Iterable[Guards]) -> None:
        kind = f"Pack<{memory_type(load.buffer.dtype)}, {length}>"
        name = self.lines.fresh("in")
        at = self._address(load.buffer, self._first(load.index, lane))
        if () in needed or self.values.is_inside(load):
            self.lines.line(f"const {kind} {name} = *(const {kind} *)({at});")
        else:
            cases = [" && ".join(map(self.values.value, guards)) for guards in needed]
            self.lines.line(f"{kind} {name};")
            condition = " || ".join(f"({case})" for case in cases)
            self.lines.line(f"if ({condition}) {name} = *(const {kind} *)({at});")
        if unpacks(load.buffer.dtype):
            self.lines.line(f"float {name}_all[{length}];")
            self.lines.line(f"rl_unpack_{load.buffer.dtype.name}({name}, {name}_all);")
        self.packs[load] = name

    def _is_alone(
        self,
        store: ir.Store,
        writes: list[ir.Store | ir.Reduce],
        changed: list[Memory],
        length: int,
    ) -> bool:
        """True when nothing else in a loop touches what the lanes of a store write."""
        here = memory(store.buffer)
        others = [w for w in writes if w is not store and here in map(memory, _targets(w))]
        if changed.count(here) != len(others) + 1:
            return False  # another write stands deeper
        return not others or (
            _is_apart(writes, {here}) and all(self._are_apart(store, w, length) for w in others)
        )

    def _are_apart(self, store: ir.Store, other: ir.Store | ir.Reduce, length: int) -> bool:
        """True when a constant along an axis keeps apart what the lanes of two stores write."""
        if not isinstance(other, ir.Store) or _kind(other.buffer) != _kind(store.buffer):
            return False
        last = len(_without_units(store.buffer.shape, store.index)[1]) - 1
        for axis, (one, two) in enumerate(zip(store.index, other.index)):
            a, b = self.values.terms(one), self.values.terms(two)
            if a.terms == b.terms and abs(a.constant - b.constant) >= (
                length if axis == last else 1
            ):
                return True
        return False

    def _packs(self, access: ir.Load | ir.Store, lane: str, length: int) -> bool:
        """True when the lanes of an access lie side by side at an aligned address."""
        buffer = access.buffer
        bytes_ = length * buffer.dtype.itemsize
        if buffer.name in self.registers or length < 2 or bytes_ < 4 or length & (length - 1):
            return False
        shape, index = _without_units(buffer.shape, access.index)
        if not shape or any(lane in free_vars(i) for i in index[:-1]):
            return False
        group = max(length // max(bytes_ // 16, 1), 1)  # elements of one access
        form = self.values.terms(index[-1])
        variable = ir.Var.make(lane)
        others = form.plus(Polynomial.of(variable), -1)
        if any(lane in free_vars(atom) for atom in others.atoms):
            return False
        if others.split(group)[1] != 0:
            return False
        inner: int = 1
        for position in range(len(shape) - 1, 0, -1):
            size = shape[position]
            if not isinstance(size, ir.Const):
                return False
            inner *= int(size.value)
            if inner % group and index[position - 1] != ir.index(0):
                return False
        return True


def _kind(buffer: ir.Buffer) -> tuple[object, ...]:
    return buffer.dtype, buffer.shape


def _without_units(
    shape: tuple[ir.Expr, ...], index: tuple[ir.Expr, ...]
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """Shape and place without last axes of one element."""
    count = len(shape)
    while count and shape[count - 1] == ir.index(1):
        count -= 1
    return shape[:count], index[:count]


def _is_apart(parts: Sequence[ir.Stmt], changed: set[Memory]) -> bool:
    """True for writes of which none changes what another reads."""
    if not all(isinstance(part, (ir.Store, ir.Reduce)) for part in parts):
        return False
    expressions = [e for part in parts for e in ir.expressions(part)]
    reads = {memory(e.buffer) for e in ir.subexpressions(*expressions) if isinstance(e, ir.Load)}
    return not reads & changed


def _targets(statement: ir.Stmt) -> tuple[ir.Buffer, ...]:
    if isinstance(statement, ir.Store):
        return (statement.buffer,)
    return statement.buffers if isinstance(statement, ir.Reduce) else ()


def _loads(
    writes: list[ir.Store | ir.Reduce], lane: str, simplified: Callable[[ir.Expr], ir.Expr]
) -> dict[ir.Load, dict[Guards, None]]:
    """Loads, and where they happen: by the guards that hold there, none where it is always.

    Guards that differ between the lanes are left to these: what is behind them is not among them.
    """
    found: dict[ir.Load, dict[Guards, None]] = {}
    seen: set[tuple[ir.Expr, Guards]] = set()
    stack: list[tuple[ir.Expr, Guards]] = [(e, ()) for w in writes for e in ir.expressions(w)]
    while stack:
        expr, guards = stack.pop()
        if (expr, guards) in seen:
            continue
        seen.add((expr, guards))
        if isinstance(expr, ir.Load):
            found.setdefault(expr, {})[guards] = None
            stack += [(part, guards) for part in expr.index]
        elif isinstance(expr, ir.OpExpr) and expr.name == "guarded":
            condition, chosen, other = expr.args
            stack += [(condition, guards), (other, guards)]
            condition = simplified(condition)
            if lane not in free_vars(condition) and len(guards) < _MOST_GUARDS:
                stack.append((chosen, (*guards, condition)))
        elif isinstance(expr, ir.OpExpr):
            stack += [(part, guards) for part in expr.args]
    return found
