"""What a result must say about where it was measured, and memory of the running process."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("ridgeline", "numpy", "torch", "jax", "jaxlib", "onnxruntime", "llvmlite")


def describe() -> dict[str, Any]:
    """CPU, cores, memory, system and the versions of what is installed."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: v for name in PACKAGES if (v := _version(name))},
        "commit": _commit(),
        "ceilings": ceilings(),
    }


def ceilings() -> dict[str, float]:
    """The measured rates of this machine, float32 arithmetic and a copy, in units per second.

    None of a machine that is busy: they would be too low.
    """
    from ridgeline.runtime.limits import BusyMachineError, limits

    try:
        found = limits("cpu")
    except BusyMachineError as error:
        print(error.message)
        return {}
    return {"flops": found.peak, "bytes_per_second": found.bandwidth}


def cpu_name() -> str:
    """The CPU's own name for itself, with its family, since virtual names say little."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    model = fields.get("model name", platform.processor() or platform.machine())
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    widest = next((w for w in ("avx512f", "avx2", "avx") if w in fields.get("flags", "")), "")
    return f"{model} ({family}{', ' + widest if widest else ''})"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def peak_memory() -> int:
    """The most memory this process held since the last reset, in bytes."""
    return _status("VmHWM")


def reset_peak_memory() -> int:
    """Begin a new peak; returns what the process holds now. Some kernels do not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_memory()
    return _status("VmRSS")
