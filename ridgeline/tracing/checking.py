"""`jit(check=True)`: run the plain function too, from the same state, and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.errors import RidgelineError
from ridgeline.record import recorder
from ridgeline.record.cells import Cell
from ridgeline.record.values import read_array
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput
from ridgeline.tracing.staged import REFUTED

if TYPE_CHECKING:
    from ridgeline.scalars import Array
    from ridgeline.tracing.trace import Trace


class CheckError(RidgelineError):
    """A compiled call returned something else than the plain function."""

    code = "RL0410"


def checked_call(
    function: Callable[..., Any], trace: Trace, leaves: Sequence[Any], args: Any, kwargs: Any
) -> Any:
    """The replay's result, after comparing it and all it wrote with the plain function's."""
    cells, effects = _cells(trace, leaves), trace.recording.effects
    for cell in cells:
        if cell.node.buffer is None:
            recorder.realize([cell])
    before = [(cell, cell.node, cell.mode) for cell in cells]
    owners = [g.owner if g.argument is None else leaves[g.argument] for g in effects.gradients]
    gradients = [(owner, owner.grad) for owner in owners]
    streams = [(generator, generator.get_state()) for generator, _ in effects.drawn]
    locations = [(store.location, store.location.kept()) for store in trace.recording.stores]
    expected = _values(function(*args, **kwargs), cells, owners)
    for location, kept in reversed(locations):
        location.restore(kept)
    for cell, node, mode in before:
        cell.set(node)  # a write like others, to whoever kept something of the values in between
        cell.mode = mode
    for owner, gradient in gradients:
        owner.grad = gradient
    for generator, state in streams:
        generator.set_state(state)
    result = trace.executable.replay(leaves)
    if result is REFUTED:
        return result
    found = _values(result, cells, owners)
    for location, (want, got) in enumerate(zip(expected, found)):
        if not _close(want, got):
            raise CheckError(
                f"jit and the plain function disagree in value {location + 1} of {len(found)}",
                note=f"plain: {want!r:.200}\njit:   {got!r:.200}",
                help="bisect() with these arguments says whether a pass of the compiler errs; if "
                "none does, something that the function reads is not covered by jit's guards",
            )
    return result


def _cells(trace: Trace, leaves: Sequence[Any]) -> list[Cell]:
    found: dict[Cell, None] = {}
    for _, source in trace.executable.readers:
        if isinstance(source, CellInput):
            found[source.cell] = None
        elif isinstance(source, ArgumentInput):
            found[leaves[source.index]._cell] = None
        elif isinstance(source, GradientInput) and source.owner.grad is not None:
            found[source.owner.grad._cell] = None
    return list(found)


def _values(result: Any, cells: Sequence[Cell], owners: Sequence[Tensor]) -> list[Array | None]:
    """Copies of everything that a call returned or changed."""
    returned: list[Any] = []
    flatten(result, returned)
    arrays: list[Array | None] = []
    for leaf in returned:
        if isinstance(leaf, Tensor):
            arrays.append(np.array(read_array(leaf.detach(), "check")))
    for cell in cells:
        recorder.realize([cell])
        arrays.append(np.array(cell.node.buffer.array(cell.node.dtype, cell.node.shape)))
    for owner in owners:
        gradient = owner.grad
        arrays.append(
            None if gradient is None else np.array(read_array(gradient.detach(), "check"))
        )
    return arrays


def _close(want: Array | None, got: Array | None) -> bool:
    if want is None or got is None:
        return want is None and got is None
    if want.shape != got.shape or want.dtype != got.dtype:
        return False
    if want.dtype.kind not in "fcV":
        return bool(np.array_equal(want, got))
    small = want.dtype.itemsize < 4
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
    tolerance = 2e-2 if small else 1e-4 if want.dtype.itemsize == 4 else 1e-9
    scale = float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
    return bool(
        np.allclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-6), equal_nan=True)
    )
