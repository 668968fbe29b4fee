"""Graphs of cuDNN as data: tensors and the operations between them, and the descriptors of both.

Most tensors of a graph are never in memory: the library's engines recognise a graph as a whole, and
compute it with kernels of their own. Memory and numbers of the host are what a call is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import prod

from ridgeline.runtime.cuda.cudnn_api import Attribute, Descriptor, Descriptors, Type

DTYPES = {"float32": 0, "float16": 2, "int32": 4, "bfloat16": 9, "bool": 11}
_ALIGNMENT = 16
_PROPAGATE = 1
_POINTWISE = {
    "add": 0, "mul": 1, "div": 6, "sub": 9, "exp": 13, "log": 15, "identity": 21,
    "relu": 100, "greater_equal": 303, "index": 501, "select": 601,
}  # fmt: skip
_REDUCTIONS = {"sum": 0, "max": 3}
_MATMUL_ROLES = (
    Attribute.OPERATION_MATMUL_A, Attribute.OPERATION_MATMUL_B, Attribute.OPERATION_MATMUL_C,
)  # fmt: skip
_RESHAPE_ROLES = (Attribute.OPERATION_RESHAPE_X, Attribute.OPERATION_RESHAPE_Y)
_REDUCTION_ROLES = (Attribute.OPERATION_REDUCTION_X, Attribute.OPERATION_REDUCTION_Y)
_POINTWISE_ROLES = (
    Attribute.OPERATION_POINTWISE_X, Attribute.OPERATION_POINTWISE_B,
    Attribute.OPERATION_POINTWISE_T, Attribute.OPERATION_POINTWISE_Y,
)  # fmt: skip
Roles = tuple[Attribute, ...]  # of the operands, then of the result
Sizes = tuple[int, ...]


class HeldIn(Enum):
    """Where the elements of a tensor are."""

    IN_MEMORY = "memory"
    NOWHERE = "nowhere"
    BY_VALUE = "value"


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """A tensor of a graph; `number` is its name, and `value` what one held by value is."""

    number: int
    dtype: str
    sizes: Sizes
    strides: Sizes
    held: HeldIn = HeldIn.NOWHERE
    value: float = 0.0


Described = Callable[[TensorDesc], Descriptor]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; `axis` is the one along which indices count."""

    name: str
    operands: tuple[TensorDesc, ...]
    result: TensorDesc
    axis: int | None = None


@dataclass(slots=True)
class Network:
    """Operations in order, and the tensors that a call is given memory for, by role."""

    operations: list[Operation] = field(default_factory=list)
    memory: dict[str, TensorDesc] = field(default_factory=dict)
    values: list[TensorDesc] = field(default_factory=list)
    _count: int = 0

    def held(self, role: str, dtype: str, sizes: Sizes, strides: Sizes = ()) -> TensorDesc:
        """A tensor in memory."""
        made = TensorDesc(self._number(), dtype, sizes, strides or dense(sizes), HeldIn.IN_MEMORY)
        self.memory[role] = made
        return made

    def number(self, value: float) -> TensorDesc:
        """A number that a call is given."""
        ones = (1, 1, 1, 1)
        made = TensorDesc(self._number(), "float32", ones, ones, HeldIn.BY_VALUE, value)
        self.values.append(made)
        return made

    def apply(
        self,
        name: str,
        *operands: TensorDesc,
        dtype: str = "float32",
        sizes: Sizes | None = None,
        strides: Sizes = (),
        axis: int | None = None,
        into: TensorDesc | None = None,
    ) -> TensorDesc:
        """An operation's result; of the sizes of its operands together unless told otherwise."""
        if into is None:
            sizes = sizes or tuple(map(max, zip(*(operand.sizes for operand in operands))))
            into = TensorDesc(self._number(), dtype, sizes, strides or dense(sizes))
        self.operations.append(Operation(name, operands, into, axis))
        return into

    def _number(self) -> int:
        self._count += 1
        return self._count


def dense(sizes: Sizes) -> Sizes:
    """The strides of contiguous memory."""
    return tuple(prod(sizes[index + 1 :]) for index in range(len(sizes)))


