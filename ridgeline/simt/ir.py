"""The thread IR: what one thread of a kernel does, on one screen.

Expressions are typed and without effects, except that a `ElementRead` can fail; their operands are
evaluated from left to right, `Choose` and `ShortCircuit` only as far as they need. Whatever other
threads take part in (barriers, warp operations, atomics) is a statement with a target variable.
Control flow is structured, and every statement has its place in the user's source. Device
functions are inlined. The meaning of each node is the simulator, `simt/simulator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.simt.types import Access, short

Space = Literal["global", "shared", "local", "constant"]
SyncScope = Literal["block", "cluster", "device", "system"]
Order = Literal["relaxed", "acquire", "release", "acq_rel", "seq_cst"]
BUILTINS = ("threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpid", "cluster_rank")


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where in the user's source; `column` counts from 1."""

    path: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ThreadArray:
    """An array that threads index. Row-major; of a parameter, sizes may be names.

    `shared` memory belongs to a block, `local` to a thread. A shared array of shape ("dynamic",)
    is as long as the launch's bytes of dynamic shared memory allow.
    """

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    space: Space
    access: Access = "inout"
    data: bytes = b""  # of constant arrays: the elements

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.space} {short(self.dtype)}[{sizes}]"


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; integers fit their type."""

    value: int | float | bool
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.value}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the thread, or a scalar parameter; one type for the whole kernel."""

    name: str
    dtype: DType

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Builtin:
    """One of `BUILTINS`; `axis` is 0 (x), 1 (y) or 2 (z) of those with three numbers."""

    name: str
    axis: int = 0
    dtype: DType = dtypes.int32

    def __repr__(self) -> str:
        return f"{self.name}.{'xyz'[self.axis]}" if self.name in BUILTINS[:4] else self.name


@dataclass(frozen=True, slots=True)
class Extent:
    """A size of an array that is known at the launch, as int32."""

    array: ThreadArray
    axis: int
    dtype: DType = dtypes.int32

    def __repr__(self) -> str:
        return f"{self.array.name}.shape[{self.axis}]"


@dataclass(frozen=True, slots=True)
class Compute:
    """A scalar operation of `ridgeline/scalars.py` or `simt/intrinsics.py`, on agreeing types."""

    name: str
    operands: tuple[ThreadExpr, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.operands))})"


@dataclass(frozen=True, slots=True)
class Convert:
    """A value in another type: floats to integers cut off, wider integers wrap."""

    value: ThreadExpr
    dtype: DType

    def __repr__(self) -> str:
        return f"{short(self.dtype)}({self.value!r})"


@dataclass(frozen=True, slots=True)
class Reinterpret:
    """The same bits as another type of the same width."""

    value: ThreadExpr
    dtype: DType

    def __repr__(self) -> str:
        return f"bitcast({self.value!r}, {short(self.dtype)})"


@dataclass(frozen=True, slots=True)
class Choose:
    """`then if condition else otherwise`, of which one is evaluated."""

    condition: ThreadExpr
    then: ThreadExpr
    otherwise: ThreadExpr

    @property
    def dtype(self) -> DType:
        """The type both sides have."""
        return self.then.dtype

    def __repr__(self) -> str:
        return f"({self.then!r} if {self.condition!r} else {self.otherwise!r})"


@dataclass(frozen=True, slots=True)
class ShortCircuit:
    """`left and right`, `left or right` over bool; right only where left does not decide."""

    name: Literal["and", "or"]
    left: ThreadExpr
    right: ThreadExpr
    dtype: DType = dtypes.bool_

    def __repr__(self) -> str:
        return f"({self.left!r} {self.name} {self.right!r})"


