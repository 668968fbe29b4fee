"""Memory that a running program is overwriting: whoever asks for it waits for the new value."""

from __future__ import annotations

from threading import Lock
from typing import Any


class Moving(tuple[Any, Lock]):
    """Stands for a node's buffer while its memory gets another value; looks like it otherwise.

    The lock is held by whoever runs the program, from before this is seen until after it is gone.
    What is asked of this waits for it, and is then answered by the buffer with the new value (or
    the old one, if the program failed). No later run overwrites that one: this holds the node, so
    the node is not alone. A tuple is made by C code alone, and a step makes one for every state.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def settled(self) -> Any:
        """The buffer, once the program has run."""
        node, running = self
        while True:
            with running:  # a signal's handler may end the wait
                pass
            found = node.buffer
            if found is not self:
                return found.settled() if type(found) is Moving else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled(), name)
