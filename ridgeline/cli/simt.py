"""What a GPU would do with kernels of a file, without one: mistakes, counts per line, time.

The file is run first: it defines kernels, and `examples = {"kernel": (grid, block, arguments)}`
(or a function `kernel_example()` that gives the three, and as a fourth a dict of constants,
`shared=` and `cluster=`) says what to launch. Without either, arrays of `--size` elements an axis
are made up. With `--json` every kernel is one line of JSON.

Exit codes: 0 no mistake; 1 the simulator found one; 2 wrong usage, or a kernel that is none.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import BadValueError, InputFileError, RidgelineError, path_of
from ridgeline.files import write_atomic

if TYPE_CHECKING:
    from ridgeline.simt.examples import ExampleLaunch, Wishes
    from ridgeline.simt.kernel import SimtKernel
    from ridgeline.simt.simulator.findings import Simulation
    from ridgeline.simt.variations import Variation

NAME = "simt"
HELP = "simulate a kernel: races, counts per line, occupancy and predicted time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files, the kernels, the GPU, and the launch."""
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("file", nargs="+", help="a Python file that defines kernels")
    parser.add_argument("--kernel", **many, help="a name, several times for several kernels; "
                        "without it the only kernel, or all that have examples")  # fmt: skip
    parser.add_argument("--gpu", default="h100", help="a GPU's name (default h100)")
    parser.add_argument("--grid", help="blocks, such as 16 or 8,8")
    parser.add_argument("--block", help="threads a block, such as 256 or 16,16")
    parser.add_argument("--size", **many, help="length of made-up axes, or n=64 of those called n")
    parser.add_argument("--set", **many, metavar="NAME=VALUE", help="a scalar or constant")
    parser.add_argument("--shared", type=int, help="bytes of dynamic shared memory")
    parser.add_argument("--cluster", help="blocks a cluster")
    parser.add_argument("--registers", type=int, help="registers a thread (else NVRTC's figure)")
    parser.add_argument("--seed", type=int, help="shuffle the schedule by this seed")
    parser.add_argument("--data-seed", type=int, default=0, help="seed of made-up numbers")
    parser.add_argument("--limit", type=int, help="iterations of loops until a launch is stopped")
    parser.add_argument("--vary", action="store_true",
                        help="try other schedules, data, sizes and block shapes")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="look for mistakes alone, not at time")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel")
    parser.add_argument("--html", help="write the page to this file")


def run(arguments: argparse.Namespace) -> int:
    """Explain kernels one after the other."""
    if arguments.html and (len(arguments.file) != 1 or len(arguments.kernel) > 1):
        raise BadValueError("a page is of one kernel", help="name it by --kernel")
    return max(_of_file(file, arguments) for file in arguments.file)


def _of_file(file: str, arguments: argparse.Namespace) -> int:
    """The exit code of a file. Among lines of JSON, what is no kernel is a line too."""
    code, at = 0, {"file": file}
    try:
        for kernel, names in _kernels(file, arguments.kernel):
            at["kernel"] = kernel.__name__
            code = max(code, int(_explained(kernel, names, arguments)))
    except RidgelineError as error:
        if not arguments.json:
            raise
        print(json.dumps(at | {"verdict": "refused", "error": str(error)}))
        return 2
    return code


def _explained(kernel: SimtKernel, names: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Show what a launch of a kernel does; true where the simulator found a mistake."""
    from ridgeline.simt.examples import launch_of
    from ridgeline.simt.simulator.simulate import DEFAULT, SimulationOptions
    from ridgeline.simt.variations import variations

    start = time.perf_counter()
    launch = launch_of(kernel, names, _wishes(arguments))
    limit = DEFAULT.limit if arguments.limit is None else arguments.limit
    options = SimulationOptions(seed=arguments.seed, limit=limit)
    simulation = _one(kernel, launch, options, arguments)
    varied: list[Variation] = []
    if arguments.vary:
        varied = list(variations(kernel, launch, options, simulation))
    if arguments.json:
        seconds = round(time.perf_counter() - start, 3)
        print(json.dumps(_as_dict(kernel, launch, simulation, varied) | {"seconds": seconds}))
    else:
        for variation in varied:
            for finding in variation.errors:
                print(f"\nwith {variation.what}:\n{finding.text(kernel.captured.source)}")
    return bool(simulation.errors) or any(variation.errors for variation in varied)


def _one(
    kernel: SimtKernel, launch: ExampleLaunch, options: Any, arguments: argparse.Namespace
) -> Simulation:
    """The launch as it was asked for, printed unless other programs read."""
    if arguments.check or arguments.json:
        found = launch.simulate(kernel, options)
        if not arguments.json:
            for finding in found.findings:
                print(finding.text(kernel.captured.source))
            print(f"{kernel.__name__}: {found.verdict}")
        return found
    explained = kernel.explain(
        launch.grid, launch.block, *launch.arguments, gpu=arguments.gpu,
        registers=arguments.registers or "compiled", options=options, **launch.keywords,
    )  # fmt: skip
    print(explained)
    if arguments.html:
        write_atomic(Path(arguments.html), explained.html().encode())
        print(f"\nwrote {arguments.html}")
    return explained.simulation


def _as_dict(
    kernel: SimtKernel, launch: ExampleLaunch, simulation: Simulation, varied: list[Variation]
) -> dict[str, Any]:
    from ridgeline.simt.launch import thread_launch

    shape = thread_launch(launch.grid, launch.block)
    found = {
        "file": kernel.captured.source.path, "kernel": kernel.__name__, "grid": shape.grid,
        "block": shape.block, "verdict": simulation.verdict,
        "findings": [finding.as_dict() for finding in simulation.findings],
        "lane_operations": simulation.lane_operations,
    }  # fmt: skip
    if varied:
        found["variations"] = [
            {"what": v.what, "fits": v.fits, "findings": [e.as_dict() for e in v.errors]}
            for v in varied
        ]
    return found


def _wishes(arguments: argparse.Namespace) -> Wishes:
    from ridgeline.simt.examples import Wishes

    return Wishes(arguments.grid, arguments.block, arguments.size, arguments.set,
                  arguments.shared, arguments.cluster, arguments.data_seed)  # fmt: skip


def _kernels(file: str, wanted: list[str]) -> Iterator[tuple[SimtKernel, dict[str, Any]]]:
    """The kernels of a file that are asked for, with the names of the file."""
    from ridgeline.simt.examples import examples_of
    from ridgeline.simt.kernel import SimtKernel

    path = path_of(file, "simt")
    if not path.is_file():
        raise InputFileError(f"there is no file {path}")
    try:
        names = runpy.run_path(str(path), run_name="__ridgeline_simt__")
    except RidgelineError:
        raise
    except Exception as error:
        raise InputFileError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    kernels = {key: value for key, value in names.items() if isinstance(value, SimtKernel)}
    known = ", ".join(kernels) or "none"
    if not wanted:
        shown = [name for name in dict.fromkeys(examples_of(names)) if name in kernels]
        wanted = list(kernels) if len(kernels) == 1 else shown
        if not wanted:
            raise BadValueError(f"{path} has {len(kernels)} kernels, and examples for none",
                                help=f"--kernel, one of: {known}")  # fmt: skip
    for name in wanted:
        if name not in kernels:
            raise BadValueError(f"{path} has no kernel {name}", help=f"--kernel, one of: {known}")
        yield kernels[name], names
