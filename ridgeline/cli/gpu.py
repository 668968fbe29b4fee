"""Arithmetic of GPUs: occupancy, Little's law, Amdahl's law, peaks, intensity, known GPUs.

Exit codes: 0 done; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.profile.gpus import Gpu

NAME = "gpu"
HELP = "GPU arithmetic: occupancy, littles-law, amdahl, peak, intensity, list"

Rows = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-verb a law."""
    verbs = parser.add_subparsers(dest="law", metavar="LAW", required=True)

    def law(
        name: str, help_text: str, compute: Callable[[argparse.Namespace], Rows]
    ) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=help_text, description=help_text)
        sub.add_argument("--json", action="store_true", help="print as JSON")
        sub.set_defaults(compute=compute)
        return sub

    one = law("occupancy", "blocks and warps of a kernel that fit on a multiprocessor", _occupancy)
    one.add_argument("--sm", type=int, help="compute capability, such as 90")
    one.add_argument("--gpu", help="or a GPU's name")
    one.add_argument("--threads", type=int, required=True, help="threads a block")
    one.add_argument("--registers", type=int, required=True, help="registers a thread")
    one.add_argument("--shared", type=int, default=0, help="shared bytes a block")
    one.add_argument("--grid", type=int, default=0, help="blocks in all, for waves; with --gpu")

    one = law("littles-law", "bytes that must be in flight to use the bandwidth", _littles_law)
    one.add_argument("--gpu", help="a GPU's name, instead of --bandwidth and --sms")
    one.add_argument("--bandwidth", type=float, help="GB/s")
    one.add_argument("--sms", type=int, help="multiprocessors")
    one.add_argument("--latency", type=float, default=600.0, help="ns (default 600)")
    one.add_argument("--bytes", type=int, default=16, help="bytes a load (default 16)")
    one.add_argument("--loads", type=int, default=1, help="loads in flight a thread (default 1)")

    one = law("amdahl", "speed-up of the whole when a part gets faster", _amdahl)
    one.add_argument("--share", type=float, required=True, help="the part, 0 to 1")
    one.add_argument("--speedup", type=float, required=True, help="how much faster the part gets")

    one = law("peak", "peak arithmetic of a known GPU, or of numbers", _peak)
    one.add_argument("--gpu", help="a GPU's name")
    one.add_argument("--sms", type=int, help="multiprocessors")
    one.add_argument("--fma", type=float, help="multiply-adds a clock and multiprocessor")
    one.add_argument("--clock", type=float, help="GHz")

    one = law("intensity", "where work lies under the roofline of a GPU", _intensity)
    one.add_argument("--flops", type=float, required=True, help="operations")
    one.add_argument("--bytes", type=float, required=True, help="bytes moved")
    one.add_argument("--gpu", required=True, help="a GPU's name")
    one.add_argument("--dtype", default="bfloat16", help="float32, tf32, float64, bfloat16, float8")

    law(
        "list",
        "the GPUs known, with dense peaks and bandwidths; --json: where each figure is from",
        _list,
    )


def run(arguments: argparse.Namespace) -> int:
    """Compute one law and print its rows."""
    rows = arguments.compute(arguments)
    if arguments.json:
        # JSON has no infinity.
        plain = {name: None if value == float("inf") else value for name, value in rows.items()}
        print(json.dumps(plain, indent=1, allow_nan=False))
        return 0
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        print(
            f"{name:{width}}  {value:,.6g}"
            if isinstance(value, float)
            else f"{name:{width}}  {value}"
        )
    return 0


def _known(name: str) -> Gpu:
    from ridgeline.profile.gpus import GPUS, find
    from ridgeline.profile.occupancy import GpuArithmeticError

    found = find(name)
    if found is None:
        raise GpuArithmeticError(
            f"no GPU called {name!r} is known", note=", ".join(gpu.name for gpu in GPUS)
        )
    return found


