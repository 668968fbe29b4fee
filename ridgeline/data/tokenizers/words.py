"""Models without training behind them: the longest tokens from the left, or whole words."""

from __future__ import annotations

from ridgeline.data.tokenizers.fields import Fields
from ridgeline.data.tokenizers.model import TokenModel


class WordPiece(TokenModel):
    """A word is cut into the longest tokens there are, from left to right."""

    def __init__(self, vocabulary: dict[str, int], unknown: str, prefix: str, longest: int) -> None:
        super().__init__(vocabulary)
        self._unknown, self._prefix, self._longest = unknown, prefix, longest
        self._reach = max(map(len, vocabulary), default=0)

    @staticmethod
    def read(fields: Fields) -> WordPiece:
        """The model of an object of the file."""
        return WordPiece(
            fields.vocabulary("vocab"),
            fields.text("unk_token", "[UNK]"),
            fields.text("continuing_subword_prefix", "##"),
            fields.whole("max_input_chars_per_word", 100),
        )

    def cut(self, word: str) -> list[int]:
        """The tokens of one word; one that cannot be cut to its end is unknown as a whole."""
        if len(word) > self._longest:
            return [self.unknown(self._unknown, word)]
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = self._prefix if start else ""
            for end in range(min(len(word), start + self._reach), start, -1):
                number = self.vocabulary.get(prefix + word[start:end])
                if number is not None:
                    break
            else:
                return [self.unknown(self._unknown, word)]
            found.append(number)
            start = end
        return found


class WordLevel(TokenModel):
    """Every word is a token."""

    def __init__(self, vocabulary: dict[str, int], unknown: str) -> None:
        super().__init__(vocabulary)
        self._unknown = unknown

    @staticmethod
    def read(fields: Fields) -> WordLevel:
        """The model of an object of the file."""
        return WordLevel(fields.vocabulary("vocab"), fields.text("unk_token", "<unk>"))

    def cut(self, word: str) -> list[int]:
        """The one token of a word."""
        number = self.vocabulary.get(word)
        return [self.unknown(self._unknown, word) if number is None else number]
