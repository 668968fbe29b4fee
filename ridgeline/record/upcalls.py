"""Upcalls: functions of higher layers that lower layers call, all in one place.

Imports point downwards only. Where a call has to go the other way, the layer above puts its
function here when it is imported, and the layer below calls whatever is here. `ridgeline/__init__`
imports every module that does so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from ridgeline.graph.node import Node


class Known(Protocol):
    """Work that was recorded before, without its nodes."""

    def ready(self) -> bool:
        """True if there is a program for it."""

    def run(self, inputs: Sequence[Any], reason: str) -> list[Any] | None:
        """The buffers of its results, given those of its inputs; None if there is no program."""


class Match(Protocol):
    """Recorded work, found by its structure."""

    @property
    def wanted(self) -> Sequence[Node]:
        """What is computed."""

    @property
    def inputs(self) -> Sequence[Node]:
        """Memory that is there."""

    @property
    def other_sizes(self) -> Any:
        """What is known of such work with other sizes, where it seems to need a program."""

    def run(self, served: bool = False) -> None:
        """Give every node of the work its value; where it is `served`, no code is made beside."""

    def again(self) -> Known:
        """The work as it may come again, over other memory."""

    def generalize(self) -> None:
        """Have a program made for it and for such work with other sizes."""


class Backward(Protocol):
    """`backward()` of tensors."""

    def __call__(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add gradients to the `.grad` of leaves."""


class Upcalls:
    """The functions, by what they are for."""

    match: Callable[[Sequence[Node], Sequence[Node], str], Match]  # execution/tiers.py
    backward: Backward  # autograd/engine.py
    to_dlpack: Callable[..., Any]  # interop/dlpack.py
    sparse_module: Callable[[], ModuleType]  # ridgeline/__init__.py: loaded when first asked for
    exporting: Callable[[], ModuleType]  # ridgeline/__init__.py: loaded when first asked for
    array_namespace: Callable[[], ModuleType]  # ridgeline/__init__.py: loaded when first asked for


upcalls = Upcalls()
