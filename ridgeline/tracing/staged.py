"""Calls in stages: first the masks, then the rest at their counts (`counted.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.graph.facts import Fact
from ridgeline.record.captures import CaptureError
from ridgeline.record.turns import in_turn
from ridgeline.tracing.capture import ArgumentInput, Source
from ridgeline.tracing.counted import Stage, as_tensor
from ridgeline.tracing.dynamic import Pattern
from ridgeline.tracing.signatures import Signature

if TYPE_CHECKING:
    from ridgeline.tracing.executable import Executable
    from ridgeline.tracing.symbolic_traces import Template

REFUTED: Any = object()  # stands for the result of a call whose counts need another trace


class StagedExecutable:
    """The programs of a call in stages, behind the interface of one."""

    def __init__(
        self,
        last: Template,
        stages: Sequence[tuple[Stage, Template]],
        values: Mapping[str, int],
        signature: Signature,
    ) -> None:
        """`values` are sizes that the arguments have."""
        self._last, self._stages = last, stages
        self._values, self._signature = dict(values), signature
        self._at_hand = last.recording.at_hand
        self._further = len(self._at_hand)  # arguments that stages give
        pattern = last.recording.pattern
        assert pattern is not None, "counts are sizes of a pattern"
        self._pattern: Pattern = pattern
        self._latest = self._at(pattern.facts.values)
        self._facts: list[list[Fact]] = []  # by stage: what has to hold before it
        known = {*values}
        for stage, _ in stages:
            self._facts.append([f for f in pattern.facts if known >= f.unknowns])
            known |= {counted.size.name for counted in stage.masks}

    def __getattr__(self, name: str) -> Any:
        """Attributes are those of the last stage of the last call."""
        return getattr(self._latest, name)

    @property
    def readers(self) -> list[tuple[int, Source]]:
        """What the last stage reads besides what those before it give."""
        given = len(self._signature.leaves)
        return [
            (slot, source)
            for slot, source in self._latest.readers
            if not isinstance(source, ArgumentInput) or source.index < given
        ]

    def _at(self, values: Mapping[str, int]) -> Executable:
        return self._last.at(values, self._signature)

    def replay(self, leaves: Sequence[Any], made_for_it: bool = False) -> Any:
        """What a call gives; `REFUTED` where its counts are none for which this was traced."""
        if made_for_it:
            further, self._at_hand = self._at_hand, []
            return self._latest.replay([*leaves, *further], True)
        step = partial(self._step, leaves)
        changed = partial(self._last.conditions.changed, leaves)
        return in_turn(self._latest.turns, step, changed)

    def _step(self, leaves: Sequence[Any]) -> Any:
        picked = self._picked(leaves)
        if picked is None:
            return REFUTED
        arguments, values = picked
        self._latest = self._at(values)
        return self._latest.replay(arguments)

    def live_buffers(self, leaves: Sequence[Any]) -> list[Any]:
        """The memory that the last stage reads in this call."""
        picked = self._picked(leaves)
        if picked is None:
            raise CaptureError("masks pick numbers of elements for which this was not traced yet")
        arguments, values = picked
        self._latest = self._at(values)
        return self._latest.live_buffers(arguments)

    def _picked(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, int]] | None:
        """The arguments of the last stage, and the sizes of the call, if it is one for them."""
        arguments = [*leaves, *([None] * self._further)]
        values = dict(self._values)
        for (stage, template), facts in zip(self._stages, self._facts):
            if not all(fact.fits(values) for fact in facts):
                return None
            results = template.at(values, self._signature).replay(arguments)
            for counted, mask in zip(stage.masks, results):
                where = np.nonzero(mask.numpy())
                values[counted.size.name] = len(where[0])
                arguments[counted.first : counted.first + len(where)] = map(as_tensor, where)
            for number, value in zip(stage.handed, results[len(stage.masks) :]):
                arguments[number] = value
        return None if self._pattern.broken(values) else (arguments, values)
