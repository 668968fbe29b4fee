"""Launches run three ways: in the simulator, as machine code of the CPU, and as CUDA C++.

The C++ is compiled by NVRTC for two architectures, where it is installed, and run by the emulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.codegen.cuda.nvrtc import compile_source
from ridgeline.ops.kernel_launch import KERNEL_OPTIONS
from ridgeline.simt.kernel import SimtKernel
from ridgeline.simt.tile import TileKernel
from tests.simt.emulated import CudaRun, Emulator, cuda_run, joined_text


@dataclass(frozen=True)
class Solved:
    """A kernel, its launch, and the results it has to have, in the order of its parameters."""

    name: str
    kernel: SimtKernel | TileKernel
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    expected: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    far: float = 0.0  # how far floats may be from them

    @property
    def threads(self) -> SimtKernel:
        """The kernel of threads."""
        return self.kernel if isinstance(self.kernel, SimtKernel) else self.kernel.simt

    @property
    def cuda(self) -> CudaRun:
        """The launch for a GPU."""
        return cuda_run(self.threads, self.grid, self._block, *self.arguments, **self.keywords)

    @property
    def _block(self) -> Any:
        return self.block if isinstance(self.kernel, SimtKernel) else self.kernel.block

    def check_simulated(self) -> None:
        """Right in the simulator, and nothing to report."""
        found = self.threads.simulate(self.grid, self._block, *self.arguments, **self.keywords)
        assert not found.errors, [finding.text() for finding in found.errors]
        self._compare(found.outputs)

    def check_host(self) -> None:
        """Right as a launch over tensors of the host."""
        self._check_on("cpu")

    def check_gpu(self) -> None:
        """Right as a launch over tensors of a GPU."""
        self._check_on("cuda")

    def _check_on(self, device: str) -> None:
        given = [
            rl.tensor(a, device=device) if isinstance(a, np.ndarray) else a for a in self.arguments
        ]
        keywords = dict(self.keywords)
        shape = (self.grid, self._block, keywords.pop("shared", 0))
        made = self.threads[shape](*given, **keywords)
        fresh = iter(made if isinstance(made, tuple) else (made,))
        signature = self.threads.signature
        named = dict(zip(signature.inputs, given))
        self._compare({
            name: (named[name] if kind.access == "inout" else next(fresh)).cpu().numpy()
            for name, kind in signature.arrays.items() if kind.access != "in"
        })  # fmt: skip

    def check_emulated(self, emulator: Emulator) -> None:
        """Right as CUDA C++."""
        self._compare(emulator.run(self.cuda))

    def _compare(self, results: dict[str, Any]) -> None:
        assert len(results) == len(self.expected)
        for found, wanted in zip(results.values(), self.expected):
            if wanted is not None:
                np.testing.assert_allclose(found, wanted, rtol=self.far, atol=self.far)


def emulator_of(solved: Sequence[Solved], folder: Path) -> Emulator:
    """All of them compiled for the emulator."""
    return Emulator([one.cuda for one in solved], folder)


def check_compiles(solved: Sequence[Solved]) -> None:
    """All of them compiled by NVRTC, in one source."""
    text = joined_text([one.cuda for one in solved])
    for architecture in ("sm_75", "sm_90a"):
        assert compile_source(text, architecture, KERNEL_OPTIONS)
