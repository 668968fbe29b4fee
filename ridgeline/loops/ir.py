"""The loop IR.

A kernel is a loop nest over buffers. Expressions are hash-consed and pure; statements are frozen.
Loops are typed *spatial* (iterations independent), *reduce* (they feed a monoid) or *carried*
(ordered). Loops that stand side by side under one name are one logical axis: a schedule step that
names the axis applies to all of them. `loops/interpreter/interpret.py` is the meaning of every
node here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.weak import Interned, WeakMap, fingerprint

Scope = Literal["global", "stream", "shared", "local", "reg"]
LoopKind = Literal["serial", "unroll", "vector", "transpose", "parallel", "grid", "thread"]
AxisKind = Literal["spatial", "reduce", "carried"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Typed memory, contiguous in row-major order.

    `global` buffers are the kernel's parameters; `stream` ones are parameters that are written with
    non-temporal stores. `local` buffers are scratch of one thread; `reg` ones must end up in
    registers. On a GPU, `shared` buffers are scratch of a block, a `reg` buffer that is indexed by
    thread loops is spread over the threads, and an allocated `global` buffer is a workspace. Two
    parameters may name the same `slot` with different shapes: they are views of one memory.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: Scope = "global"
    slot: int = -1


if TYPE_CHECKING:

    def _unary(self: Expr) -> Expr: ...
    def _binary(self: Expr, other: Expr | float) -> Expr: ...


class Expr(Interned):
    """A pure scalar expression, whose dtype is known when it is built.

    Expressions are interned. Build them by operators and the helpers of `build.py`; leaves are
    built by `make`, as `Load.make(buffer, index)`.
    """

    __slots__ = ()
    dtype: DType

    # Operators are operations on operands of one type, which a number takes from the other one.
    # `==` compares identities, so equality of values is a method. `terms.py` defines them.
    if TYPE_CHECKING:
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _binary
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = eq = ne = _binary
        __neg__ = __invert__ = __abs__ = _unary


class Const(Expr):
    """A literal, stored as text so that -0.0, NaN and 1 versus 1.0 stay distinct."""

    __slots__ = ("dtype", "text")
    dtype: DType
    text: str

    @property
    def value(self) -> int | float | bool:
        """The literal as a Python number."""
        if self.dtype.kind == "bool":
            return self.text == "True"
        return float(self.text) if self.dtype.kind == "float" else int(self.text)

    def __repr__(self) -> str:
        return self.text


class Var(Expr):
    """A loop variable, or a symbolic size given to the kernel at run time; int64."""

    __slots__ = ("name",)
    name: str
    # indices are int64 throughout the IR; code generators narrow them where they can
    dtype = dtypes.int64

    def __repr__(self) -> str:
        return self.name


class Hole(Expr):
    """A placeholder for an operand: monoids and math expansions are written over holes."""

    __slots__ = ("dtype", "name")
    dtype: DType
    name: str

    def __repr__(self) -> str:
        return f"?{self.name}"


class Load(Expr):
    """One element of a buffer."""

    __slots__ = ("buffer", "index")
    buffer: Buffer
    index: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The buffer's element type."""
        return self.buffer.dtype

    def __repr__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(repr, self.index))}]"


class OpExpr(Expr):
    """A named scalar operation; `ridgeline/scalars.py` lists the names and their meaning."""

    __slots__ = ("args", "dtype", "name")
    args: tuple[Expr, ...]
    dtype: DType
    name: str

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for `name` = 0 … extent-1.

    Iterations of `parallel` loops (tasks on cores), `grid` loops (blocks of a GPU), `thread` loops
    (threads of a block) and `vector` loops are concurrent. What threads of a block do in loops that
    stand one after another is ordered: the code generator derives the barriers.

    A `transpose` loop around a vector loop reads along this loop and
    writes along that one, turning squares of elements in registers.
    """

    name: str
    extent: Expr
    body: Stmt
    axis: AxisKind = "spatial"
    kind: LoopKind = "serial"


@dataclass(frozen=True, slots=True)
class Seq:
    """Statements in order."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Run `body` where `guard` holds; under a vector loop, in those lanes."""

    guard: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer that exists while `body` runs; its initial contents are undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Store:
    """Write one element."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine `values` into accumulators by a monoid: all `buffers[i][index]` change together."""

    buffers: tuple[Buffer, ...]
    index: tuple[Expr, ...]
    monoid: str
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Mma:
    """A tile of multiply-adds that is one machine instruction; `body` is its meaning as loops.

    A target with the instruction emits it; any other one runs the loops.
    """

    instruction: str
    body: Stmt


