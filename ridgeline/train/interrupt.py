"""Ctrl-C between steps: the signal is noted, and the run stops where its state is whole."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from itertools import starmap
from types import FrameType
from typing import Any

from ridgeline.atomic import apply, sealed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_signal: Any = import_module("_signal")  # in C: the functions of `signal` begin in Python


class Interrupt:
    """While active, a first SIGINT or SIGTERM sets `signal`; a second SIGINT ends at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: list[tuple[int, Any]] = []  # signals and their handlers, SIGINT at the end

    @property
    def requested(self) -> bool:
        """True once the user has asked to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What the shell expects of a process that a signal ended."""
        return 128 + (self.signal or signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = [(number, _signal.getsignal(number)) for number in reversed(_SIGNALS)]
            try:
                apply(_signal.signal(number, self._note) for number in _SIGNALS)
            except BaseException:  # of another signal
                self._give_back()
                raise
        return self

    @sealed
    def __exit__(self, *raised: object) -> None:
        self._give_back()

    @sealed
    def _give_back(self) -> None:
        """Put the handlers back; one that is due runs first, and what it raises comes after."""
        try:
            apply(starmap(_signal.signal, self._before))
        except BaseException:
            apply(starmap(_signal.signal, self._before))
            raise
