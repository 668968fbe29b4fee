"""What of torch's settings a program is made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ridgeline.torch_backend.forms import dtype_of


@dataclass(frozen=True, slots=True)
class TorchState:
    """Settings of the thread that a graph is compiled for; another thread may do that."""

    gradients: bool
    autocast: tuple[tuple[str, Any], ...]  # devices, and the element types there
    threads: int
    may_shorten: bool  # float32 in products on a GPU
    may_shorten_convolutions: bool

    @classmethod
    def now(cls) -> TorchState:
        """The settings of the calling thread."""
        kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        return cls(
            torch.is_grad_enabled(),
            tuple((kind, dtype_of(torch.get_autocast_dtype(kind))) for kind in kinds),
            torch.get_num_threads(),
            torch.get_float32_matmul_precision() != "highest",
            torch.backends.cudnn.allow_tf32,
        )
