"""Unigram models: of all ways to cut a word into tokens, the most probable one."""

from __future__ import annotations

import math
from typing import Any

from ridgeline.data.tokenizers.fields import Fields
from ridgeline.data.tokenizers.model import TokenModel

_UNKNOWN_PENALTY = 10.0
_END = ""  # in a node of the trie, the token that ends there


class Unigram(TokenModel):
    """Tokens with the logarithms of their probabilities."""

    def __init__(self, scores: list[tuple[str, float]], unknown: int | None, bytes_: bool) -> None:
        super().__init__({token: number for number, (token, _) in enumerate(scores)})
        self.tokens = {number: token for number, (token, _) in enumerate(scores)}
        self._scores = [score for _, score in scores]
        self._unknown = unknown
        self._byte_fallback = bytes_
        self._unknown_score = min(self._scores, default=0.0) - _UNKNOWN_PENALTY
        self._trie = _trie(self.vocabulary)

    @staticmethod
    def read(fields: Fields) -> Unigram:
        """The model of an object of the file."""
        scores = [_scored(fields, entry) for entry in fields.items("vocab")]
        unknown = fields.whole("unk_id") if fields.has("unk_id") else None
        if unknown is not None and unknown >= len(scores):
            raise fields.fail(f"'unk_id' is {unknown}, and there are {len(scores)} tokens")
        return Unigram(scores, unknown, fields.flag("byte_fallback", False))

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self._scores)

    def cut(self, word: str) -> list[int]:
        """The tokens of one word."""
        found: list[int] = []
        for part in self._parts(word):
            if part in self.vocabulary:
                found.append(self.vocabulary[part])
                continue
            codes = [self.vocabulary.get(f"<0x{byte:02X}>") for byte in part.encode()]
            if self._byte_fallback and None not in codes:
                found += [code for code in codes if code is not None]
            else:
                found.append(self._unknown_number(part))
        return found

    def _unknown_number(self, part: str) -> int:
        return self.unknown(None, part) if self._unknown is None else self._unknown

    def _parts(self, word: str) -> list[str]:
        """The best cut; unknown characters in a row are one part."""
        starts, numbers = self._best_ways(word)
        parts: list[str] = []
        after_unknown = False
        end = len(word)
        while end > 0:
            start, unknown = starts[end], numbers[end] == self._unknown
            if unknown and after_unknown:
                parts[-1] = word[start:end] + parts[-1]
            else:
                parts.append(word[start:end])
            after_unknown = unknown
            end = start
        return parts[::-1]

    def _best_ways(self, word: str) -> tuple[list[int], list[int]]:
        """For each place, where the last token of the best way there starts, and which it is."""
        length = len(word)
        best, starts, numbers = [0.0] * (length + 1), [-1] * (length + 1), [-1] * (length + 1)
        scores = self._scores
        for start in range(length):
            here, node, alone = best[start], self._trie, False
            for end in range(start, length):
                if word[end] not in node:
                    break
                node = node[word[end]]
                number = node.get(_END)
                if number is None:
                    continue
                alone = alone or end == start
                score = here + scores[number]
                if starts[end + 1] < 0 or score > best[end + 1]:
                    best[end + 1], starts[end + 1], numbers[end + 1] = score, start, number
            if not alone:
                score, after = here + self._unknown_score, start + 1
                if starts[after] < 0 or score > best[after]:
                    number = self._unknown_number(word[start])
                    best[after], starts[after], numbers[after] = score, start, number
        return starts, numbers


def _scored(fields: Fields, entry: Any) -> tuple[str, float]:
    match entry:
        case [str(token), float() | int() as score] if math.isfinite(score):
            return token, float(score)
    raise fields.fail(f"{entry!r:.40} in 'vocab' is no token with its score")


def _trie(vocabulary: dict[str, int]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for token, number in vocabulary.items():
        node = root
        for character in token:
            node = node.setdefault(character, {})
        if node is not root:
            node[_END] = number
    return root
