"""The kernel that reports an index out of range to the host."""

from __future__ import annotations

from ridgeline.dtypes import bool_
from ridgeline.loops.ir import Buffer, For, If, Kernel, Load, Store, const, index


def marking() -> Kernel:
    """Set a byte if a flag is set, else leave it as it is."""
    one, first = index(1), (index(0),)
    flag, byte = (
        Buffer(name, (one,), bool_, slot=slot) for slot, name in enumerate(("flag", "byte"))
    )
    body = If(Load.make(flag, first), Store(byte, first, const(True, bool_)))
    return Kernel("mark_wrong_index", (flag, byte), (), For("i", one, body, kind="grid"))
