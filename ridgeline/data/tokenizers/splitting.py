"""Cutting a text where a pattern matches, in the five ways that tokenizer files know."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ridgeline.data.tokenizers.fields import Fields
from ridgeline.data.tokenizers.patterns import compiled
from ridgeline.data.tokenizers.reader import PatternError

BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


class Cuts(NamedTuple):
    """Parts of a text in order; of the first, whether the user's text begins with it."""

    texts: list[str]
    at_start: bool


class Span(NamedTuple):
    """A part of a text, and whether the pattern matched it."""

    start: int
    stop: int
    matched: bool


def pattern_of(fields: Fields) -> re.Pattern[str]:
    """The field `pattern`: a text as it stands, or a regular expression."""
    inner = fields.inner("pattern")
    if inner.has("String"):
        return re.compile(re.escape(inner.text("String")))
    text = inner.text("Regex")
    try:
        return compiled(text)
    except (PatternError, RecursionError) as error:
        raise fields.fail(f"the pattern {text!r:.80}: {error}") from error


def spans(pattern: re.Pattern[str], text: str) -> list[Span]:
    """What the pattern matches and what is between, from the start of the text to its end."""
    found: list[Span] = []
    end = 0
    for match in pattern.finditer(text) if text else ():
        start, stop = match.span()
        if start == stop == end and found:
            continue  # nothing, right behind a match
        if start > end:
            found.append(Span(end, start, False))
        found.append(Span(start, stop, True))
        end = stop
    if end < len(text):
        found.append(Span(end, len(text), False))
    return found


def _merged_with_previous(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    after_match = False
    for span in found:
        if span.matched and not after_match and merged:
            merged[-1] = Span(merged[-1].start, span.stop, False)
        else:
            merged.append(Span(span.start, span.stop, False))
        after_match = span.matched
    return merged


def _merged_with_next(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    before_match = False
    for span in reversed(found):
        if span.matched and not before_match and merged:
            merged[-1] = Span(span.start, merged[-1].stop, False)
        else:
            merged.append(Span(span.start, span.stop, False))
        before_match = span.matched
    return merged[::-1]


def _contiguous(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    after_match = False
    for span in found:
        if span.matched == after_match and merged:
            merged[-1] = Span(merged[-1].start, span.stop, False)
        else:
            merged.append(Span(span.start, span.stop, False))
        after_match = span.matched
    return merged


_MERGES: dict[str, Callable[[list[Span]], list[Span]]] = {
    "MergedWithPrevious": _merged_with_previous,
    "MergedWithNext": _merged_with_next,
    "Contiguous": _contiguous,
}


@dataclass(frozen=True)
class Splitter:
    """Cuts texts at the matches of a pattern."""

    pattern: re.Pattern[str]
    behavior: str = "Isolated"
    inverted: bool = False

    def __call__(self, text: str, at_start: bool) -> Cuts:
        """The parts of a text that are kept; none of them is empty."""
        found = spans(self.pattern, text)
        if self.inverted:
            found = [Span(span.start, span.stop, not span.matched) for span in found]
        if self.behavior == "Removed":
            found = [span for span in found if not span.matched]
        elif self.behavior != "Isolated":
            found = _MERGES[self.behavior](found)
        kept = [span for span in found if span.stop > span.start]
        first_kept = bool(kept) and kept[0].start == 0
        return Cuts([text[span.start : span.stop] for span in kept], at_start and first_kept)
