"""A streaming scanner for Chrome traces: one event at a time, in memory bounded by one chunk.

The file is `{"key": value, …, "traceEvents": [{…}, …], …}` or a bare `[{…}, …]`. Python's C JSON
scanner parses one value at a position and says where it ends, so no event is looked at twice and
no more than one chunk plus one event is held. A file that stops in the middle ends the scan with
`truncated` set; an event that cannot be parsed is skipped and counted.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import IO, Any

from ridgeline.profile.trace.errors import TraceFormatError

CHUNK = 1 << 20
# One event longer than this is taken for damage, so that memory stays bounded.
LONGEST_VALUE = 16 << 20
_DELIMITERS = frozenset(" \t\r\n,]}")
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
# Fields that begin an event and no object inside one.
_NEXT_EVENT = re.compile(r"\}\s*,\s*(?=\{\s*\"(?:ph|name|cat|ts|pid|tid)\")")
# A stray byte-order mark is common in files that passed through Windows tools.
_START = re.compile(r"\ufeff?[ \t\r\n]*")


class _EndOfInput(Exception):
    """The text ends inside a value."""


class Scanner:
    """Iterates over the events of one trace; `header` fills as other top-level fields pass by."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.header: dict[str, Any] = {}
        self.found_events = False
        self.truncated = False
        self.damaged_events = 0
        self.note = ""
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        # The C scanner behind `raw_decode`: (value, end) for the value at a position.
        self._scan: Callable[[str, int], tuple[Any, int]] = vars(JSONDecoder(strict=False))[
            "scan_once"
        ]
        self._text = ""
        self._at = 0
        self._ended = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self._document()
        except _EndOfInput:
            self.truncated = True

    def _more(self) -> bool:
        """Drop what was consumed and append the next chunk; False at the end of the file."""
        if self._ended:
            return False
        try:
            data = self._stream.read(CHUNK)
        except (OSError, EOFError, zlib.error) as damage:
            # gzip reports a cut or corrupt stream here, after the good part was delivered.
            self._ended, self.truncated, self.note = True, True, f"{damage}".rstrip(".")
            return False
        self._ended = not data
        self._text = self._text[self._at :] + self._decode(data, final=self._ended)
        self._at = 0
        return bool(data)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Move past the pattern and return the character there."""
        while True:
            match = pattern.match(self._text, self._at)
            assert match is not None
            if match.end() < len(self._text):
                self._at = match.end()
                return self._text[self._at]
            if not self._more():
                raise _EndOfInput

    def _value(self) -> Any:
        """Parse the value at the current position, reading on while the text ends inside it."""
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except (ValueError, StopIteration, RecursionError) as error:
                if self._hopeless(error) or not self._more():
                    raise
                continue
            # A bare number may go on in the next chunk: only a delimiter ends it for sure.
            ends = self._text[end : end + 1]
            if isinstance(value, (int, float)) and ends not in _DELIMITERS and self._more():
                continue
            self._at = end
            return value

    def _hopeless(self, error: Exception) -> bool:
        """Whether more text cannot mend the value: wrong well before the end, or far too long."""
        if len(self._text) - self._at > LONGEST_VALUE:
            return True
        if isinstance(error, StopIteration):
            return int(error.value) < len(self._text) - 16
        if isinstance(error, JSONDecodeError):
            unfinished = error.msg.startswith("Unterminated")
            return not unfinished and error.pos < len(self._text) - 16
        # Plain value errors are numbers too long to be any; deep nesting may still end.
        return not isinstance(error, RecursionError)

    def _document(self) -> Iterator[dict[str, Any]]:
        self._more()
        try:
            first = self._skip(_START)
        except _EndOfInput:
            what = "the compressed data is cut off or damaged" if self.note else "the file is empty"
            raise TraceFormatError(what, note=self.note) from None
        if first == "[":
            self._at += 1
            yield from self._events()
            return
        if first != "{":
            raise TraceFormatError(
                "this is not a trace in JSON",
                note=f"it starts with {self._text[self._at : self._at + 20]!r}",
            )
        self._at += 1
        while self._skip(_COMMA) != "}":
            key = self._field_name()
            if key == "traceEvents" and self._skip(_SPACE) == "[":
                self._at += 1
                yield from self._events()
            else:
                self._skip(_SPACE)
                self.header[key] = self._field_value(key)

    def _field_name(self) -> str:
        try:
            key = self._value()
        except (ValueError, StopIteration, RecursionError):
            raise self._broken_here() from None
        if not isinstance(key, str) or self._skip(_SPACE) != ":":
            raise self._broken_here()
        self._at += 1
        return key

    def _field_value(self, key: str) -> Any:
        try:
            return self._value()
        except (ValueError, StopIteration, RecursionError):
            raise self._broken_here(f" in field {key!r}") from None

    def _broken_here(self, where: str = "") -> Exception:
        """Cut off at the end of the file, or not JSON in the middle of it."""
        if self._ended:
            return _EndOfInput()
        near = self._text[self._at : self._at + 30]
        return TraceFormatError(f"this is not valid JSON{where}", note=f"near {near!r}")

    def _events(self) -> Iterator[dict[str, Any]]:
        """The events up to the closing bracket; the fast path is one C call an event."""
        scan, comma = self._scan, _COMMA.match
        self.found_events = True
        while True:
            try:
                while True:
                    position = comma(self._text, self._at).end()  # type: ignore[union-attr]
                    event, self._at = scan(self._text, position)
                    if isinstance(event, dict):
                        yield event
                    else:
                        self.damaged_events += 1
            except (ValueError, StopIteration, RecursionError, IndexError):
                pass
            if self._skip(_COMMA) == "]":
                self._at += 1
                return
            try:
                event = self._value()
            except (ValueError, StopIteration, RecursionError) as error:
                if self._ended and not self._hopeless(error):
                    raise _EndOfInput from None
                self._resynchronise()
                continue
            if isinstance(event, dict):
                yield event
            else:
                self.damaged_events += 1

    def _resynchronise(self) -> None:
        """Skip one damaged event: go to the next place that looks like the start of another."""
        while True:
            match = _NEXT_EVENT.search(self._text, self._at)
            if match is not None:
                self.damaged_events += 1
                self._at = match.end()
                return
            # Keep a little: the separator may straddle two chunks.
            self._at = max(self._at, len(self._text) - 16)
            if not self._more():
                self.note = self.note or "its end cannot be parsed"
                raise _EndOfInput
