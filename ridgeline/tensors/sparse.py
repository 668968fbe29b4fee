"""Sparse tensors, COO and CSR: indices and values of the nonzero elements.

Products with dense matrices, sums of equal places and the dense form, all with gradients to the
values and to the dense operands. Everything else is refused by name: take the dense form first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from ridgeline import dtypes, layouts
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.functions.operands import defaults
from ridgeline.layouts import sparse_coo, sparse_csr
from ridgeline.tensors import public
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.handle import Size
from ridgeline.tensors.namespace import result_type
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Places [axes, n] and values [n, …] of a tensor that is zero elsewhere."""

    _places: Tensor
    _numbers: Tensor
    shape: Size
    layout: layouts.layout = sparse_coo
    _is_coalesced: bool = False

    is_cuda = property(lambda self: self._numbers.is_cuda)
    device = property(lambda self: self._numbers.device)
    dtype = property(lambda self: self._numbers.dtype)
    requires_grad = property(lambda self: self._numbers.requires_grad)
    is_sparse = property(lambda self: self.layout is sparse_coo)
    is_sparse_csr = property(lambda self: self.layout is sparse_csr)
    ndim = property(lambda self: len(self.shape))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def sparse_dim(self) -> int:
        """How many axes the places have."""
        return int(self._places.shape[0])

    def dense_dim(self) -> int:
        """How many axes every value has."""
        return self._numbers.dim() - 1

    def is_coalesced(self) -> bool:
        """True where no place comes twice."""
        return self._is_coalesced

    def _nnz(self) -> int:
        return int(self._numbers.shape[0])

    def _indices(self) -> Tensor:
        return self._places

    def _values(self) -> Tensor:
        return self._numbers

    def _checked(self, what: str) -> None:
        if self.layout is sparse_coo and not self._is_coalesced:
            raise RidgelineError(f"{what} needs every place once", help="coalesce() it first")

    def indices(self) -> Tensor:
        """The places [axes, n] in order."""
        self._checked("indices()")
        return self._places

    def values(self) -> Tensor:
        """The values, in the order of their places."""
        self._checked("values()")
        return self._numbers

    def crow_indices(self) -> Tensor:
        """Of a CSR matrix: where each row begins among the values."""
        counts = public.bincount(self._places[0], minlength=self.shape[0])
        start = public.zeros(1, dtype=dtypes.int64, device=self.device)
        return public.cat([start, counts.cumsum(0)])

    def col_indices(self) -> Tensor:
        """Of a CSR matrix: the columns of the values."""
        return self._places[1]

    def coalesce(self) -> SparseTensor:
        """The same tensor with every place once, in order; values of equal places are added."""
        if self._is_coalesced:
            return self
        sizes = self.shape[: self.sparse_dim()]
        flat = public.zeros_like(self._places[0])
        for size, along in zip(sizes, self._places):
            flat = flat * size + along
        once, inverse = public.unique(flat, return_inverse=True)
        empty = self._numbers.new_zeros((once.shape[0], *self._numbers.shape[1:]))
        numbers = empty.index_add(0, inverse, self._numbers)
        axes: list[Tensor] = []
        for size in reversed(sizes):
            axes.insert(0, once % size)
            once = once // size
        return SparseTensor(public.stack(axes), numbers, self.shape, sparse_coo, True)

    def to_dense(self, dtype: DType | None = None) -> Tensor:
        """All elements, zeros too."""
        empty = self._numbers.new_zeros(tuple(self.shape))
        made = empty.index_put(tuple(self._places), self._numbers, accumulate=True)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, *args: Any, layout: layouts.layout = sparse_coo) -> SparseTensor:
        """In the other layout, or itself."""
        if layout is self.layout:
            return self
        if layout is sparse_csr and (len(self.shape) != 2 or self.sparse_dim() != 2):
            raise ShapeError(f"a CSR tensor is a matrix, not {list(self.shape)}")
        return replace(self.coalesce(), layout=layout)

    def to_sparse_csr(self) -> SparseTensor:
        """A matrix by its rows."""
        return self.to_sparse(layout=sparse_csr)

    def to_sparse_coo(self) -> SparseTensor:
        """By places."""
        return self.to_sparse(layout=sparse_coo)

    def _with(self, numbers: Tensor) -> SparseTensor:
        return replace(self, _places=self._places.to(numbers.device), _numbers=numbers)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """The values in another element type or on another device."""
        return self._with(self._numbers.to(*args, **kwargs))

    def t(self) -> SparseTensor:
        """A matrix with its axes exchanged."""
        flipped = replace(
            self, _places=self._places.flip(0), shape=Size(self.shape[::-1]), _is_coalesced=False
        )
        return flipped.coalesce() if self._is_coalesced else flipped

    def __matmul__(self, other: Tensor) -> Tensor:
        if len(self.shape) != 2 or self.dense_dim() or not isinstance(other, Tensor):
            raise ShapeError("a sparse matrix multiplies a dense matrix or vector")
        if self.shape[1] != other.shape[0]:
            raise ShapeError(f"{list(self.shape)} times {list(other.shape)}: inner sizes differ")
        rows, columns = self._places
        weights = self._numbers if other.dim() == 1 else self._numbers.unsqueeze(1)
        empty = other.new_zeros((self.shape[0], *other.shape[1:]))
        return empty.index_add(0, rows, weights * other[columns])

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return (self.t() @ other.t()).t() if other.dim() == 2 else self.t() @ other

    def __mul__(self, other: Any) -> SparseTensor:
        if not isinstance(other, Tensor) or not other.dim():
            return self._with(self._numbers * other)
        if self.shape != other.shape:
            raise ShapeError(f"{list(self.shape)} times {list(other.shape)}: the shapes differ")
        return self._with(self._numbers * other[tuple(self._places)])

    __rmul__ = __mul__

    def __add__(self, other: Any) -> SparseTensor:
        if not isinstance(other, SparseTensor):
            raise RidgelineError(
                "a sparse tensor takes another sparse one in a sum", help="write dense + sparse"
            )
        if self.shape != other.shape:
            raise ShapeError(f"{list(self.shape)} plus {list(other.shape)}: the shapes differ")
        places = public.cat([self._places, other._places], 1)
        numbers = public.cat([self._numbers, other._numbers])
        joined = SparseTensor(places, numbers, self.shape).coalesce()
        return joined.to_sparse(layout=self.layout)

    def __radd__(self, other: Any) -> Tensor:
        return cast(Tensor, added(other, self))

    def __sub__(self, other: Any) -> SparseTensor:
        return self + (-other if isinstance(other, SparseTensor) else other)

    def __rsub__(self, other: Any) -> Tensor:
        return cast(Tensor, added(other, self, alpha=-1))

    def __truediv__(self, other: Any) -> SparseTensor:
        scale: SparseTensor = self * (1 / other)
        return scale

    def __pos__(self) -> SparseTensor:
        return self

    def __neg__(self) -> SparseTensor:
        return self * -1

    def mm(self, mat2: Tensor) -> Tensor:
        """The product with a dense matrix."""
        return self @ mat2

    matmul = mv = spmm = mm

    def sum(self, dim: Any = None, dtype: DType | None = None) -> Any:
        """The sum of all elements, or a tensor without some of the axes."""
        return summed(self, dim, dtype)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A function of dense tensors that is given a sparse one."""
        name = func.__name__
        return TAKEN[name](*args, **kwargs) if name in TAKEN else _no(name)

    def __repr__(self) -> str:
        at, held = self._places, self._numbers
        return (
            f"tensor(indices={at},\n       values={held},\n       size={tuple(self.shape)}, "
            f"nnz={self._nnz()}, layout={self.layout})"
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("cpu", "cuda", "float", "double", "half", "detach", "clone"):
            change = getattr(self._numbers, name)
            return lambda *args, **kwargs: self._with(change(*args, **kwargs))
        if name == "requires_grad_":
            return lambda mode=True: (self._numbers.requires_grad_(mode), self)[1]
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"SparseTensor has no attribute {name!r}")
        return lambda *args, **kwargs: _no(name)


def _no(name: str) -> NoReturn:
    raise RidgelineError(f"{name} is not there for sparse tensors", help="take x.to_dense() first")


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool = False,
) -> SparseTensor:
    """A sparse tensor from places [axes, n] and values [n, …]; equal places are added."""
    positions, numbers = as_tensor(indices, dtypes.int64, device), as_tensor(values, dtype, device)
    if positions.dim() != 2 or positions.shape[1] != numbers.shape[0]:
        raise ShapeError(
            f"places {list(positions.shape)} and values {list(numbers.shape)} do not go together"
        )
    found = [int(axis.max()) + 1 for axis in positions] if size is None else list(size)
    shape = Size((*found, *numbers.shape[1:]) if size is None else found)
    for axis, most in zip(positions, shape):
        if positions.shape[1] and (int(axis.max()) >= most or int(axis.min()) < 0):
            raise ShapeError(f"a place is outside of the size {list(shape)}")
    if requires_grad:
        numbers = numbers.requires_grad_()
    return SparseTensor(positions, numbers, shape, sparse_coo, is_coalesced)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """A sparse matrix from where its rows begin, the columns of its values, and these."""
    starts, columns = as_tensor(crow_indices, dtypes.int64), as_tensor(col_indices, dtypes.int64)
    rows = public.repeat_interleave(public.arange(starts.shape[0] - 1), starts.diff())
    wide = int(columns.max()) + 1 if size is None else size[1]
    made = sparse_coo_tensor(
        public.stack([rows, columns]), values, (starts.shape[0] - 1, wide), dtype=dtype,
        device=device, requires_grad=requires_grad, is_coalesced=True,
    )  # fmt: skip
    return replace(made, layout=sparse_csr)


def to_sparse(self: Tensor, *args: Any, layout: layouts.layout = sparse_coo) -> SparseTensor:
    """The elements that are not zero, with their places."""
    indices = self.nonzero().t()
    found = SparseTensor(indices, self[tuple(indices)], self.shape, sparse_coo, True)
    return found.to_sparse(layout=layout)


def to_dense(self: Tensor, dtype: DType | None = None) -> Tensor:
    """This tensor: it has all elements."""
    return self if dtype is None else self.to(dtype)


def spmm(input: Any, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, or of two dense ones."""
    return cast(Tensor, input @ mat2)