@dataclass(frozen=True, slots=True)
class Pipe:
    """A software-pipelined loop: it fills scratch and then uses it; `body` is its meaning.

    A target may fill `stages - 1` iterations ahead, in as many copies of the scratch.
    """

    stages: int
    body: Stmt


Stmt: TypeAlias = For | Seq | If | Alloc | Store | Reduce | Mma | Pipe


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled unit: parameters (views of slots), run-time sizes, and the loops."""

    name: str
    params: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Stmt


def const(value: int | float | bool, dtype: DType) -> Const:
    """A literal of a type; floats keep their exact value, signed zero and NaN included."""
    if dtype.kind == "bool":
        return Const.make(dtype, str(bool(value)))
    return Const.make(dtype, repr(float(value)) if dtype.kind == "float" else str(int(value)))


def index(value: int) -> Const:
    """An integer literal used in index arithmetic."""
    return Const.make(dtypes.int64, str(value))


def statements(root: Stmt) -> Iterator[Stmt]:
    """All statements in program order, parents first."""
    stack: list[Stmt] = [root]
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, Seq):
            stack.extend(reversed(statement.body))
        elif isinstance(statement, (For, If, Alloc, Mma, Pipe)):
            stack.append(statement.body)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    if type(expr) is OpExpr:  # not isinstance: this is asked of every expression, many times
        return expr.args
    return expr.index if type(expr) is Load else ()


def subexpressions(*roots: Expr) -> list[Expr]:
    """Every distinct expression below `roots`, operands before users."""
    order: list[Expr] = []
    done: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        expr = stack[-1]
        if expr not in done:
            below = children(expr)
            if below and not done.issuperset(below):
                stack += [child for child in reversed(below) if child not in done]
                continue
            done.add(expr)
            order.append(expr)
        stack.pop()
    return order


def expressions(statement: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates, without those of its body."""
    if isinstance(statement, For):
        return (statement.extent,)
    if isinstance(statement, If):
        return (statement.guard,)
    if isinstance(statement, Store):
        return (*statement.index, statement.value)
    if isinstance(statement, Reduce):
        return (*statement.index, *statement.values)
    return ()


# ---- structural keys: equal for equal loops, in every process ------------------------------------

_DIGESTS: WeakMap[Expr, str] = WeakMap()


def digest(expr: Expr) -> str:
    """A hash of an expression, computed bottom-up so that depth and sharing cost nothing."""
    if expr not in _DIGESTS:
        for node in subexpressions(expr):
            if node not in _DIGESTS:
                below = ",".join([_DIGESTS[child] for child in children(node)])
                text = f"{_label(node)}({below})"
                _DIGESTS[node] = fingerprint(text, 12)
    return _DIGESTS[expr]


def _label(node: Expr) -> str:
    if isinstance(node, Load):
        return f"load {node.buffer.name} {node.dtype.name}"
    if isinstance(node, Const):
        return f"const {node.dtype.name} {node.text}"
    if isinstance(node, OpExpr):
        return f"op {node.dtype.name} {node.name}"
    return f"{type(node).__name__} {node.name}" if isinstance(node, (Var, Hole)) else ""


def named(kernel: Kernel) -> Kernel:
    """The kernel under a name with a hash of its loops: equal kernels share machine code."""
    words = [_word(kernel.params), _word(kernel.sizes)]
    for statement in statements(kernel.body):
        words.append(type(statement).__name__)
        if isinstance(statement, Seq):
            words.append(str(len(statement.body)))
        else:
            own = [part for part in statement.__slots__ if part != "body"]
            words += [_word(getattr(statement, part)) for part in own]
    return replace(kernel, name=f"{kernel.name}_{fingerprint(chr(0).join(words), 8)}")


def _word(part: object) -> str:
    """A part of a statement as text."""
    if isinstance(part, Expr):
        return digest(part)
    if isinstance(part, tuple):
        return f"({','.join([_word(one) for one in part])})"
    if isinstance(part, Buffer):
        return _word((part.name, part.shape, part.dtype.name, part.scope, part.slot))
    return str(part)
