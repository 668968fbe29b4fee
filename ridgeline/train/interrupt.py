"""Ctrl-C between steps: the signal is noted, and the run stops where its state is whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """While active, a first SIGINT or SIGTERM sets `signal`; a second SIGINT ends at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

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
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in reversed(self._before.items()):  # SIGINT, which raises, at the end
            signal.signal(number, handler)
        self._before = {}
