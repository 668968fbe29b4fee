"""What a model is: words in, tokens out, with the vocabulary behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ridgeline.errors import BadValueError

_MOST_CACHED = 1 << 17
_LONGEST_CACHED = 256


class TokenModel(ABC):
    """Cuts words into tokens; words that come again are looked up."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self.tokens = {number: token for token, number in vocabulary.items()}
        self._known: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """How many tokens there are; added ones are numbered from here on."""
        return len(self.vocabulary)

    @abstractmethod
    def cut(self, word: str) -> list[int]:
        """The tokens of one word that is not empty."""

    def encode(self, words: list[str]) -> list[int]:
        """The tokens of words, one after the other."""
        known = self._known
        found: list[int] = []
        for word in words:
            numbers = known.get(word)
            if numbers is None:
                numbers = self.cut(word) if word else []
                if len(known) < _MOST_CACHED and len(word) <= _LONGEST_CACHED:
                    known[word] = numbers
            found += numbers
        return found

    def unknown(self, token: str | None, word: str) -> int:
        """The number of the token that stands for what the vocabulary lacks."""
        if token is None or token not in self.vocabulary:
            raise BadValueError(
                f"the vocabulary has neither {word!r:.40} nor a token for what is unknown"
            )
        return self.vocabulary[token]
