"""Steps that are like those before, and then are not: what tapes of known calls must bear.

Between the lines of a training step a function is called that sometimes does something: it ends the
step by an exception, keeps a tensor longer, reads one, shares its memory, collects garbage. What
the program computes is the same in every library, and with or without tapes.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ridgeline as rl
from ridgeline.execution import tiers
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import leaf
from tests.fuzz.training import Training

CALLS = 8  # of a step, in which it is seen, learnt and matched
_QUIET = 4  # calls before the first deviation
_OFTEN = 0.5  # of the calls after these deviate


class Stop(Exception):
    """Ends a step."""


@contextmanager
def interpreted_programs() -> Iterator[None]:
    """Inside, what is recorded gets programs as if it were compiled, which the interpreter runs."""
    before = tiers._program, tiers._to_interpret
    tiers._program, tiers._to_interpret = _interpreted, lambda *piece: False
    try:
        # programs are known by settings: nobody outside finds these
        with rl.config.override(tier="interpreter", deterministic=True):
            yield
    finally:
        tiers._program, tiers._to_interpret = before


def _interpreted(graph: Graph) -> tiers.Runnable:
    """A program that shares no node with recorded work, of which nodes get values."""
    prepared = tiers.prepared(graph)
    fresh = {node: leaf(node.type) for node in prepared.inputs}
    outputs = substitute(prepared.outputs, fresh)
    return tiers.Interpreted(Graph(outputs, [*fresh.values()]))


def with_marks(program: Training) -> Training:
    """The program with a call of `at` before every line, called often enough for tapes."""
    lines = [part for n, line in enumerate(program.lines) for part in (f"at({n}, locals())", line)]
    return replace(program, lines=tuple(lines), calls=CALLS)


class Deviations:
    """What happens at which line of which call, drawn from a seed."""

    def __init__(self, seed: int, program: Training) -> None:
        self._draw = random.Random(seed)
        self._acts: dict[tuple[int, int], Callable[[dict[str, Any]], None]] = {}
        self._call = -1
        self._kept: list[Any] = []
        lines = max(1, len(program.lines) // 2)
        for call in range(_QUIET, program.calls):
            if self._draw.random() < _OFTEN:
                place = call, self._draw.randrange(lines)
                self._acts[place] = self._draw.choice(_ACTS)

    def begin(self) -> None:
        """Another call of the step begins; what was kept longer goes now and then."""
        self._call += 1
        if self._call % 3 == 0:
            self._kept.clear()

    def at(self, line: int, names: dict[str, Any]) -> None:
        """Called before a line, with the local variables of the step."""
        act = self._acts.get((self._call, line))
        if act is not None:
            named = [value for name, value in sorted(names.items()) if name[0] in "tx"]
            tensors = [value for value in named if value is not None]  # an unused gradient is
            act({"tensor": self._draw.choice(tensors), "kept": self._kept})


def _stop(given: dict[str, Any]) -> None:
    raise Stop


def _keep(given: dict[str, Any]) -> None:
    given["kept"].append(given["tensor"])


def _keep_view(given: dict[str, Any]) -> None:
    given["kept"].append(given["tensor"].detach().reshape(-1)[:1])


def _read(given: dict[str, Any]) -> None:
    given["tensor"].tolist()


def _read_elsewhere(given: dict[str, Any]) -> None:
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(given["tensor"].detach().tolist()))
    reader.start()
    reader.join()
    assert found, "another thread could not read a tensor"


def _share(given: dict[str, Any]) -> None:
    given["kept"].append(given["tensor"].detach().numpy())


def _collect(given: dict[str, Any]) -> None:
    gc.collect(0)


_ACTS = (_stop, _keep, _keep_view, _read, _read_elsewhere, _share, _collect)
