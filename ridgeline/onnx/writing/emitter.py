"""A graph of ONNX in the making: nodes and constants, names for values, sizes as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Quasi, Size, SizeExpr, Sym
from ridgeline.index.polynomial import Polynomial
from ridgeline.scalars import Array


class OnnxExportError(RidgelineError):
    """A function that has no form in ONNX, or whose form does not compute the same."""

    code = "RL0820"


def onnx_type(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return int(np_dtype_to_tensor_dtype(dtype.numpy))


class Emitter:
    """Collects the nodes of one graph; those of bodies share the names of the graph around them."""

    def __init__(self, opset: int, outer: Emitter | None = None) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.names: dict[Node, str] = {}  # of values
        self.unspread: dict[Node, str] = {}  # of broadcasts before they are: with axes of length 1
        self.several: dict[Node, list[str]] = {}  # of ops with several results
        self.outer = outer
        self.root: Emitter = outer.root if outer else self
        self.initializers: list[TensorProto] = []
        self.symbols: dict[Sym, tuple[str, int]] = {}  # the input and its axis that has a size
        self._constants: dict[Any, str] = {}
        self._sizes: dict[Any, str] = {}
        self._count = 0

    def fresh(self, hint: str) -> str:
        """A name that nothing has."""
        root = self.root
        root._count += 1
        return f"{hint}_{root._count}"

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """One more node; the name of its first result."""
        return self.add_all(op, inputs, outputs, **attributes)[0]

    def add_all(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """One more node; the names of its results."""
        made = [self.fresh(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, **attributes))
        return made

    def weight(self, array: Array, name: str) -> str:
        """An array as an initializer of the whole graph."""
        own = name if name not in self.root._taken() else self.fresh(name)
        self.root.initializers.append(numpy_helper.from_array(array, own))
        return own

    def _taken(self) -> set[str]:
        return {each.name for each in self.initializers}

    def constant(self, value: Any, dtype: Any) -> str:
        """A small constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        root = self.root
        if key not in root._constants:
            name = self.fresh("constant")
            root.initializers.append(numpy_helper.from_array(array, name))
            root._constants[key] = name
        return root._constants[key]

    def integers(self, values: Sequence[int]) -> str:
        """A vector of constant integers."""
        return self.constant(list(values), np.int64)

    def shape(self, sizes: Sequence[Size]) -> str:
        """A vector of sizes: a constant, or computed from the shapes of inputs."""
        if all(isinstance(size, int) for size in sizes):
            return self.integers([size for size in sizes if isinstance(size, int)])
        parts = [self.size(size) for size in sizes]
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, axis=0)

    def size(self, size: Size) -> str:
        """A size as a vector of one integer."""
        if isinstance(size, int):
            return self.integers([size])
        if size not in self._sizes:
            self._sizes[size] = self._polynomial(size.form)
        return self._sizes[size]

    def _polynomial(self, form: Polynomial[Any]) -> str:
        total: str | None = None
        for monomial, coefficient in form.terms.items():
            term = self._atom(monomial[0])
            for atom in monomial[1:]:
                term = self.add("Mul", [term, self._atom(atom)])
            if coefficient != 1:
                term = self.add("Mul", [term, self.integers([int(coefficient)])])
            total = term if total is None else self.add("Add", [total, term])
        if total is None:
            return self.integers([int(form.constant)])
        if form.constant:
            total = self.add("Add", [total, self.integers([int(form.constant)])])
        return total

    def _atom(self, atom: Sym | Quasi) -> str:
        if isinstance(atom, Sym):
            if atom not in self.root.symbols:
                raise OnnxExportError(f"the size {atom} is that of no input")
            name, axis = self.root.symbols[atom]
            return self.add("Shape", [name], start=axis, end=axis + 1)
        left, right = self._polynomial(atom.left), self._polynomial(atom.right)
        return self.add({"//": "Div", "%": "Mod", "min": "Min", "max": "Max"}[atom.kind],
                        [left, right])  # fmt: skip

    def name(self, node: Node) -> str:
        """The name of a value."""
        emitter: Emitter | None = self
        while emitter is not None:
            if node in emitter.names:
                return emitter.names[node]
            emitter = emitter.outer
        raise AssertionError("a value is used before it is written")

    def cast(self, name: str, dtype: DType) -> str:
        """A value in another element type."""
        return self.add("Cast", [name], to=onnx_type(dtype))


def dimension(size: Size, names: Mapping[Size, str]) -> int | str | None:
    """A size as a model says it: a number, or the name of an axis."""
    if isinstance(size, int):
        return size
    return names.get(size) or (str(size) if isinstance(size, SizeExpr) else None)
