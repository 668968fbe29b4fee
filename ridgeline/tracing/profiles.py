"""Measured kernels of a program, compared with the limits of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.explain import kernel_times
from ridgeline.compiler.kernel_profile import KernelTime, Profile, limited
from ridgeline.record.captures import CaptureError
from ridgeline.runtime.limits import BusyMachineError, Limits, limits

if TYPE_CHECKING:
    from ridgeline.compiler import Program

_ABOVE = "above 100%: data that stays in caches is not copied from memory"
_measured_again: set[str] = set()  # devices whose limits something was above


def measured(program: Program, inputs: Sequence[Any], rounds: int) -> Profile:
    """Median times of a program's kernels, and which share of its device's limit each reaches."""
    if not hasattr(program, "profile"):
        raise CaptureError(
            "kernels of a program over a mesh are not measured one by one: other ranks answer",
            help="print(mesh.world.counters) has exposed and hidden seconds of collectives by "
            "axis, and explain() what hides each",
        )
    times = kernel_times(program, inputs, rounds)
    device = program.graph.outputs[0].type.device
    try:
        return _against(times, device)
    except BusyMachineError as error:
        return Profile(times, error.message)


def _against(times: Sequence[KernelTime], device: str) -> Profile:
    """Times against the limits of a device, measured again once where something is above them."""
    found = _limited(times, limits(device))
    if not _is_above(found):
        return found
    if device not in _measured_again:
        _measured_again.add(device)
        found = _limited(times, limits(device, again=True))
    return Profile(found, f"{found.limit}; {_ABOVE}") if _is_above(found) else found


def _limited(times: Sequence[KernelTime], limit: Limits) -> Profile:
    return Profile(limited(times, limit.least_seconds), limit.said)


def _is_above(profile: Profile) -> bool:
    return any((kernel.of_limit or 0) > 1 for kernel in profile)
