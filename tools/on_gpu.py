"""torch's samples on a GPU: the adapter with which `run_suites.py --device cuda` runs them."""

from __future__ import annotations

from typing import Any

from __main__ import Like  # type: ignore[attr-defined]


class OnGpu(Like):  # type: ignore[misc]
    """Ridgeline with every operand on the GPU."""

    def __init__(self) -> None:
        super().__init__("ridgeline")

    def tensor(self, arr: Any, dtype: str, requires_grad: bool) -> Any:
        made = self.lib.tensor(arr, dtype=getattr(self.lib, dtype), device="cuda")
        return made.requires_grad_() if requires_grad else made

    def numpy(self, x: Any) -> Any:
        return super().numpy(x.detach().cpu())
