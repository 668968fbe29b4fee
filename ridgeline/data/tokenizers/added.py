"""Tokens beside the model's: they are found in the text before anything else happens to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ridgeline.data.tokenizers.code_points import JOINERS, WHITE_SPACE, as_class, union, word
from ridgeline.data.tokenizers.fields import Fields
from ridgeline.data.tokenizers.model import TokenModel

_SPACES = re.compile(f"{as_class(WHITE_SPACE)}*")


@dataclass(frozen=True)
class AddedToken:
    """A text that is one token wherever it stands, and what counts as standing there."""

    content: str
    single_word: bool
    strips_left: bool
    strips_right: bool
    normalized: bool
    special: bool

    @staticmethod
    def read(fields: Fields) -> AddedToken:
        """The token of an object of the file."""
        special = fields.flag("special", False)
        return AddedToken(
            fields.text("content"),
            fields.flag("single_word", False),
            fields.flag("lstrip", False),
            fields.flag("rstrip", False),
            fields.flag("normalized", not special),
            special,
        )


@dataclass(frozen=True)
class Finder:
    """Finds some of the added tokens in texts."""

    numbers: dict[str, int]
    by_number: dict[int, AddedToken]
    pattern: re.Pattern[str] | None = field(init=False)

    def __post_init__(self) -> None:
        longest_first = sorted(self.numbers, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        object.__setattr__(self, "pattern", pattern)

    def split(self, text: str) -> Iterator[tuple[int | None, int, int]]:
        """Tokens and the text between them, as a number or None, a start and a stop."""
        end = 0
        for match in self.pattern.finditer(text) if self.pattern else ():
            number = self.numbers[match[0]]
            token = self.by_number[number]
            start, stop = match.span()
            if token.single_word and not _stands_alone(text, start, stop):
                continue
            if token.strips_left:
                while start > end and _SPACES.fullmatch(text, start - 1, start):
                    start -= 1
                start = max(start, end)
            if token.strips_right and (spaces := _SPACES.match(text, stop)):
                stop = spaces.end()
            if end < start:
                yield None, end, start
            yield number, start, stop
            end = stop
        if end < len(text):
            yield None, end, len(text)


def _stands_alone(text: str, start: int, stop: int) -> bool:
    letter = re.compile(as_class(union(word(), JOINERS)))
    before = start > 0 and letter.match(text, start - 1)
    after = stop < len(text) and letter.match(text, stop)
    return not before and not after


@dataclass(frozen=True)
class AddedTokens:
    """All added tokens: those looked for in the text as given, and in the normalized text."""

    by_number: dict[int, AddedToken]
    texts: dict[int, str]
    as_given: Finder
    normalized: Finder

    @staticmethod
    def read(fields: Fields, model: TokenModel, normalize: Callable[[str], str]) -> AddedTokens:
        """The field `added_tokens`; what the model has keeps its number, the rest follow it."""
        objects = enumerate(fields.items("added_tokens") if fields.has("added_tokens") else [])
        by_number: dict[int, AddedToken] = {}
        numbers: dict[str, int] = {}
        following = model.size
        for index, value in objects:
            token = AddedToken.read(fields.at(f"added token {index}", value))
            if not token.content:
                continue
            number = numbers.get(token.content, model.vocabulary.get(token.content))
            if number is None:
                number, following = following, following + 1
            numbers[token.content] = number
            by_number[number] = token
        texts = {number: token.content for number, token in by_number.items()}
        texts |= {n: normalize(texts[n]) for n, token in by_number.items() if token.normalized}

        def finder(normalized: bool) -> Finder:
            wanted = [n for n, token in by_number.items() if token.normalized == normalized]
            return Finder({texts[n]: n for n in wanted if texts[n]}, by_number)

        return AddedTokens(by_number, texts, finder(False), finder(True))
