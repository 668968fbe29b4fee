"""The guards of a trace besides its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ridgeline.config import config
from ridgeline.devices import current as current_gpu
from ridgeline.functions.operands import defaults
from ridgeline.record import mutation
from ridgeline.record.cells import CUT, Cell, Track
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing import guards
from ridgeline.tracing.capture import Capture, CellInput
from ridgeline.tracing.guards import snapshot
from ridgeline.tracing.kept_state import Stores
from ridgeline.tracing.reads.holds import Guards
from ridgeline.tracing.side_effects import argument_index

if TYPE_CHECKING:
    import threading


_mode_of = attrgetter("mode")


def _settings() -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if name != "epoch"}


class Conditions:
    """The state in which a function was traced, besides its arguments' signature."""

    open: str  # why every call has to run Python, if so
    fleeting: str  # why the trace stands for the call that was traced and for none after it

    def __init__(self, call: threading.local | None) -> None:
        """What is known before the function runs; `call` has the arguments of every thread."""
        self._call = call
        self._epoch, self._config_epoch = mutation.epoch.value, config.epoch
        self._settings, self._defaults = _settings(), (defaults.dtype, defaults.device)
        self._gpu = current_gpu.index

    def learn(
        self, capture: Capture, reads: Guards, stores: Stores, leaves: Sequence[Any], reason: str
    ) -> None:
        """Add the guards of a capture; `reason` says why it cannot be guarded, if so."""
        self.open, self.guards, self._symbolic = reason, reads, capture.symbolic
        self._holds = reads.holds
        # what counts of the objects that are watched: not what calls leave there themselves
        self._look: Callable[..., Any] = stores.without
        self._watched = [
            (obj, snapshot(obj, stores.without) if stores.explain(obj, before) else before)
            for obj, before in capture.watched.values()
        ]
        self._requirements = capture.requirements
        self.gradients_read = [
            (owner, argument_index(owner, leaves), form)
            for owner, form in capture.gradients_read.values()
        ]
        self._outside = {s.cell for s in capture.inputs.values() if isinstance(s, CellInput)}
        self._known = capture.outer_cells()
        self.pinned = self._pin(leaves)
        self._born = self._epoch
        standing = _standing(capture, leaves)
        self._tracks, self._standing = [t for t, _ in standing], [mode for _, mode in standing]
        self._stood: list[int] = []  # the modes that were found to agree
        moved = self._changed_object()
        if moved is not None:
            self._epoch = -1  # the call itself changed what it reads: look again before a replay
        cut = "a tensor from outside was detached, or made a variable" if capture.detached else ""
        self.fleeting = moved or cut or reads.broken() or ""

    def _pin(self, leaves: Sequence[Any]) -> list[tuple[int, Cell]]:
        """Arguments that the function also reaches by itself must stay the same cells."""
        found = [*self.guards.values]
        for _, image in self._watched:
            found += guards.objects_in(image)
        known = {value._cell for value in found if issubclass(type(value), Tensor)}
        return [
            (index, leaf._cell)
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and leaf._cell in known
        ]

    def changed(self, leaves: Sequence[Any]) -> str | None:
        """The first condition that no longer holds; None if all hold."""
        if self._call is not None:
            self._call.leaves = leaves
        if config.epoch != self._config_epoch:
            if _settings() != self._settings:
                return "a setting of ridgeline.config changed"
            self._config_epoch = config.epoch
        if (defaults.dtype, defaults.device) != self._defaults:
            return "the default element type or device changed"
        if current_gpu.index != self._gpu:
            return "another GPU became the current one"
        if mutation.epoch.value != self._epoch:
            reason = self._changed_object()
            if reason is not None:
                return reason
            self._epoch = mutation.epoch.value
        if self._tracks:
            stand = list(map(_mode_of, self._tracks))
            if stand != self._stood:
                for mode, now in zip(self._standing, stand):
                    if now != mode and max(now, CUT) != mode:
                        return "whether a tensor requires gradients changed"
                self._stood = stand
        if not self._holds():
            reason = self.guards.broken()
            if reason is not None:
                return reason
        for holds, text in self._requirements:
            if not holds():
                return f"no longer true: {text}"
        reason = self.other_gradients(leaves) if self.gradients_read else None
        if reason is not None:
            return reason
        if self._outside:
            for leaf in leaves:
                if isinstance(leaf, Tensor) and leaf._cell in self._outside:
                    return "an argument is a tensor that the function also reads by itself"
        for index, cell in self.pinned:
            if leaves[index]._cell is not cell:
                return "an argument was a tensor that the function also reads by itself"
        return None

    def other_gradients(self, leaves: Sequence[Any]) -> str | None:
        """How the gradients that the function reads differ from those of the trace."""
        first: dict[Cell, int] = {}
        for number, (owner, index, form) in enumerate(self.gradients_read):
            extra = (owner if index is None else leaves[index])._extra
            gradient = None if extra is None else extra.grad
            if gradient is None:
                if form is not None:
                    return "a gradient was cleared"
                continue
            if form is None:
                return "a gradient was set"
            if index is not None and self._symbolic:
                continue  # of an argument of any length
            cell = gradient._cell
            kind = cell.node.types[0]
            if (
                (kind is not form.type and kind != form.type)
                or gradient._steps != form.steps
                or first.setdefault(cell, number) != form.first
            ):
                return "a gradient is another view, or shares its memory in another way"
        return None

    def _changed_object(self) -> str | None:
        """The watched module, optimizer or tensor whose contents changed, if any."""
        for cell in self._known:
            if cell.rare is not None and cell.rare.left > self._born:
                return "a tensor was given other memory"
        for obj, before in self._watched:
            after = snapshot(obj, self._look)
            if after != before:
                what = ", ".join(guards.differences(before, after))
                return f"{type(obj).__name__} changed: {what}"
        return None


def _standing(capture: Capture, leaves: Sequence[Any]) -> list[tuple[Track, int]]:
    """How tensors from outside relate to differentiation; arguments have it in the signature."""
    given = {leaf._track for leaf in leaves if isinstance(leaf, Tensor)}
    return [
        (track, max(track.mode, CUT))
        for track in capture.shadows
        if track not in given
        and (not isinstance(track, Cell) or isinstance(capture.source(track), CellInput))
    ]
