"""torch.backends: settings by torch's names. What has a counterpart here sets that; what concerns
libraries that are not used is kept and read back.
"""

from __future__ import annotations

from typing import Any

from ridgeline.atomic import Block, Switch
from ridgeline.config import config
from ridgeline.module_paths import unknown as _unknown
from ridgeline.record.modes import modes


def _setting(name: str) -> property:
    """A flag that is a setting of `ridgeline.config`."""

    def change(_: Any, value: bool) -> None:
        setattr(config, name, bool(value))

    return property(lambda _: getattr(config, name), change)


class _Products:
    """Matrix products on a GPU."""

    allow_tf32 = _setting("allow_tf32")
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    @property
    def fp32_precision(self) -> str:
        """`"ieee"`, or `"tf32"` where products are shortened."""
        return "tf32" if config.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        config.allow_tf32 = value in ("tf32", "bf16")


class _Library:
    """A library of torch's that is not used here, or a kind of device that there is not."""

    enabled = False

    def is_available(self) -> bool:
        """False: nothing goes through it."""
        return False

    is_built = is_available

    def version(self) -> None:
        """It has none."""


class _Cuda:
    """NVIDIA GPUs, and the ways to compute attention on them, of which the compiler chooses."""

    matmul = _Products()
    _attention: dict[str, bool]

    def __init__(self) -> None:
        self._attention = dict.fromkeys(("flash", "math", "mem_efficient", "cudnn"), True)

    def is_built(self) -> bool:
        """True: it takes a driver, and no other build of the package."""
        return True

    def __getattr__(self, name: str) -> Any:
        kind = name.removeprefix("enable_").removesuffix("_enabled").removesuffix("_sdp")
        if kind not in self._attention:
            raise AttributeError(f"ridgeline.backends.cuda has no attribute {name!r}")
        if name.startswith("enable_"):
            return lambda enabled: self._attention.__setitem__(kind, bool(enabled))
        return lambda: self._attention[kind]

    def sdp_kernel(self, *ways: bool, **named: bool) -> Block:
        """A block in which torch would choose between ways to compute attention; see there."""
        return Switch(modes)


class _Cudnn(_Library):
    """Convolutions and attention on GPUs."""

    enabled = True
    benchmark = False
    benchmark_limit = 10
    allow_tf32 = _setting("allow_tf32_convolutions")
    deterministic = _setting("deterministic")

    def is_available(self) -> bool:
        """Whether there is a GPU."""
        from ridgeline.runtime.cuda.driver import missing

        return not missing()

    def flags(self, enabled: bool = False, **flags: bool) -> Block:
        """Other flags for a block."""
        return Switch(self, enabled=enabled, **flags)


cuda, cudnn = _Cuda(), _Cudnn()
__path__: list[str] = []  # what is imported from here is an attribute
mps, mkl, mkldnn, openmp, xpu, opt_einsum, mha, xeon = (_Library() for _ in range(8))
__getattr__ = _unknown(__name__)
