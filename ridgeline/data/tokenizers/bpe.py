"""Byte-pair encoding: of all neighbours in a word, those merged first in training merge first."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from itertools import pairwise

from ridgeline.data.tokenizers.fields import Fields
from ridgeline.data.tokenizers.model import TokenModel

Pair = tuple[int, int]
_WORD_MARK = "▁"
_NONE = (0, -1)


@dataclass(frozen=True)
class Spelling:
    """How words are spelled in tokens before the first merge."""

    unknown: str | None
    continuing_prefix: str
    word_suffix: str
    fuse_unknown: bool
    byte_fallback: bool
    whole_words: bool


class BytePairs(TokenModel):
    """A vocabulary and merges in their order."""

    def __init__(
        self, vocabulary: dict[str, int], merges: dict[Pair, tuple[int, int]], spelling: Spelling
    ) -> None:
        super().__init__(vocabulary)
        self._merges = merges
        self._spelling = spelling
        codes = [vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._bytes = codes if spelling.byte_fallback else [None] * 256
        self._words = self._independent_words()

    @staticmethod
    def read(fields: Fields) -> BytePairs:
        """The model of an object of the file."""
        vocabulary = fields.vocabulary("vocab")
        prefix = fields.optional_text("continuing_subword_prefix") or ""
        spelling = Spelling(
            fields.optional_text("unk_token"),
            prefix,
            fields.optional_text("end_of_word_suffix") or "",
            fields.flag("fuse_unk", False),
            fields.flag("byte_fallback", False),
            fields.flag("ignore_merges", False),
        )
        return BytePairs(vocabulary, _merges(fields, vocabulary, len(prefix)), spelling)

    def cut(self, word: str) -> list[int]:
        """The tokens of one word."""
        if self._spelling.whole_words and word in self.vocabulary:
            return [self.vocabulary[word]]
        if self._words is not None and len(parts := self._words.findall(word)) > 1:
            return self.encode(parts)
        return self._merged(self._spelled(word))

    def _independent_words(self) -> re.Pattern[str] | None:
        """Parts of a text that merges never join, where the vocabulary tells.

        Models with no pre-tokenizer take whole texts as one word. Where no token has the mark of
        a word's start behind another character, nothing merges across such a place.
        """
        spelling = self._spelling
        spelled_alike = not (spelling.continuing_prefix or spelling.word_suffix)
        if _WORD_MARK not in self.vocabulary or not spelled_alike or spelling.whole_words:
            return None
        inside = re.compile(f"[^{_WORD_MARK}]{_WORD_MARK}")
        merged = {new for _, new in self._merges.values()}
        if any(inside.search(self.tokens[number]) for number in merged):
            return None
        return re.compile(f"{_WORD_MARK}+[^{_WORD_MARK}]*|[^{_WORD_MARK}]+")

    def _spelled(self, word: str) -> list[int]:
        spelling, last = self._spelling, len(word) - 1
        symbols: list[int] = []
        after_unknown = False
        for index, character in enumerate(word):
            text = spelling.continuing_prefix * (index > 0) + character
            text += spelling.word_suffix * (index == last)
            number = self.vocabulary.get(text)
            if number is not None:
                symbols.append(number)
                after_unknown = False
                continue
            coded = [self._bytes[byte] for byte in text.encode()]
            if None not in coded:
                symbols += [code for code in coded if code is not None]
            elif spelling.unknown is not None and not (after_unknown and spelling.fuse_unknown):
                symbols.append(self.unknown(spelling.unknown, text))
                after_unknown = True
        return symbols

    def _merged(self, symbols: list[int]) -> list[int]:
        merges = self._merges
        count = len(symbols)
        following = [*range(1, count), -1]
        previous = list(range(-1, count - 1))
        gone = [False] * count
        pairs = enumerate(pairwise(symbols))
        known = [(at, merges[pair]) for at, pair in pairs if pair in merges]
        waiting = [(rank, at, new) for at, (rank, new) in known]
        heapq.heapify(waiting)
        while waiting:
            _, at, new = heapq.heappop(waiting)
            right = following[at]
            # Neighbours may have merged since the pair was noted.
            if gone[at] or right < 0 or merges.get((symbols[at], symbols[right]), _NONE)[1] != new:
                continue
            symbols[at] = new
            gone[right] = True
            following[at] = beyond = following[right]
            if beyond >= 0:
                previous[beyond] = at
            for left_end in (previous[at], at):
                right_end = following[left_end] if left_end >= 0 else -1
                if right_end >= 0:
                    pair = (symbols[left_end], symbols[right_end])
                    if pair in merges:
                        rank, made = merges[pair]
                        heapq.heappush(waiting, (rank, left_end, made))
        return [symbol for symbol, removed in zip(symbols, gone, strict=True) if not removed]


def _merges(
    fields: Fields, vocabulary: dict[str, int], prefix_length: int
) -> dict[Pair, tuple[int, int]]:
    """For a pair of tokens, the place of its merge in the list and the token it becomes."""
    found: dict[Pair, tuple[int, int]] = {}
    entries = fields.items("merges")
    if entries and isinstance(entries[0], str):  # the older form
        entries = [str(e).split(" ") for e in entries if not str(e).startswith("#version")]
    for rank, entry in enumerate(entries):
        if not isinstance(entry, list) or len(entry) != 2:
            raise fields.fail(f"merge {rank} is no pair of tokens: {entry!r:.40}")
        left, right = map(str, entry)
        numbers = [vocabulary.get(t) for t in (left, right, left + right[prefix_length:])]
        if None in numbers:
            raise fields.fail(f"merge {rank}, {left!r:.40} and {right!r:.40}, is not in 'vocab'")
        first, second, made = (number for number in numbers if number is not None)
        found[first, second] = (rank, made)
    return found
