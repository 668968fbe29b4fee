"""What a GPU would do with a kernel of a file, without one: mistakes, counts per line, time.

The file is run first: it defines the kernel, and `examples = {"kernel": (grid, block, arguments)}`
(or a function `kernel_example()` that gives the three) says what to launch. Without either,
arrays of `--size` elements an axis are made up.

Exit codes: 0 no mistake; 1 the simulator found one; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import BadValueError, InputFileError, RidgelineError, path_of

if TYPE_CHECKING:
    from ridgeline.simt.kernel import SimtKernel

NAME = "simt"
HELP = "simulate a kernel: races, counts per line, occupancy and predicted time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the kernel, the GPU, and the launch."""
    parser.add_argument("file", help="a Python file that defines the kernel")
    parser.add_argument("--kernel", help="its name; may be left out if there is one")
    parser.add_argument("--gpu", default="h100", help="a GPU's name (default h100)")
    parser.add_argument("--grid", help="blocks, such as 16 or 8,8")
    parser.add_argument("--block", help="threads a block, such as 256 or 16,16")
    parser.add_argument("--size", type=int, default=1024, help="length of made-up axes")
    parser.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    parser.add_argument("--registers", type=int, help="registers a thread (else NVRTC's figure)")
    parser.add_argument("--seed", type=int, help="shuffle the schedule by this seed")
    parser.add_argument("--vary", action="store_true", help="try other sizes, data and schedules")
    parser.add_argument("--html", help="write the page to this file")


def run(arguments: argparse.Namespace) -> int:
    """Explain one kernel."""
    from ridgeline.simt.examples import launch_of, varied
    from ridgeline.simt.simulator.simulate import SimulationOptions

    path = path_of(arguments.file, "simt")
    kernel, names = _kernel(path, arguments.kernel)
    launch = launch_of(kernel, names, arguments.grid, arguments.block, arguments.size)
    found = kernel.explain(
        launch.grid, launch.block, *launch.arguments, gpu=arguments.gpu, shared=arguments.shared,
        registers=arguments.registers or "compiled", options=SimulationOptions(seed=arguments.seed),
    )  # fmt: skip
    print(found)
    if arguments.html:
        Path(arguments.html).write_text(found.html(), encoding="utf-8")
        print(f"\nwrote {arguments.html}")
    errors = list(found.simulation.errors)
    if arguments.vary:
        for what, result in varied(kernel, launch, arguments.shared):
            for finding in result.errors:
                print(f"\nwith {what}:\n{finding.text(kernel.captured.source)}")
            errors += result.errors
    return 1 if errors else 0


def _kernel(path: Path, name: str | None) -> tuple[SimtKernel, dict[str, Any]]:
    from ridgeline.simt.kernel import SimtKernel

    if not path.is_file():
        raise InputFileError(f"there is no file {path}")
    try:
        names = runpy.run_path(str(path), run_name="__ridgeline_simt__")
    except RidgelineError:
        raise
    except Exception as error:
        raise InputFileError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    kernels = {key: value for key, value in names.items() if isinstance(value, SimtKernel)}
    if name is None and len(kernels) == 1:
        return next(iter(kernels.values())), names
    if name not in kernels:
        known = ", ".join(kernels) or "none"
        raise BadValueError(f"{path} has no kernel {name}" if name else "which kernel?",
                            help=f"--kernel, one of: {known}")  # fmt: skip
    return kernels[name], names
