"""Oclgrind's test kernels, said anew in this language: what each has to report, and its result.

`said` registers a kernel under the name its list has; `UNSAID` gives the reason of those that the
language has no words for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ridgeline import simt
from ridgeline.simt.kernel import SimtKernel

UNSAID = {
    "alignment/packed": "structures without padding: there are no structures",
    "async_copy/async_copy_divergent": "a copy by a whole group: cp.async is one of a thread",
    "async_copy/async_copy_loop_divergent": "a copy by a whole group: cp.async is one of a thread",
    "async_copy/async_copy_single_wi": "a copy by a whole group: cp.async is one of a thread",
    "data-race/global_only_fence": "a barrier that fences global memory only: CUDA's fences both",
    "data-race/intragroup_hidden_race": "a barrier that fences local memory only",
    "data-race/local_only_fence": "a barrier that fences local memory only",
    "interactive/pointers": "a debugger's view of pointers: there are none",
    "interactive/struct_member": "a debugger's view of structures: there are none",
    "misc/non_uniform_work_groups": "blocks of different sizes in one launch: CUDA has none",
    "uninitialized/padded_nested_struct_memcpy": "the padding of structures",
    "uninitialized/padded_struct_alloca_fp": "the padding of structures",
    "uninitialized/padded_struct_memcpy_fp": "the padding of structures",
    "wait_event/wait_event_divergent": "events of a whole group: cp.async has a thread's groups",
    "wait_event/wait_event_invalid": "events that are values, and may be none",
}


@dataclass(frozen=True)
class Said:
    """A kernel, its launch, the finding it must give (None for none), and its results."""

    name: str
    kernel: SimtKernel
    found: str | None
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    shared: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    results: dict[str, list[float]] = field(default_factory=dict)


SAID: dict[str, Said] = {}


def said(
    name: str, found: str | None, grid: Any, block: Any, *arguments: Any, shared: int = 0,
    sizes: dict[str, int] | None = None, **results: list[float],
) -> Callable[[Any], SimtKernel]:  # fmt: skip
    def register(function: Any) -> SimtKernel:
        kernel = simt.kernel(function)
        SAID[name] = Said(name, kernel, found, grid, block, arguments, shared, sizes or {}, results)
        return kernel

    return register
