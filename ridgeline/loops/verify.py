"""The verifier of kernels: names, types, scopes, loop kinds, bounds, single writers.

The loop interpreter, with its checks of bounds and races, is the whole truth about one run; this
is what can be seen in the text, in time in proportion to its length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline import scalars
from ridgeline.dtypes import bool_
from ridgeline.graph.verify import require
from ridgeline.loops import ir
from ridgeline.loops.analysis.aliasing import read_too_late
from ridgeline.loops.analysis.domains import Domain, loads
from ridgeline.loops.build import affine, free_vars
from ridgeline.loops.monoids import MONOIDS
from ridgeline.weak import WeakSet

_CONCURRENT = ("parallel", "grid")  # iterations of which none sees what another one writes
_PARAMETERS = ("global", "stream")
_sound: WeakSet[ir.Expr] = (
    WeakSet()
)  # operations are interned and immutable: each is looked at once


def verify_kernel(kernel: ir.Kernel) -> None:
    """Raise if a kernel breaks a rule."""
    names = [buffer.name for buffer in kernel.params]
    require(len(set(names)) == len(names), "parameters have names of their own", kernel.name)
    for buffer in kernel.params:
        require(buffer.slot >= 0, "a parameter has a slot", buffer.name)
        require(buffer.scope in _PARAMETERS, "a parameter lies in global memory", buffer.name)
    check = _Check(kernel.name)
    check.buffers = {buffer.name: buffer for buffer in kernel.params}
    check.written = set(names)  # somebody else has, or nobody reads it
    check.sizes = frozenset(kernel.sizes)
    check.statement(kernel.body, Domain(()))
    late = read_too_late(kernel)
    require(late is None, "memory is read before it is overwritten", late)


@dataclass(slots=True)
class _Check:
    """A walk in program order, with what is known at each statement."""

    kernel: str
    buffers: dict[str, ir.Buffer] = field(default_factory=dict)  # in scope
    written: set[str] = field(default_factory=set)
    sizes: frozenset[str] = frozenset()
    loops: list[ir.For] = field(default_factory=list)
    depth: dict[str, int] = field(default_factory=dict)  # of scratch: the loops around it

    def statement(self, statement: ir.Stmt, domain: Domain) -> None:
        for expr in ir.expressions(statement):
            self.expression(expr)
        for load, where in loads(ir.expressions(statement), domain):
            self.element(load.buffer, load.index, where)
            require(load.buffer.name in self.written, "memory is read after it is written", load)
        if isinstance(statement, ir.Seq):
            for part in statement.body:
                self.statement(part, domain)
        elif isinstance(statement, ir.For):
            self._loop(statement, domain)
        elif isinstance(statement, ir.If):
            require(statement.guard.dtype is bool_, "a guard is a bool", statement.guard)
            self.statement(statement.body, domain.under(statement.guard))
        elif isinstance(statement, ir.Alloc):
            self._alloc(statement, domain)
        elif isinstance(statement, (ir.Mma, ir.Pipe)):
            self.statement(statement.body, domain)
        elif isinstance(statement, ir.Store):
            self._store(statement, domain)
        else:
            self._reduce(statement, domain)

    def _loop(self, loop: ir.For, domain: Domain) -> None:
        inside = {outer.name for outer in self.loops} | self.sizes
        require(loop.name not in inside, "loops that are nested have different names", loop.name)
        kinds = {outer.kind for outer in self.loops}
        if loop.kind == "parallel":
            require(kinds <= {"parallel"}, "parallel loops stand outermost", loop.name)
        if loop.kind == "grid":
            require(kinds <= {"grid", "serial"}, "a grid stands around all else", loop.name)
        if loop.kind in ("grid", "thread"):
            require("parallel" not in kinds and "vector" not in kinds, "one device", loop.name)
        self.loops.append(loop)
        self.statement(loop.body, Domain((*domain.loops, (loop.name, loop.extent)), domain.guards))
        self.loops.pop()

    def _alloc(self, statement: ir.Alloc, domain: Domain) -> None:
        buffer = statement.buffer
        require(buffer.name not in self.buffers, "names of memory are not hidden", buffer.name)
        require(buffer.scope != "stream", "only a parameter is streamed to", buffer.name)
        self.buffers[buffer.name], self.depth[buffer.name] = buffer, len(self.loops)
        self.statement(statement.body, domain)
        del self.buffers[buffer.name], self.depth[buffer.name]
        self.written.discard(buffer.name)

    def _store(self, store: ir.Store, domain: Domain) -> None:
        self.element(store.buffer, store.index, domain)
        same = store.value.dtype is store.buffer.dtype
        require(same, "a store is of the memory's type", store.buffer, store.value.dtype)
        self._single_writer(store.buffer, store.index, domain, _CONCURRENT)
        self.written.add(store.buffer.name)

    def _reduce(self, join: ir.Reduce, domain: Domain) -> None:
        monoid = MONOIDS.get(join.monoid)
        require(monoid is not None, "a join is by a monoid", join.monoid)
        assert monoid is not None
        fits = len(join.buffers) == len(join.values) == monoid.arity
        require(fits, "a join has as many values as its monoid", join.monoid)
        for buffer, value in zip(join.buffers, join.values):
            self.element(buffer, join.index, domain)
            require(value.dtype is buffer.dtype, "a join is of the memory's type", buffer, value)
            require(buffer.name in self.written, "a join has a start", buffer.name)
            # a GPU joins into global memory by atomic operations
            self._single_writer(buffer, join.index, domain, ("parallel",))

    def element(self, buffer: ir.Buffer, index: tuple[ir.Expr, ...], domain: Domain) -> None:
        """An access is in bounds and has the right rank."""
        found = self.buffers.get(buffer.name)
        require(found == buffer, "memory is in scope where it is used", buffer, found)
        require(len(index) == len(buffer.shape), "an index has an entry an axis", buffer, index)
        for coordinate, length in zip(index, buffer.shape):
            require(coordinate.dtype.kind in ("int", "uint"), "an index is an integer", coordinate)
            if not domain.guards and isinstance(length, ir.Const):
                self._inside(buffer, coordinate, int(length.value), domain)

    def _inside(self, buffer: ir.Buffer, coordinate: ir.Expr, length: int, domain: Domain) -> None:
        """Without guards, the bounds of an affine index over plain loops are exact."""
        form = affine(coordinate)
        extents = dict(domain.loops)
        if form is None or any(not isinstance(e, ir.Const) for e in extents.values()):
            return
        if any(int(e.value) == 0 for e in extents.values() if isinstance(e, ir.Const)):
            return  # nothing runs
        if not form.strides.keys() <= extents.keys():
            return
        last = {name: int(e.value) - 1 for name, e in extents.items() if isinstance(e, ir.Const)}
        low, high = form.interval(lambda name: (0, last[name]))
        require(
            low >= 0 and high < length, "an index stays in bounds", buffer, coordinate, low, high
        )

    def _single_writer(
        self, buffer: ir.Buffer, index: tuple[ir.Expr, ...], domain: Domain, kinds: tuple[str, ...]
    ) -> None:
        """Concurrent iterations write to distinct elements."""
        if any(isinstance(e, ir.Load) for e in ir.subexpressions(*index)):
            return  # where memory says to write: updates, which say of themselves what they join
        named = {name for expr in (*index, *domain.guards) for name in free_vars(expr)}
        for loop in self.loops[self.depth.get(buffer.name, 0) :]:
            if loop.kind in kinds and loop.extent != ir.index(1):
                require(loop.name in named, "an element has one writer", buffer.name, loop.name)

    def expression(self, root: ir.Expr) -> None:
        """Variables are enclosing loops or sizes; operations have the right number of operands."""
        around = {loop.name for loop in self.loops} | self.sizes
        for name in free_vars(root):
            require(name in around, "a variable is a loop around it", name, root)
        for expr in ir.subexpressions(root):
            if expr not in _sound and isinstance(expr, ir.OpExpr):
                _verify_operation(expr)
                _sound.add(expr)


def _verify_operation(expr: ir.OpExpr) -> None:
    row = scalars.TABLE.get(expr.name)
    if row is None:
        return  # a conversion, or what a code generator has of its own
    require(len(expr.args) == row.arity, "an operation has its operands", expr)
    kinds = tuple(arg.dtype for arg in expr.args)
    wanted = scalars.result_type(row, kinds)
    require(expr.dtype is wanted, "an operation has the type of its rule", expr, expr.dtype, wanted)
