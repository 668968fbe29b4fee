"""What CUDA C++, numba and Triton call what the kernel language has under another name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ridgeline.simt import language
from ridgeline.simt.frontend.problems import nearest

_TILES = "kernels over blocks of arrays are @tile.kernel, with tile.block(0) and tile.range"
_CUDA = "its names are simt's here: simt.grid(1), simt.syncthreads(), simt.shared(shape, type)"
_MODULE = "simt has these functions itself, as in simt.sqrt; or import {name} above the kernel"
_GROUPS = "groups are syncthreads(), syncwarp(), grid_sync() and cluster_sync() here"
_TABLE = {
    "printf": "print(…) takes the values themselves, and f-strings",
    "cuda": _CUDA, "cupyx": _CUDA,
    "tl": _TILES, "triton": _TILES,
    "math": _MODULE, "np": _MODULE, "numpy": _MODULE,
    "cg": _GROUPS, "cooperative_groups": _GROUPS, "this_thread_block": _GROUPS,
    "warpSize": "it is 32", "warpsize": "it is 32",
    "laneid": "it is lane here", "lane_id": "it is lane here", "warp_id": "it is warp here",
    "NULL": "an array is always there; give the kernel a const flag instead",
    "fmax": "max takes floats and integers", "fmin": "min takes floats and integers",
    "__ldg": "read the element: arrays that the kernel only reads are loaded so",
    "__launch_bounds__": "the compiler knows the block of each launch",
    "__any_sync": "simt.any(condition, mask=mask)", "__all_sync": "simt.all(condition, mask=mask)",
    "__saturatef": "min(max(x, 0.0), 1.0)", "__fdividef": "fast_divide", "__powf": "fast_pow",
    "__frcp_rn": "1.0 / x", "clock64": "kernel.explain(…) and ridgeline simt say where time goes",
    "float4": "load4(a, i) reads four elements at once, store4 writes them",
    "float2": "load2(a, i) reads two elements at once, store2 writes them",
    "make_float4": "store4(a, i, x, y, z, w) writes four elements at once",
    "make_float2": "store2(a, i, x, y) writes two elements at once",
    "half": "the type is f16", "__half": "the type is f16", "__nv_bfloat16": "the type is bf16",
    "double": "the type is f64", "unsigned": "the type is u32",
}  # fmt: skip
_NUMBERED = {"int": "i", "uint": "u", "float": "f"}


def other_name(name: str, known: Iterable[str]) -> str:
    """What to write instead of a name that is not defined, or nothing."""
    listed = _TABLE.get(name) or _TABLE.get(name.removesuffix("f"))
    if listed:
        return listed.format(name=name)
    scoped = re.fullmatch(r"atomic([A-Z]\w+?)_(block|system)", name)
    if scoped:
        return f'atomic_{scoped[1].lower()}(…, scope="{scoped[2]}")'
    sized = re.fullmatch(r"(u?int|float)(8|16|32|64)(_t)?", name)
    if sized:
        return f"the type is {_NUMBERED[sized[1]]}{sized[2]}"
    for ours in _spellings(name):
        if ours in language.NAMES:
            return f"did you mean {ours}?"
    return nearest(name, known)


def _spellings(name: str) -> Iterable[str]:
    """A name as the kernel language would write it: __shfl_down_sync, atomicAdd, sqrtf, __expf."""
    plain = re.sub(r"([a-z])([A-Z])", r"\1_\2", name.strip("_")).lower().removesuffix("_sync")
    if name.startswith("__") and plain.endswith("f"):
        yield f"fast_{plain[:-1]}"
    yield plain
    yield plain.removesuffix("f")
    yield plain.removesuffix("ll")
    yield plain.replace("_", "")
