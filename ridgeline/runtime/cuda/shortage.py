"""The out-of-memory error: who holds what, by line, and what would help."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ridgeline.errors import OutOfMemoryError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe
from ridgeline.runtime.buffer import Moving

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device
    from ridgeline.runtime.memory import Pool

_SHOWN = 8


def shortage(device: Device, nbytes: int, blocks: Pool) -> OutOfMemoryError:
    """The error for a value that does not fit."""
    free, total = device.free_memory()
    lines = [
        f"{_size(blocks.in_use)} in use by tensors and temporaries, {_size(blocks.cached)} kept "
        f"for reuse, {_size(free)} of {_size(total)} free on the device"
    ]
    rows = holders(device.name)[:_SHOWN]
    lines += [f"{_size(held)} in {count} values made at {line}" for line, held, count in rows]
    return OutOfMemoryError(
        f"{device.name} has no room for {_size(nbytes)}",
        note="\n".join(lines),
        help="a smaller batch, autocast to bfloat16, or let go of tensors you no longer need "
        "(loss.item() instead of loss)",
    )


def holders(device: str) -> list[tuple[str, int, int]]:
    """Where the values that lie on a device were made: line, bytes and number, largest first."""
    found: dict[str, tuple[int, int]] = {}
    counted: set[int] = set()
    for node in gc.get_referrers(Node):  # instances refer to their class
        if type(node) is not Node:
            continue
        buffer = node.buffer
        if type(buffer) is Moving:  # another thread's run is overwriting it: not to be waited for
            continue
        if buffer is not None and buffer.device == device and id(buffer) not in counted:
            counted.add(id(buffer))
            line = describe(node) or "an unknown line"
            held, count = found.get(line, (0, 0))
            found[line] = (held + buffer.nbytes, count + 1)
    return sorted(((p, h, c) for p, (h, c) in found.items()), key=lambda row: -row[1])


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} GiB"
