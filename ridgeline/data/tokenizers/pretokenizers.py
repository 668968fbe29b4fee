"""Pre-tokenizers: how a text is cut into the words that a model sees one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from ridgeline.data.tokenizers.byte_letters import letters_of
from ridgeline.data.tokenizers.code_points import (
    JOINERS,
    WHITE_SPACE,
    as_class,
    category,
    complement,
    intersection,
    punctuation,
    union,
    word,
)
from ridgeline.data.tokenizers.fields import Fields, make
from ridgeline.data.tokenizers.patterns import compiled
from ridgeline.data.tokenizers.splitting import BEHAVIORS, Cuts, Splitter, pattern_of

PreTokenizer: TypeAlias = Callable[[str, bool], Cuts]
"""From a text, and whether the user's text begins with it, to words."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def pre_tokenizer(fields: Fields) -> PreTokenizer:
    """The pre-tokenizer that an object of the file describes."""
    return make(_TABLE, fields, "pre-tokenizer")


@dataclass(frozen=True)
class CutsInOrder:
    """Pre-tokenizers one after the other, each on the words of the one before."""

    parts: tuple[PreTokenizer, ...]

    def __call__(self, text: str, at_start: bool) -> Cuts:
        """The words that the last one leaves."""
        pieces = Cuts([text], at_start)
        for part in self.parts:
            pieces = _on_each(part, pieces)
        return pieces


def _on_each(part: PreTokenizer, pieces: Cuts) -> Cuts:
    first = part(pieces.texts[0], pieces.at_start) if pieces.texts else Cuts([], False)
    words = list(first.texts)
    known: dict[str, list[str]] = {}  # words come again and again
    for text in pieces.texts[1:]:
        cut = known.get(text)
        if cut is None:
            cut = known[text] = part(text, False).texts
        words += cut
    return Cuts(words, first.at_start)


@dataclass(frozen=True)
class ByteLevel:
    """Words of bytes, each byte a printable letter."""

    prefix_space: bool
    splitter: Splitter | None

    def __call__(self, text: str, at_start: bool) -> Cuts:
        """The words, written in the letters of bytes."""
        if self.prefix_space and not text.startswith(" "):
            text = " " + text
        pieces = self.splitter(text, at_start) if self.splitter else Cuts([text], at_start)
        return Cuts([letters_of(piece) for piece in pieces.texts], pieces.at_start)


@dataclass(frozen=True)
class Metaspace:
    """Spaces become a visible character, with which words begin."""

    replacement: str
    scheme: str
    splitter: Splitter | None

    def __call__(self, text: str, at_start: bool) -> Cuts:
        """The words, each but perhaps the first with the character in front."""
        text = text.replace(" ", self.replacement)
        wanted = self.scheme == "always" or (self.scheme == "first" and at_start)
        if wanted and not text.startswith(self.replacement):
            text = self.replacement + text
        return self.splitter(text, at_start) if self.splitter else Cuts([text], at_start)


@dataclass(frozen=True)
class FixedLength:
    """Words of so many characters, whatever they are."""

    length: int

    def __call__(self, text: str, at_start: bool) -> Cuts:
        """The words; the last may be shorter."""
        cuts = range(0, len(text), self.length)
        return Cuts([text[at : at + self.length] for at in cuts], at_start)


def _splits_at(ranges: Iterable[tuple[int, int]], behavior: str) -> Splitter:
    return Splitter(re.compile(as_class(tuple(ranges))), behavior)


@cache
def _whitespace() -> Splitter:
    letters = union(word(), JOINERS)
    rest = intersection(complement(letters), complement(WHITE_SPACE))
    return Splitter(re.compile(f"{as_class(letters)}+|{as_class(rest)}+"), "Removed", inverted=True)


def _byte_level(fields: Fields) -> PreTokenizer:
    splitter = Splitter(compiled(_GPT2)) if fields.flag("use_regex", True) else None
    return ByteLevel(fields.flag("add_prefix_space", True), splitter)


def _metaspace(fields: Fields) -> PreTokenizer:
    replacement = fields.character("replacement")
    # Files from before there were schemes have a flag, for all words or none.
    older = "always" if fields.flag("add_prefix_space", True) else "never"
    scheme = fields.choice("prepend_scheme", ("first", "never", "always"), older)
    splitter = Splitter(re.compile(re.escape(replacement)), "MergedWithNext")
    return Metaspace(replacement, scheme, splitter if fields.flag("split", True) else None)


def _split(fields: Fields) -> PreTokenizer:
    behavior = fields.choice("behavior", BEHAVIORS)
    return Splitter(pattern_of(fields), behavior, fields.flag("invert", False))


def _fixed_length(fields: Fields) -> PreTokenizer:
    if not (length := fields.whole("length", 5)):
        raise fields.fail("'length' is 0")
    return FixedLength(length)


def _sequence(fields: Fields) -> PreTokenizer:
    parts = enumerate(fields.items("pretokenizers"))
    return CutsInOrder(tuple(pre_tokenizer(fields.at(f"part {i}", part)) for i, part in parts))


def _bert(fields: Fields) -> PreTokenizer:
    words = _splits_at(WHITE_SPACE, "Removed")
    return CutsInOrder((words, _splits_at(punctuation(), "Isolated")))


def _digits(fields: Fields) -> PreTokenizer:
    alone = fields.flag("individual_digits", False)
    return _splits_at(category("N"), "Isolated" if alone else "Contiguous")


def _delimiter(fields: Fields) -> PreTokenizer:
    return Splitter(re.compile(re.escape(fields.character("delimiter"))), "Removed")


_TABLE: dict[str, Callable[[Fields], PreTokenizer]] = {
    "BertPreTokenizer": _bert,
    "ByteLevel": _byte_level,
    "CharDelimiterSplit": _delimiter,
    "Digits": _digits,
    "FixedLength": _fixed_length,
    "Metaspace": _metaspace,
    "Punctuation": lambda fields: _splits_at(
        punctuation(), fields.choice("behavior", BEHAVIORS, "Isolated")
    ),
    "Sequence": _sequence,
    "Split": _split,
    "Whitespace": lambda fields: _whitespace(),
    "WhitespaceSplit": lambda fields: _splits_at(WHITE_SPACE, "Removed"),
}