def addmm(input: Tensor, mat1: Any, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), where `mat1` may be sparse."""
    return spmm(mat1, mat2).mul(alpha).add(input, alpha=beta)


def added(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """input + alpha * other of a dense and a sparse tensor, or of two sparse ones."""
    if isinstance(input, SparseTensor) or not isinstance(other, SparseTensor):
        return input + other * alpha
    if not isinstance(input, Tensor) or input.shape != other.shape:
        raise ShapeError(f"a dense tensor of the shape {list(other.shape)} takes a sparse one")
    numbers = other._numbers * alpha
    kind = result_type(input, numbers)
    return input.to(kind).index_put(tuple(other._places), numbers.to(kind), accumulate=True)


def subtracted(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """input - alpha * other of a dense and a sparse tensor, or of two sparse ones."""
    return added(input, other, alpha=-alpha)


def summed(input: SparseTensor, dim: Any = None, dtype: DType | None = None) -> Any:
    """The sum of all elements of a sparse tensor, or a sparse tensor without some of the axes."""
    if dim is None:
        return input._numbers.sum(dtype=dtype)
    axes = {int(d) % len(input.shape) for d in ([dim] if isinstance(dim, int) else dim)}
    sparse = input.sparse_dim()
    numbers = input._numbers.to(dtype) if dtype is not None else input._numbers
    inner = [d - sparse + 1 for d in axes if d >= sparse]
    numbers = numbers.sum(inner) if inner else numbers
    kept = [axis for axis in range(sparse) if axis not in axes]
    if not kept:
        return numbers.sum(0)
    shape = Size(size for axis, size in enumerate(input.shape) if axis not in axes)
    return SparseTensor(input._places[kept], numbers, shape).coalesce()


# functions of dense tensors that take a sparse one, too
TAKEN: dict[str, Any] = {
    "mm": spmm, "matmul": spmm, "mv": spmm, "addmm": addmm, "add": added, "sub": subtracted,
    "subtract": subtracted, "sum": summed, "mul": lambda input, other: input * other,
}  # fmt: skip


def typed_sparse(dtype: DType | None = None) -> Any:
    """torch.sparse.FloatTensor and its like."""
    return lambda i, v, size=None: sparse_coo_tensor(i, v, size, dtype=dtype or defaults.dtype)


def _sparse_only(name: str) -> Any:
    """The method of a dense tensor that only sparse ones have a use for."""

    def method(self: Tensor) -> NoReturn:
        raise RidgelineError(f"{name}() is for sparse tensors", help="take x.to_sparse() first")

    return method


METHODS = {
    **{n: _sparse_only(n) for n in (
        "coalesce", "indices", "values", "crow_indices", "col_indices", "row_indices",
        "ccol_indices", "is_coalesced",
    )},
    "to_sparse": to_sparse, "to_dense": to_dense,
    "to_sparse_csr": lambda self: to_sparse(self, layout=sparse_csr),
    "to_sparse_coo": to_sparse,
}  # fmt: skip
