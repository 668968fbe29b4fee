"""Post-processors: tokens around a text, or around and between two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ridgeline.data.tokenizers.fields import MOST_TOKENS, Fields, make

Sequences: TypeAlias = list[list[int]]
"""The tokens of one text, or of two."""
Pieces: TypeAlias = tuple[int | list[int], ...]
"""Tokens that are put in, and 0 or 1 where a text stands."""


@dataclass(frozen=True)
class TokenTemplate:
    """What one text becomes, and what two become."""

    single: Pieces
    pair: Pieces

    def __call__(self, texts: Sequences, special: bool) -> Sequences:
        """Texts and tokens in the template's order; without tokens unless they are asked for."""
        pieces = self.pair if len(texts) == 2 else self.single
        found = [piece if isinstance(piece, list) else texts[piece] for piece in pieces]
        return [f for f, p in zip(found, pieces, strict=True) if special or not isinstance(p, list)]

    def added(self, texts: int) -> int:
        """How many tokens are put in."""
        pieces = self.pair if texts == 2 else self.single
        return sum(len(piece) for piece in pieces if isinstance(piece, list))


PLAIN = TokenTemplate((0,), (0, 1))


def post_processor(fields: Fields) -> TokenTemplate:
    """The post-processor that an object of the file describes."""
    return make(_TABLE, fields, "post-processor")


def _around(fields: Fields, between: int) -> TokenTemplate:
    first, last = (_numbered(fields, name) for name in ("cls", "sep"))
    return TokenTemplate((first, 0, last), (first, 0, last, *([last] * between), 1, last))


def _numbered(fields: Fields, name: str) -> list[int]:
    match fields.items(name):
        case [str(), int(number)] if 0 <= number < MOST_TOKENS:
            return [number]
    raise fields.fail(f"{name!r} is no token with its number")


def _template(fields: Fields) -> TokenTemplate:
    tokens = fields.inner("special_tokens")
    return TokenTemplate(_pieces(fields, "single", tokens, 1), _pieces(fields, "pair", tokens, 2))


def _pieces(fields: Fields, name: str, tokens: Fields, texts: int) -> Pieces:
    found: list[int | list[int]] = []
    for index, piece in enumerate(fields.items(name)):
        inner = fields.at(f"{name} {index}", piece)
        if inner.has("Sequence"):
            found.append(_text_of(inner.inner("Sequence"), texts))
        else:
            token = inner.inner("SpecialToken").text("id")
            found.append(_ids(tokens.inner(token)))
    return tuple(found)


def _text_of(fields: Fields, texts: int) -> int:
    place = ("A", "B").index(fields.choice("id", ("A", "B")))
    if place >= texts:
        raise fields.fail("the second text is used where there is one")
    return place


def _ids(fields: Fields) -> list[int]:
    ids: list[Any] = fields.items("ids")
    if not all(type(number) is int and 0 <= number < MOST_TOKENS for number in ids):
        raise fields.fail("'ids' are no numbers of tokens")
    return ids


def _sequence(fields: Fields) -> TokenTemplate:
    parts = enumerate(fields.items("processors"))
    found = [post_processor(fields.at(f"part {i}", part)) for i, part in parts]
    templates = [template for template in found if template is not PLAIN]
    if len(templates) > 1:
        raise fields.fail("several post-processors that put tokens in are not supported")
    return templates[0] if templates else PLAIN


_TABLE: dict[str, Callable[[Fields], TokenTemplate]] = {
    "BertProcessing": lambda fields: _around(fields, 0),
    "ByteLevel": lambda fields: PLAIN,  # it moves offsets, which nobody asks for here
    "RobertaProcessing": lambda fields: _around(fields, 1),
    "Sequence": _sequence,
    "TemplateProcessing": _template,
}
