"""Normalizers: how a text is changed before it is cut into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ridgeline.data.tokenizers.byte_letters import letters_of
from ridgeline.data.tokenizers.charsmap import CharsMap
from ridgeline.data.tokenizers.code_points import WHITE_SPACE, as_class, category, of, union
from ridgeline.data.tokenizers.fields import Fields, make
from ridgeline.data.tokenizers.splitting import pattern_of, spans


class TextAtStart(NamedTuple):
    """A text, and whether its first character comes from the first that the user gave."""

    text: str
    at_start: bool


Normalizer: TypeAlias = Callable[[TextAtStart], TextAtStart]


def normalizer(fields: Fields) -> Normalizer:
    """The normalizer that an object of the file describes."""
    return make(_TABLE, fields, "normalizer")


@dataclass(frozen=True)
class OfCharacters:
    """A function of texts that removes nothing at their start."""

    function: Callable[[str], str]

    def __call__(self, given: TextAtStart) -> TextAtStart:
        """The changed text."""
        return TextAtStart(self.function(given.text), given.at_start)


@dataclass(frozen=True)
class Removed:
    """Whatever a pattern matches goes."""

    pattern: re.Pattern[str]

    def __call__(self, given: TextAtStart) -> TextAtStart:
        """What is left."""
        kept = self.pattern.match(given.text) is None
        return TextAtStart(self.pattern.sub("", given.text), given.at_start and kept)


@dataclass(frozen=True)
class Replaced:
    """Whatever a pattern matches becomes one text."""

    pattern: re.Pattern[str]
    content: str

    def __call__(self, given: TextAtStart) -> TextAtStart:
        """The text with replacements."""
        found = spans(self.pattern, given.text)
        parts = [self.content if s.matched else given.text[s.start : s.stop] for s in found]
        # A replacement counts as made of the last character that it replaces.
        first = found[0] if found else None
        kept = first is None or not first.matched or (first.stop <= 1 and bool(self.content))
        return TextAtStart("".join(parts), given.at_start and kept)


@dataclass(frozen=True)
class NormalizersInOrder:
    """Normalizers one after the other."""

    parts: tuple[Normalizer, ...]

    def __call__(self, given: TextAtStart) -> TextAtStart:
        """What the last one leaves."""
        for part in self.parts:
            given = part(given)
        return given


def lowered(text: str) -> str:
    """Small letters, each for itself: at the end of a word str.lower writes another sigma."""
    return text.replace("Σ", "σ").lower()


def _form(name: str) -> Callable[[Fields], Normalizer]:
    return lambda fields: OfCharacters(lambda text: unicodedata.normalize(name, text))  # type: ignore[arg-type]


def _prepend(fields: Fields) -> Normalizer:
    prefix = fields.text("prepend")
    return OfCharacters(lambda text: text and prefix + text)


def _strip(fields: Fields) -> Normalizer:
    left, right = fields.flag("strip_left", True), fields.flag("strip_right", True)
    space = as_class(WHITE_SPACE)
    parts = [rf"\A{space}+"] * left + [rf"{space}+\Z"] * right
    return Removed(re.compile("|".join(parts))) if parts else NormalizersInOrder(())


# What BERT takes for Chinese; Japanese and Korean letters are not among them.
_CHINESE = re.compile(
    "([\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f])"
)


def _cleaning() -> tuple[Normalizer, ...]:
    controls = re.compile(r"(?![\t\n\r])" + as_class(union(of("Cc", "Cf", "Co"), ((0xFFFD,) * 2,))))
    spaces = re.compile(as_class(WHITE_SPACE))
    return Removed(controls), OfCharacters(lambda text: spaces.sub(" ", text))


def _bert(fields: Fields) -> Normalizer:
    small = fields.flag("lowercase", True)
    parts: list[Normalizer] = []
    if fields.flag("clean_text", True):
        parts += _cleaning()
    if fields.flag("handle_chinese_chars", True):
        parts.append(OfCharacters(lambda text: _CHINESE.sub(r" \1 ", text)))
    if fields.flag("strip_accents", small):
        decomposed = OfCharacters(lambda text: unicodedata.normalize("NFD", text))
        parts += [decomposed, Removed(re.compile(as_class(category("Mn"))))]
    if small:
        parts.append(OfCharacters(lowered))
    return NormalizersInOrder(tuple(parts))


def _precompiled(fields: Fields) -> Normalizer:
    return OfCharacters(CharsMap.read(fields))


def _sequence(fields: Fields) -> Normalizer:
    parts = enumerate(fields.items("normalizers"))
    return NormalizersInOrder(tuple(normalizer(fields.at(f"part {i}", part)) for i, part in parts))


_TABLE: dict[str, Callable[[Fields], Normalizer]] = {
    "BertNormalizer": _bert,
    "ByteLevel": lambda fields: OfCharacters(letters_of),
    "Lowercase": lambda fields: OfCharacters(lowered),
    "NFC": _form("NFC"),
    "NFD": _form("NFD"),
    "NFKC": _form("NFKC"),
    "NFKD": _form("NFKD"),
    "Precompiled": _precompiled,
    "Prepend": _prepend,
    "Replace": lambda fields: Replaced(pattern_of(fields), fields.text("content")),
    "Sequence": _sequence,
    "Strip": _strip,
    "StripAccents": lambda fields: Removed(re.compile(as_class(category("M")))),
}
