"""The fallback of jit: functions that cannot be guarded run as Python at every call.

A trace is *open* where the function read something that no guard can compare, and *fleeting* where
it changed what it read, so that the trace stands for one call alone. A function of which either was
seen runs as undecorated code; now and then it is traced again, since what was so at first (state
that is made by the first calls) need not stay so.
"""

from __future__ import annotations

_FLEETING = 3  # traces in a row that stood for one call each
_FIRST = 8  # open calls before the function is traced again, and then eight times as many


class Opening:
    """Whether a function runs without replay, and why."""

    def __init__(self) -> None:
        self.reason = ""
        self._fleeting = 0
        self._calls = 0
        self._next = _FIRST

    def traced(self, open: str, fleeting: str) -> None:
        """Note whether a trace is open or for one call alone."""
        self._fleeting = self._fleeting + 1 if fleeting else 0
        if open:
            self.reason = open
        elif self._fleeting >= _FLEETING:
            self.reason = f"the function changes what it reads: {fleeting}"
        else:
            self.reason = ""

    def runs_python(self) -> bool:
        """True if the next call runs as undecorated code."""
        if not self.reason:
            return False
        self._calls += 1
        if self._calls < self._next:
            return True
        self._next *= _FIRST
        return False
