"""What libraries, and kernels written by hand, compute in place of kernels of loops: a class each.

    product.py       cuBLASLt      contractions that are matrix products, with a bias
    convolution.py   cuDNN         convolutions with channels last, with a bias and a ReLU
    attention.py     cuDNN, and kernels of our own (`codegen/cuda/attention/`)
    numpy_call.py    NumPy         what has no loops, on the host

All are recognised in the graph: a pass of `graph/passes/libraries/` asks a class whether it has a
node (`matches`) and puts an op of the class in its place. From there on the class says through
which views the call reads memory (`operands`) and how it is started (`launch`), as plain data that
makes the steps of a plan. To add one, write its class here, its op and its pass, and name the class
in the table of a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op
from ridgeline.graph.strides import View
from ridgeline.ops.convolve import ConvolveAttrs


class LibraryOp(Protocol):
    """A kind of call that is one step of a program."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that stand for its calls in a graph."""

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """The views of memory through which a call reads its operands.

        What a view shows is written to memory; where a call cannot read a view of something else,
        that is the operand itself.
        """

    def launch(self, group: Group) -> Any:
        """How a call is started, as plain data (one of the backend's launch types)."""


@dataclass(frozen=True, slots=True)
class Libraries:
    """What the passes over graphs ask a backend's libraries; None where there is no such library.

    Each is the `matches` of a class, for one of the forms that it has.
    """

    convolution: Callable[[ConvolveAttrs, Node], bool] | None = None
    convolution_with_relu: Callable[[ConvolveAttrs, Node], bool] | None = None
    attention: Callable[[Node], bool] | None = None
    product: Callable[[Node, Graph], bool] | None = None
    product_with_bias: Callable[[Node], bool] | None = None
