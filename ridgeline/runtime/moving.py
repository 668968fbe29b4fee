"""Memory that a running program is overwriting: whoever asks for it waits for the new value."""

from __future__ import annotations

from threading import Lock
from typing import Any


class Moving:
    """Stands for a node's buffer while its memory gets another value; looks like it otherwise.

    The lock is held by whoever runs the program, from before this is seen until after it is gone.
    What is asked of this waits for it, and is then answered by the buffer with the new value (or
    the old one, if the program failed), which it holds from then on.
    """

    __slots__ = ("__weakref__", "_node", "_running", "_settled")

    def __init__(self, node: Any, running: Lock) -> None:
        self._node, self._running = node, running
        self._settled: Any = None

    def settled(self) -> Any:
        """The buffer, once the program has run."""
        found = self._settled
        while found is None:
            with self._running:  # a signal's handler may end the wait
                pass
            found = self._node.buffer
            if type(found) is Moving:  # of the next run
                found = found.settled()
            self._settled = found
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled(), name)
