"""The interface that a kind of device implements: one class, and one line of `devices.KINDS`.

A backend says what machine it compiles for, how its kernels are scheduled, turns them into code
and a layout into something that runs. Everything else in the compiler is the same for all. What
not every device has is a capability with a default: a backend without it does not mention it.

What libraries, and kernels written by hand, compute in place of kernels of loops is a `LibraryOp`
each, beside the backend that has it:

    runtime/cuda/product.py             cuBLASLt   matrix products, with a bias
    runtime/cuda/cudnn_convolution.py   cuDNN      convolutions, with a bias and a ReLU
    runtime/cuda/attention/             cuDNN, and kernels of our own
    NumpyCalls                          NumPy      what has no loops, on the host

All are recognised in the graph: a pass of `graph/passes/libraries/` asks a class whether it has a
node (`matches`) and puts an op of the class in its place. From there on the class says through
which views the call reads memory (`operands`) and how it is started (`launch`), as plain data that
makes the steps of a plan. To add one, write its class and its op, its pass, and name the class in
the table of its backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.compiler.memory_plan import BodyPlan, HostCall, Layout
from ridgeline.devices import device, part_of
from ridgeline.fusion.groups import FusionGroup, Roofline
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op, TensorType
from ridgeline.graph.sizes import Size
from ridgeline.loops.ir import Kernel
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.ops.convolve import ConvolveAttrs, Way
from ridgeline.ops.strides import View
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.compiler.stages import CompiledKernel


Fill = Callable[[Any, Array, TensorType], None]


class PausedRun(Protocol):
    """A run stopped before its first write into memory that it was given.

    It counts as one reference for each input, in the list that it was given, and one for each
    buffer that it is to overwrite.
    """

    def finish(self, reused: Mapping[int, Any]) -> tuple[list[Any], list[Callable[[], object]]]:
        """The buffers of the results, some of them given here, and the C calls that fill them.

        Until the first of these calls nothing is overwritten. They may be asked for again.
        """

    def ended(self) -> None:
        """Note that all calls were made."""

    def explain(self, error: BaseException) -> None:
        """Raise a more informative error for what a call raised, if there is one."""


class LoadedProgram(Protocol):
    """A layout with its code, ready to run."""

    @property
    def exclusive(self) -> AbstractContextManager[Any] | None:
        """The lock to hold while a run overwrites memory, if any."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the program; every result is a buffer that nobody else holds."""

    def begin(self, inputs: list[Any], given: Collection[int]) -> PausedRun:
        """Begin a run that overwrites buffers `given` for some results, by number.

        The run takes over the list of inputs.
        """

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once; seconds of each call, in order."""


class LayoutExecutable:
    """What executables of all devices share: a layout, and its NumPy calls.

    `results` are slots; `copied` lists results that have no buffer of their own and are copied.
    """

    def __init__(self, layout: Layout, calls: NumpyCalls) -> None:
        self.layout, self.calls = layout, calls
        self.results, self.copied = layout.results, tuple(layout.not_their_own())


class HorizontalFusion(Protocol):
    """A capability: independent kernels share one launch."""

    def key(self, kernel: CompiledKernel) -> Hashable | None:
        """Equal for kernels that can share a launch; None for one that cannot share any."""

    def fits(self, parts: Sequence[CompiledKernel]) -> bool:
        """Whether kernels of one key still fit into one launch."""

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, Any]:
        """The name and the launch, as plain data, of several kernels together."""


class ControlFlow(Protocol):
    """A capability: loops and branches that run without Python."""

    def runs(self, node: Node) -> bool:
        """True for control flow that is a single step of a program."""

    def plan(self, step: int, group: FusionGroup, parts: Sequence[Layout]) -> BodyPlan:
        """Bind bodies that are laid out to the program around them."""


class Backend(ABC):
    """What the compiler asks of a kind of device."""

    # The classes of data in its layouts, besides the compiler's own: the disk cache keeps them.
    launch_types: Sequence[type] = ()
    posts_collectives = False  # as steps of its plans, and not as NumPy calls between them
    # True where runs share one flag for wrong indices, which is stored only where it is true
    shares_flag = False

    # ---- what every backend has ---------------------------------------------------------------

    @abstractmethod
    def facts(self) -> Any:
        """The facts about the machine that schedules depend on, as printable data."""

    @abstractmethod
    def roofline(self, facts: Any) -> Roofline:
        """The cost model of fusion: rounded figures, so that decisions do not depend on noise."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything that decides which code a graph becomes."""

    @abstractmethod
    def schedule(self, lowered: Lowered, facts: Any) -> list[ScheduleStep]:
        """The default schedule of a kernel."""

    @abstractmethod
    def launch(self, group: FusionGroup, kernel: Kernel) -> Any:
        """How a scheduled kernel is started, as plain data; None if it has no work."""

    @abstractmethod
    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        library_calls: Sequence[FusionGroup] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        """Compile kernels, and the library ops that have code, and load them into this process.

        Kernels in `joined` are also in `kernels` and share a launch; `begun` is what
        `compile_ahead` returned.
        """

    @abstractmethod
    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Load machine code from the disk cache."""

    @abstractmethod
    def source(self, kernels: Sequence[Kernel]) -> str:
        """The code in its readable form."""

    @abstractmethod
    def executable(self, layout: Layout, calls: NumpyCalls) -> LoadedProgram:
        """A layout ready to run; `calls` are its NumPy calls."""

    # ---- capabilities -------------------------------------------------------------------------

    def key(self) -> Any:
        """The facts and settings that decide what a graph becomes."""
        return self.facts()

    def program(self, graph: Graph, pairs: Sequence[tuple[int, int]]) -> Any:
        """A whole graph as a program, for a device that has no kernels of its own."""
        raise AssertionError("this device's programs are made of kernels")

    def legalize(self) -> Sequence[LoopPass]:
        """The passes over loops right before code generation."""
        return ()

    def libraries(self) -> Libraries:
        """What its libraries compute, as the graph passes ask for it."""
        return Libraries()

    def library_ops(self) -> Sequence[LibraryOp]:
        """The library ops: what libraries or hand-written kernels compute."""
        return ()

    def library_op(self, node: Node) -> LibraryOp | None:
        """The library op that computes a node; None if the node becomes loops."""
        return next((op for op in self.library_ops() if node.op in op.ops), None)

    def shared_memory_bytes(self) -> int:
        """Shared memory of a thread block; 0 where there are no blocks."""
        return 0

    def reads_narrow_operands(self, node: Node, facts: Any) -> bool:
        """True for a contraction that reads narrow operands although the graph widens them."""
        return False

    def reason_to_split(self, lowered: Lowered, facts: Any) -> str:
        """Why a kernel that could be one should be several; empty if it should not."""
        return ""

    def block_bytes(self, nbytes: int, exact: bool) -> int:
        """The device memory that an allocation of so many bytes takes; `exact` as in layouts."""
        return nbytes

    def workspace(self, layout: Layout) -> int:
        """Bytes of workspace that the calls of a layout need, besides its arena."""
        return 0

    def horizontal_fusion(self) -> HorizontalFusion | None:
        """How kernels share a launch, if that pays on this device."""
        return None

    def control_flow(self) -> ControlFlow | None:
        """How control flow runs natively; without it, it runs on the host between kernels."""
        return None

    def compile_ahead(self, group: FusionGroup, kernel: CompiledKernel | None) -> Mapping[str, Any]:
        """Start to compile a group that shares no launch, in parallel with later passes.

        The group is a scheduled kernel or a library call. The result goes by the name of the code
        and is passed to `compile`.
        """
        return {}


@lru_cache(maxsize=64)
def backend(name: str) -> Backend:
    """The backend of a device."""
    made: Backend = part_of(device(name), "backend")
    return made


class LibraryOp(Protocol):
    """A kind of library call, which is one step of a program."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that stand for its calls in a graph."""

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """The views through which a call reads its operands from memory.

        The values behind these views are materialised. If the call cannot read a view of something
        else, that is the operand itself.
        """

    def launch(self, group: FusionGroup) -> Any:
        """How a call is started, as plain data (one of the backend's launch types)."""


