"""Memory that a running program is overwriting: whoever asks for it waits for the new value."""

from __future__ import annotations

from threading import Lock
from typing import Any


class Moving:
    """Stands for a buffer while its memory gets another value; looks like the buffer otherwise.

    The lock is held by whoever runs the program. What is asked of this waits for it, and is then
    answered by the buffer with the new value (or the old one, if the program failed).
    """

    __slots__ = ("__weakref__", "_running", "target")

    def __init__(self, running: Lock) -> None:
        self._running = running
        self.target: Any = None  # the old buffer until the new one is there

    def settled(self) -> Any:
        """The buffer, once the program has run."""
        with self._running:
            return self.target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled(), name)
