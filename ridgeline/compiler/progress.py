"""One line on stderr where the program waits long for the compiler, so that nobody wonders."""

from __future__ import annotations

import sys
from threading import Timer

from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.graph.graph import Graph
from ridgeline.graph.origins import user_line

PATIENCE = 0.5  # seconds until something is said


class Announced:
    """Inside a graph is compiled: if that takes long, a line says so while it goes on."""

    def __init__(self, graph: Graph) -> None:
        self._timer: Timer | None = None
        if config.announce and not background.is_here():
            self._timer = Timer(PATIENCE, _say, [_waiting_for(graph)])
            self._timer.daemon = True

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _waiting_for(graph: Graph) -> str:
    devices = sorted({node.type.device for node in graph.outputs})
    line = user_line()
    needed = f", needed at {line}" if line else ""
    return f"ridgeline: compiling {len(graph.order)} ops for {', '.join(devices)}{needed} …"


def _say(text: str) -> None:
    if sys.stderr is not None:  # a program without a console has none
        sys.stderr.write(text + "\n")
