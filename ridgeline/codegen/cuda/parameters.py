"""The parameters of a kernel's functions: a pointer for every buffer, then sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ridgeline.codegen.cuda.access import plain_name
from ridgeline.codegen.cuda.threads import written_slots
from ridgeline.codegen.cuda.types import memory_type
from ridgeline.loops.ir import Kernel


def pointer_types(kernel: Kernel) -> Iterator[str]:
    """The types of the pointers that a kernel takes."""
    written = written_slots(kernel)
    for p in kernel.params:
        yield f"{'' if p.slot in written else 'const '}{memory_type(p.dtype)} *"


def parameters(kernel: Kernel, workspace: bool, more: tuple[str, ...] = ()) -> str:
    """The list of parameters, with a pointer to a workspace, and with `more` behind all others."""
    written = written_slots(kernel)
    views = Counter(p.slot for p in kernel.params)
    parts = []
    for p, kind in zip(kernel.params, pointer_types(kernel)):
        alone = p.slot not in written or views[p.slot] == 1
        parts.append(f"{kind}{' __restrict__' if alone else ''} {plain_name(p.name)}")
    parts += ["unsigned char * workspace"] * workspace
    return ", ".join([*parts, *(f"const long long {plain_name(n)}" for n in kernel.sizes), *more])
