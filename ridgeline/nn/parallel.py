"""torch.nn.parallel: a module in one process, under the name of one for several devices."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ridgeline.module_paths import unknown as _unknown
from ridgeline.nn.module import Module

__path__: list[str] = []  # torch has modules inside: see module_paths.py


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
    """The module in a group of one process: its gradients are those of all."""

    def __init__(self, module: Module, device_ids: Any = None, **options: Any) -> None:
        super().__init__(module, device_ids)

    def no_sync(self) -> AbstractContextManager[None]:
        """A block in which gradients are not joined; those of one process never are."""
        return nullcontext()


__getattr__ = _unknown(__name__)
