"""Arguments of hand-scheduled kernels: tensors with values, outside of traced functions."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.graph.origins import user_line
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.side_effects import settled


class LoopsError(RidgelineError):
    """An expression that is not one kernel, or a call that does not fit the kernel."""

    code = "RL0502"


def check_not_traced(what: str) -> None:
    """Raise where a function is traced, whose tensors have no values."""
    if modes.capture is not None:
        line = user_line()
        raise CaptureError(
            f"{what} at once, and {modes.capture.name} has no values while it traces",
            note=f"at {line}" if line else "",
            help="write the expression itself there, or move this line out of the traced function",
        )


def memory_of(given: Tensor) -> Any:
    """The memory of a tensor's values, dense."""
    if not isinstance(given, Tensor):
        raise LoopsError(
            f"a kernel is made for tensors and takes tensors, not {type(given).__name__}",
            help="numbers are part of the expression: rl.loops(lambda x: x * 2, x)",
        )
    whole = given.detach().clone() if given._steps else given
    return settled(whole._resolved()[0])
