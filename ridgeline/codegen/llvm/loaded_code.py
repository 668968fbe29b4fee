"""Machine code in this process, by the names of its functions; what nothing uses is unmapped.

Plans hold the libraries that their steps call. Besides those, the ones that were asked for last are
kept, up to so many bytes: a program that comes again soon finds its code, and one over ever new
shapes does not fill memory with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ridgeline.codegen.llvm.machine_code import Library
from ridgeline.recent import Recent
from ridgeline.weak import WeakTable

_MANY = 1 << 16


class LoadedCode:
    """Libraries by the functions they define."""

    def __init__(self, most_bytes: int) -> None:
        self._by_symbol: WeakTable[Library] = WeakTable()
        self._last_used: Recent[int, Library] = Recent(_MANY, most_bytes)  # by identity
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_symbol)

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Map the code of these functions, unless all of them are there already."""
        with self._lock:
            found = self.held(symbols)
            missing = [symbol for symbol in symbols if symbol not in found]
            if missing:
                library = Library.load(code, lasting=False)
                self._use(library)
                for symbol in missing:
                    self._by_symbol.keep(symbol, library)

    def held(self, symbols: Iterable[str]) -> dict[str, Library]:
        """The libraries of those functions that are there; they were used just now."""
        with self._lock:
            found = {s: self._by_symbol.get(s) for s in symbols}
            known = {s: library for s, library in found.items() if library is not None}
            for library in known.values():
                self._use(library)
            return known

    def library(self, symbol: str) -> Library:
        """The library that defines a function."""
        with self._lock:
            found = self._by_symbol.get(symbol)
        if found is None:
            raise KeyError(symbol)
        return found

    def clear(self) -> None:
        """Forget all; plans keep what they call."""
        with self._lock:
            self._by_symbol = WeakTable()
            self._last_used.clear()

    def _use(self, library: Library) -> None:
        self._last_used.keep(id(library), library, library.nbytes)
