"""A place in the text of a pattern that moves on as the pattern is read."""

from __future__ import annotations

import re
from dataclasses import dataclass


class PatternError(ValueError):
    """What a pattern has that is wrong or not supported."""


@dataclass
class Reader:
    """A text and how far it was read."""

    text: str
    at: int = 0

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.text)

    def peek(self, ahead: int = 0) -> str:
        """A character further on; an error where the text has ended."""
        if self.at + ahead >= len(self.text):
            raise PatternError("the pattern ends too early")
        return self.text[self.at + ahead]

    def next(self) -> str:
        """The next character, which counts as read."""
        character = self.peek()
        self.at += 1
        return character

    def skip(self, count: int) -> None:
        """Go on by some characters."""
        self.at += count

    def sees(self, start: str) -> bool:
        """Whether the rest begins so."""
        return self.text.startswith(start, self.at)

    def takes(self, start: str) -> bool:
        """Whether the rest begins so; then that counts as read."""
        found = self.sees(start)
        self.at += len(start) * found
        return found

    def matches(self, pattern: str) -> re.Match[str] | None:
        """What a pattern finds right here, which counts as read."""
        found = re.compile(pattern).match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def rest(self, most: int) -> str:
        """What comes next, for messages."""
        return self.text[self.at : self.at + most]
