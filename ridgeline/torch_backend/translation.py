"""Constants in graphs of torch's as ours: element types, devices, layouts of memory."""

from __future__ import annotations

from typing import Any

import torch

import ridgeline as rl
from ridgeline.torch_backend.forms import dtype_of


def translated(value: Any) -> Any:
    """A constant of torch's as one of ours: element types, devices, layouts of memory."""
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    if isinstance(value, torch.device):
        return rl.device(str(value))
    if isinstance(value, torch.memory_format | torch.layout):
        return getattr(rl, str(value).removeprefix("torch."))
    if isinstance(value, torch.Tensor | torch.Generator):
        raise NotImplementedError(f"a {type(value).__name__} in a graph")
    return value
