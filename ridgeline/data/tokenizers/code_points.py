"""Sets of code points as sorted ranges: Unicode's categories, and what patterns make of them."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import groupby

Range = tuple[int, int]
CodePoints = tuple[Range, ...]
"""Ranges with both ends included, in order, that neither overlap nor touch."""

LAST = sys.maxunicode
# Between these Unicode has assigned nothing; categories are looked up elsewhere only.
_VACANT = (0x40000, 0xDFFFF)


def union(*sets: Iterable[Range]) -> CodePoints:
    """All that is in one of the sets."""
    joined: list[Range] = []
    for first, last in sorted(r for ranges in sets for r in ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def complement(ranges: CodePoints) -> CodePoints:
    """All code points that are not in the set."""
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), LAST]
    return tuple((a, b) for a, b in zip(starts, ends, strict=True) if a <= b)


def intersection(left: CodePoints, right: CodePoints) -> CodePoints:
    """What is in both sets."""
    return complement(union(complement(left), complement(right)))


@cache
def _categories() -> dict[str, CodePoints]:
    found: dict[str, list[Range]] = {}
    low, high = range(_VACANT[0]), range(_VACANT[1] + 1, LAST + 1)
    for span in (low, high):
        at = span.start
        for name, run in groupby(map(unicodedata.category, map(chr, span))):
            length = sum(1 for _ in run)
            found.setdefault(name, []).append((at, at + length - 1))
            at += length
    found["Cn"].append(_VACANT)
    return {name: union(ranges) for name, ranges in found.items()}


@cache
def category(prefix: str) -> CodePoints:
    """Code points of a general category: `"Lu"`, or `"L"` for all whose names begin so."""
    return union(*(ranges for name, ranges in _categories().items() if name.startswith(prefix)))


def of(*names: str) -> CodePoints:
    """Code points of one of these categories."""
    return union(*map(category, names))


WHITE_SPACE: CodePoints = union(
    ((0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    ((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)  # str.isspace has four separators of ASCII more

ASCII_PUNCTUATION: CodePoints = ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))
_CIRCLED_LETTERS: CodePoints = (
    (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189),
)  # fmt: skip


@cache
def word() -> CodePoints:
    """What a word is made of: letters, marks, digits, connectors."""
    return union(of("L", "M", "Nd", "Nl", "Pc"), _CIRCLED_LETTERS)


JOINERS: CodePoints = ((0x200C, 0x200D),)


@cache
def punctuation() -> CodePoints:
    """Unicode's punctuation and ASCII's, which has some symbols besides."""
    return union(category("P"), ASCII_PUNCTUATION)


SCRIPTS: dict[str, CodePoints] = {
    "han": union(
        ((0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005)),
        ((0x3007, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF)),
        ((0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3)),
        ((0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B738), (0x2B740, 0x2B81D)),
        ((0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0), (0x2F800, 0x2FA1D), (0x30000, 0x3134A)),
    ),
    "hiragana": union(
        ((0x3041, 0x3096), (0x309D, 0x309F), (0x1B001, 0x1B11F), (0x1B150, 0x1B152)),
        ((0x1F200, 0x1F200),),
    ),
    "katakana": union(
        ((0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0x32D0, 0x32FE)),
        ((0x3300, 0x3357), (0xFF66, 0xFF6F), (0xFF71, 0xFF9D), (0x1B000, 0x1B000)),
        ((0x1B164, 0x1B167), (0x1AFF0, 0x1AFF3), (0x1AFF5, 0x1AFFB), (0x1AFFD, 0x1AFFE)),
        ((0x1B120, 0x1B122),),
    ),
    "hangul": union(
        ((0x1100, 0x11FF), (0x302E, 0x302F), (0x3131, 0x318E), (0x3200, 0x321E)),
        ((0x3260, 0x327E), (0xA960, 0xA97C), (0xAC00, 0xD7A3), (0xD7B0, 0xD7C6)),
        ((0xD7CB, 0xD7FB), (0xFFA0, 0xFFBE), (0xFFC2, 0xFFC7), (0xFFCA, 0xFFCF)),
        ((0xFFD2, 0xFFD7), (0xFFDA, 0xFFDC)),
    ),
}
"""Scripts that pre-tokenizers of published models ask for; Python's tables have none."""


def as_class(ranges: CodePoints, negated: bool = False) -> str:
    """The set in the notation of Python's `re`, with its brackets."""
    if not ranges:
        return r"[\x00-\U0010ffff]" if negated else r"[^\x00-\U0010ffff]"
    return "[" + "^" * negated + "".join(map(_escaped_range, ranges)) + "]"


def _escaped_range(ends: Range) -> str:
    first, last = (f"\\U{point:08x}" for point in ends)
    return first if first == last else f"{first}-{last}"