def operations(network: Network) -> list[Descriptor]:
    """The operations of a network as the library has them."""
    tensor = described()
    return [operation_descriptor(one, tensor) for one in network.operations]


def described() -> Described:
    """What gives tensors of one graph as the library has them: one descriptor for each."""
    made: dict[int, Descriptor] = {}

    def tensor(one: TensorDesc) -> Descriptor:
        if one.number not in made:
            made[one.number] = _tensor_descriptor(one)
        return made[one.number]

    return tensor


def _tensor_descriptor(tensor: TensorDesc) -> Descriptor:
    """A tensor as the library has it."""
    made = Descriptor(Descriptors.TENSOR)
    made.set(Attribute.TENSOR_TYPE, Type.DATA_TYPE, [DTYPES[tensor.dtype]])
    made.set(Attribute.TENSOR_SIZES, Type.INT64, tensor.sizes)
    made.set(Attribute.TENSOR_STRIDES, Type.INT64, tensor.strides)
    made.set(Attribute.TENSOR_ID, Type.INT64, [tensor.number])
    made.set(Attribute.TENSOR_ALIGNMENT, Type.INT64, [_ALIGNMENT])
    made.set(Attribute.TENSOR_IS_VIRTUAL, Type.BOOLEAN, [tensor.held is HeldIn.NOWHERE])
    made.set(Attribute.TENSOR_IS_BY_VALUE, Type.BOOLEAN, [tensor.held is HeldIn.BY_VALUE])
    return made.finalize()


def operation_descriptor(operation: Operation, tensor: Described) -> Descriptor:
    """An operation as the library has it."""
    name = operation.name
    if name == "matmul":
        made, roles = _matmul()
    elif name == "reshape":
        made, roles = Descriptor(Descriptors.OPERATION_RESHAPE), _RESHAPE_ROLES
    elif name in _REDUCTIONS:
        made, roles = _reduction(name)
    else:
        made, roles = _pointwise(operation)
    for role, one in zip(roles, (*operation.operands, operation.result), strict=True):
        made.set(role, Type.DESCRIPTOR, [tensor(one)])
    return made.finalize()


def _matmul() -> tuple[Descriptor, Roles]:
    how = Descriptor(Descriptors.MATMUL)
    how.set(Attribute.MATMUL_COMPUTE, Type.DATA_TYPE, [DTYPES["float32"]]).finalize()
    made = Descriptor(Descriptors.OPERATION_MATMUL)
    return made.set(Attribute.OPERATION_MATMUL, Type.DESCRIPTOR, [how]), _MATMUL_ROLES


def _reduction(name: str) -> tuple[Descriptor, Roles]:
    how = Descriptor(Descriptors.REDUCTION)
    how.set(Attribute.REDUCTION_COMPUTE, Type.DATA_TYPE, [DTYPES["float32"]])
    how.set(Attribute.REDUCTION_OPERATOR, Type.REDUCTION, [_REDUCTIONS[name]]).finalize()
    made = Descriptor(Descriptors.OPERATION_REDUCTION)
    return made.set(Attribute.OPERATION_REDUCTION, Type.DESCRIPTOR, [how]), _REDUCTION_ROLES


def _pointwise(operation: Operation) -> tuple[Descriptor, Roles]:
    computed = "bool" if operation.result.dtype == "bool" else "float32"
    how = Descriptor(Descriptors.POINTWISE)
    how.set(Attribute.POINTWISE_MODE, Type.POINTWISE_MODE, [_POINTWISE[operation.name]])
    how.set(Attribute.POINTWISE_COMPUTE, Type.DATA_TYPE, [DTYPES[computed]])
    if operation.name == "relu":
        how.set(Attribute.POINTWISE_NAN, Type.NAN_PROPAGATION, [_PROPAGATE])
    if operation.axis is not None:
        how.set(Attribute.POINTWISE_AXIS, Type.INT64, [operation.axis])
    made = Descriptor(Descriptors.OPERATION_POINTWISE)
    made.set(Attribute.OPERATION_POINTWISE, Type.DESCRIPTOR, [how.finalize()])
    *operands, result = _POINTWISE_ROLES
    return made, (*operands[: len(operation.operands)], result)
