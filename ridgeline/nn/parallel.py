"""torch.nn.parallel: a module in one process, under the name of one for several devices."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.nn.module import Module


class DataParallel(Module):
    """The module that it is made of, as `module`, called on whole batches.

    torch shares a batch out over GPUs and adds the gradients up: the same function, which one
    device computes here.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module, self.device_ids, self.dim = module, list(device_ids or ()), dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call a module on a whole batch."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))


class DistributedDataParallel(DataParallel):
    """Refused: there is one process here."""

    def __init__(self, module: Module, device_ids: Any = None, **options: Any) -> None:
        raise RidgelineError(
            "a model cannot be shared out over processes",
            help="ask distributed.is_available() first, or train in one process",
        )
