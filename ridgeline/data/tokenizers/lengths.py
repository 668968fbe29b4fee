"""Lengths that a tokenizer file asks for: texts that are too long are cut, short ones padded."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.data.tokenizers.fields import MOST_TOKENS, Fields
from ridgeline.data.tokenizers.processors import Sequences
from ridgeline.errors import BadValueError

_SIDES = ("Left", "Right")


@dataclass(frozen=True)
class Truncation:
    """The most tokens there may be, and which of them go."""

    longest: int
    strategy: str
    side: str

    @staticmethod
    def read(fields: Fields) -> Truncation:
        """The field `truncation` of a file."""
        return Truncation(
            fields.whole("max_length"),
            fields.choice("strategy", ("LongestFirst", "OnlyFirst", "OnlySecond"), "LongestFirst"),
            fields.choice("direction", _SIDES, "Right"),
        )

    def __call__(self, texts: Sequences, added: int) -> Sequences:
        """The texts, cut so that they are short enough with so many tokens put in."""
        longest = max(self.longest - added, 0)
        lengths = [len(text) for text in texts]
        surplus = sum(lengths) - longest
        if surplus <= 0:
            return texts
        if self.strategy == "LongestFirst" or longest == 0:
            kept = _shared_out(lengths, longest)
        else:
            place = 0 if self.strategy == "OnlyFirst" else 1
            if place >= len(texts) or lengths[place] <= surplus:
                raise BadValueError(f"a text cannot be cut to {self.longest} tokens as asked")
            kept = [n - surplus * (i == place) for i, n in enumerate(lengths)]
        return [self._cut(text, length) for text, length in zip(texts, kept, strict=True)]

    def _cut(self, text: list[int], length: int) -> list[int]:
        return text[:length] if self.side == "Right" else text[len(text) - length :]


def _shared_out(lengths: list[int], longest: int) -> list[int]:
    """Of two texts the longer is cut first, then both by halves."""
    if len(lengths) == 1:
        return [min(lengths[0], longest)]
    short, long = sorted(lengths)
    long = short if short > longest else max(short, longest - short)
    if short + long > longest:
        short, long = longest // 2, longest // 2 + longest % 2
    return [long, short] if lengths[0] > lengths[1] else [short, long]


@dataclass(frozen=True)
class Padding:
    """How many tokens there are at least, and which one fills the rest."""

    shortest: int
    multiple: int
    side: str
    token: int

    @staticmethod
    def read(fields: Fields) -> Padding:
        """The field `padding` of a file."""
        strategy = fields.values.get("strategy")
        shortest = 0  # "BatchLongest": one text is its own batch
        if strategy != "BatchLongest":
            shortest = fields.inner("strategy").whole("Fixed")
        multiple = fields.whole("pad_to_multiple_of", 0)
        if max(shortest, multiple) > MOST_TOKENS >> 12:
            raise fields.fail("texts would be padded to more than a million tokens")
        side = fields.choice("direction", _SIDES, "Right")
        return Padding(shortest, multiple, side, fields.whole("pad_id", 0))

    def __call__(self, tokens: list[int]) -> list[int]:
        """The tokens with others beside them."""
        length = max(self.shortest, len(tokens)) if self.shortest else len(tokens)
        if self.multiple:
            wanted = self.shortest or len(tokens)
            length = max(len(tokens), -(-wanted // self.multiple) * self.multiple)
        filling = [self.token] * (length - len(tokens))
        return tokens + filling if self.side == "Right" else filling + tokens
