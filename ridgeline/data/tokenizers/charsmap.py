"""SentencePiece's table of characters: a double-array trie over bytes, and what becomes of them."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from ridgeline.data.tokenizers.code_points import (
    JOINERS,
    as_class,
    complement,
    intersection,
    of,
    union,
)
from ridgeline.data.tokenizers.fields import Fields
from ridgeline.errors import InputFileError

_LONGEST_LOOKED_UP = 5  # bytes of a cluster; of longer ones each character is looked up alone
_MOST_CACHED = 1 << 16
# Signs that stand before the character they belong to; all else that joins stands behind it.
_PREPENDED = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD]


@cache
def _clusters() -> re.Pattern[str]:
    """What readers take for one character, as far as that is short enough to be looked up."""
    before = union((point, point) for point in _PREPENDED)
    behind = union(of("M"), JOINERS, ((0xE33, 0xE33), (0xEB3, 0xEB3), (0x1F3FB, 0x1F3FF)))
    joining = complement(union(before, JOINERS))
    controls = intersection(of("Cc", "Cf", "Zl", "Zp"), joining)
    alone, other = as_class(controls), as_class(controls, negated=True)
    return re.compile(f"\r\n|{alone}|{as_class(before)}*{other}{as_class(behind)}*")


@dataclass(frozen=True)
class CharsMap:
    """Texts with their characters replaced as the table says."""

    units: tuple[int, ...]
    texts: bytes
    known: dict[str, str] = field(default_factory=dict, compare=False)

    @staticmethod
    def read(fields: Fields) -> CharsMap:
        """The table in the field `precompiled_charsmap`."""
        try:
            blob = base64.b64decode(fields.text("precompiled_charsmap"), validate=True)
            (size,) = struct.unpack_from("<I", blob)
            units = struct.unpack_from(f"<{size // 4}I", blob, 4)
        except (binascii.Error, struct.error, ValueError) as error:
            raise fields.fail(f"'precompiled_charsmap' is damaged: {error}") from error
        return CharsMap(units, blob[4 + size :])

    def __call__(self, text: str) -> str:
        """The text, cluster by cluster."""
        known = self.known
        parts: list[str] = []
        for cluster in _clusters().findall(text):
            if (replaced := known.get(cluster)) is None:
                replaced = self._replaced(cluster)
                if len(known) < _MOST_CACHED:
                    known[cluster] = replaced
            parts.append(replaced)
        return "".join(parts)

    def _replaced(self, cluster: str) -> str:
        short = len(cluster.encode()) <= _LONGEST_LOOKED_UP
        whole = self._found(cluster) if short else None
        return "".join(map(self._one, cluster)) if whole is None else whole

    def _one(self, character: str) -> str:
        found = self._found(character)
        return character if found is None else found

    def _found(self, text: str) -> str | None:
        """What the shortest key that the text begins with becomes."""
        start = next(self._values(text.encode()), None)
        if start is None:
            return None
        if (end := self.texts.find(b"\0", start)) < 0:
            raise InputFileError("the table of characters of the tokenizer is damaged")
        return self.texts[start:end].decode(errors="replace")

    def _values(self, key: bytes) -> Iterator[int]:
        try:
            place = _offset(self.units[0])
            for byte in key:
                if byte == 0:
                    return
                place ^= byte
                unit = self.units[place]
                if unit & 0x800000FF != byte:
                    return
                place ^= _offset(unit)
                if unit >> 8 & 1:
                    yield self.units[place] & 0x7FFFFFFF
        except IndexError as error:
            raise InputFileError("the table of characters of the tokenizer is damaged") from error


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