@dataclass(frozen=True, slots=True)
class ElementRead:
    """One element. With `default`, an index out of bounds gives that instead of being an error.

    `peer` is the rank in the cluster of the block whose shared memory is read.
    """

    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    place: SourcePlace
    default: ThreadExpr | None = None
    peer: ThreadExpr | None = None

    @property
    def dtype(self) -> DType:
        """The array's element type."""
        return self.array.dtype

    def __repr__(self) -> str:
        tail = "" if self.default is None else f" else {self.default!r}"
        return f"{self.array.name}[{', '.join(map(repr, self.index))}{tail}]"


ThreadExpr: TypeAlias = (
    Number | Variable | Builtin | Extent | Compute | Convert | Reinterpret | Choose
    | ShortCircuit | ElementRead
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assign:
    """A variable takes a value of its type."""

    target: Variable
    value: ThreadExpr
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class ElementWrite:
    """An element takes a value; where `guarded`, an index out of bounds writes nothing."""

    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    value: ThreadExpr
    place: SourcePlace
    guarded: bool = False
    peer: ThreadExpr | None = None


@dataclass(frozen=True, slots=True)
class VectorRead:
    """`len(targets)` consecutive elements (2, 4 or 8) by one instruction; the first is aligned."""

    targets: tuple[Variable, ...]
    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class VectorWrite:
    """Consecutive elements written by one instruction; the first is aligned."""

    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    values: tuple[ThreadExpr, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class ArrayFill:
    """Every element of a local array takes a value."""

    array: ThreadArray
    value: Number
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class IfElse:
    """`if condition: then else: otherwise`."""

    condition: ThreadExpr
    then: tuple[ThreadStmt, ...]
    otherwise: tuple[ThreadStmt, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class WhileLoop:
    """`while condition: body`."""

    condition: ThreadExpr
    body: tuple[ThreadStmt, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class ForRange:
    """`for target in range(start, stop, step)`: bounds and step are evaluated once.

    The body never assigns `target`, and nothing reads it after the loop. `unroll` asks the compiler
    to write the iterations out. `direction` is the step's sign, and 0 where only a run tells it.
    """

    target: Variable
    start: ThreadExpr
    stop: ThreadExpr
    step: ThreadExpr
    body: tuple[ThreadStmt, ...]
    place: SourcePlace
    unroll: bool = False
    direction: int = 1


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with the innermost loop's next iteration."""

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Return:
    """The thread ends."""

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block, cluster or grid wait for one another, with memory ordered.

    Of a block, `vote` ("count", "and", "or") joins the `value`s of all threads into `target`.
    """

    place: SourcePlace
    scope: Literal["block", "cluster", "grid"] = "block"
    vote: Literal["count", "and", "or"] | None = None
    value: ThreadExpr | None = None
    target: Variable | None = None


WarpOpName = Literal[
    "sync", "shfl", "shfl_up", "shfl_down", "shfl_xor", "ballot", "any", "all", "match",
    "activemask", "sum", "min", "max", "and", "or", "xor",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WarpOp:
    """What lanes of a warp do together; `mask` None names all lanes of the warp that exist.

    Shuffles move `value` by `argument` within groups of `width` lanes; votes take a bool; `sum` to
    `xor` reduce over the mask. Only `sync` orders memory. `activemask` waits for nobody.
    """

    name: WarpOpName
    target: Variable | None
    value: ThreadExpr | None
    argument: ThreadExpr | None
    mask: ThreadExpr | None
    width: int
    place: SourcePlace


AtomicName = Literal[
    "add", "sub", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas", "load", "store",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Atomic:
    """An atomic access whose old value goes to `target`; `load` and `store` may be CUDA's volatile.

    Relaxed unless `order` says more, as CUDA's atomics are: it orders no other access without
    fences. `cas` stores `value` where the element equals `compare`.
    """

    name: AtomicName
    target: Variable | None
    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    value: ThreadExpr | None
    compare: ThreadExpr | None
    scope: SyncScope
    order: Order
    place: SourcePlace
    volatile: bool = False

    @property
    def releases(self) -> bool:
        """True where accesses before it are seen by who sees it."""
        return self.order in ("release", "acq_rel", "seq_cst")

    @property
    def acquires(self) -> bool:
        """True where what it sees was done before the accesses after it."""
        return self.order in ("acquire", "acq_rel", "seq_cst")


@dataclass(frozen=True, slots=True)
class Fence:
    """CUDA's __threadfence family: earlier accesses are seen before later ones, in the scope."""

    scope: SyncScope
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """cp.async: `count` elements from global to shared memory, there once they are waited for."""

    target: ThreadArray
    target_index: tuple[ThreadExpr, ...]
    source: ThreadArray
    source_index: tuple[ThreadExpr, ...]
    count: int
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class AsyncCommit:
    """The thread's copies since the last commit are one group."""

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class AsyncWait:
    """Wait until at most `pending` of the thread's newest groups are under way."""

    pending: int
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Fragment:
    """A warp's piece of a tensor-core product (nvcuda::wmma)."""

    name: str
    use: Literal["a", "b", "accumulator"]
    m: int
    n: int
    k: int
    dtype: DType
    layout: Literal["row", "col"]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the piece."""
        return {"a": (self.m, self.k), "b": (self.k, self.n), "accumulator": (self.m, self.n)}[
            self.use
        ]


@dataclass(frozen=True, slots=True)
class FragmentFill:
    """All elements of a fragment take one value."""

    fragment: Fragment
    value: ThreadExpr
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class FragmentLoad:
    """A fragment is read from an array, from `index` on; rows (or columns) are `stride` apart."""

    fragment: Fragment
    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    stride: ThreadExpr
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class FragmentMultiply:
    """`target = a @ b + c` on a tensor core."""

    target: Fragment
    a: Fragment
    b: Fragment
    c: Fragment
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class FragmentStore:
    """An accumulator is written to an array."""

    fragment: Fragment
    array: ThreadArray
    index: tuple[ThreadExpr, ...]
    stride: ThreadExpr
    layout: Literal["row", "col"]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class PrintOut:
    """`print(...)`: texts and values in order, one line."""

    parts: tuple[str | ThreadExpr, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Assertion:
    """`assert condition, message`: a trap with the line where it does not hold."""

    condition: ThreadExpr
    message: str
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """`breakpoint()`: the debugger on this thread in the simulator, nothing elsewhere."""

    place: SourcePlace


ThreadStmt: TypeAlias = (
    Assign | ElementWrite | VectorRead | VectorWrite | ArrayFill | IfElse | WhileLoop | ForRange
    | Break | Continue | Return | Barrier | WarpOp | Atomic | Fence | AsyncCopy | AsyncCommit
    | AsyncWait
    | FragmentFill | FragmentLoad | FragmentMultiply | FragmentStore | PrintOut | Assertion
    | Breakpoint
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceText:
    """The user's function as text; `first` is its first line's number in the file."""

    path: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ThreadProgram:
    """A kernel for given types and constants: what every thread of the grid runs.

    `parameters` are arrays and scalars in the order of the signature; `constants` the values that
    were compiled in; `memories` the shared, local and constant arrays; `variables` all others.
    """

    name: str
    parameters: tuple[ThreadArray | Variable, ...]
    constants: tuple[tuple[str, Any], ...]
    memories: tuple[ThreadArray, ...]
    fragments: tuple[Fragment, ...]
    variables: tuple[Variable, ...]
    body: tuple[ThreadStmt, ...]
    source: SourceText

    @property
    def arrays(self) -> tuple[ThreadArray, ...]:
        """The array parameters."""
        return tuple(p for p in self.parameters if isinstance(p, ThreadArray))


def constant_values(array: ThreadArray) -> np.ndarray[Any, Any]:
    """The elements of a constant array."""
    sizes = tuple(int(size) for size in array.shape)
    return np.frombuffer(array.data, array.dtype.numpy).reshape(sizes)
