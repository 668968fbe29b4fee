"""Decoders: how the texts of tokens become one text again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import TypeAlias

from ridgeline.data.tokenizers.byte_letters import bytes_of
from ridgeline.data.tokenizers.fields import Fields, make
from ridgeline.data.tokenizers.splitting import pattern_of, spans

Decoder: TypeAlias = Callable[[list[str]], list[str]]
"""Texts of tokens to texts that are joined in the end, or decoded further."""


def decoder(fields: Fields) -> Decoder:
    """The decoder that an object of the file describes."""
    return make(_TABLE, fields, "decoder")


def _byte_level(fields: Fields) -> Decoder:
    return lambda tokens: [b"".join(map(cache(bytes_of), tokens)).decode(errors="replace")]


def _byte_of(token: str) -> int | None:
    """The byte that a token such as `<0x0A>` stands for."""
    digits = token[3:5]
    if len(token.encode()) != 6 or not (token.startswith("<0x") and token.endswith(">")):
        return None
    return int(digits, 16) if all(c in "0123456789abcdefABCDEF" for c in digits) else None


def _bytes_joined(tokens: list[str]) -> list[str]:
    found: list[str] = []
    byte_of = cache(_byte_of)
    for of_bytes, run in groupby(tokens, lambda token: byte_of(token) is not None):
        if not of_bytes:
            found += run
            continue
        coded = bytes(byte for token in run if (byte := byte_of(token)) is not None)
        try:
            found.append(coded.decode())
        except UnicodeDecodeError:
            found += ["�"] * len(coded)
    return found


def _metaspace(fields: Fields) -> Decoder:
    mark = fields.character("replacement")
    older = "always" if fields.flag("add_prefix_space", True) else "never"
    scheme = fields.choice("prepend_scheme", ("first", "never", "always"), older)
    at_first = " " if scheme == "never" else ""

    def decode(tokens: list[str]) -> list[str]:
        return [t.replace(mark, " " if index else at_first) for index, t in enumerate(tokens)]

    return decode


# Spaces that nobody writes before these, and a shortened form that is taken back.
_TIDIED = [
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
    (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
]  # fmt: skip


def _tidied(text: str) -> str:
    for dirty, clean in _TIDIED:
        text = text.replace(dirty, clean)
    return text


def _word_piece(fields: Fields) -> Decoder:
    prefix, tidy = fields.text("prefix", "##"), fields.flag("cleanup", True)

    def decode(tokens: list[str]) -> list[str]:
        texts = tokens[:1]
        for token in tokens[1:]:
            texts.append(token.removeprefix(prefix) if token.startswith(prefix) else " " + token)
        return [_tidied(text) for text in texts] if tidy else texts

    return decode


def _bpe(fields: Fields) -> Decoder:
    suffix = fields.text("suffix", "</w>")

    def decode(tokens: list[str]) -> list[str]:
        last = len(tokens) - 1
        return [t.replace(suffix, "" if i == last else " ") for i, t in enumerate(tokens)]

    return decode


def _strip(fields: Fields) -> Decoder:
    character = fields.character("content")
    start, stop = fields.whole("start"), fields.whole("stop")

    def decode(tokens: list[str]) -> list[str]:
        found = []
        for token in tokens:
            left = min(len(token) - len(token.lstrip(character)), start)
            right = min(len(token) - len(token.rstrip(character)), stop)
            found.append(token[left : max(len(token) - right, left)])
        return found

    return decode


def _ctc(fields: Fields) -> Decoder:
    pad, delimiter = fields.text("pad_token", "<pad>"), fields.text("word_delimiter_token", "|")
    tidy = fields.flag("cleanup", True)

    def decode(tokens: list[str]) -> list[str]:
        texts = [token.replace(pad, "") for token, _ in groupby(tokens)]
        if tidy:
            texts = [_tidied(text).replace(delimiter, " ") for text in texts]
        return [text for text in texts if text]

    return decode


def _replace(fields: Fields) -> Decoder:
    pattern, content = pattern_of(fields), fields.text("content")

    def replaced(token: str) -> str:
        found = spans(pattern, token)
        return "".join(content if s.matched else token[s.start : s.stop] for s in found)

    return lambda tokens: list(map(cache(replaced), tokens))


def _sequence(fields: Fields) -> Decoder:
    objects = enumerate(fields.items("decoders"))
    parts = [decoder(fields.at(f"part {i}", part)) for i, part in objects]

    def decode(tokens: list[str]) -> list[str]:
        for part in parts:
            tokens = part(tokens)
        return tokens

    return decode


_TABLE: dict[str, Callable[[Fields], Decoder]] = {
    "BPEDecoder": _bpe,
    "ByteFallback": lambda fields: _bytes_joined,
    "ByteLevel": _byte_level,
    "CTC": _ctc,
    "Fuse": lambda fields: lambda tokens: ["".join(tokens)],
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Sequence": _sequence,
    "Strip": _strip,
    "WordPiece": _word_piece,
}
