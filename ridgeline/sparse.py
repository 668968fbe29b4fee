"""torch.sparse: products of sparse matrices; the tensors themselves are in `tensors/sparse.py`."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.reference import describe as _describe
from ridgeline.tensors.sparse import (
    SparseTensor as SparseTensor,
    addmm as addmm,
    spmm as mm,
    summed as sum,
    typed_sparse,
)
from ridgeline.tensors.typed import ELEMENTS

globals().update({f"{name}Tensor": typed_sparse(kind) for name, kind in ELEMENTS.items()})
__all__ = ["SparseTensor", "addmm", "mm", "sum"]
_describe("sparse", {name: globals()[name] for name in __all__})
__getattr__ = _unknown(__name__)
