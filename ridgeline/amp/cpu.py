"""torch.cpu.amp: mixed precision on the host, without naming the device."""

from __future__ import annotations

from functools import partial

from ridgeline.amp.scaler import GradScaler as GradScaler
from ridgeline.tensors import autocast as _modes

autocast = partial(_modes.autocast, "cpu")
