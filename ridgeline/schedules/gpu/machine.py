"""The facts about a GPU that default schedules depend on, and helpers they share.

Vector widths, fusing loops, and trying steps on the way to a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ridgeline.loops import ir
from ridgeline.loops.ir import Const, For, Kernel
from ridgeline.loops.schedule import Bind, Fuse, Split, Step, applied
from ridgeline.schedules.accesses import accesses

ACCESS_BYTES = 16


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """What one GPU has: read from the device by the runtime, or a stated one in tests."""

    arch: str  # as NVRTC names it: "sm_80", "sm_90a"
    multiprocessors: int
    shared_bytes: int  # that one block may use
    l2_bytes: int
    cluster: int = 1  # blocks that can share their shared memory; 1 before Hopper
    block_threads: int = 1024
    parameter_bytes: int = 4096  # that one launch may take
    # accesses of a row that a block reads sooner than a second launch begins
    block_accesses: int = 4096

    # sums into shared places are added in one order, not as threads come
    one_order: bool = False

    @property
    def capability(self) -> int:
        """The compute capability times ten."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))


H200 = GpuMachine("sm_90a", 132, 232_448, 60 << 20, cluster=8, parameter_bytes=32_764)
A100 = GpuMachine("sm_80", 108, 166_912, 40 << 20)
T4 = GpuMachine("sm_75", 40, 65_536, 4 << 20)


@dataclass(slots=True)
class Draft:
    """A kernel and the steps that led to it."""

    kernel: Kernel
    steps: list[Step] = field(default_factory=list)

    def do(self, *steps: Step) -> None:
        """Apply steps."""
        for step in steps:
            self.kernel = applied(self.kernel, step)
            self.steps.append(step)

    def length(self, axis: str) -> int | None:
        """The longest loop of an axis; None where it is known only at run time."""
        extents = [
            s.extent for s in ir.statements(self.kernel.body)
            if isinstance(s, For) and s.name == axis
        ]  # fmt: skip
        known = [int(e.value) for e in extents if isinstance(e, Const)]
        return max(known) if len(known) == len(extents) else None

    def has(self, axis: str) -> bool:
        """True when there is a loop of that name."""
        return any(isinstance(s, For) and s.name == axis for s in ir.statements(self.kernel.body))

    def fuse(self, axes: Sequence[str]) -> str:
        """Make one loop of nested ones; the name of the result."""
        fused = axes[0]
        for axis in axes[1:]:
            step = Fuse(fused, axis, divide=True)
            self.do(step)
            fused = step.axis
        return fused

    def vectors(self, axis: str, width: int) -> tuple[str, str | None]:
        """Cut an axis into vectors of a width that divides it: the loops over and within them."""
        if width == 1:
            return axis, None
        self.do(Split(axis, width))
        return (f"{axis}.0", f"{axis}.1") if self.has(f"{axis}.0") else ("", f"{axis}.1")

    def grid(self, axes: Sequence[str]) -> None:
        """Bind axes to blocks, outermost first."""
        self.do(*(Bind(axis, "grid") for axis in axes))


def vector_width(kernel: Kernel, axis: str, length: int | None) -> int:
    """Elements of one access along an axis: 16 bytes of the smallest type, if they fit evenly."""
    if length is None:
        return 1
    sizes = [a.buffer.dtype.itemsize for a in accesses(kernel) if a.stride(axis) == 1]
    if not sizes:
        return 1
    width = ACCESS_BYTES // max(min(sizes), 2 if max(sizes) > 1 else 1)
    while length % width:
        width //= 2
    return width


def power_at_least(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def power_at_most(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (max(number, 1).bit_length() - 1)
