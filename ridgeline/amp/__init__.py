"""Mixed precision: `autocast`, and a scaler that keeps float16 gradients from vanishing."""

from ridgeline.amp.custom import custom_bwd, custom_fwd
from ridgeline.amp.scaler import GradScaler, ScalerError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.tensors.autocast import (
    autocast,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)

__all__ = [
    "GradScaler", "ScalerError", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype",
    "is_autocast_available", "is_autocast_enabled",
]  # fmt: skip
__getattr__ = _unknown(__name__)
