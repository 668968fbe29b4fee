"""Tokenizers that need no training: every byte is a token, or every character."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import BadValueError, unreadable
from ridgeline.files import write_atomic

Tokens = NDArray[np.int64]


class Tokenizer(Protocol):
    """What text sources and generation need of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Tokens are below this number."""
        ...

    def encode(self, text: str) -> Tokens:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens."""
        ...


class ByteTokenizer:
    """Every byte of the UTF-8 form is a token; any text can be encoded."""

    vocab_size = 256

    def encode(self, text: str) -> Tokens:
        """The bytes of a text."""
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some bytes; where they are no UTF-8, a replacement character stands."""
        return bytes(int(t) for t in tokens).decode(errors="replace")


class CharTokenizer:
    """Every character that occurs in a text is a token, in order of code points."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = "".join(sorted(set(characters)))
        if not self.characters:
            raise BadValueError("CharTokenizer needs a text with at least one character")
        self._points = _points(self.characters)

    @property
    def vocab_size(self) -> int:
        """How many characters there are."""
        return len(self.characters)

    def encode(self, text: str) -> Tokens:
        """The places of a text's characters in the vocabulary."""
        points = _points(text)
        indices = np.minimum(np.searchsorted(self._points, points), len(self._points) - 1)
        unknown = self._points[indices] != points
        if unknown.any():
            raise BadValueError(
                f"the character {text[int(np.argmax(unknown))]!r} is not in the vocabulary",
                help="make the tokenizer from text that has it, or use ByteTokenizer",
            )
        return indices.astype(np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """The characters at some places."""
        return "".join(self.characters[int(t)] for t in tokens)

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as JSON."""
        write_atomic(Path(path), json.dumps({"characters": self.characters}).encode())

    @classmethod
    def load(cls, path: str | Path) -> CharTokenizer:
        """Read a vocabulary that `save` wrote."""
        try:
            return cls(json.loads(Path(path).read_text(encoding="utf-8"))["characters"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise unreadable(f"the vocabulary {path}", error) from error


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
