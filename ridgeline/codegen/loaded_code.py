"""Machine code in this process or on a device, by the names of its functions.

What nothing uses is unloaded. Plans hold the code that their steps call. Besides that, what was
asked for last is kept, up to so many bytes: a program that comes again soon finds its code, and
one over ever new shapes does not fill memory with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from ridgeline.weak import Recent, WeakTable

_MANY = 1 << 16


class Code(Protocol):
    """Loaded code, which is unloaded some time after nobody refers to it."""

    nbytes: int


C = TypeVar("C", bound=Code)
Image = tuple[Sequence[str], Callable[[], C]]  # what it defines, and how it is loaded


class LoadedCode(Generic[C]):
    """Loaded code by the functions it defines."""

    def __init__(self, most_bytes: int) -> None:
        self._by_symbol: WeakTable[C] = WeakTable()
        self._last_used: Recent[int, C] = Recent(_MANY, most_bytes)  # by identity
        # a program that takes its functions from here finds all of them, however large they are
        self._loaded_last: tuple[C, ...] = ()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_symbol)

    def load(self, images: Iterable[Image[C]]) -> None:
        """Load those images of which not all functions are there already."""
        with self._lock:
            self._loaded_last = tuple([code for image in images for code in self._load(*image)])

    def _load(self, symbols: Sequence[str], load: Callable[[], C]) -> list[C]:
        found = self.held(symbols)
        missing = [symbol for symbol in symbols if symbol not in found]
        there = list(found.values())
        if missing:
            code = load()
            self._use(code)
            for symbol in missing:
                self._by_symbol.keep(symbol, code)
            there.append(code)
        return there

    def held(self, symbols: Iterable[str]) -> dict[str, C]:
        """The code of those functions that are there; it was used just now."""
        with self._lock:
            found = {s: self._by_symbol.get(s) for s in symbols}
            known = {s: code for s, code in found.items() if code is not None}
            for code in known.values():
                self._use(code)
            return known

    def code(self, symbol: str) -> C:
        """The code that defines a function."""
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
            self._loaded_last = ()

    def _use(self, code: C) -> None:
        self._last_used.keep(id(code), code, code.nbytes)
