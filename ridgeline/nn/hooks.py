"""Handles on registered hooks: `handle.remove()`, or `with handle:`."""

from __future__ import annotations

from itertools import count
from types import TracebackType
from typing import Any

from ridgeline.tracing import guards

_numbers = count()


class RemovableHandle:
    """Takes a hook out of the table it was put into."""

    def __init__(self, table: dict[int, Any], hook: Any) -> None:
        self._table, self._number = table, next(_numbers)
        table[self._number] = hook

    def remove(self) -> None:
        """Take the hook out; a second call does nothing. Jitted functions notice."""
        guards.bump()
        self._table.pop(self._number, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()
