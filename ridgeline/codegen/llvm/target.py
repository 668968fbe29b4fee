"""What machine this is: CPU and features as LLVM names them, vector width, caches, threads.

Read without loading LLVM where possible: the CPU's LLVM name and features are kept in the disk
cache under the kernel's description of the processor, so a warm start never imports llvmlite.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from ridgeline.codegen.disk_cache import ObjectCache
from ridgeline.config import config

_CPU_FOLDER = Path("/sys/devices/system/cpu")
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
_VECTOR_FEATURES = ((512, "avx512f"), (256, "avx2"), (128, "sse2"), (128, "neon"))


@dataclass(frozen=True)
class Target:
    """The machine code is made for. Cache sizes are bytes; L3 is the whole shared cache."""

    cpu: str
    features: str
    vector_bits: int
    l1: int
    l2: int
    l3: int
    threads: int


@lru_cache(maxsize=1)
def target() -> Target:
    """The machine this process runs on, looked at once."""
    cpu, features = _cpu_and_features()
    if config.isa == "avx2":
        features = without_wide(features)
    elif "+amx-tile" in features and not _may_use_tiles():
        features = features.replace("+amx", "-amx")
    present = set(features.split(","))
    width = next((bits for bits, name in _VECTOR_FEATURES if f"+{name}" in present), 128)
    l1, l2, l3 = _cache_sizes()
    return Target(cpu, features, width, l1, l2, l3, usable_threads())


def without_wide(features: str) -> str:
    """A CPU's features less those that came with or after 512-bit vectors."""
    later = ("+avx512", "+avx10", "+amx", "+evex512")
    return ",".join(f"-{f[1:]}" if f.startswith(later) else f for f in features.split(","))


def _may_use_tiles() -> bool:
    """Ask Linux for tile registers, which all threads of the process may use from then on."""
    if sys.platform != "linux":
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA)
    return not refused


@lru_cache(maxsize=1)
def toolchain() -> str:
    """The version of the code generator, as text for cache keys; does not load LLVM."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}"


def _cpu_and_features() -> tuple[str, str]:
    cache = ObjectCache("target")
    key = f"{toolchain()}\n{_processor_description()}"
    stored = cache.get(key)
    if stored is None:
        import llvmlite.binding as llvm

        stored = json.dumps(
            [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
        ).encode()
        cache.put(key, stored)
    cpu, features = json.loads(stored)
    return cpu, features


def _processor_description() -> str:
    """What the kernel says of the processor's model and abilities, without what varies."""
    wanted = ("vendor", "cpu family", "model", "stepping", "flags", "features", "cpu part")
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        first = [platform.processor()]
    lines = [line for line in first if line.lower().startswith(wanted)]
    return f"{platform.machine()} {blake2b(chr(10).join(lines).encode()).hexdigest()}"


def _cache_sizes() -> tuple[int, int, int]:
    """L1 data, L2 and L3 in bytes; common sizes where the system does not say."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
    for index in sorted(_CPU_FOLDER.glob("cpu0/cache/index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and text[:-1].isdigit() and text[-1:] in "KM":
            sizes[level] = int(text[:-1]) << (10 if text[-1] == "K" else 20)
    return sizes[1], sizes[2], sizes[3]


def usable_threads() -> int:
    """Cores (not hardware threads) in the affinity mask, no more than the container's quota."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    cores: set[str] = set()
    for cpu in allowed:
        siblings = _CPU_FOLDER / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(str(cpu))
    quota = cgroup_quota(Path("/sys/fs/cgroup"), _cgroup_paths())
    return max(1, min(len(cores), int(quota) if quota is not None else len(cores)))


def _cgroup_paths() -> list[str]:
    """The control groups this process is in, for both generations of the interface."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    entries = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [path for _, names, path in entries if names == "" or "cpu" in names.split(",")]


def cgroup_quota(root: Path, paths: list[str]) -> float | None:
    """The tightest CPU limit, in cores, of these groups and all groups above them."""
    limits: list[float] = []
    for path in paths:
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            limits += _quota_of(root / folder) + _quota_of(root / "cpu" / folder)
    return min(limits, default=None)


def _quota_of(folder: Path) -> list[float]:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return []
    if not quota.isdigit() or not period.isdigit() or period == "0":  # "max", or -1: no limit
        return []
    return [int(quota) / int(period)]
