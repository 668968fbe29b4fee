"""What the name of a kernel says: tensor cores, whose code it is, layout changes, collectives."""

from __future__ import annotations

import re
from functools import lru_cache

_TENSOR_CORE = re.compile(
    r"nvjet|[hsi]\d?(884|1688|16816|8816)|hmma|imma|tensorop|wgmma|tf32f32|_tensor\d|"
    r"xmma_(?!.*ffma)[a-z_]*(gemm|fprop|dgrad|wgrad).*(bf16|f16|tf32|e4m3|e5m2|i8)|"
    r"flash_(fwd|bwd)|fmha|sdpa|flash::|tensor16x8|GmmaKernel|sm90_.*warpspecialized",
    re.IGNORECASE,
)
_PLAIN_FLOAT = re.compile(
    r"sgemm|simt|_ffma_|f32f32_f32f32_f32|scudnn|fft2d|winograd|cf32cf32", re.IGNORECASE
)
_LIBRARY = re.compile(
    r"nvjet|cutlass|cudnn|cublas|xmma|flash_|fmha|sdpa|gemm|gemv|winograd|nccl|cask|cufft|fft",
    re.IGNORECASE,
)
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|ToNhwc|ToNchw", re.IGNORECASE)
_DOUBLE = re.compile(r"f64f64|dgemm|<double|double,|, double|d884|_d_|dmma", re.IGNORECASE)


@lru_cache(maxsize=65536)
def uses_tensor_cores(name: str) -> bool:
    """Whether a kernel's name shows matrix instructions."""
    return bool(_TENSOR_CORE.search(name)) and not _PLAIN_FLOAT.search(name)


@lru_cache(maxsize=65536)
def is_library(name: str) -> bool:
    """Whether the kernel is a vendor library's, which a user cannot retile."""
    return bool(_LIBRARY.search(name))


@lru_cache(maxsize=65536)
def changes_layout(name: str) -> bool:
    """Whether the kernel only moves a tensor between NCHW and NHWC."""
    return bool(_LAYOUT.search(name))


@lru_cache(maxsize=65536)
def is_double(name: str) -> bool:
    """Whether the kernel computes in float64."""
    return bool(_DOUBLE.search(name))


@lru_cache(maxsize=65536)
def is_collective(name: str) -> bool:
    """Whether the kernel is a collective of NCCL (or RCCL)."""
    lowered = name.lower()
    return "nccl" in lowered or "rccl" in lowered


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """A kernel's name without template arguments, for a table."""
    plain = name.removeprefix("void ")
    inner = re.search(
        r"(\w+Functor\w*|\w+_kernel_cuda|launch_\w+|\w+Op)\b", plain[plain.find("<") :]
    )
    depth, kept = 0, []
    for letter in plain:
        depth -= letter == ">" and depth > 0
        if depth == 0 and letter not in "<>":
            kept.append(letter)
        depth += letter == "<"
        if letter == "(" and depth == 0 and not "".join(kept).startswith("("):
            break
    base = "".join(kept).removesuffix("(").replace("(anonymous namespace)::", "")
    base = re.sub(r"^\(anonymous namespace\)::|^(\w+::)+", "", base) or plain
    return f"{base}[{inner[1]}]" if inner and "elementwise" in base else base