@dataclass(frozen=True, slots=True)
class Libraries:
    """What the graph passes ask of a backend's libraries; None if a library is missing.

    Each is the `matches` of a class, for one of its forms; for a convolution, its layout.
    """

    convolution: Callable[[ConvolveAttrs, Node], Way | None] | None = None
    convolution_with_relu: Callable[[ConvolveAttrs, Node], bool] | None = None
    attention: Callable[[Node], bool] | None = None
    product: Callable[[Node, Graph], bool] | None = None
    product_with_bias: Callable[[Node], bool] | None = None


class NumpyCalls:
    """The graph of a program, and the nodes that its NumPy calls are numbered by.

    `order` gives these nodes when a call first asks: most programs have no such call. For a program
    over symbolic sizes, the graph at concrete sizes is made when it is asked for.
    """

    def __init__(self, graph: Callable[[], Graph], order: Callable[[], Sequence[Node]]) -> None:
        self._graph, self._order = graph, order

    @cached_property
    def graph(self) -> Graph:
        """What the program computes."""
        return self._graph()

    @cached_property
    def order(self) -> Sequence[Node]:
        """The nodes of the graph as kernels and library calls are made of it."""
        return self._order()

    def run(self, call: HostCall, held: Sequence[Any], fill: Fill) -> None:
        """Make a call over the buffers of all slots; `fill` writes a result into memory."""
        node = self.order[call.node]
        operands = [
            held[slot].array(source.dtype, known(source.shape))
            for slot, source in zip(call.inputs, node.inputs)
        ]
        values = node.op.value(node, operands)
        for slot, value, made in zip(call.outputs, values, node.types):
            if slot >= 0:
                fill(held[slot], value.astype(made.dtype.numpy, copy=False), made)

    def shown(self, memory: Mapping[int, Any]) -> dict[Node, Array]:
        """Some inputs, by number, as NumPy arrays."""
        nodes = self.graph.inputs
        return {
            nodes[n]: held.array(nodes[n].dtype, known(nodes[n].shape))
            for n, held in memory.items()
        }


def known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """A shape without symbolic sizes, as it is when a program runs."""
    assert all(isinstance(size, int) for size in shape), "sizes are known when a program runs"
    return shape  # type: ignore[return-value]
