"""The compiled form of the matcher: which functions, over objects of which classes.

What is named here is looked up by `codegen/cpython`, which makes the machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.codegen.cpython.compiled import compiled
from ridgeline.codegen.cpython.expressions import Untranslatable
from ridgeline.codegen.cpython.layout import LayoutError, check_layout
from ridgeline.codegen.cpython.translate import FunctionSet
from ridgeline.functions.operands import Defaults
from ridgeline.graph.node import LeafAttrs, Node, TensorType
from ridgeline.graph.origins import look_inside
from ridgeline.ops.movement import BroadcastAttrs, PermuteAttrs, ReshapeAttrs, SliceAttrs
from ridgeline.record.cells import Cell, InnerStep, LetGo, Rare, Track
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.memory import refresh
from ridgeline.record.recorder import MISS
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tape.copies import Copies
from ridgeline.tape.effects import drawn
from ridgeline.tape.entries import (
    Entry,
    Gradient,
    Look,
    Many,
    Place,
    Ref,
    Same,
    Shown,
    Spent,
    Varying,
    Write,
    same_text,
)
from ridgeline.tape.lock import Lock
from ridgeline.tape.memory import Block, block_of, noted_block
from ridgeline.tape.openings import AtSizes, Opening, OpenTape
from ridgeline.tape.outside import Outside, StandIn
from ridgeline.tape.primitives import commit, goes_on, is_shared, tuple_of
from ridgeline.tape.quick import quickly
from ridgeline.tape.run import NOWHERE, Past, Run
from ridgeline.tape.views import Views
from ridgeline.tensors.differentiable import Extra
from ridgeline.tensors.handle import Size
from ridgeline.tensors.tensor import Tensor

_CLASSES = (
    Run, Lock, Place, Entry, Look, Ref, Many, Varying, Shown, Same, Write, Gradient, Spent, Views,
    OpenTape, Opening, AtSizes, Outside, StandIn, Block, Copies, Past, GraphRecorder, Defaults,
    Tensor, Extra, Cell, Track, Rare, LetGo, Node, LeafAttrs, TensorType, SliceAttrs, ReshapeAttrs,
    PermuteAttrs, BroadcastAttrs, HostBuffer,
)  # fmt: skip
_LEFT: tuple[Any, ...] = (
    same_text, look_inside, refresh, noted_block, block_of, drawn, Look.ask, Run._tried_copy,
)  # fmt: skip
_SCRATCH = (
    "trial", "_known", "variable", "_extra", "memory", "steps", "rest", "given",
    "tensors", "fresh", "changes", "removed",
)  # fmt: skip
_PROTOCOLS = {"Deferred": Run, "Differentiable": Tensor}


def _goes_on(run: Run, at: Place, entry: Entry, fresh: list[Cell]) -> bool:
    """`goes_on` where nothing can come between its parts."""
    for cell in fresh:
        run.handed.append(cell)
    run.log.append(entry)
    run.count = entry.count
    run.at = entry.after
    return True


_QUICKLY: Any = quickly
_GOES_ON: Any = _goes_on
_PRIMITIVES: dict[Any, Any] = {
    is_shared: "is_shared", tuple_of: "tuple_of", commit: "commit", goes_on: _GOES_ON,
}  # fmt: skip


class Refused(Exception):
    """There is no compiled form here; why."""


def compiled_matcher(recorder: Callable[[], Any]) -> Callable[..., Any]:
    """The compiled form of `quickly`, for recorders of a class."""
    try:
        check_layout()
        module = FunctionSet(
            (type(recorder()), *_CLASSES), (Size, InnerStep), _LEFT, _SCRATCH, _PROTOCOLS,
            _PRIMITIVES,
        )  # fmt: skip
        return compiled(module, {"quickly": _QUICKLY}, MISS, _broken)["quickly"]
    except (Untranslatable, LayoutError, ImportError) as error:
        raise Refused(str(error)) from None


def _broken(recorder: Any, *call: Any) -> Any:
    """A call was matched by half, as memory ran out: nothing is known of this run any more."""
    recorder.run.lost, recorder.run.at = True, NOWHERE
    raise MemoryError("a public call was not made to its end")
