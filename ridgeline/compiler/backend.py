"""The seam between the compiler and a kind of device: one small interface, one row per kind.

A backend says what machine it compiles for, how its kernels are scheduled, turns them into code
and a layout into something that runs. Everything else in the compiler is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.compiler.library_calls import LibraryCalls
from ridgeline.compiler.memory_plan import Layout
from ridgeline.devices import device
from ridgeline.fusion.groups import Group, Roofline
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.strides import View
from ridgeline.loops.ir import Kernel
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.ops.convolve import ConvolveAttrs

if TYPE_CHECKING:
    from ridgeline.compiler.stages import CompiledKernel


@dataclass(frozen=True, slots=True)
class Libraries:
    """What a device's libraries compute, as tests of nodes; None where there is no such library."""

    convolves: Callable[[ConvolveAttrs, Node], bool] | None = None
    rectifies: Callable[[ConvolveAttrs, Node], bool] | None = None  # with a ReLU after it
    attends: Callable[[Node], bool] | None = None
    takes_bias: Callable[[Node], bool] | None = None  # of products with a vector added to them


class Run(Protocol):
    """A run that overwrites memory it is given, begun and stopped before the first such write.

    References to that memory are counted: a run holds its inputs once, in the list that it was
    given, and once what it is given to overwrite.
    """

    def finish(self, reused: Mapping[int, Any]) -> tuple[list[Any], list[Callable[[], object]]]:
        """The memory of the results, some of it given here, and the C code that fills it.

        Until the first of these calls nothing is overwritten; they may be asked for again.
        """

    def ended(self) -> None:
        """All calls were made."""

    def explain(self, error: BaseException) -> None:
        """Raise an error that says more than what a call raised, if there is one."""


class Executable(Protocol):
    """A layout with its code, ready to run."""

    @property
    def exclusive(self) -> AbstractContextManager[Any] | None:
        """What is held from the beginning of a run that overwrites memory to its end, if any."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, each in memory that nobody else has."""

    def begin(self, inputs: list[Any], given: Collection[int]) -> Run:
        """A run that will be given memory for some results, by number, to overwrite.

        The list of inputs is the run's from now on.
        """

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once; the seconds of every call, in order."""


class Backend(Protocol):
    """What the compiler asks of a kind of device."""

    def facts(self) -> Any:
        """What schedules depend on, as data that compares and prints."""

    def key(self) -> Any:
        """The facts and settings that decide what a graph becomes."""

    def roofline(self, facts: Any) -> Roofline:
        """What fusion reckons with: round figures, so that decisions do not depend on noise."""

    def fingerprint(self) -> str:
        """A hash of all that decides what code a graph becomes."""

    def schedule(self, lowered: Lowered, facts: Any) -> list[ScheduleStep]:
        """The default schedule of a kernel."""

    def libraries(self) -> Libraries:
        """What the device's libraries compute."""

    def shared_bytes(self) -> int:
        """The memory that the threads of a block share; 0 where there are no blocks."""

    def apart(self, node: Node) -> bool:
        """True for a fold that must not share a kernel, because a library may compute it."""

    def parts(self, lowered: Lowered, facts: Any) -> str:
        """Why a kernel that could be one should be several; empty where it should not."""

    def converts(self, node: Node, facts: Any) -> bool:
        """True for a contraction that reads narrow operands where the graph has them widened."""

    def computes(self, node: Node) -> bool:
        """True for an op such as attention that it computes whole, with a launch of its own.

        Others are written out in simpler ops before compilation.
        """

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """The views of memory through which a node that it computes whole reads its operands.

        What a view shows is written to memory; where the device cannot read a view of something
        else, that is the operand itself.
        """

    def runs(self, node: Node) -> bool:
        """True for control flow that needs no Python while it runs."""

    def launch(self, group: Group, kernel: Kernel | None) -> tuple[Any, ...] | None:
        """How a group is started, as plain data; None if it has nothing to do.

        It has a scheduled kernel, or is a node that the backend computes whole.
        """

    def join_key(self, kernel: CompiledKernel) -> Hashable | None:
        """Equal for kernels that can be started as one; None for one that is always alone."""

    def join_fits(self, parts: Sequence[CompiledKernel]) -> bool:
        """Whether kernels of one key still fit into one launch."""

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, tuple[Any, ...]]:
        """The name of several kernels started as one, and how that is done, as plain data."""

    def begin(self, group: Group, kernel: CompiledKernel | None) -> Mapping[str, Any]:
        """Start to compile the code of a group that is joined with no other, beside what follows.

        It has a scheduled kernel, or is a node that the backend computes whole. What was begun
        goes by the names of the code, and is handed to `compile`.
        """

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        whole: Sequence[Group] = ...,
        joined: Sequence[Sequence[CompiledKernel]] = ...,
        begun: Mapping[str, Any] = ...,
    ) -> bytes:
        """Machine code of kernels and of nodes computed whole, ready in this process.

        Those in `joined` are among the kernels, and are started as one.
        """

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Machine code that the disk cache kept."""

    def legalize(self) -> Sequence[LoopPass]:
        """The passes over loops right before code is written."""

    def source(self, kernels: Sequence[Kernel]) -> str:
        """The code in its readable form."""

    def executable(self, layout: Layout, calls: LibraryCalls) -> Executable:
        """A layout ready to run; `calls` are what of it NumPy computes."""


@lru_cache(maxsize=64)
def backend(name: str) -> Backend:
    """The backend of a device."""
    place = device(name)
    if place.type == "cpu":
        from ridgeline.compiler.cpu import CpuBackend  # loads LLVM

        return CpuBackend()
    from ridgeline.compiler.cuda import CudaBackend  # loads the driver

    return CudaBackend(place.index or 0)
