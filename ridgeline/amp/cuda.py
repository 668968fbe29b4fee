"""torch.cuda.amp: mixed precision on GPUs, without naming the device."""

from __future__ import annotations

from functools import partial
from typing import Any

from ridgeline.amp import scaler
from ridgeline.amp.custom import custom_bwd as custom_bwd, custom_fwd as custom_fwd
from ridgeline.tensors import autocast as _modes

autocast = partial(_modes.autocast, "cuda")


class GradScaler(scaler.GradScaler):
    """The scaler of `ridgeline.amp` for GPUs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", *args, **kwargs)
