"""torch.nn.parallel: modules that are copied to ranks, each of which has samples of its own.

`DistributedDataParallel` is for programs written for torch.distributed. `distributed.parallelize`
shares a model and its batches out over a mesh instead, and leaves the program that of one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ridgeline.atomic import Switch
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.process_group import formed_group
from ridgeline.errors import GradientError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.nn.agreement import agree_on_values
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.ops.collectives import GroupName, all_reduce, broadcast_from
from ridgeline.record import recorder
from ridgeline.record.cells import CUT, PLAIN
from ridgeline.record.modes import modes, no_grad
from ridgeline.record.values import owned, read, write
from ridgeline.tensors.public import zeros_like
from ridgeline.tensors.tensor import Tensor

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


class SharedGradients:
    """The mean over ranks of what variables have in `.grad`, at the end of a backward pass.

    Those used last come first, as their gradients do, so their sums are on the way while the others
    are computed. A copy belongs to no group, as its variables have no backward pass to end.
    """

    def __init__(self, names: Sequence[str], variables: Sequence[Parameter], unused: bool) -> None:
        self.group: Communicator | None = None
        self.is_due = False  # a pass forwards was made, whose backward pass joins gradients
        self._named, self._unused = dict(zip(names, variables)), unused
        self._buffers: list[Tensor] = []

    def begin(self, group: Communicator, buffers: Iterable[Tensor]) -> None:
        """From now on backward passes to the variables end with `join`."""
        self.group, self._buffers = group, list(buffers)
        for variable in self._named.values():
            variable._details().shared = self

    def join(self) -> bool:
        """Join gradients, and take the first rank's buffers; True if the ranks now have to meet."""
        group = self.group
        if group is None or group.size == 1 or not self.is_due:
            return False
        name = GroupName.of(group)
        wanted = {n: v for n, v in reversed(self._named.items()) if v.requires_grad}
        self._fill_in(wanted, group)
        changed = [
            (v.grad, all_reduce(read(v.grad), name, "mean", bucketed=True), CUT)
            for v in wanted.values()
            if v.grad is not None
        ]
        changed += [(b, broadcast_from(read(b), name, 0), PLAIN) for b in self._buffers]
        with no_grad(), Switch(modes, eager=False):
            for target, value, mode in changed:
                write(target, owned(value), mode, "joining gradients")
        if modes.capture is None:
            recorder.realize([target._cell for target, _, _ in changed])
        return True

    def _fill_in(self, wanted: dict[str, Parameter], group: Communicator) -> None:
        """Zeros for what this rank's pass has left out, where other ranks' passes have not."""
        if not self._unused:
            missing = [name for name, variable in wanted.items() if variable.grad is None]
            if missing:
                raise GradientError(
                    f"the loss does not depend on {', '.join(sorted(missing)[:5])}: ranks that "
                    "join gradients need those of all parameters",
                    help="DistributedDataParallel(model, find_unused_parameters=True), or "
                    "requires_grad_(False) for what is not trained",
                )
            return
        used = np.array([v.grad is not None for v in wanted.values()], np.uint8)
        for variable, anywhere in zip(wanted.values(), group.all_reduce(used, "max")):
            if variable.grad is None and anywhere:
                variable.grad = zeros_like(variable.detach())

    def __reduce__(self) -> Any:
        return SharedGradients, ((), (), self._unused)


class DistributedDataParallel(DataParallel):
    """A module on every rank of a process group, trained on samples of its own.

    It begins with the first rank's weights. A backward pass ends with the mean of the gradients
    over all ranks, and with the first rank's buffers.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(module, device_ids, output_device, dim)
        self.process_group = process_group
        self.require_backward_grad_sync = True
        group = formed_group(process_group, "DistributedDataParallel")
        names, variables = [], []
        for name, variable in module.named_parameters():
            if variable.requires_grad:
                names.append(name)
                variables.append(variable)
        if not variables:
            raise GradientError("DistributedDataParallel needs a parameter that requires gradients")
        if init_sync:
            agree_on_values(module, group)
        self._shared = SharedGradients(names, variables, find_unused_parameters or static_graph)
        self._shared.begin(group, module.buffers() if broadcast_buffers else ())

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module computes of this rank's samples."""
        if modes.gradients:
            self._shared.is_due = self.require_backward_grad_sync
        return self.module(*inputs, **kwargs)

    def no_sync(self) -> AbstractContextManager[Any]:
        """A block whose passes add to gradients of this rank alone."""
        if not self.require_backward_grad_sync:
            return nullcontext()
        return Switch(self, require_backward_grad_sync=False)


__getattr__ = _unknown(__name__)