def _occupancy(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.occupancy import GpuArithmeticError, occupancy, waves

    gpu = _known(arguments.gpu) if arguments.gpu else None
    capability = gpu.capability if gpu else arguments.sm
    if (arguments.sm is None) == (gpu is None):
        raise GpuArithmeticError("give --sm or --gpu", help="ridgeline gpu occupancy --sm 90 …")
    if arguments.grid < 0 or (arguments.grid and gpu is None):
        raise GpuArithmeticError("waves need --gpu and a --grid of blocks")
    fits = occupancy(capability, arguments.threads, arguments.registers, arguments.shared)
    rows: Rows = {
        "blocks per multiprocessor": fits.blocks,
        "warps per multiprocessor": fits.warps,
        "occupancy": fits.share,
        "limited by": fits.limiter,
        "blocks by warps": fits.by_warps,
        "blocks by registers": fits.by_registers,
        "blocks by shared memory": fits.by_shared,
        "blocks by block slots": fits.by_blocks,
    }
    if arguments.grid and gpu:
        rows["waves"] = waves(arguments.grid, gpu.sms, fits.blocks)
    return rows


def _littles_law(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.arithmetic import littles_law
    from ridgeline.profile.occupancy import GpuArithmeticError

    bandwidth, sms = arguments.bandwidth, arguments.sms
    gpu = _known(arguments.gpu) if arguments.gpu else None
    if gpu:
        bandwidth = gpu.bandwidth if bandwidth is None else bandwidth
        sms = gpu.sms if sms is None else sms
    if bandwidth is None or sms is None:
        raise GpuArithmeticError("give --gpu, or --bandwidth and --sms")
    flight = littles_law(bandwidth, arguments.latency, sms, arguments.bytes, arguments.loads)
    return {
        "bytes in flight": flight.bytes,
        "bytes per multiprocessor": flight.bytes_per_sm,
        "warps per multiprocessor": flight.warps_per_sm,
    }


def _amdahl(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.arithmetic import amdahl

    whole = amdahl(arguments.share, arguments.speedup)
    return {"speed-up of the whole": whole, "at most": amdahl(arguments.share, float("inf"))}


def _peak(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.arithmetic import peak
    from ridgeline.profile.occupancy import GpuArithmeticError

    gpu = _known(arguments.gpu) if arguments.gpu else None
    if gpu:
        return {
            "float32 TFLOP/s": gpu.float32,
            "float64 TFLOP/s": gpu.float64,
            "tf32 TFLOP/s (dense)": gpu.tf32,
            "16-bit TFLOP/s (dense)": gpu.sixteen_bit,
            "float8 TFLOP/s (dense)": gpu.float8,
            "memory GB/s": gpu.bandwidth,
            "ridge FLOP/byte (16-bit)": gpu.ridge,
            "source": gpu.source,
        }
    if None in (arguments.sms, arguments.fma, arguments.clock):
        raise GpuArithmeticError("give --gpu, or --sms, --fma and --clock")
    return {"TFLOP/s": peak(arguments.sms, arguments.fma, arguments.clock)}


def _intensity(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.arithmetic import roofline
    from ridgeline.profile.occupancy import GpuArithmeticError

    gpu = _known(arguments.gpu)
    kinds = ("float32", "tf32", "float64", "bfloat16", "float16", "float8")
    if arguments.dtype not in kinds:
        raise GpuArithmeticError(f"no type {arguments.dtype!r}", note=", ".join(kinds))
    roof = roofline(arguments.flops, arguments.bytes, gpu.peak(arguments.dtype), gpu.bandwidth)
    return {
        "intensity FLOP/byte": roof.intensity,
        "attainable TFLOP/s": roof.attainable,
        "bound by": roof.bound,
        "least time ms": roof.floor_ms,
    }


def _list(arguments: argparse.Namespace) -> Rows:
    from ridgeline.profile.gpus import GPUS

    if arguments.json:
        return {gpu.name: asdict(gpu) for gpu in GPUS}
    heading = {"TFLOP/s, GB, GB/s": "          SMs   fp32 16-bit float8 memory  at peers"}
    return heading | {
        gpu.name: f"{f'sm_{gpu.capability}' if gpu.capability < 900 else 'CDNA':<6} {gpu.sms:>6} "
        f"{gpu.float32:>6.4g} {gpu.sixteen_bit:>6.4g} {gpu.float8 or 0:>6.4g} {gpu.memory:>6g} "
        f"{gpu.bandwidth:>6.4g} {gpu.link:>5g}"
        for gpu in GPUS
    }
